"""Who holds out what, by a list of rows and by the keys of rows."""

import numpy as np
import torch
from numpy.testing import assert_array_equal

from hetcal.training.parts import SHARED_FRACTION, KeyedParts, divide

KEYED = KeyedParts(n_groups=2, n_parts=4, seed=0)


def keys(n, seed=0):
    return np.random.default_rng(seed).integers(2**63, size=n, dtype=np.uint64)


def test_each_row_is_in_one_part_of_each_group():
    """Parts and shared rows have their share of the rows: 5 standard errors, 1 false alarm in 100,000 seeds."""
    n = 20_000
    own, shared = KEYED.holds_out(keys(n))
    assert own.shape == shared.shape == (8, n)
    assert_array_equal(own[:4].sum(0), 1)
    assert_array_equal(own[4:].sum(0), 1)
    assert not (own & shared).any()
    for side, share in ((own, 1 / 4), (shared, SHARED_FRACTION / 4)):
        assert (np.abs(side.mean(1) - share) < 5 * np.sqrt(share / n)).all()
    assert abs((~(own | shared)).mean() - KEYED.share_seen) < 0.005
    assert (own[0] == own[4]).mean() < 0.7  # the groups divide the rows in different ways


def test_shared_rows_are_those_of_the_next_member():
    own, shared = KEYED.holds_out(keys(1000))
    for group in (0, 4):
        for number in range(4):
            assert (shared[group + number] <= own[group + (number + 1) % 4]).all()


def test_a_row_has_the_same_part_wherever_it_is_met():
    rows = keys(100)
    own, shared = KEYED.holds_out(rows)
    for side, again in zip((own, shared), KEYED.holds_out(rows[::-1]), strict=True):
        assert_array_equal(side, again[:, ::-1])
    division = KEYED.divide(rows)
    for member, seen in enumerate(KEYED.seen(rows, torch.Generator())):
        together = np.concatenate([division.own[member], division.shared[member], seen.numpy()])
        assert_array_equal(np.sort(together), np.arange(100))
        assert_array_equal(np.sort(seen), division.seen[member])


def test_a_list_of_rows_is_divided_alike():
    division = divide(100, None, (2, 4), seed=0)
    assert len(division.own) == len(division.shared) == len(division.seen) == 8
    for own, shared, seen in zip(division.own, division.shared, division.seen, strict=True):
        assert len(own) == 25
        assert len(shared) == 3
        assert_array_equal(np.sort(np.concatenate([own, shared, seen.numpy()])), np.arange(100))

"""Rows are split in one place: every row on one side, groups never torn apart, the same seed the same split."""

import numpy as np
import pytest

from hetcal.splitting import hold_out, split_by_time, split_folds, split_forward, split_rows

GROUPS = np.repeat(np.arange(20), 5)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["random", "grouped"])
def test_every_row_is_on_one_side(groups):
    train, test = split_rows(100, 0.2, seed=0, groups=groups)
    assert sorted([*train, *test]) == list(range(100))
    assert len(test) == 20


def test_groups_stay_together():
    for seed in range(20):
        for train, test in [split_rows(100, 0.2, seed, GROUPS), *split_folds(100, 4, seed, GROUPS)]:
            assert not set(GROUPS[train]) & set(GROUPS[test])


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["random", "grouped"])
def test_the_seed_decides(groups):
    first, second, other = (split_rows(100, 0.2, seed, groups)[1].tolist() for seed in (0, 0, 1))
    assert first == second
    assert first != other


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["random", "grouped"])
def test_each_row_is_held_out_in_one_fold(groups):
    held_out = np.concatenate([test for _, test in split_folds(100, 5, seed=0, groups=groups)])
    assert sorted(held_out) == list(range(100))


@pytest.mark.parametrize(
    ("times", "fraction", "test"),
    [
        ([5, 4, 3, 2, 1], 0.2, [0]),
        ([1, 1, 1, 2], 0.5, [3]),  # the same time is never on both sides
        ([1, 2, 2, 2], 0.1, [1, 2, 3]),  # at least one time is tested, and one remains
        (["2024-03-01", "2023-01-01", "2024-03-02"], 0.3, [2]),
    ],
)
def test_later_rows_are_tested(times, fraction, test):
    times = np.array(times, dtype="datetime64[us]" if isinstance(times[0], str) else float)
    train, tested = split_by_time(times, fraction)
    assert tested.tolist() == test
    assert sorted([*train, *tested]) == list(range(len(times)))
    assert times[train].max() < times[tested].min()


def test_hold_out_takes_whole_groups_until_about_as_many_rows():
    order = np.random.default_rng(0).permutation(100)
    train, held_out = hold_out(order, 12, GROUPS)
    assert len(held_out) == 10
    assert not set(GROUPS[train]) & set(GROUPS[held_out])
    train, held_out = hold_out(order, 99, GROUPS)
    assert len(set(GROUPS[train])) == 1  # one group remains for training


@pytest.mark.parametrize(("sizes", "held_out"), [([80, 5, 5, 5, 5], 10), ([80, 20], 20), ([60, 25, 15], 15)])
@pytest.mark.parametrize("seed", range(5))
def test_hold_out_does_not_swallow_a_large_group(sizes, held_out, seed):
    """Where 10 of 100 rows are asked, smaller groups are held out instead, in every order."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    order = np.random.default_rng(seed).permutation(100)
    assert len(hold_out(order, 10, groups)[1]) == held_out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split_rows(4, 0.5, 0, np.zeros(4, int)), r"groups must name at least 2 groups, got groups=\[0\]"),
        (lambda: split_folds(5, 3, 0), r"folds must be at most half the number of rows \(5\), got folds=3"),
        (
            lambda: split_folds(9, 3, 0, np.repeat([0, 1], [4, 5])),
            r"folds must be at most the number of groups \(2\), got folds=3",
        ),
    ],
)
def test_wrong_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_blocks_forward_in_time():
    """About equal blocks; rows of one time are never divided, and too few times are refused."""
    times = np.random.default_rng(0).integers(0, 30, 500)
    splits = split_forward(times, folds=4)
    assert all(times[train].max() < times[test].min() for train, test in splits)
    assert [80 <= len(test) <= 120 for _, test in splits] == [True] * 4
    assert sorted(np.concatenate([splits[0][0], *(test for _, test in splits)])) == list(range(500))
    with pytest.raises(ValueError, match="time must divide the rows into 5 blocks, got time='3 different values'"):
        split_forward(np.arange(60) % 3, folds=4)

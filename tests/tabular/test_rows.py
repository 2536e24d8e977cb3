"""The rows that are trained on: equal rows merged, mixed rows cut, weights, groups and seeds checked."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hetcal.tabular.columns import Table, read_table
from hetcal.tabular.rows import (
    check_groups,
    check_weights,
    consist_of_repeats,
    cut_mixed_rows,
    draw_seed,
    merge_equal_rows,
    number_equal_rows,
)

RNG = np.random.default_rng(0)


def small_tables():
    cell = st.sampled_from([0.0, 1.0, -1.0, np.nan])
    return st.lists(st.tuples(cell, cell, st.sampled_from([0.0, 1.0]), st.integers(0, 3)), min_size=1, max_size=12)


@given(small_tables(), st.randoms(use_true_random=False))
def test_merging_equals_repeating_and_ignores_order(rows, random):
    """Weighted rows, the same rows repeated, and any order of them merge to the very same arrays."""

    def merged(rows):
        array = np.array([row[:2] for row in rows], dtype=float).reshape(-1, 2)
        y, weights = (np.array([row[i] for row in rows], dtype=float) for i in (2, 3))
        kept, total, copies = merge_equal_rows(read_table(array), y, weights)
        assert copies.sum() == (weights > 0).sum()
        return np.column_stack([array[kept], y[kept], total])

    if not any(row[3] for row in rows):
        rows = [(*rows[0][:3], 1)]
    repeated = [(*row[:3], 1) for row in rows for _ in range(row[3])]
    random.shuffle(repeated)
    expected = merged(rows)
    assert_array_equal(merged(repeated), expected)
    assert expected[:, -1].sum() == sum(row[3] for row in rows)
    keys = {tuple(np.nan_to_num(row[:-1], nan=9.0)) for row in expected}
    assert len(keys) == len(expected)


def test_merging_does_not_depend_on_units():
    """Ranks decide the order, so other units of X and y leave it as it is."""
    X, y = RNG.normal(size=(40, 3)), RNG.normal(size=40)
    first, *_ = merge_equal_rows(read_table(X), y, np.ones(40))
    second, *_ = merge_equal_rows(read_table(X * 1e-9 + 7), 1e6 + 3 * y, np.ones(40))
    assert_array_equal(second, first)


def test_equal_rows_of_different_groups_stay_apart():
    """A row that two patients share belongs to both; within a group equal rows are merged."""
    table, y, weights = read_table(np.array([[1.0], [1.0], [1.0], [2.0]])), np.zeros(4), np.ones(4)
    kept, merged, copies = merge_equal_rows(table, y, weights, np.array([0, 1, 1, 1]))
    assert_array_equal(copies, merged)
    assert sorted(zip(kept.tolist(), merged.tolist(), strict=True)) == [(0, 1.0), (1, 2.0), (3, 1.0)]
    assert len(merge_equal_rows(table, y, weights)[0]) == 2


def test_equal_rows_have_equal_numbers():
    table = read_table(pd.DataFrame({"a": [1, 2, 1, 1], "b": ["x", "y", "x", "x"]}))
    numbers = number_equal_rows(table, np.array([5.0, 5.0, 5.0, 6.0]))
    assert numbers[0] == numbers[2]
    assert len(set(numbers)) == 3
    assert len(set(number_equal_rows(table, np.full(4, 5.0), np.array([0, 0, 1, 1])))) == 3


def test_only_mixed_rows_are_cut():
    """Into pieces of a thousandth of all weight, with the same sum; whole where X has one class, however heavy."""
    table = Table({"a": np.array([1.0, 1.0, 2.0, np.nan, np.nan]), "b": np.array(list("xxxyy"), dtype=object)})
    weights = np.array([4.0, 1e-9, 90.0, 2.0, 4.0])
    rows, counts = cut_mixed_rows(table, weights)
    assert np.bincount(rows).tolist() == [40, 1, 1, 20, 40]
    assert_allclose(weights[rows] / counts, np.where(rows == 2, 90, np.where(rows == 1, 1e-9, 0.1)))


@pytest.mark.parametrize(("rows", "different", "expected"), [(50, 10, True), (49, 10, False), (10, 10, False)])
def test_a_table_of_repeated_rows(rows, different, expected):
    """Five given rows for each different one, on average; the weights do not matter."""
    table = read_table((np.arange(rows) % different)[:, None].astype(float))
    copies = merge_equal_rows(table, np.zeros(rows), np.linspace(1, 9, rows))[2]
    assert len(copies) == different
    assert consist_of_repeats(copies) is expected


def test_labels_are_merged_like_their_codes():
    """A class may be text, an integer or a boolean; only the order of the classes counts."""
    X, codes = np.repeat(RNG.normal(size=(20, 2)), 2, axis=0), RNG.integers(3, size=40).astype(float)
    expected = merge_equal_rows(read_table(X), codes, np.ones(40))
    for labels in (np.array(["a", "b", "c"]), np.array([9, 10, 100]), np.array(["x", "y", "z"], dtype=object)):
        got = merge_equal_rows(read_table(X), labels[codes.astype(int)], np.ones(40))
        for one, other in zip(got, expected, strict=True):
            assert_array_equal(one, other)


def test_weights():
    """One for each row by default; the largest is near 1, and the unit of the given weights is known."""
    table = read_table(np.zeros((3, 1)))
    assert_array_equal(check_weights(None, table)[0], np.ones(3))
    weights, unit = check_weights([0, 6, 3], table)
    assert_array_equal(weights, [0, 1.5, 0.75])
    assert unit == 4
    assert 1 <= check_weights([0, 1e300, 1e300], table)[0].max() < 2
    with pytest.raises(ValueError, match=r"greater than zero|non-zero"):  # newer scikit-learn says it itself
        check_weights([0, 0, 0], table)


def test_groups_are_numbered_in_the_order_of_their_labels():
    assert check_groups(None, 3) is None
    assert check_groups(["b", "a", "b"], 3).tolist() == [1, 0, 1]
    assert check_groups(np.array([10, 9, None], dtype=object), 3).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"groups must name at least 2 groups, got groups=\['a'\]; omit groups"):
        check_groups(["a", "a"], 2)
    with pytest.raises(ValueError, match=r"groups must have one label per row of X \(3\), got groups='2 labels'"):
        check_groups(["a", "b"], 3)


def test_seeds():
    """An integer is the seed itself; generators are drawn from, so that their next fit has another seed."""
    assert draw_seed(7) == 7
    for generator in (np.random.RandomState(0), np.random.default_rng(0)):
        assert draw_seed(generator) != draw_seed(generator)
    assert draw_seed(None) != draw_seed(None)  # equal once in four billion runs
    with pytest.raises(ValueError, match="random_state must be at least 0"):
        draw_seed(-1)

"""From tables to matrices: kinds of columns, missing values, scaling without overflow, merging of equal rows."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from hetcal.prediction import Prediction
from hetcal.preprocessing import MISSING, Standardizer, TableEncoder, merge_equal_rows, read_table

RNG = np.random.default_rng(0)
ONES = np.ones(6)
FRAME = {
    "number": [1.0, 2.0, None, 4.0, 5.0, 6.0],
    "flag": [True, False, True, None, True, False],
    "text": ["red", "blue", None, "red", "red", "blue"],
}


def encode(table, weights=None):
    weights = np.ones(len(table)) if weights is None else weights
    return TableEncoder().fit(table, weights).transform(table)


def test_standardizer_is_scikit_learns_with_weights():
    """The weighted moments are those of StandardScaler, missing values included."""
    values = RNG.normal(3, 5, size=(50, 4))
    values[3, 1] = np.nan
    weights = RNG.uniform(size=50)
    expected = StandardScaler().fit(values, sample_weight=weights).transform(values)
    assert_allclose(Standardizer().fit(values, weights).transform(values), expected)


@given(st.sampled_from([1e-200, 1e-12, 1.0, 1e12, 1e200, 1e300]))
def test_standardizer_does_not_overflow(scale):
    """Units do not matter between 1e-200 and 1e300, and `inverse` undoes `transform`."""
    values = np.array([1.0, 2.0, 5.0, -3.0]) * scale
    scaler = Standardizer().fit(values, np.ones(4))
    standardised = scaler.transform(values)
    assert_allclose(standardised, Standardizer().fit(values / scale, np.ones(4)).transform(values / scale), rtol=1e-9)
    back = scaler.inverse(Prediction(standardised, np.full(4, 2.0)))
    assert_allclose(back.mean, values, rtol=1e-12)
    assert_allclose(back.std, np.full(4, 2.0 * scaler.scale))


def test_constant_columns_become_zero():
    """A constant column, and one constant but for rounding, carry nothing and divide by nothing."""
    values = np.column_stack([np.full(6, 3.0), 1e9 + 1e-7 * np.arange(6), np.arange(6)])
    scaler = Standardizer().fit(values, ONES)
    assert_array_equal(scaler.is_constant, [True, True, False])
    assert np.abs(scaler.transform(values)[:, :2]).max() < 1e-6


@pytest.mark.parametrize("make_frame", [pd.DataFrame, pl.DataFrame])
def test_frames_give_the_same_matrix(make_frame):
    """pandas and polars: numbers and booleans as numbers, text one-hot, a column that says what was missing."""
    table = read_table(make_frame(FRAME))
    assert [table.kind(name) for name in table.columns] == ["numbers", "numbers", "text"]
    matrix = encode(table)
    # number, flag, two columns for missing, then blue, red and missing
    assert matrix.shape == (6, 2 + 2 + 3)
    assert matrix.dtype == np.float32
    assert matrix[2, 0] == 0  # missing number at the mean
    assert_array_equal(matrix[:, 2], [0, 0, 1, 0, 0, 0])
    assert_array_equal(matrix[:, 3], [0, 0, 0, 1, 0, 0])
    assert_array_equal(matrix[:, 4:].sum(axis=1), np.ones(6))


def test_categories_of_every_kind():
    """Categories of text and of numbers, pandas and polars, are labels."""
    for frame in (
        pd.DataFrame({"c": pd.Categorical([3, 1, 3])}),
        pd.DataFrame({"c": pd.Categorical(["3", "1", "3"])}),
        pl.DataFrame({"c": pl.Series(["3", "1", "3"], dtype=pl.Categorical)}),
        pl.DataFrame({"c": pl.Series(["3", "1", "3"], dtype=pl.Enum(["1", "3"]))}),
    ):
        assert read_table(frame).columns["c"].tolist() == ["3", "1", "3"]


def test_missing_values_of_every_kind():
    """None, NaN, pandas' NA and NaT in object columns are missing."""
    objects = np.array([None, float("nan"), pd.NA, pd.NaT, "a"], dtype=object)
    assert read_table(objects[:, None]).columns["x0"].tolist() == [MISSING] * 4 + ["a"]
    numbers = np.array([None, float("nan"), pd.NA, 2], dtype=object)
    assert_array_equal(read_table(numbers[:, None]).columns["x0"], [np.nan, np.nan, np.nan, 2.0])


def test_rare_and_unseen_labels():
    """At most 50 columns for one text column; labels not seen in fit do not raise."""
    table = read_table(pd.DataFrame({"c": [f"label {i % 300}" for i in range(900)]}))
    encoder = TableEncoder().fit(table, np.ones(900))
    assert encoder.transform(table).shape == (900, 50)
    unseen = encoder.transform(read_table(pd.DataFrame({"c": ["never seen"]})))
    assert unseen.sum() == 1  # falls to the rare ones
    few = TableEncoder().fit(read_table(pd.DataFrame({"c": ["a", "b"]})), np.ones(2))
    assert few.transform(read_table(pd.DataFrame({"c": ["never seen"]}))).sum() == 0


def test_far_values_are_clipped_for_float32():
    """A value that would overflow float32 stays finite."""
    encoder = TableEncoder().fit(read_table(np.arange(6.0)[:, None]), ONES)
    assert np.isfinite(encoder.transform(read_table(np.array([[1e300]])))).all()


def small_tables():
    cell = st.sampled_from([0.0, 1.0, -1.0, np.nan])
    return st.lists(st.tuples(cell, cell, st.sampled_from([0.0, 1.0]), st.integers(0, 3)), min_size=1, max_size=12)


@given(small_tables(), st.randoms(use_true_random=False))
def test_merging_equals_repeating_and_ignores_order(rows, random):
    """Weighted rows, the same rows repeated, and any order of them merge to the very same arrays."""

    def merged(rows):
        array = np.array([row[:2] for row in rows], dtype=float).reshape(-1, 2)
        y, weights = (np.array([row[i] for row in rows], dtype=float) for i in (2, 3))
        kept, total = merge_equal_rows(read_table(array), y, weights)
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
    first, _ = merge_equal_rows(read_table(X), y, np.ones(40))
    second, _ = merge_equal_rows(read_table(X * 1e-9 + 7), 1e6 + 3 * y, np.ones(40))
    assert_array_equal(second, first)


def test_equal_rows_of_different_groups_stay_apart():
    """A row that two patients share belongs to both; within a group equal rows are merged."""
    table, y, weights = read_table(np.array([[1.0], [1.0], [1.0], [2.0]])), np.zeros(4), np.ones(4)
    kept, merged = merge_equal_rows(table, y, weights, np.array([0, 1, 1, 1]))
    assert sorted(zip(kept.tolist(), merged.tolist(), strict=True)) == [(0, 1.0), (1, 2.0), (3, 1.0)]
    assert len(merge_equal_rows(table, y, weights)[0]) == 2

"""From tables to matrices: labels, dates, missing values and values that are far away."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import OneHotEncoder

from hetcal.tabular.columns import read_table
from hetcal.tabular.encoding import TableEncoder, Vocabulary, date_features, fit_column_scaler, weighted_quantiles

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


@pytest.mark.parametrize("make_frame", [pd.DataFrame, pl.DataFrame])
def test_frames_give_the_same_matrix(make_frame):
    """pandas and polars: numbers and booleans as numbers, text one-hot, a column that says what was missing."""
    table = read_table(make_frame(FRAME))
    assert [table.kind(name) for name in table.columns] == ["numbers", "numbers", "text"]
    matrix = encode(table)
    # number, flag, two columns for missing, then blue, red and missing
    assert matrix.shape == (6, 2 + 2 + 3)
    assert matrix.dtype == np.float32
    assert matrix[2, 0] == 0  # missing number at the median
    assert_array_equal(matrix[:, 2], [0, 0, 1, 0, 0, 0])
    assert_array_equal(matrix[:, 3], [0, 0, 0, 1, 0, 0])
    assert_array_equal(matrix[:, 4:].sum(axis=1), np.ones(6))


def test_rare_and_unseen_labels():
    """At most 50 columns for one text column; labels not seen in fit do not raise."""
    table = read_table(pd.DataFrame({"c": [f"label {i % 300}" for i in range(900)]}))
    encoder = TableEncoder().fit(table, np.ones(900))
    assert encoder.transform(table).shape == (900, 50)
    unseen = encoder.transform(read_table(pd.DataFrame({"c": ["never seen"]})))
    assert unseen.sum() == 1  # falls to the rare ones
    few = TableEncoder().fit(read_table(pd.DataFrame({"c": ["a", "b"]})), np.ones(2))
    assert few.transform(read_table(pd.DataFrame({"c": ["never seen"]}))).sum() == 0


@pytest.mark.parametrize("unit", [1e-300, 1.0, 1e300])
def test_far_values_stay_finite_in_float32_and_keep_their_order(unit):
    """Even 1e308 after a column of tiny numbers; a long tail is not erased."""
    encoder = TableEncoder().fit(read_table(unit * np.arange(6.0)[:, None]), ONES)
    far = np.array([-1.7e308, 2.5 * unit, 10 * unit, 100 * unit, 1.7e308])
    encoded = encoder.transform(read_table(far[:, None]))[:, 0]
    assert np.isfinite(encoded).all()
    assert (np.diff(encoded) > 0).all()
    assert abs(encoded[1]) < 1e-9  # the median
    assert encoded[3] - encoded[2] > 2


def test_a_gross_error_does_not_erase_a_column():
    """Median and quartiles ignore one mistyped value of 101; with mean and standard deviation, the rest would be 0."""
    values = np.append(np.linspace(-1, 1, 100), 1e9)
    encoded = encode(read_table(values[:, None]))[:, 0]
    assert_allclose(np.ptp(encoded[:100]), 2.7 * 0.92, rtol=0.05)  # from -1.35 to 1.35 interquartile ranges, squashed


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        (np.repeat([0.0, 1.0], [80, 20]), 1 / 3.29),  # the quartiles are equal: from the 5 % to the 95 % quantile
        (np.repeat([0.0, 1.0], [98, 2]), 0.14),  # these, too: the standard deviation
        (np.repeat([0.0, 1.0], [50, 50]), 1 / 1.349),
    ],
    ids=["a fifth", "few", "half"],
)
def test_columns_in_which_most_values_are_equal(values, spread):
    """The scale is that of the values that differ, never 0."""
    scaler = fit_column_scaler(values[:, None], np.ones(100))
    assert_allclose(scaler.scale, [spread], rtol=1e-6)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), min_size=2, max_size=12), st.floats(0.01, 0.99))
def test_weighted_quantiles_are_those_of_repeated_values(rows, level):
    """To the bit, and NumPy's own definition of them."""
    values, weights = (np.array(column) for column in zip(*rows, strict=True))
    repeated = values.repeat(weights) / 7
    weighted = weighted_quantiles(values / 7, weights.astype(float), (level, 0.5))
    assert_array_equal(weighted, weighted_quantiles(repeated, np.ones(len(repeated)), (level, 0.5)))
    assert_allclose(weighted[1], np.quantile(repeated, 0.5, method="averaged_inverted_cdf"))


def test_constant_columns_stay_constant():
    """What was the same in every row of fit says nothing about other values: no value, label or date moves a row."""
    seen = {"a": [2.0] * 4, "t": ["x"] * 4, "d": pd.to_datetime(["2020-01-01"] * 4), "n": [np.nan] * 4}
    encoder = TableEncoder().fit(read_table(pd.DataFrame(seen)), np.ones(4))
    assert not encoder.is_informative
    new = {"a": [2.0, 1e300, np.nan], "t": ["x", "y", None], "d": pd.to_datetime(["2020-01-01", "1999-01-01", None])}
    encoded = encoder.transform(read_table(pd.DataFrame({**new, "n": [1.0, -1e9, np.nan]})))
    assert_array_equal(encoded[1], encoded[0])
    assert_array_equal(encoded[2, : len(encoder.scaler.spread)], encoded[0, : len(encoder.scaler.spread)])


def test_labels_of_merged_rows_are_not_rare():
    """A label is rare if it occurs once among the rows as given, not after equal rows are merged."""
    towns = np.array([f"town {i:02}" for i in range(30)], dtype=object)
    assert Vocabulary().fit(towns, 50, np.full(30, 33.0)).labels == towns.tolist()
    assert Vocabulary().fit(towns, 50, np.ones(30)).labels == []


@given(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=40),
    st.lists(st.sampled_from("abcdefghXY"), min_size=1, max_size=10),
    st.integers(2, 10),
)
def test_vocabulary_is_scikit_learns_one_hot_encoder(seen, new, most):
    """The same columns in the same order, ties among rare labels and new labels included.

    Where a column has as many labels as may have a column, those that occur once are rare. A single column of ours is
    1 for new labels, too.
    """
    column, later = (np.array(values, dtype=object) for values in (seen, new))
    theirs = OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        max_categories=most,
        min_frequency=2 if len(set(seen)) >= most else None,
        sparse_output=False,
    )
    theirs.fit(column[:, None])
    ours = Vocabulary().fit(column, most)
    for values in (column, later):
        expected = theirs.transform(values[:, None])
        assert_array_equal(ours.transform(values), np.ones_like(expected) if expected.shape[1] == 1 else expected)


@pytest.mark.parametrize("n", [21, 40, 240])
def test_names_are_not_kept(n):
    """A column that is different in every row has no labels, only rare ones, and tells nothing."""
    table = read_table(pd.DataFrame({"name": [f"Jane Doe {i}" for i in range(n)]}))
    encoder = TableEncoder().fit(table, np.ones(n))
    words = encoder.vocabularies["name"]
    assert (words.labels, words.has_rare) == ([], True)
    assert_array_equal(encoder.transform(table), np.ones((n, 1)))
    assert not encoder.is_informative


def test_labels_that_occur_once():
    """They keep their column among few labels, such as towns; among more than twenty they are rare."""
    few = [f"town {i:02}" for i in range(20)]
    words = Vocabulary().fit(np.array(few, dtype=object), 50)
    assert (words.labels, words.has_rare) == (few, False)
    often = [f"town {i:02}" for i in range(30)]
    words = Vocabulary().fit(np.array([*often, *often, "one", "two"], dtype=object), 50)
    assert (words.labels, words.has_rare) == (often, True)
    assert_array_equal(words.transform(np.array(["one", "new", "town 00"], dtype=object)).argmax(axis=1), [30, 30, 0])
    words = Vocabulary().fit(np.array(often * 2, dtype=object), 50)
    assert (words.labels, words.has_rare) == (often, False)


def test_unseen_labels_are_counted():
    """By column and row; where rare labels were merged nobody remembers which they were."""
    table = read_table(pd.DataFrame({"few": ["a", "b", "a"], "many": ["p", "q", "r"]}))
    encoder = TableEncoder(max_categories=3).fit(table, np.ones(3))
    new = read_table(pd.DataFrame({"few": ["a", "z", None], "many": ["s", "t", "p"]}))
    assert encoder.count_unseen(new) == {"few": 2}
    assert encoder.count_unseen(table) == {}


@pytest.mark.parametrize("make_frame", [pd.DataFrame, pl.DataFrame])
def test_dates_become_trend_and_cycles(make_frame):
    """Days since 1970, and where in year, week and day, in any frame; a missing date has a column that says so."""
    when = [datetime.datetime(2024, 2, 29, 18), None, datetime.datetime(1969, 12, 31)]
    table = read_table(make_frame({"when": when}))
    features = date_features(table.columns["when"])
    days = [pd.Timestamp(w).timestamp() / 86400 if w else np.nan for w in when]
    assert_array_equal(features[:, 0], days)
    assert_array_equal(features[1, 1:], np.zeros(6))
    year, week, day = (np.arctan2(features[:, 1 + k], features[:, 2 + k])[[0, 2]] / (2 * np.pi) % 1 for k in (0, 2, 4))
    assert_allclose(year * 365.25, [59.75, 364])  # 31 + 28 days and 18 hours; the last day of 1969
    assert_allclose(week * 7, [np.array(days[0]) % 7, 6], atol=1e-9)
    assert_allclose(day, [0.75, 0], atol=1e-12)
    encoder = TableEncoder().fit(table, np.ones(3))
    assert encoder.kinds == {"when": "dates"}
    assert encoder.ranges == {"when": (days[2], days[0])}
    assert encoder.transform(table).shape == (3, 8)
    assert_array_equal(encoder.transform(table)[:, 7], [0, 1, 0])


def test_days_without_time_have_no_noise_in_the_circle_of_the_day():
    """All midnights: constant, so it stays zero instead of rounding errors blown up by standardization."""
    table = read_table(pd.DataFrame({"day": pd.date_range("2019-01-01", periods=900)}))
    encoded = TableEncoder().fit(table, np.ones(900)).transform(table)
    assert_array_equal(encoded[:, 5:], 0)


def test_a_date_column_must_stay_one():
    """Text where dates were is named; a column of missing values only is still dates."""
    table = read_table(pd.DataFrame({"when": pd.date_range("2024-01-01", periods=3)}))
    encoder = TableEncoder().fit(table, np.ones(3))
    with pytest.raises(ValueError, match=r"column 'when' must hold dates as in fit, got column 'when'='text'"):
        encoder.transform(read_table(pd.DataFrame({"when": ["soon", "late", "now"]})))
    empty = encoder.transform(read_table(pd.DataFrame({"when": [np.nan, np.nan]})))
    assert_array_equal(empty, encoder.transform(read_table(pd.DataFrame({"when": pd.to_datetime([None, None])}))))


def test_ranges_are_those_of_the_present_values():
    table = read_table(pd.DataFrame({"a": [3.0, np.nan, -1.0], "b": [np.nan] * 3, "c": ["x", "y", "z"]}))
    assert TableEncoder().fit(table, np.ones(3)).ranges == {"a": (-1.0, 3.0), "b": None}


def test_values_far_outside_the_range_are_counted():
    """Beyond the range by more than half its width, dates by anything; missing values and labels do not count."""
    frame = pd.DataFrame({"a": [0.0, 10.0], "b": [np.nan] * 2, "t": ["x", "y"], "d": pd.to_datetime(["2020", "2021"])})
    encoder = TableEncoder().fit(read_table(frame), np.ones(2))
    new = pd.DataFrame({"a": [-6.0, 14.9, np.nan], "b": [9.0, 0.0, 1.0], "t": ["z"] * 3})
    new["d"] = pd.to_datetime(["2020-07-01", "2021-12-31", "1999-01-01"])
    assert encoder.count_outside(read_table(new)) == {"a": 1, "d": 2}

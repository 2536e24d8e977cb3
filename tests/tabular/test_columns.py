"""The kind of a column: categories, missing values and dates of every type of frame."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
from numpy.testing import assert_array_equal

from hetcal.tabular.columns import MISSING_LABEL, read_table


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
    assert read_table(objects[:, None]).columns["x0"].tolist() == [MISSING_LABEL] * 4 + ["a"]
    numbers = np.array([None, float("nan"), pd.NA, 2], dtype=object)
    assert_array_equal(read_table(numbers[:, None]).columns["x0"], [np.nan, np.nan, np.nan, 2.0])


def test_a_gap_in_a_category_is_missing():
    """pandas gives NaN there, which is no label."""
    frame = pd.DataFrame({"c": pd.Categorical(["1", None, "2"])})
    assert read_table(frame).columns["c"].tolist() == ["1", MISSING_LABEL, "2"]


def test_dates_with_a_time_zone_are_moments():
    """The same moment in another zone is the same input; a date without time is its midnight."""
    utc = pd.DataFrame({"when": pd.to_datetime(["2024-03-01T12:00Z", "2024-03-02T00:00Z"])})
    berlin = utc.assign(when=utc["when"].dt.tz_convert("Europe/Berlin"))
    naive = pl.DataFrame({"when": [datetime.datetime(2024, 3, 1, 12), datetime.datetime(2024, 3, 2)]})
    columns = [read_table(frame).columns["when"] for frame in (utc, berlin, naive)]
    assert_array_equal(columns[0], columns[1])
    assert_array_equal(columns[0], columns[2])
    days = read_table(pl.DataFrame({"when": [datetime.date(2024, 3, 2)]})).columns["when"]
    assert days[0] == columns[0][1]

"""Training and test rows of `hetcal fit`: nothing that a test row shows was seen in training."""

import numpy as np
import pandas as pd
import pytest

from hetcal.cli.columns import Observations
from hetcal.cli.options import FitOptions
from hetcal.cli.splits import check_split, hold_out_rows, read_split, rows_kept_together
from hetcal.exceptions import SharedGroupsWarning, SharedRowsWarning
from hetcal.tabular.columns import read_table


def write(folder, frame, name="t.csv"):
    frame.to_csv(folder / name, index=False)
    return str(folder / name)


def options(table="t.csv", **more):
    return FitOptions(table=table, target="y", out="m.hetcal", **more)


def test_groups_are_never_split():
    """Every patient is on one side only, for several seeds; without groups they are not. Rows stay in order."""
    groups = np.array([f"p{i % 12}" for i in range(60)], dtype=object)
    rows = Observations(read_table(pd.DataFrame({"a": range(60)})), np.arange(60.0), groups)
    together, how = rows_kept_together(rows, group="patient")
    assert how == "at random, every patient on one side"
    for seed in range(5):
        train, test = hold_out_rows(rows, 0.25, seed, together)
        assert set(train.groups).isdisjoint(test.groups)
        assert len(train) + len(test) == 60
        assert len(set(test.groups)) == 3
        assert (np.diff(train.y) > 0).all()
        assert (np.diff(test.y) > 0).all()
    train, test = hold_out_rows(Observations(rows.X, rows.y), 0.25, 0, None)
    assert not set(groups[train.y.astype(int)]).isdisjoint(groups[test.y.astype(int)])
    assert sorted([*train.y, *test.y]) == list(range(60))
    assert (np.diff(test.y) > 0).all()


def test_too_few_rows_to_split(tmp_path):
    rows = Observations(read_table(pd.DataFrame({"a": range(20)})), np.arange(20.0))
    with pytest.raises(ValueError, match=r"test_size must leave at least one of 20 rows for training, got"):
        hold_out_rows(rows, 0.99, 0, None)
    few = write(tmp_path, pd.DataFrame({"a": range(4), "y": range(4)}))
    with pytest.raises(ValueError, match=r"the table must have at least 5 rows to be split, got .*=4; give more rows"):
        read_split(options(few))


def test_equal_rows_stay_on_one_side(tmp_path):
    """By default; with --split random they do not, and without equal rows both are the same split."""
    different = pd.DataFrame({"a": range(80), "y": range(80)})
    table = write(tmp_path, pd.concat([different, different[:40]]))
    split = read_split(options(table))
    assert split.how == "at random, equal rows on one side"
    assert len(split.train) + len(split.test) == 120
    assert not set(split.train.y) & set(split.test.y)
    torn = read_split(options(table, split="random"))
    assert torn.how == "at random"
    assert set(torn.train.y) & set(torn.test.y)
    table = write(tmp_path, different)
    first, second = read_split(options(table)), read_split(options(table, split="random"))
    assert first.test.y.tolist() == second.test.y.tolist()
    assert first.how == "at random; no two rows are equal"


def test_a_table_of_repeated_rows_is_split_at_random(tmp_path):
    """To hold out all copies of one of few rows would hold out a value of y that the model then never sees."""
    table = write(tmp_path, pd.DataFrame({"town": ["Aix", "Bonn"] * 50, "y": [1, 2, 3, 4] * 25}))
    split = read_split(options(table))
    assert "too few different ones" in split.how
    assert set(split.train.y) == {1, 2, 3, 4}


def test_equal_rows_with_another_target_are_not_equal(tmp_path):
    table = write(tmp_path, pd.DataFrame({"a": np.arange(60) // 2, "y": range(60)}))
    assert read_split(options(table)).how == "at random; no two rows are equal"


def test_forward_in_time(tmp_path):
    """The earlier rows train, and the later ones test, whatever the order of the file; a group may be in both."""
    day = np.random.default_rng(0).permutation(50)
    frame = pd.DataFrame({"a": range(50), "year": 1900 + day, "y": day, "p": "q"})
    split = read_split(options(write(tmp_path, frame), time="year"))
    assert sorted(split.train.y) == list(range(40))
    assert sorted(split.test.y) == list(range(40, 50))
    assert split.how == "the latest rows by year"
    assert list(split.train.X.columns) == ["a", "year", "p"]
    hidden = read_split(options(write(tmp_path, frame), time="year", drop=["year", "p"]))
    assert list(hidden.train.X.columns) == ["a"]
    with pytest.warns(SharedGroupsWarning, match="1 of 1 groups of the test rows"):
        read_split(options(write(tmp_path, frame), time="year", group="p"))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("yaer", r"time must be one of .*did you mean 'year'"),
        ("town", r"time must be a column of dates or numbers, got time='town'; it holds text"),
        ("when", r"time must be a column with a value in every row, got time='when'; .* in row 2"),
        ("same", r"time must have at least 2 different values"),
    ],
)
def test_a_column_that_cannot_order_rows(tmp_path, column, message):
    frame = pd.DataFrame({"year": range(9), "town": "Aix", "when": [None, *range(8)], "same": 1, "y": range(9)})
    with pytest.raises(ValueError, match=message):
        read_split(options(write(tmp_path, frame), time=column))


def test_test_rows_that_were_training_rows_are_reported(tmp_path):
    frame = pd.DataFrame({"a": range(20), "y": range(20)})
    table, test = write(tmp_path, frame), write(tmp_path, frame[15:].assign(y=[15, 16, 17, 0, 0]), "test.csv")
    with pytest.warns(SharedRowsWarning, match="3 of 5 test rows are exact copies of training rows"):
        split = read_split(options(table, test=test))
    assert (len(split.train), len(split.test), split.how) == (20, 5, "all rows of test.csv")


def test_rows_without_a_target_are_omitted(tmp_path):
    frame = pd.DataFrame({"a": range(20), "y": [*range(18), None, None]})
    split = read_split(options(write(tmp_path, frame), drop_missing_target=True))
    assert (len(split.rows), split.omitted) == (18, 2)
    with pytest.raises(ValueError, match="target must have a value in some row"):
        read_split(options(write(tmp_path, frame[18:]), drop_missing_target=True))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"split": "rnadom"}, r"split must be one of \['distinct', 'random'\].*did you mean 'random'"),
        ({"test": "b.csv", "time": "day"}, r"--test must not be given with --time or --split"),
        ({"test": "b.csv", "split": "random"}, r"--test must not be given with --time or --split"),
        ({"time": "day", "split": "random"}, r"--time must not be given with --split"),
        ({"time": "y"}, r"--time must differ from the columns of --target and --group"),
    ],
)
def test_contradictions(given, message):
    with pytest.raises(ValueError, match=message):
        check_split(options(**given))

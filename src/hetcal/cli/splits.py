"""The rows of `hetcal fit` and `hetcal compare`, and the training and test rows of `fit`: at random, by groups, forward
in time, or from two tables.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import check_choice, must
from hetcal.cli.columns import Observations, check_features, drop_missing_target, name_rows, split_columns
from hetcal.cli.options import SPLITS, CompareOptions, FitOptions
from hetcal.cli.reproduce import shown_name
from hetcal.cli.tables import NumberedTable, read_file
from hetcal.exceptions import SharedGroupsWarning, SharedRowsWarning
from hetcal.splitting import split_by_time, split_rows
from hetcal.studies.cells import CALIBRATION_FRACTION
from hetcal.tabular.columns import Kind, Table
from hetcal.tabular.rows import number_equal_rows, numbers_repeat

MINIMUM_ROWS_TO_SPLIT = 5
Times = NDArray[np.float64] | NDArray[np.datetime64]


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of a table to train on, and what is known about them."""

    observations: Observations
    times: Times | None  # what orders the rows
    kinds: dict[str, Kind]
    omitted: int  # rows without a target


@dataclass(frozen=True, eq=False)
class SplitTable:
    """The rows of a table, and which of them train and test."""

    rows: Observations  # all of them; those of the training table if there is another one to test on
    train: Observations
    test: Observations | None
    how: str  # the test rows were chosen, in words
    omitted: int = 0  # rows without a target


def check_split(options: FitOptions) -> None:
    """Refuse options that contradict each other, before the table is read."""
    check_choice("split", options.split, SPLITS)
    if options.test is not None and (options.time is not None or options.split != SPLITS[0]):
        raise must("--test", "not be given with --time or --split", options.test, "the test table is the split")
    if options.time is not None and options.split != SPLITS[0]:
        raise must("--time", "not be given with --split", options.time, "the order in time is the split; omit one")
    check_time(options)


def check_time(options: FitOptions | CompareOptions) -> None:
    if options.time is not None and options.time in (options.target, options.group):
        raise must("--time", "differ from the columns of --target and --group", options.time, "name another column")


def read_rows(options: FitOptions | CompareOptions) -> TableRows:
    """Read the rows of a table that have a target, and what orders them in time."""
    drop = [name for name in options.drop if name != options.time]  # a dropped column may still order the rows
    data = read_file(options.table, options.csv_format, texts=options.text, drop=drop)
    kept = drop_missing_target(data, options.target) if options.drop_missing_target else data
    hidden = [options.time] if options.time in options.drop and options.time is not None else []
    rows = check_features(split_columns(kept, options.target, options.group, others=hidden))
    times = None if options.time is None else read_times(kept, options.time)
    return TableRows(rows, times, data.table.kinds, len(data.rows) - len(kept.rows))


def read_split(options: FitOptions) -> SplitTable:
    """Read training and test rows, from one table or from two."""
    table = read_rows(options)
    rows, omitted = table.observations, table.omitted
    if options.test is not None:
        other = read_file(options.test, options.csv_format, kinds=table.kinds)
        other = drop_missing_target(other, options.target) if options.drop_missing_target else other
        test = split_columns(other, options.target, options.group)
        warn_of_shared_groups(rows, test)
        warn_of_shared_rows(rows, test)
        return SplitTable(rows, rows, test, f"all rows of {shown_name(options.test)}", omitted)
    if options.test_size == 0:
        return SplitTable(rows, rows, None, "no test rows", omitted)
    if len(rows) < MINIMUM_ROWS_TO_SPLIT:
        rule = f"have at least {MINIMUM_ROWS_TO_SPLIT} rows to be split"
        raise must("the table", rule, len(rows), "give more rows, or --test-size 0")
    if table.times is not None:
        train, test = hold_out_later_rows(rows, table.times, options.test_size)
        warn_of_shared_groups(train, test)
        return SplitTable(rows, train, test, f"the latest rows by {options.time}", omitted)
    groups, how = rows_kept_together(rows, options.split, options.group)
    train, test = hold_out_rows(rows, options.test_size, options.seed, groups)
    return SplitTable(rows, train, test, how, omitted)


def rows_kept_together(
    rows: Observations, split: str = SPLITS[0], group: str | None = "group"
) -> tuple[NDArray[np.int64] | None, str]:
    """Return the numbers of the groups of rows that no split divides, if there are any, and a sentence for them."""
    if rows.groups is not None:
        labels, groups = np.unique(rows.groups, return_inverse=True)
        if len(labels) < 2:
            raise must("group", "have at least 2 different labels", str(labels[0]), "omit --group")
        return groups.astype(np.int64), f"at random, every {group} on one side"
    if split == "random":
        return None, "at random"
    numbers = number_equal_rows(rows.X, rows.y)
    if len(np.unique(numbers)) == len(rows):
        return None, "at random; no two rows are equal"
    if numbers_repeat(numbers):
        return None, "at random, although rows are equal to each other: there are too few different ones"
    return numbers, "at random, equal rows on one side"


def hold_out_rows(
    rows: Observations, test_size: float, seed: int, groups: NDArray[np.int64] | None
) -> tuple[Observations, Observations]:
    """Split into training and test rows at random, both in the order of the file; groups are not split."""
    train, test = split_rows(len(rows), test_size, seed, groups)
    if not len(train):
        raise must(
            "test_size", f"leave at least one of {len(rows)} rows for training", test_size, "choose a smaller one"
        )
    return rows.take(np.sort(train)), rows.take(np.sort(test))


def hold_out_calibration(options: FitOptions, train: Observations) -> tuple[Observations, Observations | None]:
    """Take the rows that recalibrate the model away from its training rows, at random, groups as a whole."""
    if options.recalibrate is None:
        return train, None
    groups, _ = rows_kept_together(train, options.split, options.group)
    return hold_out_rows(train, CALIBRATION_FRACTION, options.seed, groups)


def read_times(data: NumberedTable, column: str) -> Times:
    """Return the column that orders the rows: dates or numbers, without missing values."""
    check_choice("time", column, data.table.columns)
    if data.table.kind(column) == "text":
        raise must("time", "be a column of dates or numbers", column, "it holds text; write dates as YYYY-MM-DD")
    if data.table.missing(column).any():
        advice = f"its value is missing in {name_rows(data, data.table.missing(column))}; fill in or remove these rows"
        raise must("time", "be a column with a value in every row", column, advice)
    return data.table.columns[column]


def hold_out_later_rows(rows: Observations, times: Times, test_size: float) -> tuple[Observations, Observations]:
    """Train on the earlier rows, test on the later ones; rows of the same time stay on one side."""
    train, test = split_by_time(times, test_size)
    return rows.take(train), rows.take(test)


def warn_of_shared_groups(train: Observations, test: Observations) -> None:
    """Warn of groups with training and test rows: the model then looks better than it is for new groups."""
    if train.groups is not None and test.groups is not None:
        shared = len(np.intersect1d(train.groups, test.groups))
        if shared:
            message = f"{shared} of {test.n_groups} groups of the test rows are also in the training rows"
            warnings.warn(message, SharedGroupsWarning, stacklevel=3)


def warn_of_shared_rows(train: Observations, test: Observations) -> None:
    """Warn of test rows that are copies of training rows: the model has seen their answers."""
    pairs = {name: np.concatenate([train.X.columns[name], values]) for name, values in test.X.columns.items()}
    numbers = number_equal_rows(Table(pairs), np.concatenate([train.y, test.y]))
    shared = int(np.isin(numbers[len(train) :], numbers[: len(train)]).sum())
    if shared:
        message = f"{shared} of {len(test)} test rows are exact copies of training rows, so that the test is too easy"
        warnings.warn(message, SharedRowsWarning, stacklevel=3)

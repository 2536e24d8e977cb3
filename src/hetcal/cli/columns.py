"""Which column of a table is the target, which one holds groups, and which ones are features."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats, check_choice, must
from hetcal.cli.tables import NumberedTable
from hetcal.tabular.columns import Table

MOST_ROWS_NAMED = 5


@dataclass(frozen=True)
class Observations:
    """Features, target and groups of the same rows."""

    X: Table
    y: Floats
    groups: Any = None  # (n,) labels

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_groups(self) -> int:
        return 0 if self.groups is None else len(np.unique(self.groups))

    def take(self, rows: NDArray[np.intp]) -> "Observations":
        return Observations(self.X.take(rows), self.y[rows], None if self.groups is None else self.groups[rows])


def split_columns(
    data: NumberedTable, target: str, group: str | None = None, others: Collection[str] = ()
) -> Observations:
    """Separate features, target and groups; a name that is not a column is refused with the nearest one."""
    columns = data.table.columns
    check_choice("target", target, columns)
    if group is not None:
        check_choice("group", group, columns)
    features = {name: values for name, values in columns.items() if name not in {target, group, *others}}
    groups = None if group is None else check_group_labels(data, group)
    return Observations(Table(features), check_numbers(data, "target", target), groups)


def drop_missing_target(data: NumberedTable, target: str) -> NumberedTable:
    """Omit the rows without a target."""
    check_choice("target", target, data.table.columns)
    present = np.flatnonzero(~data.table.missing(target))
    if not len(present):
        raise must("target", "have a value in some row", target, "the column is empty; choose another one")
    return NumberedTable(data.table.take(present), data.rows[present])


def check_dropped(target: str, group: str | None, drop: Sequence[str]) -> None:
    """Check the columns of --drop before the file is read without them."""
    if target in drop or target == group:
        raise must("target", "differ from the columns of --drop and --group", target, "name it once")


def check_features(observations: Observations) -> Observations:
    if not observations.X.columns:
        raise must("the table", "have at least one column besides the target", "none", "a model needs features")
    return observations


def check_numbers(data: NumberedTable, role: str, column: str, positive: bool = False) -> Floats:
    """Return a column that must hold numbers in every row; the error names the rows where it does not."""
    values, missing, kind = data.table.columns[column], data.table.missing(column), data.table.kind(column)
    if kind != "numbers":
        example = "" if missing.all() else f", such as {str(values[~missing][0])!r} ({name_rows(data, ~missing)})"
        advice = f"it is a column of {kind}{example}; choose another column or convert it"
        if role == "target" and kind == "text":
            advice += ", or use hetcal.HCClassifier from Python if it holds classes"
        raise must(role, "be a column of numbers", column, advice)
    if missing.any():
        advice = f"its value is missing in {name_rows(data, missing)}; remove these rows"
        if role == "target":
            advice += ", or omit them with --drop-missing-target"
        raise must(role, "be a column with a value in every row", column, advice)
    if positive and not (values > 0).all():
        advice = f"its values must be greater than 0, and are not in {name_rows(data, values <= 0)}"
        raise must(role, "be a column of positive numbers", column, advice)
    return values


def check_group_labels(data: NumberedTable, column: str) -> NDArray[Any]:
    """Return the column of groups, which must have a value in every row."""
    missing = data.table.missing(column)
    if missing.any():
        advice = f"its label is missing in {name_rows(data, missing)}; label or remove these rows"
        raise must("group", "be a column with a label in every row", column, advice)
    return data.table.columns[column]


def name_rows(data: NumberedTable, which: NDArray[np.bool_]) -> str:
    """Name rows by their numbers in the file: "rows 3, 8 and 12 more"."""
    numbers = [str(number) for number in data.rows[which]]
    shown = ", ".join(numbers[:MOST_ROWS_NAMED])
    more = f" and {len(numbers) - MOST_ROWS_NAMED} more" if len(numbers) > MOST_ROWS_NAMED else ""
    return f"row{'s' if len(numbers) > 1 else ''} {shown}{more}"

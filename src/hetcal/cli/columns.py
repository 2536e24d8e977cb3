"""Which column of a table is the target, which tells groups, which are left out, and which are features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import check_choice, must

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MOST_NAMED = 5


@dataclass
class Rows:
    """Features, target and groups of the same rows."""

    X: "DataFrame"
    y: NDArray[np.float64]
    groups: "Series | None" = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[np.intp]) -> "Rows":
        groups = None if self.groups is None else self.groups.iloc[rows]
        return Rows(self.X.iloc[rows], self.y[rows], groups)


def split_columns(frame: "DataFrame", target: str, group: str | None = None, others: Sequence[str] = ()) -> Rows:
    """Features, target and groups; a name that is no column is refused with the nearest one."""
    check_choice("target", target, frame.columns)
    if group is not None:
        check_choice("group", group, frame.columns)
    features = frame[[name for name in frame.columns if name not in {target, group, *others}]]
    groups = None if group is None else check_groups(frame[group])
    return Rows(features, check_numbers("target", frame[target]), groups)


def check_dropped(target: str, group: str | None, drop: Sequence[str]) -> None:
    """Before the file is read without them."""
    if target in drop or target == group:
        raise must("target", "be another column than those of --drop and --group", target, "name it once")


def check_features(rows: Rows) -> Rows:
    if rows.X.shape[1] == 0:
        raise must("the table", "have at least one column beside the target", "none", "a model needs features")
    return rows


def check_numbers(role: str, column: "Series", positive: bool = False) -> NDArray[np.float64]:
    """A column that must be numbers, all of them present; rows where it is not are named."""
    name = f"{role} {column.name!r}"
    if column.dtype.kind not in "fiub":
        present = column.notna().to_numpy()
        kind = "dates" if column.dtype.kind == "M" else "text"
        first = column[present].iloc[0] if present.any() else None
        rows = name_rows(column, present)
        raise must(name, "hold numbers", first, f"it is a column of {kind} ({rows}); choose another or make it numbers")
    values: NDArray[np.float64] = column.to_numpy(dtype=np.float64)
    missing = np.isnan(values)
    if missing.any():
        raise must(name, "have a value in every row", "missing", f"see {name_rows(column, missing)}; remove these rows")
    if positive and not (values > 0).all():
        wrong = values <= 0
        raise must(name, "be greater than 0", float(values[wrong][0]), f"see {name_rows(column, wrong)}")
    return values


def check_groups(column: "Series") -> "Series":
    missing = column.isna().to_numpy()
    if missing.any():
        advice = f"see {name_rows(column, missing)}; label or remove these rows"
        raise must(f"group {column.name!r}", "have a label in every row", "missing", advice)
    return column


def name_rows(column: "Series", which: NDArray[Any]) -> str:
    """Rows as the file has them: "rows 3, 8 and 12 more"."""
    numbers = [str(number) for number in column.index[which]]
    shown = ", ".join(numbers[:MOST_NAMED])
    more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    return f"row{'s' if len(numbers) > 1 else ''} {shown}{more}"

"""A user's table as columns of numbers, dates and text. The kind of a column is decided only here."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, get_args

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats, must, reads_as_number

Kind = Literal["numbers", "dates", "text"]
COLUMN_KINDS: tuple[Kind, ...] = get_args(Kind)
MISSING_LABEL = "(missing)"
DATE_ADVICE = "give the column a date type, for example with pandas.to_datetime"


@dataclass
class Table:
    """A user's table as columns: name -> float64 numbers (missing = NaN), datetime64 dates (missing = NaT) or text
    labels (missing = MISSING_LABEL).

    >>> table = Table({"size": np.array([1.5, np.nan]), "kind": np.array(["oak", MISSING_LABEL], dtype=object)})
    >>> table.kinds, table.missing("kind").tolist()
    ({'size': 'numbers', 'kind': 'text'}, [False, True])
    """

    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: Any) -> "Table":
        return Table({name: values[rows] for name, values in self.columns.items()})

    def kind(self, name: str) -> Kind:
        codes: dict[str, Kind] = {"f": "numbers", "M": "dates"}
        return codes.get(self.columns[name].dtype.kind, "text")

    @property
    def kinds(self) -> dict[str, Kind]:
        return {name: self.kind(name) for name in self.columns}

    def missing(self, name: str) -> NDArray[np.bool_]:
        """Which rows have no value in a column."""
        values = self.columns[name]
        is_missing: NDArray[np.bool_] = values == MISSING_LABEL if self.kind(name) == "text" else np.isnan(values)
        return is_missing


def read_table(X: Any, texts: Collection[int] = ()) -> Table:
    """Read a pandas, polars or any other data frame, or a two-dimensional array, column by column.

    Numbers and booleans become float64, dates become datetime64, text and categories become labels. A column of any
    other type is refused by name.

    Args:
        X: The frame or array.
        texts: Positions of the columns that are known to hold text.
    """
    if isinstance(X, np.ndarray):
        if X.dtype != object:
            return Table({f"x{i}": column_of_numbers(f"x{i}", X[:, i]) for i in range(X.shape[1])})
        return Table({f"x{i}": column_of_objects(f"x{i}", X[:, i], i in texts) for i in range(X.shape[1])})
    frame = nw.from_native(X, eager_only=True)
    return Table({str(name): read_series(str(name), frame[:, i], i in texts) for i, name in enumerate(frame.columns)})


def read_series(name: str, series: Any, is_known_text: bool = False) -> NDArray[Any]:
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return column_of_numbers(name, series.cast(nw.Float64).to_numpy())
    if isinstance(dtype, nw.Categorical | nw.Enum):
        return labels([None if is_missing(value) else str(value) for value in series.to_list()])
    if dtype == nw.String or dtype == nw.Object or dtype == nw.Unknown:
        return column_of_objects(name, series.to_list(), is_known_text)
    if dtype in (nw.Date, nw.Datetime):
        return column_of_dates(series)
    rule = "hold numbers, booleans, dates or text"
    if dtype.is_temporal():
        raise must(f"column {name!r}", rule, str(dtype), "turn durations and times into numbers first")
    raise must(f"column {name!r}", rule, str(dtype), "convert or drop it", TypeError)


def column_of_dates(series: Any) -> NDArray[np.datetime64]:
    """Convert dates to microseconds; those with a time zone are converted to UTC."""
    if getattr(series.dtype, "time_zone", None) is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return np.asarray(series.to_numpy()).astype("datetime64[us]")


def column_of_numbers(name: str, values: Any) -> Floats:
    if values.dtype.kind not in "biuf":
        raise must(f"column {name!r}", "hold real numbers", values.dtype.name, "convert it to numbers first")
    column = values.astype(np.float64)
    if np.isinf(column).any():
        row = int(np.argmax(np.isinf(column)))
        raise must(
            f"column {name!r} of X",
            "not contain infinity",
            float(column[row]),
            f"see row {row}; mark unknown values as missing (NaN) instead",
        )
    return column


def column_of_objects(name: str, values: Any, is_known_text: bool = False) -> NDArray[Any]:
    """Read Python objects: all numbers, or all text. Text that looks like numbers is ambiguous and refused."""
    is_number = [isinstance(value, Real | Decimal | np.bool_) and not is_missing(value) for value in values]
    is_text = [isinstance(value, str) for value in values]
    for row, value in enumerate(values):
        if isinstance(value, date) and not is_missing(value):
            raise must(f"column {name!r}", "hold numbers, booleans, dates or text", str(value), DATE_ADVICE)
        if not (is_number[row] or is_text[row] or is_missing(value)):
            raise TypeError(
                f"column {name!r} must hold numbers or text, got {value!r} in row {row}; "
                f"each argument must be a string or a number, not {type(value).__name__!r}"
            )
    if not any(is_text):
        numbers = [float(value) if known else np.nan for value, known in zip(values, is_number, strict=True)]
        return column_of_numbers(name, np.array(numbers, dtype=np.float64))
    if any(is_number):
        text, number = values[is_text.index(True)], values[is_number.index(True)]
        raise must(f"column {name!r}", "hold numbers or text, not both", [text, number], "convert it to one of the two")
    if not is_known_text and all(reads_as_number(value) for value, known in zip(values, is_text, strict=True) if known):
        raise must(
            f"column {name!r}",
            "not hold numbers as text",
            values[is_text.index(True)],
            "convert it to numbers, or to a categorical type if it is a label",
        )
    return labels([value if known else None for value, known in zip(values, is_text, strict=True)])


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT: missing values do not equal themselves."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def labels(values: Sequence[str | None]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = [MISSING_LABEL if value is None else value for value in values]
    return column


def check_unique_columns(X: Any) -> Any:
    names = [str(name) for name in X.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise must("X", "have column names that differ", twice, "rename or drop the columns that occur twice")
    return X


def match_kinds(table: Table, kinds: Mapping[str, Kind], where: str) -> None:
    """Check that columns have the kinds that they had before; a column of missing values only gets its kind."""
    for name, kind in kinds.items():
        now = table.kind(name)
        # A column that has only missing values has no kind.
        if now != kind and now == "numbers" and np.isnan(table.columns[name]).all():
            n = len(table)
            empty = labels([None] * n) if kind == "text" else np.full(n, np.datetime64("NaT", "us"))
            table.columns[name] = empty
        elif now != kind:
            raise must(f"column {name!r}", f"hold {kind} as {where}", now, "give it the type it had then")

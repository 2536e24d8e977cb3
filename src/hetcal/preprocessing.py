"""From the user's table to the numbers the network sees, and back: TableEncoder for X, Standardizer for y (and X).

All scaling happens in float64 and without overflow before anything becomes float32. Scaling of y is undone in one
place, `Standardizer.inverse`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from hetcal._checks import must, reads_as_number
from hetcal.prediction import Prediction

Floats = NDArray[np.float64]

# Deviations below this part of the largest value are rounding errors of float64, not data.
ROUNDING = 1e-13
# Where the encoder's numbers level off, in standard deviations.
SOFT_LIMIT = 3.0
MISSING = "(missing)"
DATE_ADVICE = "give the column a date type, for example by pandas.to_datetime"


class Standardizer:
    """Column-wise (or, for a vector, one) mean 0 and standard deviation 1, by weighted moments; missing values stay.

    Values are divided by the largest magnitude first, so that nothing overflows between 1e-300 and 1e300.

    >>> scaler = Standardizer().fit(np.array([1e200, 3e200]), np.ones(2))
    >>> scaler.transform(np.array([1e200, 5e200]))
    array([-1.,  3.])
    """

    magnitude: Floats
    center: Floats  # of values / magnitude
    spread: Floats  # of values / magnitude

    def fit(self, values: Floats, weights: Floats) -> "Standardizer":
        present = ~np.isnan(values)
        weights = weights.reshape(-1, *(1,) * (values.ndim - 1)) * present
        total = weights.sum(axis=0)
        total = np.where(total > 0, total, 1.0)
        filled = np.where(present, values, 0.0)
        largest = np.abs(filled).max(axis=0, initial=0.0)
        # A power of two: dividing by it is exact, so a value is never moved by a rounding error of its scale.
        self.magnitude = np.where(largest > 0, 2.0 ** np.floor(np.log2(np.where(largest > 0, largest, 1.0))), 1.0)
        filled = filled / self.magnitude
        self.center = (weights * filled).sum(axis=0) / total
        variance = (weights * (filled - self.center) ** 2).sum(axis=0) / total
        spread = np.sqrt(variance)
        self.is_constant = spread <= ROUNDING * np.maximum(np.abs(self.center), 1.0)
        self.spread = np.where(self.is_constant, 1.0, spread)
        return self

    def transform(self, values: Floats) -> Floats:
        return (values / self.magnitude - self.center) / self.spread

    @property
    def scale(self) -> Floats:
        return self.spread * self.magnitude

    def inverse(self, prediction: Prediction) -> Prediction:
        """A prediction of the standardised target, in the units of y."""
        return prediction.scaled(self.spread, self.center).scaled(self.magnitude)


@dataclass
class Table:
    """A user's table as columns: name -> float64 numbers (missing = NaN), datetime64 dates (missing = NaT) or text
    labels (missing = MISSING)."""

    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: Any) -> "Table":
        return Table({name: values[rows] for name, values in self.columns.items()})

    def kind(self, name: str) -> str:
        return {"f": "numbers", "M": "dates"}.get(self.columns[name].dtype.kind, "text")


def read_table(X: Any, texts: Collection[int] = ()) -> Table:
    """Read a pandas, polars or any other data frame, or a two-dimensional array, column by column.

    Numbers and booleans become float64; dates datetime64; text and categories become labels. What is neither is refused
    by name. `texts` are the places of columns that are known to hold text.
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
    """Dates to the microsecond, those of a time zone in universal time."""
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
            f"see row {row}; leave unknown values missing (NaN) instead",
        )
    return column


def column_of_objects(name: str, values: Any, is_known_text: bool = False) -> NDArray[Any]:
    """Python objects: all numbers, or all text. Text that reads as numbers is refused, for it could mean either."""
    is_number = [isinstance(value, Real | Decimal | np.bool_) and not is_missing(value) for value in values]
    is_text = [isinstance(value, str) for value in values]
    for row, value in enumerate(values):
        if isinstance(value, date) and not is_missing(value):
            raise must(f"column {name!r}", "hold numbers, booleans, dates or text", value, DATE_ADVICE)
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
    """None, NaN, pandas' NA and NaT: missing values are the ones that do not equal themselves."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def labels(values: Sequence[str | None]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = [MISSING if value is None else value for value in values]
    return column


class Vocabulary:
    """The labels of a text column that have a column of their own, and whether the others share one.

    In a column of more than `FEW_LABELS` labels (or of `max_categories`), those that occur once are rare, because names
    and numbers of people or things tell nothing about new rows and must not be kept in a model.

    >>> words = Vocabulary().fit(np.array(["oak", "ash", "oak"], dtype=object), max_categories=50)
    >>> words.labels, words.transform(np.array(["oak", "elm"], dtype=object)).tolist()
    (['ash', 'oak'], [[0.0, 1.0], [0.0, 0.0]])
    """

    FEW_LABELS = 20
    labels: list[str]  # sorted; may be empty if has_rare
    has_rare: bool  # whether labels beyond these were seen: they, and new ones, are the last column

    def fit(self, values: NDArray[Any], max_categories: int) -> "Vocabulary":
        known, counts = np.unique(values, return_counts=True)
        has_few = len(known) <= self.FEW_LABELS and len(known) < max_categories
        kept = np.flatnonzero(counts >= (1 if has_few else 2))
        if len(kept) >= max_categories:
            kept = np.sort(np.argsort(counts, kind="stable")[-(max_categories - 1) :])
        self.labels, self.has_rare = known[kept].tolist(), len(kept) < len(known)
        return self

    def transform(self, values: NDArray[Any]) -> Floats:
        codes = self.codes(values)
        one_hot = np.zeros((len(values), len(self.labels) + self.has_rare))
        row = np.flatnonzero((codes >= 0) | self.has_rare)
        one_hot[row, codes[row]] = 1.0  # -1, a label without column of its own, is the last
        return one_hot

    def codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Place of each label, -1 for one that is not among them."""
        places = {label: place for place, label in enumerate(self.labels)}
        return np.fromiter((places.get(value, -1) for value in values), np.int64, len(values))

    def count_unseen(self, values: NDArray[Any]) -> int:
        """Labels not seen in `fit`, as far as that is known: rare ones are not remembered."""
        return 0 if self.has_rare else int((self.codes(values) < 0).sum())


def date_features(dates: NDArray[np.datetime64]) -> Floats:
    """Days since 1970 for trends, and the place in the year, the week and the day as points on a circle: (n, 7).

    A missing date is missing in its days, and the middle of the circles.

    >>> date_features(np.array(["1970-01-08T03:00"], dtype="datetime64[us]")).round(2).tolist()
    [[7.12, 0.12, 0.99, 0.11, 0.99, 0.71, 0.71]]
    """
    days = (dates - np.datetime64(0, "D")) / np.timedelta64(1, "D")  # NaT becomes NaN
    years = dates.astype("datetime64[Y]")
    in_year = (dates - years) / np.timedelta64(1, "D") / 365.25
    # Parts of a turn only: sines of thousands of turns would be rounding errors where all dates are midnights.
    turns = 2 * np.pi * np.column_stack([in_year, days % 7 / 7, days % 1])
    circles = np.stack([np.sin(turns), np.cos(turns)], axis=2).reshape(len(dates), -1)
    return np.column_stack([days, np.where(np.isnan(circles), 0.0, circles)])


class TableEncoder:
    """Table -> float32 matrix: numbers standardised, missing ones at the mean with a column that says so, dates as
    numbers (`date_features`), text one-hot.

    Labels not seen in `fit` become all zeros, or fall to the rare labels if the column has them.

    Attributes:
        kinds: "numbers", "dates" or "text" by column.
        ranges: Least and largest value of each column of numbers (of dates: in days since 1970); None if all missing.
        scaler, has_missing: Of the numbers, those of dates among them, in the order of the columns.
        vocabularies: Of the columns of text.
    """

    def __init__(self, max_categories: int = 50) -> None:
        self.max_categories = max_categories

    def fit(self, table: Table, weights: Floats) -> "TableEncoder":
        self.kinds = {name: table.kind(name) for name in table.columns}
        numbers, texts = self._blocks(table)
        self.scaler = Standardizer().fit(numbers, weights)
        self.has_missing = np.isnan(numbers).any(axis=0)
        self.ranges = {name: range_of(table.columns[name]) for name, kind in self.kinds.items() if kind != "text"}
        self.vocabularies = {name: Vocabulary().fit(values, self.max_categories) for name, values in texts.items()}
        varies = ~self.scaler.is_constant | (self.has_missing & ~np.isnan(numbers).all(axis=0))
        words = self.vocabularies.values()
        self.is_informative = bool(varies.any()) or any(len(word.labels) + word.has_rare > 1 for word in words)
        return self

    def transform(self, table: Table) -> NDArray[np.float32]:
        self._check_kinds(table)
        numbers, texts = self._blocks(table)
        missing = np.isnan(numbers)
        standardised = np.where(missing, 0.0, self.scaler.transform(np.where(missing, 0.0, numbers)))
        blocks = [soft_clip(standardised), missing[:, self.has_missing]]
        blocks += [self.vocabularies[name].transform(values) for name, values in texts.items()]
        return np.hstack(blocks).astype(np.float32)

    def count_unseen(self, table: Table) -> dict[str, int]:
        """How many rows hold a label that `fit` has not seen, by column; columns without are left out."""
        self._check_kinds(table)
        counts = {name: words.count_unseen(table.columns[name]) for name, words in self.vocabularies.items()}
        return {name: count for name, count in counts.items() if count}

    def count_outside(self, table: Table) -> dict[str, int]:
        """How many rows lie beyond the range seen in `fit` by more than half its width, by column."""
        self._check_kinds(table)
        counts = {name: 0 if seen is None else far(table.columns[name], *seen) for name, seen in self.ranges.items()}
        return {name: count for name, count in counts.items() if count}

    def _blocks(self, table: Table) -> tuple[Floats, dict[str, NDArray[Any]]]:
        """The numbers as a matrix, and the columns of text."""
        numeric = [np.empty((len(table), 0))]
        for name, kind in self.kinds.items():
            if kind != "text":
                values = table.columns[name]
                numeric.append(date_features(values) if kind == "dates" else values[:, None])
        return np.hstack(numeric), {name: table.columns[name] for name, kind in self.kinds.items() if kind == "text"}

    def _check_kinds(self, table: Table) -> None:
        for name, kind in self.kinds.items():
            now = table.kind(name)
            # A column of missing values only has no kind of its own.
            if now != kind and now == "numbers" and np.isnan(table.columns[name]).all():
                n = len(table)
                empty = labels([None] * n) if kind == "text" else np.full(n, np.datetime64("NaT", "us"))
                table.columns[name] = empty
            elif now != kind:
                raise must(f"column {name!r}", f"hold {kind} as in fit", now, "give it the type it had in fit")


def far(values: NDArray[Any], low: float, high: float) -> int:
    """How many values are beyond a range by more than half its width."""
    numbers, margin = as_numbers(values), high / 2 - low / 2
    with np.errstate(invalid="ignore", over="ignore"):
        return int(((numbers < low - margin) | (numbers > high + margin)).sum())


def as_numbers(values: NDArray[Any]) -> Floats:
    """Numbers as they are, dates in days since 1970."""
    return date_features(values)[:, 0] if values.dtype.kind == "M" else values


def range_of(values: NDArray[Any]) -> tuple[float, float] | None:
    """Least and largest of the present numbers, or dates in days since 1970."""
    numbers = as_numbers(values)
    present = numbers[~np.isnan(numbers)]
    return (float(present.min()), float(present.max())) if len(present) else None


def soft_clip(z: Floats) -> Floats:
    r"""Almost z within two standard deviations, never beyond `SOFT_LIMIT`, and monotone.

    .. math:: \frac{z}{\sqrt{1 + (z / 3)^2}}

    A value far out (a long tail, a typing error, a row unlike all others) then cannot carry a ReLU network, which is
    linear out there, to absurd predictions, nor overflow float32.

    >>> soft_clip(np.array([0.0, 1.0, -1e300])).round(2)
    array([ 0.  ,  0.95, -3.  ])
    """
    return z / np.hypot(1.0, z / SOFT_LIMIT)  # hypot does not overflow


def merge_equal_rows(
    table: Table, y: Floats, weights: Floats, groups: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.intp], Floats]:
    """Which rows to keep, and their weights: rows without weight are dropped, equal ones merged with summed weights.

    So a weight of 2 is exactly a row given twice, the order of the rows does not matter, and no row stands both in
    the training and in the validation part. The order depends on ranks only, so other units do not change it. Equal
    rows of different `groups` stay apart.
    """
    weighted = np.flatnonzero(weights > 0)
    table, y = table.take(weighted), y[weighted]
    x_ranks = np.column_stack([ranks(values) for values in table.columns.values()])  # (n, columns)
    # Odd multipliers and wrap-around sums: a hash per row, so that one sort does instead of one per column.
    multipliers = np.random.default_rng(0).integers(2**63, size=x_ranks.shape[1], dtype=np.uint64) * np.uint64(2) + 1
    x_hashes = (x_ranks * multipliers).sum(axis=1, dtype=np.uint64)
    y_ranks = np.column_stack([ranks(column) for column in y.reshape(len(y), -1).T])  # (n, targets)
    group_ranks = np.zeros(len(y), dtype=np.uint64) if groups is None else ranks(groups[weighted].astype(np.float64))
    order = np.lexsort((group_ranks, *y_ranks.T[::-1], x_hashes))
    keys = np.column_stack([x_ranks, y_ranks, group_ranks])[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    return weighted[order[is_new]], np.add.reduceat(weights[weighted[order]], np.flatnonzero(is_new))


def ranks(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Equal values to equal integers, in the order of the values (missing ones last)."""
    _, codes = np.unique(values if values.dtype == np.float64 else values.astype(str), return_inverse=True)
    return codes.astype(np.uint64)

"""From the columns of a table to the numbers that the network sees: standardized numbers, dates, one-hot labels.

All scaling is done in float64 and without overflow, before anything becomes float32.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats, must
from hetcal.tabular.columns import Table, labels
from hetcal.transforms import Standardizer

# The encoder's numbers stay within this many standard deviations.
SOFT_LIMIT = 3.0


class Vocabulary:
    """The labels of a text column that get a column of their own, and whether the other labels share one.

    In a column with more than `FEW_LABELS` labels (or with `max_categories` of them), labels that occur once are rare.
    They are often names or numbers of people or things, which carry no information about new rows and must not be
    stored in a model.

    >>> words = Vocabulary().fit(np.array(["oak", "ash", "oak"], dtype=object), max_categories=50)
    >>> words.labels, words.transform(np.array(["oak", "elm"], dtype=object)).tolist()
    (['ash', 'oak'], [[0.0, 1.0], [0.0, 0.0]])
    """

    FEW_LABELS = 20
    labels: list[str]  # sorted; may be empty if has_rare
    has_rare: bool  # whether there were other labels, which share the last column with new ones

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
        one_hot[row, codes[row]] = 1.0  # -1, a label without its own column, is the last column
        return one_hot

    def codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Position of each label, -1 for an unknown one."""
        places = {label: place for place, label in enumerate(self.labels)}
        return np.fromiter((places.get(value, -1) for value in values), np.int64, len(values))

    def count_unseen(self, values: NDArray[Any]) -> int:
        """Number of labels not seen in `fit`; rare labels are not stored, so they do not count."""
        return 0 if self.has_rare else int((self.codes(values) < 0).sum())


def date_features(dates: NDArray[np.datetime64]) -> Floats:
    """Days since 1970 for trends, and the position in the year, the week and the day as points on a circle: (n, 7).

    For a missing date the days are missing, and the points are the centers of the circles.

    >>> date_features(np.array(["1970-01-08T03:00"], dtype="datetime64[us]")).round(2).tolist()
    [[7.12, 0.12, 0.99, 0.11, 0.99, 0.71, 0.71]]
    """
    days = (dates - np.datetime64(0, "D")) / np.timedelta64(1, "D")  # NaT becomes NaN
    years = dates.astype("datetime64[Y]")
    in_year = (dates - years) / np.timedelta64(1, "D") / 365.25
    # Only fractions of a turn: the sine of thousands of turns would be a rounding error if all dates are at midnight.
    turns = 2 * np.pi * np.column_stack([in_year, days % 7 / 7, days % 1])
    circles = np.stack([np.sin(turns), np.cos(turns)], axis=2).reshape(len(dates), -1)
    return np.column_stack([days, np.where(np.isnan(circles), 0.0, circles)])


class TableEncoder:
    """Encodes a table as a float32 matrix.

    Numbers are standardized; a missing number becomes the mean and is marked in an additional column. Dates become
    numbers (`date_features`), text is one-hot encoded. Labels not seen in `fit` become zeros, or count as rare labels
    if the column has some.

    Attributes:
        kinds: "numbers", "dates" or "text" by column.
        ranges: Minimum and maximum of each column of numbers, or of dates in days since 1970; None if all are missing.
        scaler, has_missing: The scaling of the numbers, those of dates included, in the order of the columns, and
            which of them had missing values.
        vocabularies: The labels of the columns of text.
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
        standardized = np.where(missing, 0.0, self.scaler.transform(np.where(missing, 0.0, numbers)))
        blocks = [soft_clip(standardized), missing[:, self.has_missing]]
        blocks += [self.vocabularies[name].transform(values) for name, values in texts.items()]
        return np.hstack(blocks).astype(np.float32)

    def count_unseen(self, table: Table) -> dict[str, int]:
        """Number of rows with a label that `fit` has not seen, by column; other columns are omitted."""
        self._check_kinds(table)
        counts = {name: words.count_unseen(table.columns[name]) for name, words in self.vocabularies.items()}
        return {name: count for name, count in counts.items() if count}

    def count_outside(self, table: Table) -> dict[str, int]:
        """Number of rows outside the range seen in `fit` by more than half its width, by column."""
        self._check_kinds(table)
        counts = {name: count_far(table.columns[name], *seen) for name, seen in self.ranges.items() if seen}
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
            # A column that has only missing values has no kind.
            if now != kind and now == "numbers" and np.isnan(table.columns[name]).all():
                n = len(table)
                empty = labels([None] * n) if kind == "text" else np.full(n, np.datetime64("NaT", "us"))
                table.columns[name] = empty
            elif now != kind:
                raise must(f"column {name!r}", f"hold {kind} as in fit", now, "give it the type it had in fit")


def count_far(values: NDArray[Any], low: float, high: float) -> int:
    """Number of values outside a range by more than half its width."""
    numbers, margin = numbers_or_days(values), high / 2 - low / 2
    with np.errstate(invalid="ignore", over="ignore"):
        return int(((numbers < low - margin) | (numbers > high + margin)).sum())


def numbers_or_days(values: NDArray[Any]) -> Floats:
    """Numbers unchanged, dates as days since 1970."""
    return date_features(values)[:, 0] if values.dtype.kind == "M" else values


def range_of(values: NDArray[Any]) -> tuple[float, float] | None:
    """Minimum and maximum of the numbers that are not missing, or of the dates in days since 1970."""
    numbers = numbers_or_days(values)
    present = numbers[~np.isnan(numbers)]
    return (float(present.min()), float(present.max())) if len(present) else None


def soft_clip(z: Floats) -> Floats:
    r"""Nearly z within two standard deviations, never beyond `SOFT_LIMIT`, and increasing.

    .. math:: \frac{z}{\sqrt{1 + (z / 3)^2}}

    A ReLU network is linear far away from the data. With the clip, an extreme value (a long tail, a typing error, a row
    unlike all others) leads neither to absurd predictions nor to an overflow of float32.

    >>> soft_clip(np.array([0.0, 1.0, -1e300])).round(2)
    array([ 0.  ,  0.95, -3.  ])
    """
    return z / np.hypot(1.0, z / SOFT_LIMIT)  # hypot does not overflow

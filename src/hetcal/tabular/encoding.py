"""From the user's table to the numbers the network sees, and back: TableEncoder for X, Standardizer for y (and X).

All scaling happens in float64 and without overflow before anything becomes float32. Scaling of y is undone in one
place, `Standardizer.inverse`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats, must
from hetcal.tabular.columns import Table, labels
from hetcal.transforms import Standardizer

# Where the encoder's numbers level off, in standard deviations.
SOFT_LIMIT = 3.0


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
    """Table -> float32 matrix: numbers standardized, missing ones at the mean with a column that says so, dates as
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
        standardized = np.where(missing, 0.0, self.scaler.transform(np.where(missing, 0.0, numbers)))
        blocks = [soft_clip(standardized), missing[:, self.has_missing]]
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
    numbers, margin = numbers_or_days(values), high / 2 - low / 2
    with np.errstate(invalid="ignore", over="ignore"):
        return int(((numbers < low - margin) | (numbers > high + margin)).sum())


def numbers_or_days(values: NDArray[Any]) -> Floats:
    """Numbers as they are, dates in days since 1970."""
    return date_features(values)[:, 0] if values.dtype.kind == "M" else values


def range_of(values: NDArray[Any]) -> tuple[float, float] | None:
    """Least and largest of the present numbers, or dates in days since 1970."""
    numbers = numbers_or_days(values)
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

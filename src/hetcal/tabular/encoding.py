"""From the columns of a table to the numbers that the network sees: standardized numbers, dates, one-hot labels.

All scaling is done in float64 and without overflow, before anything becomes float32.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.networks import SQUASH_LIMIT
from hetcal.tabular.columns import Table, match_kinds
from hetcal.transforms import FLOAT_ROUNDING, Standardizer

# The spread of a column that was constant in `fit`. Values are divided by their magnitude first, so that the spread of
# a column that varies is smaller.
CONSTANT_SPREAD = 4.0
# Two ranges of quantiles and their width for a standard normal distribution.
QUARTILES, QUARTILE_RANGE = (0.25, 0.75), 1.349
TAILS, TAIL_RANGE = (0.05, 0.95), 3.290
# Standardized values are limited to this.
FAR = 1e6


class Vocabulary:
    """The labels of a text column that get a column of their own, and whether the other labels share one.

    In a column with more than `FEW_LABELS` labels (or with `max_categories` of them), labels that occur once among the
    given rows are rare. They are often names or numbers of people or things, which carry no information about new rows
    and must not be stored in a model. A column that would be the same for all rows is 1 for new labels, too.

    >>> words = Vocabulary().fit(np.array(["oak", "ash", "oak"], dtype=object), max_categories=50)
    >>> words.labels, words.transform(np.array(["oak", "elm"], dtype=object)).tolist()
    (['ash', 'oak'], [[0.0, 1.0], [0.0, 0.0]])
    """

    FEW_LABELS = 20
    labels: list[str]  # sorted; may be empty if has_rare
    has_rare: bool  # whether there were other labels, which share the last column with new ones

    def fit(self, values: NDArray[Any], max_categories: int, frequencies: Floats | None = None) -> "Vocabulary":
        """Learn the labels; `frequencies` (n,) are the numbers of given rows that the values stand for."""
        known, codes = np.unique(values, return_inverse=True)
        counts = np.bincount(codes, frequencies)
        has_few = len(known) <= self.FEW_LABELS and len(known) < max_categories
        kept = np.flatnonzero(counts >= (1 if has_few else 2))
        if len(kept) >= max_categories:
            kept = np.sort(np.argsort(counts, kind="stable")[-(max_categories - 1) :])
        self.labels, self.has_rare = known[kept].tolist(), len(kept) < len(known)
        return self

    def transform(self, values: NDArray[Any]) -> Floats:
        codes, columns = self.codes(values), len(self.labels) + self.has_rare
        one_hot = np.zeros((len(values), columns))
        row = np.flatnonzero((codes >= 0) | self.has_rare | (columns == 1))
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

    Numbers are standardized (`fit_column_scaler`) and squashed (`squash`); a missing number becomes the median and is
    marked in an additional column. Dates become numbers (`date_features`), text is one-hot encoded. Labels not seen in
    `fit` become zeros, or count as rare labels if the column has some. Columns that were constant in `fit` remain
    constant, because no row shows what another value means.

    Attributes:
        kinds: "numbers", "dates" or "text" by column.
        ranges: Minimum and maximum of each column of numbers, or of dates in days since 1970; None if all are missing.
        scaler, has_missing: The scaling of the numbers, those of dates included, in the order of the columns, and
            which of them had missing values.
        vocabularies: The labels of the columns of text.
    """

    def __init__(self, max_categories: int = 50) -> None:
        self.max_categories = max_categories

    def fit(self, table: Table, weights: Floats, frequencies: Floats | None = None) -> "TableEncoder":
        """Learn from weighted rows; `frequencies` (n,) tell which labels are rare, see `Vocabulary.fit`."""
        self.kinds = {name: table.kind(name) for name in table.columns}
        numbers, texts = self._blocks(table)
        self.scaler = fit_column_scaler(numbers, weights)
        self.has_missing = np.isnan(numbers).any(axis=0)
        self.ranges = {name: range_of(table.columns[name]) for name, kind in self.kinds.items() if kind != "text"}
        self.vocabularies = {
            name: Vocabulary().fit(values, self.max_categories, frequencies) for name, values in texts.items()
        }
        varies = ~self.is_constant | (self.has_missing & ~np.isnan(numbers).all(axis=0))
        words = self.vocabularies.values()
        self.is_informative = bool(varies.any()) or any(len(word.labels) + word.has_rare > 1 for word in words)
        return self

    def transform(self, table: Table) -> NDArray[np.float32]:
        match_kinds(table, self.kinds, "in fit")
        numbers, texts = self._blocks(table)
        missing = np.isnan(numbers)
        with np.errstate(over="ignore"):
            standardized = self.scaler.transform(np.where(missing, 0.0, numbers))
        blocks = [squash(np.where(missing | self.is_constant, 0.0, standardized)), missing[:, self.has_missing]]
        blocks += [self.vocabularies[name].transform(values) for name, values in texts.items()]
        return np.hstack(blocks).astype(np.float32)

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """Which of the numbers were constant in `fit`."""
        return np.asarray(self.scaler.spread == CONSTANT_SPREAD)

    def count_unseen(self, table: Table) -> dict[str, int]:
        """Number of rows with a label that `fit` has not seen, by column; other columns are omitted."""
        match_kinds(table, self.kinds, "in fit")
        counts = {name: words.count_unseen(table.columns[name]) for name, words in self.vocabularies.items()}
        return {name: count for name, count in counts.items() if count}

    def count_outside(self, table: Table) -> dict[str, int]:
        """Number of rows outside the range seen in `fit`, by column: for numbers by more than half its width.

        Dates count at once: a table is often a period, and what comes after it is not like it.
        """
        match_kinds(table, self.kinds, "in fit")
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


def count_far(values: NDArray[Any], low: float, high: float) -> int:
    """Number of numbers outside a range by more than half its width, or of dates outside a range of days."""
    numbers, margin = numbers_or_days(values), 0.0 if values.dtype.kind == "M" else high / 2 - low / 2
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


def fit_column_scaler(numbers: Floats, weights: Floats) -> Standardizer:
    """Center every column at its weighted median, and divide it by its weighted interquartile range over 1.349.

    Both are those of a standard deviation for normal values, and a few gross errors do not change them. Where half of
    the values are nearly the same (a range below a tenth of that between the 5 % and 95 % quantiles), the wider range
    is used, and where nine tenths of them are, the standard deviation.
    """
    scaler = Standardizer().fit(numbers, weights)
    for j, column in enumerate((numbers / scaler.magnitude).T):
        if scaler.is_constant[j]:
            scaler.spread[j] = CONSTANT_SPREAD
            continue
        present = ~np.isnan(column)
        quantiles = weighted_quantiles(column[present], weights[present], (*TAILS, *QUARTILES, 0.5))
        tails, quartiles = (quantiles[1] - quantiles[0]) / TAIL_RANGE, (quantiles[3] - quantiles[2]) / QUARTILE_RANGE
        scaler.center[j] = quantiles[4]
        if tails > FLOAT_ROUNDING:
            scaler.spread[j] = quartiles if quartiles > tails / 10 else tails
    return scaler


def weighted_quantiles(values: Floats, weights: Floats, levels: Sequence[float]) -> Floats:
    """Quantiles of weighted values; between two values if exactly that share of the weight lies below.

    A weight of 2 is exactly a value given twice, and increasing changes of units change nothing.

    >>> weighted_quantiles(np.array([3.0, 1.0]), np.array([1.0, 3.0]), (0.5, 0.75))
    array([1., 2.])
    """
    order = np.argsort(values, kind="stable")
    values, shares = values[order], np.cumsum(weights[order])
    shares /= shares[-1]
    # A share that is a rounding error below the level, or above it, is the level.
    low, high = (np.searchsorted(shares, np.asarray(levels) + error) for error in (-1e-9, 1e-9))
    return (values[low] + values[np.minimum(high, len(values) - 1)]) / 2


def squash(z: Floats) -> Floats:
    r"""Nearly z within two standard deviations, increasing, and like the logarithm far away.

    .. math:: c \, \mathrm{asinh}(z / c), \qquad c = 3

    A ReLU network is linear far away from the data. Squashed, an extreme value (a long tail, a typing error, a row
    unlike all others) leads neither to absurd predictions nor to an overflow of float32, and a long tail that carries
    the signal keeps it: different values stay different, up to a million.

    >>> squash(np.array([0.0, 1.0, -100.0, 1e300])).round(2).tolist()
    [0.0, 0.98, -12.6, 40.23]
    """
    return SQUASH_LIMIT * np.arcsinh(np.clip(z, -FAR, FAR) / SQUASH_LIMIT)

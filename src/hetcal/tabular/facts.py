"""Facts about the columns and the target of a table: kinds, uses, bounds, steps, skewness."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats, must
from hetcal.metrics.wording import count, label, number, percent
from hetcal.tabular.columns import Kind, Table
from hetcal.tabular.encoding import TableEncoder, Vocabulary

# A value with this share of the rows is worth mentioning.
FREQUENT = 0.01
# The values of a target lie on steps if they are at least this share of the places there.
SHARE_OF_STEPS = 0.1


@dataclass(frozen=True)
class ColumnFacts:
    """A column of the features: its kind, how it is used, different values, and the share of missing ones."""

    name: str
    kind: Kind
    use: str
    different: int
    missing: float


@dataclass(frozen=True)
class TargetFacts:
    """The distribution of the target.

    Attributes:
        low, high: Its bounds, and the share of the rows at each of them.
        different: Number of different values.
        step: The largest step whose multiples all values are (after a shift), None if there is none.
        skewness: The third standardized moment; 0 if symmetric, 2 for an exponential distribution.
        commonest, commonest_share: The value of the most rows, and their share.
    """

    name: str
    low: float
    high: float
    share_low: float
    share_high: float
    different: int
    step: float | None
    skewness: float
    commonest: float
    commonest_share: float

    @property
    def text(self) -> str:
        steps = "" if self.step is None else f" in steps of {label(self.step)}"
        said = (
            f"{self.name}: from {label(self.low)} to {label(self.high)}{steps}, skewness {number(self.skewness, 2)}, "
        )
        said += count(self.different, "different value")
        if self.commonest_share < FREQUENT or self.commonest_share * self.different < 1 + 1e-9:
            return said
        return (
            f"{said}; {percent(self.commonest_share)} of the rows have {label(self.commonest)}, the most frequent one"
        )


def describe_target(name: str, y: Floats) -> TargetFacts:
    different, counts = np.unique(y, return_counts=True)
    if len(different) == 1:
        raise must(name, "vary", float(y[0]), "all rows have this value, so that there is nothing to learn")
    shares = counts / len(y)
    z = unit_vector(y) * np.sqrt(len(y))
    return TargetFacts(
        name,
        float(different[0]),
        float(different[-1]),
        float(shares[0]),
        float(shares[-1]),
        len(different),
        find_step(different),
        float(np.mean(z**3)),
        float(different[np.argmax(counts)]),
        float(shares.max()),
    )


def unit_vector(values: Floats) -> Floats:
    """The centered values, divided by their length; 0 for a constant. Nothing overflows."""
    scaled = values / (np.abs(values).max() or 1.0)
    centered = scaled - scaled.mean()
    return np.asarray(centered / (np.sqrt((centered**2).sum()) or 1.0))


def find_step(values: Floats) -> float | None:
    """The smallest difference of sorted values, if all others are multiples of it and it is not much smaller.

    >>> find_step(np.array([10.0, 20.0, 50.0])), find_step(np.array([0.0, 1.0, 2.5]))
    (10.0, None)
    """
    gaps = np.diff(values)
    step = float(gaps.min())
    with np.errstate(over="ignore", divide="ignore"):
        steps = gaps / step
    if not len(values) >= SHARE_OF_STEPS * steps.sum():
        return None
    return step if (np.abs(steps - np.round(steps)) <= 1e-6 * steps).all() else None


def describe_column(table: Table, name: str, codes: NDArray[np.int64]) -> ColumnFacts:
    kind, missing = table.kind(name), table.missing(name)
    present = codes[~missing]
    different = len(np.unique(present))
    if different + bool(missing.any()) < 2:
        use = "ignored, because it is constant"
    elif kind == "dates":
        use = "date, as days since 1970 and position in the year, the week and the day"
    elif kind == "numbers":
        use = "standardized number" + (", and a mark where it is missing" if missing.any() else "")
    else:
        words = Vocabulary().fit(table.columns[name], TableEncoder().max_categories)
        rest = ", and one for all rare labels" if words.has_rare else ""
        use = f"text, one feature for each of {len(words.labels)} labels{rest}"
    return ColumnFacts(name, kind, use, different, float(missing.mean()))

"""Coverage in subgroups of rows: how rows are divided by a value, and which coverages differ significantly.

The only place that decides which subgroups stand out: the verdict and the section of a report read the same tests.

A subgroup is chosen without looking at y. For a calibrated model the number of rows inside their interval is then
binomial in each subgroup, so its p-value is exact. Holm's correction keeps the probability of even one false positive
at 5 %, even if the subgroups overlap. (Controlling the false discovery rate would allow more false positives; but a
reader acts on a single subgroup that is named, so none should be named by chance.) The subgroups by the prediction are
corrected by themselves, and those by groups and columns by themselves: otherwise every column that a table has in
addition would make the verdict more lenient.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.metrics.grouping import Grouping
from hetcal.metrics.noise import two_sided_p
from hetcal.metrics.regression import equal_count_bins
from hetcal.metrics.wording import range_labels
from hetcal.splitting import RowNumbers

FALSE_POSITIVE_RATE = 0.05
RANGES = 5
MINIMUM_ROWS = 30
# A gap between observed and nominal coverage up to the first is of no practical importance at the level of 90 %.
# Intervals whose coverage is too low by more than the second are not reliable.
SMALL_GAP, LARGE_GAP = 0.01, 0.05
# A range of the width with more than this share of its rows in a range of the predicted value is not tested again.
SAME_ROWS = 0.8
# Differences below this fraction of the largest value are rounding errors.
RELATIVE_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Subgroup:
    """Rows that have something in common: `kind` is "prediction", "group" or "feature"; `str(subgroup)` names them."""

    kind: str
    name: str
    where: str
    rows: RowNumbers

    def __str__(self) -> str:
        return f"{self.name} {self.where}"


@dataclass(frozen=True, eq=False)
class CoverageTests:
    """Tests of the coverage in several subgroups, one entry each."""

    subgroups: Sequence[Subgroup]
    hits: NDArray[np.int64]
    sizes: NDArray[np.int64]
    counted: NDArray[np.int64]  # independent rows that these rows count as
    p: Floats
    p_corrected: Floats
    level: float

    @property
    def coverage(self) -> Floats:
        return self.hits / self.sizes

    @property
    def is_significant(self) -> NDArray[np.bool_]:
        return self.p_corrected <= FALSE_POSITIVE_RATE

    @property
    def stands_out(self) -> NDArray[np.bool_]:
        """Significant, and by more than a gap of no practical importance."""
        return self.is_significant & (np.abs(self.coverage - self.level) > SMALL_GAP)

    @property
    def is_weak(self) -> NDArray[np.bool_]:
        """The intervals of the subgroup are significantly and far too narrow."""
        return self.stands_out & (self.coverage < self.level - LARGE_GAP)

    @property
    def order(self) -> NDArray[np.intp]:
        """First the subgroups that stand out, too narrow before too wide; then the others by their p-value."""
        is_wide = self.coverage > self.level
        badness = np.where(self.stands_out, np.where(is_wide, -self.coverage, self.coverage), self.p)
        return np.lexsort([badness, self.stands_out & is_wide, ~self.stands_out])


def check_coverage(
    subgroups: Sequence[Subgroup], inside: NDArray[np.bool_], level: float, grouping: Grouping | None = None
) -> CoverageTests:
    """Test the coverage of each subgroup against the level.

    If rows come in groups, those of a subgroup count as fewer independent rows. A subgroup of one group then rarely
    stands out: that groups differ from each other is what intervals for new groups allow for.
    """
    hits = np.array([inside[subgroup.rows].sum() for subgroup in subgroups], dtype=np.int64)
    sizes = np.array([len(subgroup.rows) for subgroup in subgroups], dtype=np.int64)
    counted = sizes
    if grouping is not None:
        correlation = grouping.correlation(inside.astype(np.float64))
        counted = np.array([grouping.effective_rows(correlation, one.rows) for one in subgroups], dtype=np.int64)
    p = two_sided_p(np.rint(hits / sizes * counted).astype(np.int64), counted, level)
    corrected, is_predicted = p.copy(), np.array([subgroup.kind == "prediction" for subgroup in subgroups], dtype=bool)
    for family in (is_predicted, ~is_predicted):
        corrected[family] = holm(p[family])
    return CoverageTests(subgroups, hits, sizes, counted, p, corrected, level)


def split_by_prediction(median: Floats, width: Floats) -> list[Subgroup]:
    """Ranges of the predicted value, and those ranges of the interval width that are not mostly the same rows."""
    by_value = list(split_into_ranges("prediction", "predicted value", median))
    by_width = list(split_into_ranges("prediction", "interval width", width))
    return [*by_value, *(one for one in by_width if not any(is_same(one.rows, other.rows) for other in by_value))]


def split_into_ranges(kind: str, name: str, values: Floats) -> Iterator[Subgroup]:
    """The ranges of values that have enough rows for a test, with their bounds."""
    parts = split_by_value(values)
    lows, highs = [float(values[rows].min()) for rows in parts], [float(values[rows].max()) for rows in parts]
    for where, rows in zip(range_labels(lows, highs), parts, strict=True):
        if is_testable(rows, len(values)):
            yield Subgroup(kind, name, where, rows)


def is_same(rows: RowNumbers, others: RowNumbers) -> bool:
    """Whether two subgroups have nearly the same rows."""
    return bool(len(np.intersect1d(rows, others)) > SAME_ROWS * max(len(rows), len(others)))


def split_by_value(values: Floats) -> list[RowNumbers]:
    """Ranges of values with about equal counts; each of few distinct values is a subgroup, a single value has none."""
    if np.ptp(values / 2) <= RELATIVE_ROUNDING * np.abs(values).max():
        return []
    distinct = np.unique(values)
    if len(distinct) <= RANGES:
        return [np.flatnonzero(values == value) for value in distinct]
    return equal_count_bins(values, max(min(RANGES, len(values) // MINIMUM_ROWS), 1))


def is_testable(subgroup: RowNumbers, rows: int) -> bool:
    """Whether a subgroup has enough rows for a test, but not all rows."""
    return MINIMUM_ROWS <= len(subgroup) < rows


def holm(p_values: Floats) -> Floats:
    """Holm's corrected p-values: they bound the probability of a false positive under any dependence.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(2)
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(steps, 1.0)
    return corrected

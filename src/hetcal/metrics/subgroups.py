"""Coverage in subgroups of rows: how rows are divided by a value, and which coverages differ significantly.

A subgroup is chosen without looking at y. For a calibrated model the number of rows inside their interval is then
binomial in each subgroup, so its p-value is exact. Holm's correction keeps the probability of even one false positive
over all subgroups at 5 %, even if the subgroups overlap. (Controlling the false discovery rate would allow more false
positives; but a reader acts on a single subgroup that is named, so none should be named by chance.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.metrics.grouping import Grouping
from hetcal.metrics.noise import two_sided_p
from hetcal.metrics.regression import equal_count_bins
from hetcal.splitting import RowNumbers

FALSE_POSITIVE_RATE = 0.05
RANGES = 5
MINIMUM_ROWS = 30
# A gap between observed and nominal coverage up to the first is of no practical importance at the level of 90 %.
# Intervals whose coverage is too low by more than the second are not reliable.
SMALL_GAP, LARGE_GAP = 0.01, 0.05
# Differences below this fraction of the largest value are rounding errors.
RELATIVE_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class CoverageTests:
    """Tests of the coverage in several subgroups, one entry each."""

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


def check_coverage(
    subgroups: Sequence[RowNumbers], inside: NDArray[np.bool_], level: float, grouping: Grouping | None = None
) -> CoverageTests:
    """Test the coverage of each subgroup, given by its row numbers, against the level.

    If rows come in groups, those of a subgroup count as fewer independent rows. A subgroup of one group then rarely
    stands out: that groups differ from each other is what intervals for new groups allow for.
    """
    hits = np.array([inside[rows].sum() for rows in subgroups], dtype=np.int64)
    sizes = np.array([len(rows) for rows in subgroups], dtype=np.int64)
    counted = sizes
    if grouping is not None:
        correlation = grouping.correlation(inside.astype(np.float64))
        counted = np.array([grouping.effective_rows(correlation, rows) for rows in subgroups], dtype=np.int64)
    p = two_sided_p(np.rint(hits / sizes * counted).astype(np.int64), counted, level)
    return CoverageTests(hits, sizes, counted, p, holm(p), level)


def split_by_value(values: Floats) -> list[RowNumbers]:
    """Ranges of values with about equal counts; each of few distinct values is a subgroup, a single value has none."""
    if np.ptp(values / 2) <= RELATIVE_ROUNDING * np.abs(values).max():
        return []
    distinct = np.unique(values)
    if len(distinct) <= RANGES:
        return [np.flatnonzero(values == value) for value in distinct]
    return equal_count_bins(values, max(min(RANGES, len(values) // MINIMUM_ROWS), 1))


def large_enough(subgroups: Sequence[RowNumbers], rows: int) -> list[RowNumbers]:
    """The subgroups with enough rows for a test, but not all rows."""
    return [subgroup for subgroup in subgroups if MINIMUM_ROWS <= len(subgroup) < rows]


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

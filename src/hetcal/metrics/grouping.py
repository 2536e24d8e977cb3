"""Rows that come in groups, such as those of a patient or a day: how many independent rows they count as.

Rows of a group share errors, so that n of them say less than n independent rows. The correlation within groups is
estimated from the rows themselves, and n is divided by the design effect that follows from it (Kish, 1965). An estimate
from few groups is uncertain itself, for which the quantiles of Student's t with one degree of freedom less than there
are groups allow (Korn and Graubard, 1998, Confidence intervals for proportions with small expected number of positive
counts). Tests and confidence intervals are then those of independent rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from hetcal._checks import Floats, must
from hetcal.splitting import RowNumbers

GroupLabels = Sequence[Any] | NDArray[Any]  # one per row


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of rows; each row has the number of its group, from 0 to the number of groups - 1."""

    codes: NDArray[np.int64]  # (n,)

    @classmethod
    def of(cls, groups: GroupLabels | None, rows: int) -> "Grouping | None":
        """Read one label per row; None, or a label of its own for every row, means that there are no groups."""
        if groups is None:
            return None
        if len(groups) != rows:
            rule = f"have one label per row of y ({rows})"
            raise must("groups", rule, f"{len(groups)} labels", "give both the same length")
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(str(label), len(numbers)) for label in groups], dtype=np.int64)
        return cls(codes) if len(numbers) < rows else None

    @classmethod
    def join(cls, parts: "Sequence[Grouping | None]", rows: Sequence[int]) -> "Grouping | None":
        """The groups of all rows of several parts with these numbers of rows; no group has rows in two parts."""
        if all(part is None for part in parts):
            return None
        codes = [np.arange(n) if part is None else part.codes for part, n in zip(parts, rows, strict=True)]
        starts = np.cumsum([0, *(int(part.max()) + 1 for part in codes[:-1])])
        return cls(np.concatenate([part + start for part, start in zip(codes, starts, strict=True)]))

    @property
    def count(self) -> int:
        return int(self.codes.max()) + 1

    @cached_property
    def mean_size(self) -> float:
        """The number of rows in the group of a typical row; large groups count by their rows."""
        return mean_size(self.codes)

    def correlation(self, values: Floats) -> float:
        """The correlation of two rows of the same group, at least 0; the mean over columns if `values` has several.

        >>> Grouping(np.array([0, 0, 1, 1, 2, 2])).correlation(np.array([1.0, 1.0, 0.0, 0.0, 1.0, 1.0]))
        1.0
        """
        residuals = (values - values.mean(axis=0)).reshape(len(values), -1)
        spread = (residuals**2).sum(axis=0)
        if self.count < 2 or not (spread > 0).any():
            return 0.0
        sums = np.stack([np.bincount(self.codes, column) for column in residuals.T], axis=1)
        # The mean was estimated, so that the sums of g groups are too small by the factor (g - 1) / g.
        ratio = (sums**2).sum(axis=0)[spread > 0] / spread[spread > 0] * self.count / (self.count - 1)
        return float(np.clip((ratio.mean() - 1) / (self.mean_size - 1), 0, 1))

    def effective_rows(self, correlation: float, subset: RowNumbers | None = None) -> int:
        """The number of independent rows that all rows count as, or those of a subset; at least 1."""
        codes = self.codes if subset is None else self.codes[subset]
        design_effect = 1 + correlation * (mean_size(codes) - 1)
        return max(int(self.certainty * len(codes) / design_effect), 1)

    @cached_property
    def certainty(self) -> float:
        """At most 1: the squared ratio of the quantiles of Student's t for as many rows and for as many groups."""
        groups = len(self.codes) / self.mean_size  # a few large groups count as few, however many small ones there are
        if groups < 2:
            return 0.0
        by_rows, by_groups = student_t.ppf(0.975, len(self.codes) - 1), student_t.ppf(0.975, groups - 1)
        return float((by_rows / by_groups) ** 2)


def mean_size(codes: NDArray[np.int64]) -> float:
    sizes = np.bincount(codes)
    return float((sizes.astype(np.float64) ** 2).sum() / sizes.sum())

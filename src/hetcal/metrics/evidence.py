"""What the verdict has to know about evaluated rows, and how many independent rows they count as."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.distributions import EDGE
from hetcal.metrics.grouping import Grouping, GroupLabels
from hetcal.metrics.noise import CURVE_LEVELS
from hetcal.metrics.regression import coverages, inside_interval, pit
from hetcal.metrics.subgroups import RELATIVE_ROUNDING

LEVEL = 0.9  # at which every prediction is judged that has quantiles of any probability


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the rule needs to know about evaluated rows; the evidence of several folds can be pooled."""

    coverage: Floats  # (99,), at CURVE_LEVELS
    inside: NDArray[np.bool_]  # (n,), of the interval of `level`
    truth: Floats  # (n,)
    median: Floats  # (n,)
    lower: Floats  # (n,), ends of this interval
    upper: Floats  # (n,)
    part_above: Floats  # (n,), of the probability of an atom, above the median; nan if the true value is no atom, 0.5
    # if the prediction has no median
    pit: Floats  # (n,)
    grouping: Grouping | None = None
    is_given: NDArray[np.bool_] = field(default_factory=lambda: np.ones(len(CURVE_LEVELS), dtype=bool))  # (99,)
    level: float = LEVEL  # of the intervals that are judged

    @classmethod
    def of(cls, truth: Floats, prediction: Any, groups: GroupLabels | None = None) -> "Evidence":
        level = level_of(prediction)
        with np.errstate(over="ignore"):
            lower, upper = prediction.interval(level).T
            median = np.asarray(prediction.quantile(0.5))
        inside = inside_interval(truth, prediction, level)
        is_given = getattr(prediction, "is_given", lambda q: np.ones(np.shape(q), dtype=bool))
        return cls(
            coverages(truth, prediction, CURVE_LEVELS),
            inside,
            truth,
            median,
            lower,
            upper,
            # What is only interpolated between the ends of an interval cannot be held against a prediction.
            split_atoms(truth, prediction) if is_given(0.5) else np.full(len(truth), 0.5),
            pit(truth, prediction),
            Grouping.of(groups, len(truth)),
            is_given((1 - CURVE_LEVELS) / 2) & is_given((1 + CURVE_LEVELS) / 2),
            level,
        )

    @classmethod
    def pool(cls, parts: "Sequence[Evidence]") -> "Evidence":
        """All rows of several parts, such as the held-out rows of all folds; no group has rows in two parts."""
        rows = [part.rows for part in parts]
        coverage = np.average([part.coverage for part in parts], axis=0, weights=rows)
        names = ("inside", "truth", "median", "lower", "upper", "part_above", "pit")
        values = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        grouping = Grouping.join([part.grouping for part in parts], rows)
        is_given = np.all([part.is_given for part in parts], axis=0)
        return cls(coverage, **values, grouping=grouping, is_given=is_given, level=parts[0].level)

    @property
    def rows(self) -> int:
        return len(self.truth)

    @cached_property
    def observed(self) -> float:
        """Coverage of the intervals."""
        return float(np.mean(self.inside))

    @cached_property
    def step(self) -> float:
        return typical_step(self.truth)

    @cached_property
    def above(self) -> Floats:
        """How much of each true value lies above the predicted median, from 0 to 1."""
        return parts_above(self.truth, self.median, self.step, self.part_above)

    @cached_property
    def share_above(self) -> float:
        return float(self.above.mean())

    # Independent rows that the rows count as: their number, unless they come in groups.

    @cached_property
    def rows_of_coverage(self) -> int:
        return self.effective_rows(self.inside)

    @cached_property
    def rows_of_median(self) -> int:
        return self.effective_rows(self.above)

    @cached_property
    def rows_of_curve(self) -> int:
        """With two digits only: an estimate has no more, and a noise band is simulated for every number of rows."""
        rows = self.effective_rows(np.abs(2 * self.pit - 1)[:, None] <= np.linspace(0.1, 0.9, 9))
        step = 1 if self.grouping is None else 10 ** max(len(str(rows)) - 2, 0)
        return rows // step * step

    def effective_rows(self, values: NDArray[Any]) -> int:
        if self.grouping is None:
            return self.rows
        return self.grouping.effective_rows(self.grouping.correlation(values.astype(np.float64)))


def level_of(prediction: Any) -> float:
    """The level of the intervals to judge: 90 %, or the nearest one that a table of a few quantiles gives."""
    levels = getattr(prediction, "central_levels", ())
    return min(levels, key=lambda level: abs(level - LEVEL)) if levels else LEVEL


def split_atoms(truth: Floats, prediction: Any) -> Floats:
    """The part of the probability of each true value that lies above the median; nan if the probability is 0."""
    if not hasattr(prediction, "cdf_below"):
        return np.full(len(truth), np.nan)
    upto = prediction.cdf(truth)
    mass = upto - prediction.cdf_below(truth)
    return np.where(mass > EDGE, np.clip((upto - 0.5) / np.maximum(mass, EDGE), 0, 1), np.nan)


def parts_above(truth: Floats, median: Floats, step: float, part_above: Floats) -> Floats:
    """1 for a true value above the predicted median, 0 for one below; a predicted atom counts with its part above.

    A target that comes in steps, such as a whole number, represents all values that round to it. It counts with the
    part of its step that lies above the median: half of it if it equals the median, all of it a step above. Otherwise,
    with a median of 5.4, every 5 would be below and every 6 above, and the share would depend on the steps, not on the
    model.
    """
    with np.errstate(over="ignore", under="ignore"):
        rounding = max(RELATIVE_ROUNDING * float(np.abs(truth).max()), float(np.finfo(float).tiny))
        by_step = np.clip((truth - median) / max(step, rounding) + 0.5, 0, 1)
    return np.where(np.isnan(part_above), by_step, part_above)


def typical_step(truth: Floats) -> float:
    """The distance between neighboring values, as the median over the rows; 0 if no value repeats.

    A single odd value does not change the median.
    """
    values, counts = np.unique(truth, return_counts=True)
    if len(values) in (1, len(truth)):
        return 0.0
    with np.errstate(over="ignore"):
        gaps, weights = np.diff(values), counts[1:] + counts[:-1]
    order = np.argsort(gaps)
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(gaps[order][middle])

"""The figures of a fit, by name, and their mean over splits or folds with its standard error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetcal.metrics import METRICS, Metric


def not_computed(y: Any, prediction: Any) -> float:
    raise TypeError("seconds are measured while a model is fitted, not computed from its predictions")


# The figures of every fit: the metrics, and the time.
FIGURES: dict[str, Metric] = {
    **METRICS,
    "seconds": Metric(not_computed, "Seconds", "Seconds", "", "time to fit and predict once"),
}
# The figures that a comparison of methods shows, the decisive one first.
COMPARED = ("crps", "ce", "coverage_90", "interval_width_90", "interval_score_90", "rmse", "nll", "seconds")


@dataclass(frozen=True)
class Estimate:
    """Mean of a figure over `n` splits or folds, with its standard error (0 for a single one)."""

    mean: float
    error: float
    n: int


def estimate(values: Sequence[float] | np.ndarray[Any, Any]) -> Estimate:
    """Compute the mean and its standard error; if a value is not finite, neither are these.

    >>> estimate([2.0, 4.0])
    Estimate(mean=3.0, error=1.0, n=2)
    """
    numbers = np.asarray(values, dtype=np.float64)
    n = len(numbers)
    if not np.isfinite(numbers).all():
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            return Estimate(float(np.mean(numbers)), math.nan, n)
    exponent = np.frexp(np.abs(numbers).max())[1]
    scaled = np.ldexp(numbers, -exponent)  # squares stay in the range of floats; a power of two is exact
    error = np.ldexp(scaled.std(ddof=1) / math.sqrt(n), exponent) if n > 1 else 0.0
    return Estimate(float(np.ldexp(scaled.mean(), exponent)), float(error), n)

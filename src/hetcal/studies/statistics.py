"""Figures over splits or folds: which ones there are, and their mean with its standard error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetcal.metrics import METRICS, Metric


def measured(y: Any, prediction: Any) -> float:
    raise TypeError("seconds are measured while a model is fitted, not computed from its predictions")


# What a study knows of every fit, by name: the metrics, and the time.
FIGURES: dict[str, Metric] = {
    **METRICS,
    "seconds": Metric(measured, "Seconds", "Seconds", "", "time to fit and predict once"),
}
# What a comparison of methods shows, the figure that decides first.
COMPARED = ("crps", "ce", "coverage_90", "interval_width_90", "interval_score_90", "rmse", "nll", "seconds")


@dataclass(frozen=True)
class Estimate:
    """Mean of a figure over `n` splits or folds with its standard error (0 for a single one)."""

    mean: float
    error: float
    n: int


def estimate(values: Sequence[float] | np.ndarray[Any, Any]) -> Estimate:
    """Mean and standard error of the mean; a value that is not finite makes the mean so, too.

    >>> estimate([1.0, 2.0, 3.0])
    Estimate(mean=2.0, error=0.5773502691896257, n=3)
    """
    numbers = np.asarray(values, dtype=np.float64)
    n = len(numbers)
    if not np.isfinite(numbers).all():
        return Estimate(float(np.mean(numbers)), math.nan, n)
    scale = float(2.0 ** np.frexp(np.abs(numbers).max())[1])  # squares stay in the range of floats, and exact
    scaled = numbers / scale
    error = float(scaled.std(ddof=1) / math.sqrt(n) * scale) if n > 1 else 0.0
    return Estimate(float(scaled.mean() * scale), error, n)

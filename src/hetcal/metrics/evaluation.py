"""The list of metrics, each with its names and its meaning, and a function that computes all of them.

Every table, report and study takes names, headings and explanations from `METRICS`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetcal.metrics.grouping import GroupLabels
from hetcal.metrics.inputs import Mean, Std, as_prediction
from hetcal.metrics.noise import ce_noise_floor
from hetcal.metrics.regression import (
    ce,
    conditional_coverage_error,
    coverage,
    crps,
    ence,
    interval_score,
    interval_width,
    mae,
    nll,
    pinball_loss,
    rmse,
    sharpness,
)
from hetcal.metrics.verdict import judge


class Metric(NamedTuple):
    """How a metric is computed, `function(y, prediction)`, and how it is named and explained.

    `better` is "low", "near" (to the nominal coverage), or empty if neither end is better by itself.
    """

    function: Callable[[Any, Any], Any]
    heading: str
    title: str
    better: str
    meaning: str


def floor_of_rows(y: Any, prediction: Any) -> float:
    return ce_noise_floor(len(y))


METRICS: dict[str, Metric] = {
    "rmse": Metric(rmse, "RMSE", "RMSE", "low", "typical distance of the predicted mean from the true value"),
    "mae": Metric(mae, "MAE", "Mean absolute error", "low", "mean distance of the predicted mean from the true value"),
    "ce": Metric(
        ce, "CE", "Calibration error", "low", "distance of observed from nominal coverage, sum over six levels"
    ),
    "ce_noise_floor": Metric(floor_of_rows, "CE floor", "Noise floor of the CE", "", "expected CE of a perfect model"),
    "nll": Metric(nll, "NLL", "Negative log likelihood", "low", "mean negative log density of the true value"),
    "crps": Metric(crps, "CRPS", "CRPS", "low", "distance of the true value from the whole predictive distribution"),
    "sharpness": Metric(sharpness, "Sharpness", "Sharpness", "", "root mean square of the standard deviation"),
    "coverage_90": Metric(coverage, "Coverage", "Coverage of 90 % intervals", "near", "share of rows inside"),
    "interval_width_90": Metric(
        interval_width, "Width", "Width of 90 % intervals", "", "narrow is better only where the coverage holds"
    ),
    "interval_score_90": Metric(
        interval_score, "Interval score", "Interval score", "low", "width of 90 % intervals, plus a penalty per miss"
    ),
    "pinball_loss": Metric(pinball_loss, "Pinball loss", "Pinball loss", "low", "mean over five quantiles"),
    "ence": Metric(
        ence, "ENCE", "Expected normalized calibration error", "low", "relative error of the standard deviation, by bin"
    ),
    "conditional_coverage_error": Metric(
        conditional_coverage_error,
        "CCE",
        "Conditional coverage error",
        "low",
        "distance of the coverage from 90 %, by bin",
    ),
}


def evaluate(y: ArrayLike, mean: Mean, std: Std = None, groups: GroupLabels | None = None) -> dict[str, Any]:
    """Compute all metrics of a prediction, in the units of y, and the verdict in words.

    Args:
        y: (n,) true values; or (n, k) for k targets.
        mean, std: Like y; or a prediction in place of both, such as `model.predict_dist(X)`.
        groups: (n,) labels of rows that belong together, which the verdict takes into account.

    Returns:
        A dict with `n`; every name of `METRICS`: the value of the function of that name (with the level 0.9 where the
        name ends in `_90`); and `verdict`, a sentence (see `hetcal.metrics.judge`). For k targets the values are (k,)
        arrays and a list of sentences, but there is one `n` and one `ce_noise_floor`.

    >>> scores = evaluate(y=[1.0, 2.0, 4.0], mean=[1.1, 2.5, 3.0], std=[0.5, 0.5, 0.8])
    >>> scores["n"], round(scores["crps"], 3)
    (3, 0.352)
    """
    truth, prediction = np.atleast_1d(np.asarray(y)), as_prediction(mean, std)
    scores = compute_metrics(truth, prediction)
    judged = judge(truth, prediction, groups=groups)
    verdict = [str(one) for one in judged] if isinstance(judged, list) else str(judged)
    return {"n": len(truth), **scores, "verdict": verdict}


def compute_metrics(truth: Any, prediction: Any) -> dict[str, Any]:
    """Every metric of `METRICS` by name, without the verdict."""
    return {name: metric.function(truth, prediction) for name, metric in METRICS.items()}

"""What rows with known targets teach about predicted probabilities: a factor of std, and a map that corrects them.

The three methods of `hetcal.recalibration`, without the regressor: predictions and true values in, a `Recalibration`
out, which is a few numbers and can be applied to any prediction. NumPy only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import norm
from scipy.special import ndtr, ndtri

from hetcal._checks import Floats, check_vector, must
from hetcal.distributions import (
    EDGE,
    RandomizedPIT,
    RecalibratedPrediction,
    TabulatedPrediction,
    TransformedPrediction,
)
from hetcal.families import GAUSSIAN
from hetcal.prediction import Prediction

Distribution = Any  # `Prediction`, or one of `hetcal.distributions`
Judged = Sequence[tuple[Distribution, Floats]]  # predictions of calibration rows with the true values

# Points of the map of probabilities, so that it stays small in a model file; calibration rows in between are left out.
MOST_KNOTS = 1000
FACTOR_STEPS = 12
# The levels at which a tabulated distribution is tabulated again.
TABLE_LEVELS = np.concatenate([[0.001], np.arange(1, 200) / 200, [0.999]])


@dataclass(frozen=True, eq=False)
class Recalibration:
    """What calibration rows teach: a factor of the standard deviation, then an increasing map of the probabilities.

    Args:
        method: "std", "isotonic" or "conformal".
        rows: Number of calibration rows.
        factor: Positive.
        pit, probability: (m,) points of the map, ascending from 0 to 1; two points are no map. See
            `RecalibratedPrediction`.
    """

    method: str
    rows: int
    factor: float
    pit: Floats
    probability: Floats

    def apply(self, prediction: Distribution) -> Distribution:
        """The recalibrated prediction, for one target."""
        scaled = scale_std(prediction, self.factor)
        return scaled if len(self.pit) == 2 else map_probabilities(scaled, self.pit, self.probability)


# What is learned.


def learn_std(judged: Judged) -> Recalibration:
    """The factor alone."""
    factor = std_factor(judged)
    return Recalibration("std", sum(len(y) for _, y in judged), factor, np.array([0.0, 1.0]), np.array([0.0, 1.0]))


def learn_isotonic(judged: Judged) -> Recalibration:
    """The factor, then the share of calibration rows up to each probability."""
    factor = std_factor(judged)
    scores = sorted_scores(judged, factor)
    pit, first = np.unique(np.clip(ndtr(scores), EDGE, 1 - EDGE), return_index=True)
    share = np.append(first[1:], len(scores)) / (len(scores) + 1)
    kept = spread_evenly(len(pit))
    knots = (np.concatenate([[0.0], values[kept], [1.0]]) for values in (pit, share))
    return Recalibration("isotonic", len(scores), factor, *knots)


def learn_conformal(judged: Judged) -> Recalibration:
    """The factor, then the level that a central interval needs, for each rank; the level is rounded up to a rank."""
    factor = std_factor(judged, least=0.0) or 1.0
    scores = np.sort(np.abs(sorted_scores(judged, factor)))
    kept = spread_evenly(len(scores))
    # The k-th smallest score belongs to every level above (k - 1) / (n + 1), or above that of the last rank kept.
    level = np.append(kept[0], kept[:-1] + 1) / (len(scores) + 1)
    upper, first = np.unique(np.clip(ndtr(scores[kept]), 0.5, 1 - EDGE), return_index=True)
    is_used = (upper > 0.5) & (level[first] > 0)
    upper, half = upper[is_used], level[first][is_used] / 2
    pit = np.concatenate([[0.0], 1 - upper[::-1], [0.5], upper, [1.0]])
    probability = np.concatenate([[0.0], 0.5 - half[::-1], [0.5], 0.5 + half, [1.0]])
    return Recalibration("conformal", len(scores), factor, pit, probability)


LEARN: dict[str, Callable[[Judged], Recalibration]] = {
    "isotonic": learn_isotonic,
    "std": learn_std,
    "conformal": learn_conformal,
}


def spread_evenly(n: int) -> Any:
    """All of n positions, or some of them, the first and the last included."""
    return np.unique(np.linspace(0, n - 1, min(n, MOST_KNOTS)).round().astype(int))


@np.errstate(over="ignore")
def std_factor(judged: Judged, least: float = np.finfo(float).tiny) -> float:
    """Root mean square of the standardized residuals.

    A target that a prediction excludes would make a residual infinite and is refused. Where there are normal scores in
    place of residuals, the factor is the one with which their root mean square is 1, found step by step.
    """
    factor = rms_residual(judged)
    if factor < least:
        rows, advice = sum(len(y) for _, y in judged), "calibrate on rows that the regressor has not seen"
        raise must("y", "differ from the predicted mean in some row", f"{rows} values equal to it", advice)
    if factor > 0 and any(isinstance(prediction, RandomizedPIT) for prediction, _ in judged):
        for _ in range(FACTOR_STEPS):
            factor *= rms_residual([(scale_std(prediction, factor), y) for prediction, y in judged])
    return factor


def rms_residual(judged: Judged) -> float:
    """BLAS computes it without overflow."""
    z = check_vector("(y - mean) / std", np.concatenate([prediction.z(y) for prediction, y in judged]))
    return float(norm(z) / np.sqrt(len(z)))


# Predictions.


def scale_std(prediction: Distribution, factor: float) -> Distribution:
    """The prediction with its standard deviations multiplied by the factor, in the scale of a transformed target.

    A tabulated distribution is stretched around its median.
    """
    if factor == 1.0:
        return prediction
    if isinstance(prediction, TabulatedPrediction):
        median = prediction.quantile(0.5)
        mean, std = prediction.given
        mean, std = mean if mean is None else median + factor * (mean - median), std if std is None else factor * std
        quantiles = median[:, None] + factor * (prediction.quantiles - median[:, None])
        return with_draws(TabulatedPrediction(prediction.levels, quantiles, mean, std), prediction)
    if not isinstance(prediction, Prediction):
        return replace(prediction, base=scale_std(prediction.base, factor))
    std, epistemic, aleatoric = (None if values is None else values * factor for values in prediction.columns[1:])
    return replace(prediction, std=std, epistemic_std=epistemic, aleatoric_std=aleatoric)


def map_probabilities(prediction: Distribution, pit: Floats, probability: Floats) -> Distribution:
    """The prediction with its probabilities mapped; atoms stay atoms."""
    has_atoms = isinstance(prediction, RandomizedPIT)
    if isinstance(prediction, TabulatedPrediction):
        q = np.clip(np.interp(TABLE_LEVELS, probability, pit), EDGE, 1 - EDGE)
        return with_draws(TabulatedPrediction(TABLE_LEVELS, prediction.quantile(q)), prediction)
    if has_atoms:
        return replace(prediction, base=map_probabilities(prediction.base, pit, probability))
    return RecalibratedPrediction(prediction, pit, probability)


def with_draws(prediction: TabulatedPrediction, other: TabulatedPrediction) -> TabulatedPrediction:
    prediction.draws = other.draws
    return prediction


def sorted_scores(judged: Judged, factor: float) -> Floats:
    """Normal scores of the true values, with the standard deviations times the factor, ascending."""
    parts = []
    for prediction, y in judged:
        scaled = scale_std(prediction, factor)
        parts.append(scaled.z(y) if scaled.family == GAUSSIAN else ndtri(np.clip(scaled.cdf(y), EDGE, 1 - EDGE)))
    return np.sort(np.concatenate(parts))


def at_scores(prediction: Distribution, scores: Floats) -> Floats:
    """(n, ...) quantiles at normal scores; those of a Gaussian are exact at any distance."""
    if isinstance(prediction, TransformedPrediction):
        return prediction.transform.inverse(at_scores(prediction.base, scores))
    if isinstance(prediction, Prediction) and prediction.family == GAUSSIAN:
        return np.asarray(prediction.mean_plus(scores, axes=scores.ndim))
    q = np.clip(ndtr(scores), EDGE, 1 - EDGE)
    return np.asarray(prediction.quantile(q.ravel())).reshape(-1, *q.shape)

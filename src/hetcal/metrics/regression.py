r"""Metrics of regression predictions: plain formulas on NumPy arrays (paper, eq. 3 and section 4).

The first argument of every metric is the true values, in the units of y: `(y, mean, std)` for a Gaussian per row, or
`(y, prediction)` for any family and transform, as in `crps(y, model.predict_dist(X))`. None of them imports torch, and
they work on the predictions of any model. For several targets, y of shape (n, k), a metric returns a (k,) array.

In the formulas :math:`\mu` = `mean`, :math:`\sigma` = `std`, F is the distribution function of the family
(:math:`\Phi` for the Gaussian) and :math:`z_i` = `prediction.z(y)`, which is :math:`(y_i - \mu_i) / \sigma_i`, or the
same for the transformed target if the prediction was made for one.

Even a perfect model has a positive calibration error on finitely many rows; `hetcal.metrics.noise` computes how large.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetcal._checks import Floats, check_levels, check_number, check_vector, must
from hetcal.distributions import innermost
from hetcal.metrics.inputs import Mean, Std, as_prediction, check_one_target, per_target, read_prediction
from hetcal.metrics.noise import CURVE_LEVELS, LEVELS, calibration_band

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


# Calibration: do the intervals cover as often as they should?


@per_target
def ce(y: ArrayLike, mean: Mean, std: Std = None, levels: ArrayLike = LEVELS) -> float:
    r"""Calibration error, eq. 3 of the paper: the sum over the levels, not their mean.

    .. math:: CE = \sum_p \left| p - \frac1n \sum_i
              1\{F^{-1}(\tfrac{1 - p}{2}) \le z_i \le F^{-1}(\tfrac{1 + p}{2})\} \right|

    with p = `levels`. Compare it with `ce_noise_floor(n)`.

    >>> round(ce(y=[0.0, 2.0], mean=[0.0, 0.0], std=[1.0, 1.0], levels=[0.5, 0.9]), 3)
    0.4
    """
    p = np.atleast_1d(check_levels("levels", levels))
    return float(np.abs(p - coverages(*read_prediction(y, mean, std), p)).sum())


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Observed `coverage` per level, and the noise band of a calibrated model at all levels: four (k,) arrays."""

    levels: Floats
    coverage: Floats
    lower: Floats
    upper: Floats


def calibration_curve(
    y: ArrayLike, mean: Mean, std: Std = None, levels: ArrayLike | None = None, confidence: float = 0.95
) -> CalibrationCurve:
    r"""Observed against nominal coverage of one target, with a simultaneous noise band around the diagonal.

    .. math:: P(lower_p \le \hat c_p \le upper_p \text{ for all } p) \ge confidence \quad \text{for a calibrated model}

    with :math:`\hat c_p` = `coverage`, p = `levels` (default 0.01, 0.02, ..., 0.99). The band joins binomial intervals,
    whose common tail probability is determined by simulation, within 0.3 points of `confidence`. Unlike a Kolmogorov
    band it is narrow near 0 and 1, where overconfidence shows. Säilynoja, Bürkner and Vehtari (2022), Graphical test
    for discrete uniformity.

    >>> curve = calibration_curve(y=np.linspace(-2, 2, 50), mean=np.zeros(50), std=np.ones(50), levels=[0.5, 0.9])
    >>> curve.coverage, curve.lower, curve.upper
    (array([0.32, 0.8 ]), array([0.36, 0.8 ]), array([0.64, 0.98]))
    """
    check_number("confidence", confidence, 0, 1, open_low=True, open_high=True)
    p = CURVE_LEVELS if levels is None else np.atleast_1d(check_levels("levels", levels))
    truth, prediction = read_prediction(y, mean, std)
    return CalibrationCurve(p, coverages(truth, prediction, p), *calibration_band(len(truth), p, confidence))


@per_target
def coverage(y: ArrayLike, mean: Mean, std: Std = None, level: float = 0.9) -> float:
    r"""Share of rows inside their central interval, ends included; equal to `level` for a calibrated model.

    .. math:: \frac1n \sum_i 1\{F^{-1}(\tfrac{1 - level}{2}) \le z_i \le F^{-1}(\tfrac{1 + level}{2})\}

    >>> coverage(y=[0.0, 2.0], mean=[0.0, 0.0], std=[1.0, 1.0], level=0.9)
    0.5
    """
    return float(np.mean(inside_interval(*read_prediction(y, mean, std), level)))


@per_target
@np.errstate(over="ignore")
def pit(y: ArrayLike, mean: Mean, std: Std = None) -> Floats:
    r"""Probability integral transform :math:`u_i = F(z_i)` per row: uniform on (0, 1) if the model is calibrated.

    >>> pit(y=[0.0, 2.0], mean=[0.0, 0.0], std=[1.0, 1.0]).round(3)
    array([0.5  , 0.977])
    """
    truth, prediction = read_prediction(y, mean, std)
    return np.asarray(prediction.family.cdf(prediction.z(truth)))


# Conditional calibration: a constant std can be calibrated on average and wrong for every row.


@per_target
def ence(y: ArrayLike, mean: Mean, std: Std = None, bins: int = 10) -> float:
    r"""Expected normalized calibration error: relative difference between residuals and std, in bins of the std.

    .. math:: ENCE = \frac1B \sum_b \frac{|RMV_b - RMSE_b|}{RMV_b},
        \qquad RMV_b^2 = \frac{1}{|b|} \sum_{i \in b} \sigma_i^2,
        \qquad RMSE_b^2 = \frac{1}{|b|} \sum_{i \in b} (y_i - \mu_i)^2

    with B = `bins` of equal count, by `std`. Rows of equal std share one bin, so that the order of the rows does not
    matter: ties make fewer, larger bins. Levi et al. (2019), Evaluating and calibrating uncertainty prediction.

    >>> round(ence(y=[1.0, -4.0], mean=[0.0, 0.0], std=[1.0, 2.0], bins=2), 3)
    0.5
    """
    truth, prediction = read_prediction(y, mean, std)
    residual, sigma = _residual(truth, prediction), prediction.std
    ratios = [_root_mean_square(residual[b]) / _root_mean_square(sigma[b]) for b in equal_count_bins(sigma, bins)]
    return float(np.mean(np.abs(1 - np.array(ratios))))


@per_target
def conditional_coverage_error(
    y: ArrayLike, mean: Mean, std: Std = None, level: float = 0.9, by: ArrayLike | None = None, bins: int = 10
) -> float:
    r"""Mean distance of the coverage from its level over bins of rows, instead of over all rows together.

    .. math:: \frac1B \sum_b |\hat c_b - level|,
        \qquad \hat c_b = \frac{1}{|b|} \sum_{i \in b}
        1\{F^{-1}(\tfrac{1 - level}{2}) \le z_i \le F^{-1}(\tfrac{1 + level}{2})\}

    with B = `bins` of equal count, by `by`: any number per row, such as a feature (default: `std`). Rows of equal value
    share one bin, as in `ence`. With few rows per bin it is noisy: compare models on the same rows only.

    >>> round(conditional_coverage_error(y=[0.0, 9.0], mean=[0.0, 0.0], std=[1.0, 2.0], level=0.9, bins=2), 3)
    0.5
    """
    truth, prediction = read_prediction(y, mean, std)
    inside = inside_interval(truth, prediction, level)
    groups = equal_count_bins(prediction.std if by is None else _check_same_length("by", by, truth), bins)
    return float(np.mean([abs(np.mean(inside[b]) - level) for b in groups]))


# Accuracy of the mean, and sharpness of the intervals.


@per_target
def rmse(y: ArrayLike, mean: Mean, std: Std = None) -> float:
    r"""Root mean squared error, :math:`\sqrt{\frac1n \sum_i (y_i - \mu_i)^2}`, in the units of y; needs no `std`.

    >>> rmse(y=[3.0, 0.0], mean=[0.0, 0.0]) == (9 / 2) ** 0.5
    True
    """
    return _root_mean_square(_residual(y, mean))


@per_target
def mae(y: ArrayLike, mean: Mean, std: Std = None) -> float:
    r"""Mean absolute error, :math:`\frac1n \sum_i |y_i - \mu_i|`, in the units of y; needs no `std`.

    >>> mae(y=[3.0, 0.0], mean=[0.0, 0.0])
    1.5
    """
    return float(np.mean(np.abs(_residual(y, mean))))


@per_target
def sharpness(y: ArrayLike, mean: Mean, std: Std = None) -> float:
    r"""Root mean variance, :math:`\sqrt{\frac1n \sum_i \sigma_i^2}`, in the units of y; near the RMSE if calibrated.

    >>> sharpness(y=[0.0, 0.0], mean=[0.0, 0.0], std=[1.0, 7.0])
    5.0
    """
    return _root_mean_square(read_prediction(y, mean, std)[1].std)


@per_target
def interval_width(y: ArrayLike, mean: Mean, std: Std = None, level: float = 0.9) -> float:
    r"""Mean width of the central intervals, in the units of y.

    .. math:: \frac1n \sum_i (u_i - l_i), \qquad [l_i, u_i] = \mu_i + F^{-1}((1 \mp level) / 2) \sigma_i

    or these ends mapped back by the inverse of the transform: `prediction.interval(level)`, eq. 2 of the paper.

    >>> round(interval_width(y=[0.0, 0.0], mean=[0.0, 0.0], std=[1.0, 3.0], level=0.95), 2)
    7.84
    """
    lower, upper = read_prediction(y, mean, std)[1].interval(_check_level(level)).T
    return float(np.mean(upper - lower))


# Proper scoring rules: calibration and sharpness in one number, optimal in expectation for the true distribution.


@per_target
@np.errstate(over="ignore", divide="ignore")  # a density of 0, or one too small for a float, has an infinite score
def nll(y: ArrayLike, mean: Mean, std: Std = None) -> float:
    r"""Mean negative log density, :math:`-\frac1n \sum_i \log p_i(y_i)`: eq. 1 of the paper with its constant.

    .. math:: \frac1n \sum_i \left( \frac{(y_i - \mu_i)^2}{2 \sigma_i^2} + \log \sigma_i \right) + \frac12 \log 2\pi

    for the Gaussian; see `hetcal.families` for the others. A transform adds its Jacobian.

    >>> round(nll(y=[1.0], mean=[0.0], std=[1.0]), 4)
    1.4189
    """
    truth, prediction = read_prediction(y, mean, std)
    return float(-np.mean(prediction.log_prob(truth)))


@per_target
@np.errstate(over="ignore", invalid="ignore")  # z may exceed the range of floats
def crps(y: ArrayLike, mean: Mean, std: Std = None) -> float:
    r"""Continuous ranked probability score, in the units of y: the generalization of the MAE to distributions.

    .. math:: \frac1n \sum_i \int (F_i(t) - 1\{y_i \le t\})^2 \, dt
        = \frac1n \sum_i \sigma_i \left( z_i (2 \Phi(z_i) - 1) + 2 \varphi(z_i) - \frac{1}{\sqrt\pi} \right)

    with :math:`F_i` the predicted distribution function of row i; the right side is the Gaussian's, see
    `hetcal.families` for the others. Gneiting and Raftery (2007), Strictly proper scoring rules, eq. 21.

    >>> round(crps(y=[1.0], mean=[0.0], std=[1.0]), 4)
    0.6024
    """
    truth, prediction = read_prediction(y, mean, std)
    scores = prediction.crps(truth)
    if not np.isfinite(scores).all():
        # So far away, the distribution acts like a point, and the score is the absolute error.
        scores = np.where(np.isfinite(scores), scores, np.abs(_residual(truth, prediction)))
    return float(np.mean(scores))


@per_target
@np.errstate(over="ignore")
def interval_score(y: ArrayLike, mean: Mean, std: Std = None, level: float = 0.9) -> float:
    r"""Winkler's interval score, in the units of y: the width, plus a penalty for each row outside.

    .. math:: \frac1n \sum_i \left( u_i - l_i + \frac{2}{1 - level} \max(l_i - y_i, y_i - u_i, 0) \right)

    with :math:`[l_i, u_i]` = `prediction.interval(level)`, as in `interval_width`.

    >>> round(interval_score(y=[0.0, 2.0], mean=[0.0, 0.0], std=[1.0, 1.0], level=0.9), 3)
    6.841
    """
    truth, prediction = read_prediction(y, mean, std)
    lower, upper = prediction.interval(_check_level(level)).T
    outside = np.maximum(np.maximum(lower - truth, truth - upper), 0)
    return float(np.mean(upper - lower + 2 / (1 - level) * outside))


@per_target
@np.errstate(over="ignore")
def pinball_loss(y: ArrayLike, mean: Mean, std: Std = None, quantiles: ArrayLike = QUANTILES) -> float:
    r"""Pinball loss, eq. 4 of the paper, of the predicted quantiles: mean over rows and quantiles, in the units of y.

    .. math:: \frac{1}{n |Q|} \sum_i \sum_{q \in Q} \max(q \, d_{iq}, (q - 1) \, d_{iq}),
        \qquad d_{iq} = y_i - F_i^{-1}(q)

    with Q = `quantiles`, :math:`F_i^{-1}(q)` = `prediction.quantile(q)`. Over all q in (0, 1) it is half the CRPS.

    >>> pinball_loss(y=[1.0], mean=[0.0], std=[1.0], quantiles=[0.5])
    0.5
    """
    truth, prediction = read_prediction(y, mean, std)
    q = np.atleast_1d(check_levels("quantiles", quantiles))
    distances = (truth - prediction.quantile(p) for p in q)
    return float(np.mean([np.mean(np.maximum(p * d, (p - 1) * d)) for p, d in zip(q, distances, strict=True)]))


def equal_count_bins(values: Floats, bins: int) -> list[NDArray[np.intp]]:
    """Row numbers of at most `bins` groups of about equal count, in ascending order of `values`.

    Rows of equal value always share a group, so that the groups do not depend on the order of the rows.

    >>> equal_count_bins(np.array([3.0, 1.0, 2.0, 2.0]), bins=4)
    [array([1]), array([2, 3]), array([0])]
    """
    check_number("bins", bins, 1, integer=True)
    order = np.argsort(values, kind="stable")
    ascending, first = values[order], np.arange(bins) * len(values) // bins
    starts = np.unique(np.searchsorted(ascending, ascending[first], side="left"))
    return np.split(order, starts[1:])


def _check_level(level: float) -> float:
    if check_levels("level", level).ndim:
        raise must("level", "be one number", level, "call once per level, or use calibration_curve")
    return level


def inside_interval(truth: Floats, prediction: Any, level: float) -> NDArray[np.bool_]:
    """Rows inside their central interval, eq. 2 of the paper."""
    p = (1 + _check_level(level)) / 2
    lower, upper = prediction.family.quantile(np.array([1 - p, p]))  # not symmetric for a skewed family
    with np.errstate(over="ignore"):  # a row far away is outside, even if z exceeds the range of floats
        z = prediction.z(truth)
    return np.asarray((lower <= z) & (z <= upper))


def coverages(truth: Floats, prediction: Any, levels: Floats) -> Floats:
    """Share of rows inside their central interval, for each of k levels: (k,)."""
    p = (1 + levels) / 2
    lower, upper = prediction.family.quantile(np.stack([1 - p, p]))
    with np.errstate(over="ignore"):
        z = np.sort(prediction.z(truth))
    return (np.searchsorted(z, upper, side="right") - np.searchsorted(z, lower, side="left")) / len(truth)


def _root_mean_square(values: Floats) -> float:
    """Root of the mean square; a power of two keeps the squares in the range of floats and costs no accuracy."""
    exponent = np.frexp(np.abs(values).max())[1]
    return float(np.ldexp(np.sqrt(np.mean(np.ldexp(values, -exponent) ** 2)), exponent))


def _check_same_length(name: str, values: ArrayLike, y: Floats) -> Floats:
    vector = check_vector(name, values)
    if len(vector) != len(y):
        advice = "give one value per row of y"
        raise must(name, f"have as many values as y ({len(y)})", f"{len(vector)} values", advice)
    return vector


@np.errstate(over="ignore")
def _residual(y: ArrayLike, mean: Mean) -> Floats:
    prediction = as_prediction(mean)
    for name, values in (("y", y), ("mean", innermost(prediction).mean)):
        check_one_target(name, values)
    truth = check_vector("y", y)
    return truth - _check_same_length("mean", prediction.mean, truth)

"""Sampling noise of the calibration metrics, so that it can be distinguished from miscalibration.

Even a perfect model has a positive calibration error on finitely many rows. This file has its noise floor and
quantiles, a band for the calibration curve, and binomial bounds and a confidence interval for an observed share.
"""

from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv
from scipy.stats import binom

from hetcal._checks import Floats, check_levels, check_number

# The levels of the calibration error, as in the paper, and those of a calibration curve.
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
CURVE_LEVELS = np.arange(1, 100) / 100


SIMULATIONS = 20_000


def ce_noise_floor(n: int, levels: ArrayLike = LEVELS) -> float:
    r"""Expected calibration error of a perfect model on n rows: the part of eq. 3 that is sampling noise.

    .. math:: E[CE] = \frac1n \sum_p E|K_p - np| = \frac1n \sum_p 2 v (1 - p) P(K_p = v), \qquad v = \lceil np \rceil

    with :math:`K_p \sim` Binomial(n, p), p = `levels`; about :math:`1.688 / \sqrt n` for the six levels of the paper.
    De Moivre's mean absolute deviation; see Diaconis and Zabell (1991), Closed form summation.

    >>> round(ce_noise_floor(101), 3)
    0.167
    """
    check_number("n", n, 1, integer=True)
    p = check_levels("levels", levels)
    v = np.ceil(n * p)  # if np is whole, v = np and v = np + 1 give the same value, so rounding of n * p does no harm
    return float(np.sum(2 * v * (1 - p) * binom.pmf(v, n, p)) / n)


def ce_quantile(n: int, probability: float = 0.95, levels: ArrayLike = LEVELS) -> float:
    r"""Quantile of the calibration error of a perfect model on n rows: a larger error is not noise alone.

    .. math:: \inf \{c : P(CE \le c) \ge probability\}, \qquad CE = \sum_p |p - K_p / n|

    with :math:`K_p` the number of n uniform draws up to p = `levels`. Simulated (20,000 draws with a fixed seed).

    >>> ce_noise_floor(400) < ce_quantile(400) < 2.5 * ce_noise_floor(400)
    True
    """
    check_number("n", n, 1, integer=True)
    check_number("probability", probability, 0, 1, open_low=True, open_high=True)
    return _error_quantile(int(n), float(probability), tuple(np.atleast_1d(check_levels("levels", levels)).tolist()))


def calibration_band(n: int, levels: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Smallest and largest coverage per level of a calibrated model on n rows, at all levels at once.

    >>> calibration_band(50, [0.5, 0.9])
    (array([0.36, 0.8 ]), array([0.64, 0.98]))
    """
    check_number("n", n, 1, integer=True)
    p = tuple(np.atleast_1d(check_levels("levels", levels)).tolist())
    lower, upper = _simultaneous_counts(int(n), float(confidence), p)
    return lower / n, upper / n


def _simulate_counts(n: int, levels: Floats) -> NDArray[np.int64]:
    """Simulate how many of n rows lie inside the interval of each level, for a perfect model: (SIMULATIONS, k)."""
    order = np.argsort(levels)
    shares = np.diff(levels[order], prepend=0, append=1)
    generator = np.random.default_rng(20_240_229)  # private and fixed, so that results are repeatable
    counts = generator.multinomial(n, shares, size=SIMULATIONS).cumsum(axis=1)
    return counts[:, np.argsort(order)]


@lru_cache(maxsize=256)
def _error_quantile(n: int, probability: float, levels: tuple[float, ...]) -> float:
    p = np.array(levels)
    errors = np.abs(p - _simulate_counts(n, p) / n).sum(axis=1)
    return float(np.quantile(errors, probability, method="inverted_cdf"))


@lru_cache(maxsize=256)
def _simultaneous_counts(n: int, confidence: float, levels: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Smallest and largest count per level, with the largest common tail that keeps `confidence` of all simulations."""
    p = np.array(levels)
    counts = _simulate_counts(n, p)
    safe, unsafe = (1 - confidence) / 2 / len(p), (1 - confidence) / 2  # Bonferroni's bound, and no correction at all
    for _ in range(12):
        tail = sqrt(safe * unsafe)
        within = (counts >= binom.ppf(tail, n, p)) & (counts <= binom.isf(tail, n, p))
        safe, unsafe = (tail, unsafe) if within.all(axis=1).mean() >= confidence else (safe, tail)
    return np.asarray(binom.ppf(safe, n, p)), np.asarray(binom.isf(safe, n, p))


def share_noise_bounds(n: int, share: float, false_positive_rate: float = 0.05) -> tuple[float, float]:
    """Bounds of an observed share on n rows; half of the false-positive rate lies beyond either end."""
    low, high = (float(binom.ppf(q, n, share)) / n for q in (false_positive_rate / 2, 1 - false_positive_rate / 2))
    return low, high


def two_sided_p(hits: NDArray[np.int64], rows: NDArray[np.int64], level: float) -> Floats:
    """Exact binomial p-value against `level`: twice the smaller tail, at most 1."""
    tail = np.minimum(binom.cdf(hits, rows, level), binom.sf(hits - 1, rows, level))
    return np.asarray(np.minimum(2 * tail, 1.0))


def share_confidence_interval(hits: float, rows: int) -> tuple[float, float]:
    """Exact 95 % confidence interval of a share (Clopper and Pearson, 1934); `hits` need not be whole."""
    low = float(betaincinv(hits, rows - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, rows - hits, 0.975)) if hits < rows else 1.0
    return low, high

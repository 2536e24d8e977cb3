r"""Scales of columns and targets: standardization, and increasing transforms g of the target.

`Standardizer` scales the columns of a table and the target to mean 0 and standard deviation 1. With a transform the
network learns t = g(y), whose distribution is closer to the family of the prediction. Intervals and quantiles are
mapped back exactly, and the density includes the Jacobian (see `hetcal.distributions`). Therefore every g is
increasing on the whole real line, `inverse` has a value for every real t, and values of y far outside those of `fit`
cause no warning. Everything learned is a float or an array of floats, in float64.
"""

from collections.abc import Sequence
from math import log
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from hetcal._checks import Floats, must
from hetcal.prediction import Prediction

# Limit of the values of `inverse`, so that their sums and differences stay finite.
LARGEST_VALUE = 1e300
# Number of knots of the normal scores: all distinct values if they are few; beyond that it grows slowly.
FEWEST_KNOTS, MOST_KNOTS = 12, 100
# Knots that are closer than this fraction of the typical distance per unit of t, or closer than this in t, are merged,
# so that slopes stay bounded.
SMALLEST_STEP = 1e-3
# Deviations below this fraction of the largest value are rounding errors of float64, not data.
FLOAT_ROUNDING = 1e-13


class Standardizer:
    """Standardizes a vector, or the columns of a matrix, by their weighted moments; missing values stay missing.

    Values are first divided by their magnitude, so that nothing overflows between 1e-300 and 1e300.

    >>> scaler = Standardizer().fit(np.array([1e200, 3e200]), np.ones(2))
    >>> scaler.transform(np.array([1e200, 5e200]))
    array([-1.,  3.])
    """

    magnitude: Floats  # a power of two near the largest value
    center: Floats  # mean of values / magnitude
    spread: Floats  # standard deviation of values / magnitude

    def fit(self, values: Floats, weights: Floats) -> "Standardizer":
        present = ~np.isnan(values)
        weights = weights.reshape(-1, *(1,) * (values.ndim - 1)) * present
        total = weights.sum(axis=0)
        total = np.where(total > 0, total, 1.0)
        filled = np.where(present, values, 0.0)
        largest = np.abs(filled).max(axis=0, initial=0.0)
        # Division by a power of two is exact, so that the scale never adds a rounding error.
        self.magnitude = np.where(largest > 0, 2.0 ** np.floor(np.log2(np.where(largest > 0, largest, 1.0))), 1.0)
        filled = filled / self.magnitude
        self.center = (weights * filled).sum(axis=0) / total
        variance = (weights * (filled - self.center) ** 2).sum(axis=0) / total
        spread = np.sqrt(variance)
        self.is_constant = spread <= FLOAT_ROUNDING * np.maximum(np.abs(self.center), 1.0)
        self.spread = np.where(self.is_constant, 1.0, spread)
        return self

    def transform(self, values: Floats) -> Floats:
        return (values / self.magnitude - self.center) / self.spread

    @property
    def scale(self) -> Floats:
        return self.spread * self.magnitude

    def inverse(self, prediction: Prediction) -> Prediction:
        """Convert a prediction of the standardized target to the units of y."""
        return prediction.scaled(self.spread, self.center).scaled(self.magnitude)


class TargetTransform:
    """An increasing function of one target, applied to each value of an array of any shape."""

    def fit(self, y: Floats, weights: Floats, name: str = "y") -> Self:
        """Learn from y (n,). A weight of 2 counts as two rows, a weight of 0 as none; `name` appears in errors."""
        raise NotImplementedError

    def forward(self, y: Any) -> Floats:
        """g(y)."""
        raise NotImplementedError

    def inverse(self, t: Any) -> Floats:
        """The y with g(y) = t, between -1e300 and 1e300."""
        raise NotImplementedError

    def log_slope(self, y: Any) -> Floats:
        """Logarithm of the derivative of g at y."""
        raise NotImplementedError


class Log(TargetTransform):
    r"""For positive y with relative noise: :math:`g(y) = \log y`, :math:`\log g'(y) = -\log y`.

    A y that is not positive has density 0, and both are :math:`-\infty`.

    >>> Log().inverse(Log().forward([0.5, 20.0])).round(2)
    array([ 0.5, 20. ])
    """

    def fit(self, y: Floats, weights: Floats, name: str = "y") -> Self:
        wrong = np.asarray(y)[(np.asarray(y) <= 0) & (np.asarray(weights) > 0)]
        if wrong.size:
            advice = f"{wrong.size} of {len(y)} values are not, this is the smallest; 'yeo-johnson' accepts any values"
            raise must(name, "be greater than 0 for target_transform='log'", float(wrong.min()), advice)
        return self

    def forward(self, y: Any) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(np.asarray(y, dtype=np.float64), 0.0))

    def inverse(self, t: Any) -> Floats:
        return np.exp(np.clip(np.asarray(t, dtype=np.float64), -log(LARGEST_VALUE), log(LARGEST_VALUE)))

    def log_slope(self, y: Any) -> Floats:
        t = self.forward(y)
        return np.where(np.isneginf(t), t, -t)


class YeoJohnson(TargetTransform):
    r"""For skewed y of any sign: a power of the standardized target, chosen by maximum likelihood.

    .. math:: g(y) = \begin{cases} ((1 + x)^\lambda - 1) / \lambda & x \ge 0 \\
              -((1 - x)^{2-\lambda} - 1) / (2 - \lambda) & x < 0 \end{cases} \qquad x = \frac{y - m}{s}

    with m and s the weighted mean and standard deviation of y, and logarithms where a power is 0.
    :math:`\log g'(y) = \mathrm{sign}(x) (\lambda - 1) \log(1 + |x|) - \log s`, and :math:`\lambda` = `power` maximizes

    .. math:: -\frac12 \log \mathrm{var}(g(y)) + \mathrm{mean}(\log g'(y))

    over [0, 2] (weighted, to three decimals); outside this range g would not reach every real number. Yeo and Johnson
    (2000).

    >>> y = np.random.default_rng(0).lognormal(size=1000)
    >>> YeoJohnson().fit(y, np.ones(1000)).power
    0.0
    """

    magnitude: float  # the standard deviation is spread * magnitude, the mean center * magnitude
    center: float
    spread: float
    power: float

    def fit(self, y: Floats, weights: Floats, name: str = "y") -> Self:
        y, weights = weighted_rows(y, weights)
        scaler = Standardizer().fit(y, weights)
        self.magnitude, self.center, self.spread = float(scaler.magnitude), float(scaler.center), float(scaler.spread)
        self.power = 1.0 if scaler.is_constant else most_likely_power(self._standardize(y), weights)
        return self

    @np.errstate(over="ignore")
    def forward(self, y: Any) -> Floats:
        return yeo_johnson(self._standardize(y), self.power)

    @np.errstate(over="ignore")
    def inverse(self, t: Any) -> Floats:
        t = np.asarray(t, dtype=np.float64)
        x = np.copysign(special.inv_boxcox1p(np.abs(t), np.where(t < 0, 2 - self.power, self.power)), t)
        return np.clip((self.center + self.spread * x) * self.magnitude, -LARGEST_VALUE, LARGEST_VALUE)

    def log_slope(self, y: Any) -> Floats:
        log_scale = log(self.spread) + log(self.magnitude)
        return (self.power - 1) * signed_log1p(self._standardize(y)) - log_scale

    @np.errstate(over="ignore")
    def _standardize(self, y: Any) -> Floats:
        x = (np.asarray(y, dtype=np.float64) / self.magnitude - self.center) / self.spread
        return np.clip(x, -LARGEST_VALUE, LARGEST_VALUE)


def yeo_johnson(x: Floats, power: float) -> Floats:
    """Box-Cox transform of 1 + x above 0, mirrored with 2 - power below."""
    return np.copysign(special.boxcox1p(np.abs(x), np.where(x < 0, 2 - power, power)), x)


def signed_log1p(x: Floats) -> Floats:
    return np.copysign(np.log1p(np.abs(x)), x)


def most_likely_power(x: Floats, weights: Floats) -> float:
    """Maximize the profile likelihood, with the best mean and variance of the transformed values for each power."""
    mean_log = np.average(signed_log1p(x), weights=weights)

    def loss(power: float) -> float:
        t = yeo_johnson(x, power)
        variance = np.average((t - np.average(t, weights=weights)) ** 2, weights=weights)
        return float(np.log(variance) / 2 - (power - 1) * mean_log)

    # Further decimals are noise, and would depend on rounding errors in the units of y.
    return round(float(optimize.minimize_scalar(loss, bounds=(0, 2), method="bounded").x), 3)


class Quantile(TargetTransform):
    r"""For y of any distribution: its normal scores, :math:`g(y) = \Phi^{-1}(F(y))`, linear between knots.

    F is the weighted distribution function with mid-ranks, :math:`F(y) = P(Y < y) + \frac12 P(Y = y)`. The knots are
    all distinct values if they are few, otherwise about :math:`2 m^{2/5}` of the m values (12 to 100), evenly in t.
    Knots closer than a thousandth of the typical distance are merged, so that no slope is nearly infinite. Beyond the
    ends the slope is the smallest of the outer tenth of the pieces (at least three). A tail that is too long does
    little harm, whereas one that is too short does much: a new value is then dozens of standard deviations away. The
    slope at a knot is the geometric mean of the slopes on either side.

    >>> Quantile().fit(np.array([1.0, 2.0, 10.0]), np.ones(3)).forward([1.0, 2.0, 10.0, 6.0]).round(2)
    array([-0.97,  0.  ,  0.97,  0.48])
    """

    knots: Floats  # (K,) in y, increasing
    scores: Floats  # (K,) in t, increasing
    slopes: Floats  # (K + 1,) below the first knot, between the knots, above the last

    def fit(self, y: Floats, weights: Floats, name: str = "y") -> Self:
        y, weights = weighted_rows(y, weights)
        values, index = np.unique(y, return_inverse=True)
        mass = np.bincount(index, weights).astype(np.float64)
        scores = normal_scores(mass)
        chosen = evenly_spaced(scores)
        self.knots, self.scores = merge_near(values[chosen], scores[chosen], mass[chosen])
        if len(self.knots) == 1:  # a constant: only a shift and a change of units
            self.slopes = np.full(2, 1 / (abs(self.knots[0]) or 1.0))
            return self
        inner = np.diff(self.scores) / np.diff(self.knots)
        outer = max(3, len(inner) // 10)
        self.slopes = np.concatenate([inner[:outer].min(keepdims=True), inner, inner[-outer:].min(keepdims=True)])
        return self

    @np.errstate(over="ignore")
    def forward(self, y: Any) -> Floats:
        y = np.asarray(y, dtype=np.float64)
        piece = np.searchsorted(self.knots, y)
        knot = np.maximum(piece - 1, 0)
        return self.scores[knot] + self.slopes[piece] * (y - self.knots[knot])

    @np.errstate(over="ignore")
    def inverse(self, t: Any) -> Floats:
        t = np.asarray(t, dtype=np.float64)
        piece = np.searchsorted(self.scores, t)
        knot = np.maximum(piece - 1, 0)
        return np.clip(self.knots[knot] + (t - self.scores[knot]) / self.slopes[piece], -LARGEST_VALUE, LARGEST_VALUE)

    def log_slope(self, y: Any) -> Floats:
        left, right = (np.searchsorted(self.knots, y, side=side) for side in ("left", "right"))
        log_slopes = np.log(self.slopes)
        return (log_slopes[left] + log_slopes[right]) / 2


def normal_scores(weights: Floats) -> Floats:
    """Normal quantiles of the mid-ranks of ascending values; counting from the nearer end keeps them finite."""
    mass = weights / weights.sum()
    below = np.cumsum(mass) - mass / 2
    above = np.cumsum(mass[::-1])[::-1] - mass / 2
    return np.copysign(special.ndtri(np.minimum(below, above)), below - above)


def evenly_spaced(scores: Floats) -> NDArray[np.intp]:
    """Indices of the values that become knots: all if they are few, otherwise those nearest to even steps in t."""
    count = int(np.clip(2 * len(scores) ** 0.4, FEWEST_KNOTS, MOST_KNOTS))
    if len(scores) <= count:
        return np.arange(len(scores))
    grid = np.linspace(scores[0], scores[-1], count)
    return np.unique(np.searchsorted((scores[1:] + scores[:-1]) / 2, grid))


def merge_near(knots: Floats, scores: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Merge neighbors that are too close in y or t into one knot at their weighted mean; slopes then stay bounded."""
    if len(knots) == 1:
        return knots, scores
    typical = np.median(np.diff(knots) / np.maximum(np.diff(scores), SMALLEST_STEP))  # of y per unit of t
    smallest = max(SMALLEST_STEP * typical, FLOAT_ROUNDING * np.abs(knots).max())
    is_near = (np.diff(knots) <= smallest) | (np.diff(scores) <= SMALLEST_STEP)
    group = np.concatenate([[0], np.cumsum(~is_near)])
    share = mass / np.bincount(group, mass)[group]
    merged = [np.bincount(group, share * values).astype(np.float64) for values in (knots, scores)]
    return merged[0], merged[1]


def weighted_rows(y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the rows with positive weight, in float64."""
    y, weights = np.asarray(y, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    return y[weights > 0], weights[weights > 0]


class PerTarget:
    """One transform for each of k targets along axis 1: (n, k) in `fit`, (n, k, ...) in the other methods."""

    def __init__(self, transforms: Sequence[TargetTransform]) -> None:
        self.transforms = list(transforms)

    def target(self, j: int) -> TargetTransform:
        return self.transforms[j]

    def fit(self, y: Floats, weights: Floats, name: str = "y") -> Self:
        for j, transform in enumerate(self.transforms):
            transform.fit(y[:, j], weights, name=f"{name}[:, {j}]")
        return self

    def forward(self, y: Any) -> Floats:
        return self._each("forward", y)

    def inverse(self, t: Any) -> Floats:
        return self._each("inverse", t)

    def log_slope(self, y: Any) -> Floats:
        return self._each("log_slope", y)

    def _each(self, method: str, values: Any) -> Floats:
        columns = np.moveaxis(np.asarray(values, dtype=np.float64), 1, 0)  # (k, n, ...)
        parts = [getattr(part, method)(column) for part, column in zip(self.transforms, columns, strict=True)]
        return np.stack(parts, axis=1)


TRANSFORMS: dict[str, type[TargetTransform]] = {"log": Log, "yeo-johnson": YeoJohnson, "quantile": Quantile}

"""Distributions that are made from another prediction or from quantiles: transformed, recalibrated, tabulated.

They have the members of `hetcal.prediction.Prediction`, in the units of y, on NumPy arrays, so that metrics, plots and
reports accept them. This file does not import torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from hetcal._checks import Floats, check_levels, must
from hetcal.families import GAUSSIAN, Family
from hetcal.prediction import Prediction, ShownInNotebooks, as_floats

# Quantiles of equal probability that represent the whole distribution where there is no formula.
NODES = 200
# Rows whose quantiles are held in memory at once.
NODE_ROWS = 4096
# Probabilities are kept this far away from 0 and 1, which corresponds to 7 standard deviations.
EDGE = 1e-12
# Two levels are the same if they differ by less; a table of so many levels is as good as the whole distribution.
LEVEL_ROUNDING, MANY_LEVELS = 1e-9, 20


class ByQuantiles(ShownInNotebooks):
    r"""What follows from the quantiles and the distribution function F: mean, standard deviation, intervals and CRPS.

    The standardized residual is :math:`z = \Phi^{-1}(F(y))`, so that every metric of coverage holds exactly with the
    Gaussian family.
    """

    quantile: Callable[..., Any]
    cdf: Callable[..., Any]
    take: Callable[..., Any]

    @property
    def mean(self) -> Any:
        return self._moments[0]

    @property
    def std(self) -> Any:
        return self._moments[1]

    @property
    def family(self) -> Family:
        return GAUSSIAN

    @property
    def epistemic_std(self) -> Any:
        """None: the parts of `std` are not known."""
        return None

    @property
    def aleatoric_std(self) -> Any:
        return None

    def interval(self, level: ArrayLike) -> Any:
        """Between the quantiles (1 - level) / 2 and (1 + level) / 2: (n, 2), or (n, 2, L) for a list of L levels."""
        p = (1 + check_levels("level", level)) / 2
        q = np.stack([1 - p, p])
        return self.quantile(q.ravel()).reshape(-1, *q.shape)

    def z(self, y: Any) -> Any:
        return np.asarray(ndtri(np.clip(self.cdf(y), EDGE, 1 - EDGE)))

    def crps(self, y: Any) -> Any:
        """Continuous ranked probability score: twice the pinball loss, averaged over 200 equally probable quantiles."""
        q, _ = equal_probabilities()
        scores = []
        for rows in blocks(self._row_count()):
            error = np.asarray(y, dtype=np.float64)[rows][..., None] - self.take(rows).quantile(q)
            scores.append(2 * np.maximum(q * error, (q - 1) * error).mean(-1))
        return np.concatenate(scores)

    def quadrature(self) -> tuple[Any, Any]:
        """Probabilities whose quantiles represent the distribution, and their weights."""
        return equal_probabilities()

    def nodes(self) -> tuple[Any, Any]:
        """Values that represent the distribution of each row, and their weights."""
        q, weights = self.quadrature()
        return self.quantile(q), weights

    @property
    def _moments(self) -> tuple[Any, Any]:
        """Computed once. `functools.cached_property` has one lock for all instances, for which threads would wait."""
        known: tuple[Any, Any] | None = self.__dict__.get("_known_moments")
        if known is None:
            known = self.__dict__["_known_moments"] = self._compute_moments()
        return known

    def _compute_moments(self) -> tuple[Any, Any]:
        parts = []
        for rows in blocks(self._row_count()):
            nodes, weights = self.take(rows).nodes()
            largest = np.maximum(np.abs(nodes).max(-1, keepdims=True), np.finfo(float).tiny)
            nodes = nodes / largest  # so that squares do not overflow
            mean = (weights * nodes).sum(-1)  # not a matrix product, whose last bits depend on the number of rows
            variance = (weights * (nodes - mean[..., None]) ** 2).sum(-1)
            parts.append((mean * largest[..., 0], np.sqrt(variance) * largest[..., 0]))
        mean, std = (np.concatenate(column) for column in zip(*parts, strict=True))
        return mean, np.maximum(std, np.finfo(float).tiny)

    def _row_count(self) -> int:
        return len(innermost(self).mean)


def innermost(prediction: Any) -> Any:
    """The prediction under all transforms and recalibrations, whose mean and std are known without quantiles."""
    while hasattr(prediction, "base"):
        prediction = prediction.base
    return prediction


def equal_probabilities() -> tuple[Any, Any]:
    """The midpoints of NODES equal parts of (0, 1), and their weights."""
    return (np.arange(NODES) + 0.5) / NODES, np.full(NODES, 1 / NODES)


def normal_grid() -> tuple[Any, Any]:
    """Even steps up to six standard deviations on either side, as probabilities, and their weights."""
    z = np.linspace(-6, 6, NODES)
    weights = np.exp(-(z**2) / 2)
    return GAUSSIAN.cdf(z), weights / weights.sum()


def blocks(n: int) -> list[slice]:
    """The rows in blocks, so that memory stays bounded."""
    return [slice(start, start + NODE_ROWS) for start in range(0, max(n, 1), NODE_ROWS)]


class IncreasingMap(Protocol):
    """A smooth increasing function of the target, such as the logarithm; see `hetcal.transforms`."""

    def forward(self, y: Any) -> Any: ...

    def inverse(self, t: Any) -> Any: ...

    def log_slope(self, y: Any) -> Any:
        """Logarithm of the derivative of `forward` at y."""
        ...


@dataclass(frozen=True)
class TransformedPrediction(ByQuantiles):
    r"""A prediction of y from one of t = g(y): the members of `Prediction`, in the units of y, on NumPy arrays.

    The ends of intervals and the quantiles are those of t, mapped back exactly. The density includes the Jacobian,
    :math:`\log p(y) = \log p(g(y)) + \log g'(y)`. Mean and standard deviation are computed by quadrature: for the
    Gaussian up to six standard deviations on either side; for the other families over 200 equally probable quantiles,
    which omits a quarter of a percent at either end, because the exponential of a Student-t has no mean. The CRPS is
    the mean of twice the pinball loss over such quantiles.

    >>> class Log:
    ...     forward, inverse, log_slope = np.log, np.exp, lambda self, y: -np.log(y)
    >>> prediction = TransformedPrediction(Prediction(np.zeros(1), np.ones(1)), Log())
    >>> prediction.quantile(0.5), prediction.interval(0.9).round(2)
    (array([1.]), array([[0.19, 5.18]]))
    """

    base: Prediction
    transform: IncreasingMap

    @property
    def family(self) -> Family:
        """The family of the transformed target."""
        return self.base.family

    def quadrature(self) -> tuple[Any, Any]:
        return normal_grid() if self.family == GAUSSIAN else equal_probabilities()

    @property
    def epistemic_std(self) -> Any:
        """The part of `std` that more data would reduce, with the share of the variance that it has for t."""
        return None if self.base.epistemic_std is None else self.std * (self.base.epistemic_std / self.base.std)

    @property
    def aleatoric_std(self) -> Any:
        return None if self.base.aleatoric_std is None else self.std * (self.base.aleatoric_std / self.base.std)

    def interval(self, level: ArrayLike) -> Any:
        return self.transform.inverse(self.base.interval(level))

    def quantile(self, q: ArrayLike) -> Any:
        return self.transform.inverse(self.base.quantile(q))

    def z(self, y: Any) -> Any:
        """Standardized residual of the transformed target; it lies inside an interval if and only if y does."""
        return self.base.z(self.transform.forward(y))

    @np.errstate(over="ignore")
    def log_prob(self, y: Any) -> Any:
        return self.base.log_prob(self.transform.forward(y)) + self.transform.log_slope(y)

    def cdf(self, y: Any) -> Any:
        return self.base.cdf(self.transform.forward(y))

    def take(self, rows: Any) -> "TransformedPrediction":
        return TransformedPrediction(self.base.take(rows), self.transform)

    def target(self, j: int) -> "TransformedPrediction":
        """The prediction of one of k targets; a transform that has no part per target applies to all of them."""
        part = getattr(self.transform, "target", None)
        return TransformedPrediction(self.base.target(j), part(j) if part else self.transform)

    def numpy(self) -> "TransformedPrediction":
        return TransformedPrediction(self.base.numpy(), self.transform)


@dataclass(frozen=True, eq=False)
class RecalibratedPrediction(ByQuantiles):
    r"""A prediction whose probabilities are mapped by an increasing R: the members of `Prediction`, on NumPy arrays.

    .. math:: \tilde F(y) = R(F(y)), \qquad \tilde F^{-1}(q) = F^{-1}(R^{-1}(q)), \qquad
              \log \tilde p(y) = \log p(y) + \log R'(F(y))

    with R linear between the points (`pit`, `probability`). Mean, standard deviation and CRPS are computed from 200
    equally probable quantiles, as in `TransformedPrediction`.

    Args:
        base: The prediction to be recalibrated.
        pit: (m,) ascending from 0 to 1.
        probability: (m,) values of R there, ascending from 0 to 1.

    >>> base = Prediction(np.zeros(1), np.ones(1))
    >>> bent = RecalibratedPrediction(base, np.array([0, 0.5, 1]), np.array([0, 0.8, 1]))
    >>> bent.quantile(0.8), bent.cdf(np.zeros(1))
    (array([0.]), array([0.8]))
    """

    base: Prediction | TransformedPrediction
    pit: Floats
    probability: Floats

    def quantile(self, q: ArrayLike) -> Floats:
        bent = np.interp(check_levels("q", q), self.probability, self.pit)
        return self.base.quantile(np.clip(bent, EDGE, 1 - EDGE))

    def log_prob(self, y: Any) -> Floats:
        slope = np.diff(self.probability) / np.diff(self.pit)
        step = np.searchsorted(self.pit[1:-1], self.base.cdf(y), side="right")
        return self.base.log_prob(y) + np.log(slope)[step]

    def cdf(self, y: Any) -> Floats:
        return np.interp(self.base.cdf(y), self.pit, self.probability)

    def take(self, rows: Any) -> "RecalibratedPrediction":
        return RecalibratedPrediction(self.base.take(rows), self.pit, self.probability)

    def numpy(self) -> "RecalibratedPrediction":
        return RecalibratedPrediction(self.base.numpy(), self.pit, self.probability)


class RandomizedPIT(ByQuantiles):
    r"""A distribution that may have atoms, which are values of positive probability.

    Its standardized residual is :math:`z = \Phi^{-1}(F(y^-) + U (F(y) - F(y^-)))` with U uniform on (0, 1): the
    randomized probability integral transform, which is uniform if the distribution is the true one, with atoms or
    without (see docs/metrics.md). Only calibration metrics use it. U is seeded and belongs to the row: `take` keeps it.
    """

    draws: Floats
    cdf_below: Callable[..., Any]

    def z(self, y: Any) -> Floats:
        below, upto = self.cdf_below(y), self.cdf(y)
        return np.asarray(ndtri(np.clip(below + self.draws * (upto - below), EDGE, 1 - EDGE)))


def draws_of_rows(n: int) -> Floats:
    """One uniform number for each row, the same in every call; the first rows do not depend on n."""
    return np.random.default_rng(20_090_318).random(n)


class TabulatedPrediction(RandomizedPIT):
    r"""A distribution for each row that is given by some of its quantiles, such as those of a quantile forest.

    The quantile function is linear in the normal score :math:`\Phi^{-1}(q)` between the levels, and beyond the outer
    ones it goes on as straight; so the quantiles of a Gaussian at any two levels give back the Gaussian. Quantiles
    that cross are sorted, which never increases their distance from the true ones (Chernozhukov, Fernández-Val and
    Galichon, 2010). A value at which several quantiles coincide is an atom, with the probability between their levels.

    Args:
        levels: (L,) at least two probabilities, ascending.
        quantiles: (n, L) in the units of y.
        mean, std: (n,) if known; otherwise computed from the quantiles.

    >>> prediction = TabulatedPrediction([0.1, 0.5, 0.9], [[-1.0, 0.0, 3.0]])
    >>> prediction.interval(0.8), prediction.cdf(np.zeros(1)), prediction.mean.round(2)
    (array([[-1.,  3.]]), array([0.5]), array([0.62]))
    """

    def __init__(self, levels: ArrayLike, quantiles: Any, mean: Any = None, std: Any = None) -> None:
        self.levels = check_levels("levels", levels)
        if self.levels.ndim != 1 or len(self.levels) < 2 or (np.diff(self.levels) <= 0).any():
            raise must("levels", "be at least two ascending numbers", levels, "give levels such as [0.05, 0.5, 0.95]")
        self.quantiles = as_floats(quantiles)
        if self.quantiles.ndim != 2 or self.quantiles.shape[1] != len(self.levels):
            shown, advice = f"array of shape {self.quantiles.shape}", "give one row per row of y, one column per level"
            raise must("quantiles", f"have {len(self.levels)} columns, one per level", shown, advice)
        if not np.isfinite(self.quantiles).all():
            row = int(np.argmin(np.isfinite(self.quantiles).all(axis=1)))
            raise must("quantiles", "be finite", self.quantiles[row], f"remove or repair such rows, the first is {row}")
        if (self.quantiles[:, 1:] < self.quantiles[:, :-1]).any():
            self.quantiles = np.sort(self.quantiles, axis=1)
        self.given = tuple(None if values is None else as_floats(values) for values in (mean, std))
        self.draws = draws_of_rows(len(self.quantiles))

    def is_given(self, q: ArrayLike) -> NDArray[np.bool_]:
        """Whether quantiles are given, or lie between so many levels that interpolation does not matter."""
        near = np.abs(np.subtract.outer(np.asarray(q), self.levels)) < LEVEL_ROUNDING
        return np.asarray(near.any(axis=-1) | (len(self.levels) >= MANY_LEVELS))

    @property
    def central_levels(self) -> tuple[float, ...]:
        """Levels of the intervals of which both ends are given, the widest first; none if any level is as good."""
        if len(self.levels) >= MANY_LEVELS:
            return ()
        return tuple(round(float(1 - 2 * q), 10) for q in self.levels if q < 0.5 and self.is_given(1 - q))

    @property
    def mean(self) -> Floats:
        return self._moments[0] if self.given[0] is None else self.given[0]

    @property
    def std(self) -> Floats:
        return self._moments[1] if self.given[1] is None else self.given[1]

    def quadrature(self) -> tuple[Any, Any]:
        return normal_grid()

    @np.errstate(over="ignore")
    def quantile(self, q: ArrayLike) -> Floats:
        scores, score = ndtri(self.levels), ndtri(check_levels("q", q))
        left = np.clip(np.searchsorted(scores, score) - 1, 0, len(scores) - 2)
        part = (score - scores[left]) / np.diff(scores)[left]
        return self.quantiles[:, left] + part * (self.quantiles[:, left + 1] - self.quantiles[:, left])

    def cdf(self, y: Any) -> Floats:
        """Distribution function at y, the probability of values up to y."""
        return np.asarray(ndtr(self._locate(y, np.less_equal)[0]))

    def cdf_below(self, y: Any) -> Floats:
        """The probability of values less than y."""
        return np.asarray(ndtr(self._locate(y, np.less)[0]))

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def log_prob(self, y: Any) -> Floats:
        """Log density at y, and the logarithm of the probability of y if y is an atom.

        Where a distribution ends with an atom, the logarithm of 1e-12 stands for that of 0 beyond it.
        """
        score, slope = self._locate(y, np.less_equal)
        mass = np.maximum(self.cdf(y) - self.cdf_below(y), EDGE)
        return np.where(
            mass > EDGE, np.log(mass), np.where(slope > 0, GAUSSIAN.log_density(score) - np.log(slope), np.log(EDGE))
        )

    def take(self, rows: Any) -> "TabulatedPrediction":
        given = (None if values is None else values[rows] for values in self.given)
        some = TabulatedPrediction(self.levels, self.quantiles[rows], *given)
        some.draws = self.draws[rows]
        return some

    def numpy(self) -> "TabulatedPrediction":
        return self

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def _locate(self, y: Any, is_passed: Any) -> tuple[Floats, Floats]:
        """Normal score of y, and the slope of y in it; `is_passed(quantile, y)` says whether y passed a quantile."""
        y, scores = np.broadcast_to(as_floats(y), len(self.quantiles)), ndtri(self.levels)
        left = np.clip(is_passed(self.quantiles, y[:, None]).sum(axis=1) - 1, 0, len(scores) - 2)
        row = np.arange(len(y))
        low, step = self.quantiles[row, left], np.diff(scores)[left]
        slope = (self.quantiles[row, left + 1] - low) / step
        beyond = np.inf if is_passed is np.less_equal else -np.inf  # at an atom that ends the distribution: 0 / 0
        part = np.where((slope == 0) & (y == low), beyond, (y - low) / slope)
        return scores[left] + part, slope

    def _row_count(self) -> int:
        return len(self.quantiles)

"""Predictions: a distribution for each row, given by its mean, its standard deviation and its family.

`Prediction` is what estimators return and objectives accept. It works on torch tensors (differentiably, in training)
and on NumPy arrays (in the units of y, for users). This file imports neither torch nor anything that does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from hetcal._checks import Floats, check_levels
from hetcal.families import GAUSSIAN, Family, StudentT

# Quantiles of equal probability that represent the whole distribution where there is no formula.
NODES = 200
# Rows whose quantiles are held in memory at once.
NODE_ROWS = 4096


@dataclass(frozen=True)
class Prediction:
    """A distribution for each row: y = mean + std * z with z from the family, Gaussian by default.

    Args:
        mean: (n,), or (n, k) for k targets; tensors or NumPy arrays.
        std: Predictive standard deviation, like `mean`.
        epistemic_std: The part of `std` that more data would reduce, or None if the estimator cannot separate it.
        aleatoric_std: The part of `std` that is noise of y, or None; the squares of both parts add up to that of `std`.
        family: Shape of the distribution; see `hetcal.families`.

    >>> prediction = Prediction(mean=np.array([0.0, 10.0]), std=np.array([1.0, 2.0]))
    >>> prediction.interval(0.95).round(2)
    array([[-1.96,  1.96],
           [ 6.08, 13.92]])
    """

    mean: Any
    std: Any
    epistemic_std: Any = None
    aleatoric_std: Any = None
    family: Family = GAUSSIAN

    def interval(self, level: ArrayLike) -> Any:
        r"""Central prediction interval, eq. 2 of the paper; `level` is the nominal coverage, never alpha.

        .. math:: [\mu - z \sigma, \; \mu + z \sigma], \qquad z = F^{-1}((1 + level) / 2)

        with F the distribution function of the family, :math:`\Phi` for the Gaussian.

        Returns:
            (n, 2) with lower and upper end for one level, (n, 2, L) for a list of L levels; with k targets (n, k, 2)
            and (n, k, 2, L).
        """
        p = (1 + check_levels("level", level)) / 2
        return self.mean_plus(self.family.quantile(np.stack([1 - p, p])), axes=1 + p.ndim)

    def quantile(self, q: ArrayLike) -> Any:
        r"""Quantiles :math:`\mu + F^{-1}(q) \sigma`: (n,) for one q, (n, L) for L of them; with k targets (n, k, L)."""
        levels = check_levels("q", q)
        return self.mean_plus(self.family.quantile(levels), axes=levels.ndim)

    def z(self, y: Any) -> Any:
        r"""The standardized residual :math:`(y - \mu) / \sigma`, distributed as the family."""
        return (y - self.mean) / self.std

    def log_prob(self, y: Any) -> Any:
        r"""Log density at y, :math:`\log f(\frac{y - \mu}{\sigma}) - \log \sigma` with f that of the family."""
        log_std = self.std.log() if hasattr(self.std, "log") else np.log(self.std)
        return self.family.log_density(self.z(y)) - log_std

    def cdf(self, y: Any) -> Any:
        r"""Distribution function at y, :math:`F(\frac{y - \mu}{\sigma})`; for NumPy arrays only."""
        return self.family.cdf(self.z(y))

    def crps(self, y: Any) -> Any:
        """Continuous ranked probability score of each row, in the units of y (see `hetcal.families`)."""
        return self.std * self.family.crps(self.z(y))

    def with_family(self, family: Family) -> Self:
        """The same mean and standard deviation with another family."""
        return replace(self, family=family)

    def take(self, rows: Any) -> "Prediction":
        """The prediction of some of the rows."""
        parts = [None if values is None else values[rows] for values in self.columns]
        return from_columns(parts, self.family)

    def target(self, j: int) -> "Prediction":
        """The prediction of one of k targets: (n,) instead of (n, k)."""
        parts = [None if values is None else values[:, j] for values in self.columns]
        family = self.family
        if isinstance(family, StudentT) and np.ndim(family.df):
            family = StudentT(family.df[j])
        return from_columns(parts, family)

    def scaled(self, scale: Any, shift: Any = 0.0) -> "Prediction":
        """The prediction of `scale * y + shift`, scale > 0."""
        spreads = [None if values is None else values * scale for values in self.columns[1:]]
        return from_columns([self.mean * scale + shift, *spreads], self.family)

    def numpy(self) -> "Prediction":
        """The same prediction on NumPy float64 arrays, detached from any graph."""
        parts = [None if values is None else as_floats(values) for values in self.columns]
        return from_columns(parts, self.family.numpy())

    @property
    def columns(self) -> tuple[Any, ...]:
        """Mean, std, epistemic and aleatoric std."""
        return self.mean, self.std, self.epistemic_std, self.aleatoric_std

    def mean_plus(self, z: Any, axes: int) -> Any:
        """mean + z * std, where the last `axes` axes of z come after the axes of the mean."""
        behind = (...,) + (None,) * axes
        like_mean = self.mean.new_tensor(z) if hasattr(self.mean, "new_tensor") else z
        return self.mean[behind] + like_mean * self.std[behind]


def as_floats(values: Any) -> Floats:
    """A tensor, detached from its graph, or an array, as a NumPy float64 array."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)


def from_columns(columns: Iterable[Any], family: Family) -> Prediction:
    """The prediction with these `Prediction.columns`."""
    mean, std, epistemic_std, aleatoric_std = columns
    return Prediction(mean, std, epistemic_std, aleatoric_std, family)


def join_predictions(parts: Sequence[Prediction], concatenate: Callable[[list[Any]], Any]) -> Prediction:
    """The predictions of consecutive rows as one; `concatenate` is that of torch or of NumPy."""
    columns = zip(*(part.columns for part in parts), strict=True)
    joined = [None if column[0] is None else concatenate(list(column)) for column in columns]
    return from_columns(joined, parts[0].family)


class IncreasingMap(Protocol):
    """A smooth increasing function of the target, such as the logarithm; see `hetcal.transforms`."""

    def forward(self, y: Any) -> Any: ...

    def inverse(self, t: Any) -> Any: ...

    def log_slope(self, y: Any) -> Any:
        """Logarithm of the derivative of `forward` at y."""
        ...


class ByQuantiles:
    """Mean, standard deviation and CRPS of a distribution that is given by its quantile function, on NumPy arrays."""

    base: Any
    quantile: Callable[..., Any]
    take: Callable[..., Any]

    @property
    def mean(self) -> Any:
        return self._moments[0]

    @property
    def std(self) -> Any:
        return self._moments[1]

    def crps(self, y: Any) -> Any:
        """Continuous ranked probability score: twice the pinball loss, averaged over 200 equally probable quantiles."""
        q, _ = equal_probabilities()
        scores = []
        for rows in blocks(len(self.base.mean)):
            error = np.asarray(y, dtype=np.float64)[rows][..., None] - self.take(rows).quantile(q)
            scores.append(2 * np.maximum(q * error, (q - 1) * error).mean(-1))
        return np.concatenate(scores)

    def quadrature(self) -> tuple[Any, Any]:
        """Probabilities whose quantiles represent the distribution, and their weights."""
        return equal_probabilities()

    @cached_property
    def _moments(self) -> tuple[Any, Any]:
        q, weights = self.quadrature()
        parts = []
        for rows in blocks(len(self.base.mean)):
            nodes = self.take(rows).quantile(q)
            largest = np.maximum(np.abs(nodes).max(-1, keepdims=True), np.finfo(float).tiny)
            nodes = nodes / largest  # so that squares do not overflow
            mean = (weights * nodes).sum(-1)  # not a matrix product, whose last bits depend on the number of rows
            variance = (weights * (nodes - mean[..., None]) ** 2).sum(-1)
            parts.append((mean * largest[..., 0], np.sqrt(variance) * largest[..., 0]))
        mean, std = (np.concatenate(column) for column in zip(*parts, strict=True))
        return mean, np.maximum(std, np.finfo(float).tiny)


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


# Probabilities are kept this far away from 0 and 1, which corresponds to 7 standard deviations.
EDGE = 1e-12


@dataclass(frozen=True, eq=False)
class RecalibratedPrediction(ByQuantiles):
    r"""A prediction whose probabilities are mapped by an increasing R: the members of `Prediction`, on NumPy arrays.

    .. math:: \tilde F(y) = R(F(y)), \qquad \tilde F^{-1}(q) = F^{-1}(R^{-1}(q)), \qquad
              \log \tilde p(y) = \log p(y) + \log R'(F(y))

    with R linear between the points (`pit`, `probability`). Mean, standard deviation and CRPS are computed from 200
    equally probable quantiles, as in `TransformedPrediction`. The standardized residual is
    :math:`z = \Phi^{-1}(\tilde F(y))`, so that every metric of coverage holds exactly with the Gaussian family.

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

    family: ClassVar[Family] = GAUSSIAN
    epistemic_std: ClassVar[None] = None
    aleatoric_std: ClassVar[None] = None

    def interval(self, level: ArrayLike) -> Floats:
        """Between the quantiles (1 - level) / 2 and (1 + level) / 2: (n, 2), or (n, 2, L) for a list of L levels."""
        p = (1 + check_levels("level", level)) / 2
        q = np.stack([1 - p, p])
        return self.quantile(q.ravel()).reshape(-1, *q.shape)

    def quantile(self, q: ArrayLike) -> Floats:
        bent = np.interp(check_levels("q", q), self.probability, self.pit)
        return self.base.quantile(np.clip(bent, EDGE, 1 - EDGE))

    def z(self, y: Any) -> Floats:
        return np.asarray(ndtri(np.clip(self.cdf(y), EDGE, 1 - EDGE)))

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


class DistributionMixin:
    """The predictions of a regressor that has `predict_dist`: mean, standard deviation, intervals and quantiles."""

    predict_dist: Callable[[Any], Any]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predicted mean, (n,) or (n, k) for k targets; with `return_std=True` the pair of mean and std."""
        prediction = self.predict_dist(X)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    def predict_interval(self, X: Any, level: ArrayLike = 0.9) -> Floats:
        """Central prediction intervals, (n, 2) for one level, (n, 2, L) for L levels; (n, k, 2, ...) for k targets."""
        check_levels("level", level)
        return np.asarray(self.predict_dist(X).interval(level))

    def predict_quantiles(self, X: Any, q: ArrayLike = (0.05, 0.5, 0.95)) -> Floats:
        """Quantiles, (n,) for one probability, (n, L) for a list of L probabilities; (n, k, ...) for k targets."""
        check_levels("q", q)
        return np.asarray(self.predict_dist(X).quantile(q))

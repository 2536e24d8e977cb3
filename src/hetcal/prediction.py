"""Predictions: a distribution for each row, given by its mean, its standard deviation and its family.

`Prediction` is what estimators return and objectives accept. It works on torch tensors (differentiably, in training)
and on NumPy arrays (in the units of y, for users). This file imports neither torch nor anything that does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from hetcal._checks import Floats, check_levels
from hetcal.families import GAUSSIAN, Family, StudentT


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

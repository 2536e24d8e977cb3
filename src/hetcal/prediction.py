"""What every estimator answers: a Gaussian per row, as its mean and its standard deviation.

This is the one value in which estimators and objectives meet. It works on torch tensors (differentiable, while
training) and on NumPy arrays (in the units of y, for users) alike, and imports neither torch nor anything that does.
"""

from dataclasses import dataclass
from math import log, pi
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from hetcal._checks import check_levels


@dataclass(frozen=True)
class Prediction:
    """A Gaussian N(mean, std^2) per row; `mean` and `std` are tensors or NumPy arrays of shape (n,).

    >>> prediction = Prediction(mean=np.array([0.0, 10.0]), std=np.array([1.0, 2.0]))
    >>> prediction.interval(0.95).round(2)
    array([[-1.96,  1.96],
           [ 6.08, 13.92]])
    """

    mean: Any
    std: Any

    def interval(self, level: ArrayLike) -> Any:
        r"""Central prediction interval, eq. 2 of the paper; `level` is the nominal coverage, never alpha.

        .. math:: [\mu - z \sigma, \; \mu + z \sigma], \qquad z = \Phi^{-1}((1 + level) / 2)

        Returns:
            (n, 2) with lower and upper end for one level, (n, 2, k) for a list of k levels.
        """
        z = ndtri((1 + check_levels("level", level)) / 2)
        return self._mean_plus(np.stack([-z, z]))  # (n, 2) or (n, 2, k)

    def quantile(self, q: ArrayLike) -> Any:
        r"""Quantiles :math:`\mu + \Phi^{-1}(q) \sigma`: (n,) for one q, (n, k) for a list of k."""
        return self._mean_plus(ndtri(check_levels("q", q)))

    def log_prob(self, y: Any) -> Any:
        r"""Log density of y per row, :math:`-\frac{(y - \mu)^2}{2 \sigma^2} - \log \sigma - \frac12 \log 2\pi`."""
        log_std = self.std.log() if hasattr(self.std, "log") else np.log(self.std)
        return -(((y - self.mean) / self.std) ** 2) / 2 - log_std - log(2 * pi) / 2

    def numpy(self) -> "Prediction":
        """The same prediction on NumPy float64 arrays, detached from any graph."""

        def to_numpy(values: Any) -> Any:
            return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)

        return Prediction(to_numpy(self.mean), to_numpy(self.std))

    def _mean_plus(self, z: Any) -> Any:
        """Mean + z * std with the axes of z behind the rows."""
        behind = (...,) + (None,) * np.ndim(z)
        like_mean = self.mean.new_tensor(z) if hasattr(self.mean, "new_tensor") else z
        return self.mean[behind] + like_mean * self.std[behind]

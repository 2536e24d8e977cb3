"""Sigma from the range between two conditional quantiles (paper, section 2, eq. 5; Quantile-HC is algorithm 2).

The heads are mean + softplus and mean - softplus, because unconstrained heads cross, and the likelihood then diverges.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from numpy.typing import ArrayLike
from scipy.special import ndtri
from torch import Tensor, nn

from hetcal._checks import check_choice, check_levels, must
from hetcal.estimators.base import AbstractEstimator, check_std_floor
from hetcal.prediction import Prediction

READINGS = ("normal", "half_range")


@dataclass(frozen=True, kw_only=True)
class QuantilePrediction(Prediction):
    """A prediction with its two quantile heads, for the estimator's own loss."""

    lower: Tensor
    upper: Tensor


class QuantileRange(AbstractEstimator):
    r"""Half the range between an upper and a lower quantile head, as sigma.

    .. math:: \hat y^u = \mu + \mathrm{softplus}(f_1(x)), \qquad \hat y^l = \mu - \mathrm{softplus}(f_2(x)), \qquad
              \sigma = \frac{\hat y^u - \hat y^l}{2 c} + \sigma_0

    with :math:`f` = `network(x)`, :math:`\mu = f_0(x)`, :math:`\sigma_0` = `std_floor`. The paper sets c = 1
    (`reading="half_range"`). For a Gaussian, half the range between the quantiles 0.1 and 0.9 is 1.2816 sigma, so that
    pinball loss and likelihood then contradict each other. `reading="normal"` divides by that normal quantile,
    :math:`c = (\Phi^{-1}(\tau^u) - \Phi^{-1}(\tau^l)) / 2`, and they agree.

    >>> import torch
    >>> prediction = QuantileRange(nn.Linear(3, 3))(torch.zeros(5, 3))
    >>> bool((prediction.lower < prediction.upper).all())
    True
    """

    n_outputs = 3

    def __init__(
        self,
        network: nn.Module,
        *,
        quantiles: tuple[float, float] = (0.1, 0.9),
        reading: str = "normal",
        std_floor: float = 1e-6,
        n_targets: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(network, n_targets=n_targets, seed=seed)
        self.lower_quantile, self.upper_quantile = check_quantile_pair(quantiles)
        self.reading = check_choice("reading", reading, READINGS)
        self.std_floor = check_std_floor(std_floor)
        half_normal_range = float(ndtri(self.upper_quantile) - ndtri(self.lower_quantile)) / 2
        self.divisor = half_normal_range if reading == "normal" else 1.0

    def forward(self, x: Tensor) -> QuantilePrediction:
        mean, up, down = self.outputs(x).unbind(-1)  # (n,) each
        upper, lower = mean + F.softplus(up), mean - F.softplus(down)
        std = (upper - lower) / (2 * self.divisor) + self.std_floor
        return QuantilePrediction(mean, std, lower=lower, upper=upper)

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        """Pinball loss of both heads with weight 1 each, as in the paper."""
        assert isinstance(prediction, QuantilePrediction)
        return pinball(prediction.upper, y, self.upper_quantile) + pinball(prediction.lower, y, self.lower_quantile)


def check_quantile_pair(quantiles: ArrayLike) -> tuple[float, float]:
    """The two levels from which sigma is computed."""
    levels = check_levels("quantiles", quantiles)
    if levels.shape != (2,) or not levels[0] < 0.5 < levels[1]:
        raise must("quantiles", "be one below and one above 0.5", quantiles, "give a pair such as (0.1, 0.9)")
    return float(levels[0]), float(levels[1])


def pinball(quantile: Tensor, y: Tensor, q: float) -> Tensor:
    r"""Pinball loss, eq. 4 of the paper: its minimizer is the q-quantile of y.

    .. math:: q (y - \hat y) \;\text{ if }\; y \ge \hat y, \qquad (1 - q)(\hat y - y) \;\text{ otherwise}

    >>> import torch
    >>> pinball(torch.tensor([0.0, 0.0]), torch.tensor([2.0, -2.0]), 0.9)
    tensor([1.8000, 0.2000])
    """
    error = y - quantile
    return (q * error).maximum((q - 1) * error)  # (n,)

"""Sigma from all conditional quantiles at once: simultaneous quantile regression (Tagasovska and Lopez-Paz, 2019).

The level is an input, as in the original, but only of the last step: the network predicts the coefficients of a
quantile function that is increasing in the level by construction. Quantiles therefore never cross, any network can be
used (an image has no column for a level), and one pass of the network gives all levels.
"""

from dataclasses import dataclass
from math import e, pi, sqrt
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from torch import Tensor, nn

from hetcal._checks import check_levels, check_number
from hetcal.estimators.base import AbstractEstimator, check_std_floor, in_evaluation_mode
from hetcal.estimators.quantile_range import check_quantile_pair
from hetcal.prediction import Prediction

# Fixed levels for the loss on validation rows; training draws its own.
JUDGED_LEVELS = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
# Means of max(z, 0) and max(sinh(z) - z, 0) for a standard normal z.
MEAN_WING = 1 / sqrt(2 * pi)
MEAN_TAIL = sqrt(e) / 2 * (2 * float(ndtr(1)) - 1) - MEAN_WING


@dataclass(frozen=True, kw_only=True)
class QuantileFunctionPrediction(Prediction):
    """A prediction with its quantile function, as `center` (n,) and `slopes` (n, 4)."""

    center: Tensor
    slopes: Tensor

    def at(self, levels: Tensor) -> Tensor:
        """Quantiles at `levels` (..., L), which broadcast against the rows: (n, L)."""
        return self.center[..., None] + (self.slopes[..., None, :] * wings(levels)).sum(-1)


class SimultaneousQuantiles(AbstractEstimator):
    r"""Sigma from two quantiles of a quantile function that is trained at random levels.

    .. math:: Q(x, \tau) = f_0(x) + \sum_{j=1}^4 \mathrm{softplus}(f_j(x)) \, g_j(\Phi^{-1}(\tau)), \qquad
              \sigma = \frac{Q(x, \tau^u) - Q(x, \tau^l)}{\Phi^{-1}(\tau^u) - \Phi^{-1}(\tau^l)} + \sigma_0

    with :math:`f` = `network(x)`, the increasing functions :math:`g(z) = \max(z, 0)`, :math:`\min(z, 0)` (an upper and
    a lower slope; equal ones give a Gaussian) and :math:`\max(\sinh z - z, 0)`, :math:`\min(\sinh z - z, 0)` (an upper
    and a lower tail), :math:`\tau^l, \tau^u` = `quantiles` and :math:`\sigma_0` = `std_floor`. The mean is that of Q
    over all levels, in closed form. The own loss is twice the pinball loss at random levels, on average the CRPS.

    Args:
        network: Any module with five outputs per target.
        quantiles: The two levels from which sigma is computed.
        n_levels: Number of random levels per row and training step.
        std_floor, n_targets, seed: As for `MCDropout`.

    >>> estimator = SimultaneousQuantiles(nn.Linear(3, 5))
    >>> estimator.quantile(torch.zeros(7, 3), [0.05, 0.5, 0.95]).shape
    torch.Size([7, 3])
    """

    n_outputs = 5

    def __init__(
        self,
        network: nn.Module,
        *,
        quantiles: tuple[float, float] = (0.1, 0.9),
        n_levels: int = 8,
        std_floor: float = 1e-6,
        n_targets: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(network, n_targets=n_targets, seed=seed)
        self.pair = check_quantile_pair(quantiles)
        self.pair_wings = wings(torch.tensor(self.pair, dtype=torch.float32))  # (2, 4)
        self.n_levels = check_number("n_levels", n_levels, 1, integer=True)
        self.std_floor = check_std_floor(std_floor)

    def forward(self, x: Tensor) -> QuantileFunctionPrediction:
        outputs = self.outputs(x)  # (n, 5)
        center, slopes = outputs[..., 0], F.softplus(outputs[..., 1:])
        mean = center + MEAN_WING * (slopes[..., 0] - slopes[..., 1]) + MEAN_TAIL * (slopes[..., 2] - slopes[..., 3])
        lower, upper = ((slopes * wing).sum(-1) for wing in self.pair_wings.to(slopes))
        std = (upper - lower) / float(ndtri(self.pair[1]) - ndtri(self.pair[0])) + self.std_floor
        return QuantileFunctionPrediction(mean, std, center=center, slopes=slopes)

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        """Twice the mean pinball loss over random levels for each row; over fixed levels in evaluation mode."""
        assert isinstance(prediction, QuantileFunctionPrediction)
        levels = y.new_tensor(JUDGED_LEVELS)
        if self.training:
            levels = torch.rand(*y.shape, self.n_levels, generator=self.generator, dtype=torch.float32).to(y)
        error = y[..., None] - prediction.at(levels)
        return 2 * (levels * error).maximum((levels - 1) * error).mean(-1)  # (n,)

    @torch.no_grad()
    def quantile(self, x: Tensor, q: ArrayLike) -> Tensor:
        """The trained quantile function in evaluation mode, in the scale of the (standardized) target.

        (n, L) for L levels; (n, n_targets, L) for several targets.
        """
        levels = torch.as_tensor(check_levels("q", q).reshape(-1), dtype=torch.float32, device=x.device)
        prediction: QuantileFunctionPrediction = in_evaluation_mode(self)(x)
        return prediction.at(levels)


def wings(levels: Tensor) -> Any:
    """The four increasing functions at each level: (..., 4)."""
    z = torch.special.ndtri(levels.clamp(1e-6, 1 - 1e-6))
    tail = z.sinh() - z
    return torch.stack([z.clamp(min=0), z.clamp(max=0), tail.clamp(min=0), tail.clamp(max=0)], dim=-1)

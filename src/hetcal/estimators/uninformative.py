"""Sigmas that do not depend on x in any useful way, to show what recalibration cannot do (paper, introduction; Levi et
al., 2019).

They are not in `ESTIMATORS`, because they are baselines of an experiment.
"""

import torch
from torch import Tensor

from hetcal.estimators.base import AbstractEstimator
from hetcal.prediction import Prediction


class ConstantSigma(AbstractEstimator):
    """The same sigma for every row: one standard deviation of the target.

    >>> ConstantSigma(torch.nn.Linear(3, 1))(torch.zeros(2, 3)).std
    tensor([1., 1.])
    """

    def forward(self, x: Tensor) -> Prediction:
        mean = self.outputs(x)[..., 0]
        return Prediction(mean, torch.ones_like(mean))


class RandomSigma(AbstractEstimator):
    r"""A log-normal sigma that is random for every row, but determined by the row, so that prediction is deterministic.

    .. math:: \sigma = \exp(\Phi^{-1}(u)), \qquad u = 10^4 \sin(10^3 x \cdot w) \bmod 1

    with w = 1, 2, ..., d. The sine of a large multiple is a simple pseudo-random number.

    >>> std = RandomSigma(torch.nn.Linear(3, 1))(torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))).std
    >>> 0.9 < float(std.log().std()) < 1.1
    True
    """

    def forward(self, x: Tensor) -> Prediction:
        mean = self.outputs(x)[..., 0]
        rows = x.flatten(1).double()
        angle = 1e3 * rows @ torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=x.device)
        uniform = (1e4 * angle.sin()).remainder(1).clamp(1e-6, 1 - 1e-6)
        std = torch.special.ndtri(uniform).exp().to(mean)
        return Prediction(mean, std if mean.ndim == 1 else std[:, None].expand_as(mean))

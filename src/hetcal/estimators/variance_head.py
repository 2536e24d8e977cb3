"""Sigma from a second output of the network: the heteroscedastic network (paper, section 2, HNN)."""

import torch.nn.functional as F
from torch import Tensor, nn

from hetcal.estimators.base import AbstractEstimator, check_std_floor
from hetcal.prediction import Prediction


class VarianceHead(AbstractEstimator):
    r"""The network itself predicts the mean and the standard deviation (Nix and Weigend, 1994).

    .. math:: \mu = f_0(x), \qquad \sigma = \mathrm{softplus}(f_1(x)) + \sigma_0

    with :math:`f` = `network(x)`, :math:`\sigma_0` = `std_floor` in units of the (standardized) target.

    >>> import torch
    >>> VarianceHead(nn.Linear(3, 2))(torch.zeros(5, 3)).mean.shape
    torch.Size([5])
    """

    n_outputs = 2

    def __init__(self, network: nn.Module, *, std_floor: float = 1e-6, n_targets: int = 1, seed: int = 0) -> None:
        super().__init__(network, n_targets=n_targets, seed=seed)
        self.std_floor = check_std_floor(std_floor)

    def forward(self, x: Tensor) -> Prediction:
        mean, raw = self.outputs(x).unbind(-1)  # (n,), (n,)
        return Prediction(mean, F.softplus(raw) + self.std_floor)

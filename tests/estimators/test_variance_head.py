"""The heteroscedastic network recovers a known spread."""

import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal.estimators import VarianceHead, predict
from hetcal.networks import MLP
from hetcal.objectives import gaussian_nll
from hetcal.training import train


def test_std_is_softplus_plus_floor():
    network = nn.Linear(1, 2)
    raw = network(torch.ones(4, 1))[:, 1]
    std = VarianceHead(network, std_floor=0.5)(torch.ones(4, 1)).std
    assert_allclose(std.detach(), (torch.log1p(raw.exp()) + 0.5).detach(), rtol=1e-5)


def test_recovers_known_noise():
    """On 4000 rows with noise 0.1 for x < 0 and 1 for x > 0 both are found within a quarter (far beyond noise)."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(4000, 1, generator=generator) - 1
    sigma = torch.where(x[:, 0] < 0, 0.1, 1.0)
    y = sigma * torch.randn(4000, generator=generator)
    estimator = VarianceHead(MLP(1, 2, width=32, depth=2, generator=generator))
    train(estimator, gaussian_nll, x, y, max_epochs=60, learning_rate=3e-3)
    std = predict(estimator, torch.tensor([[-0.5], [0.5]])).std
    assert_allclose(std, [0.1, 1.0], rtol=0.25)

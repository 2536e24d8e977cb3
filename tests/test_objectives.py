"""Objectives against torch's own losses."""

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal.objectives import CRITERIA, capped_gaussian_nll, gaussian_nll, squared_error
from hetcal.prediction import Prediction

GENERATOR = torch.Generator().manual_seed(0)
MEAN, Y = torch.randn(2, 50, generator=GENERATOR)
STD = torch.rand(50, generator=GENERATOR) + 0.1


def test_squared_error_is_torchs():
    assert_allclose(squared_error(Prediction(MEAN, STD), Y), nn.MSELoss(reduction="none")(MEAN, Y))


def test_gaussian_nll_is_torchs():
    """Eq. 1 is torch's loss without its constant."""
    expected = nn.GaussianNLLLoss(reduction="none")(MEAN, Y, STD**2)
    assert_allclose(gaussian_nll(Prediction(MEAN, STD), Y), expected, rtol=1e-5)


def test_gaussian_nll_is_the_log_density():
    """Eq. 1 is the negative log density but for log(2 pi) / 2."""
    difference = gaussian_nll(Prediction(MEAN, STD), Y) + Prediction(MEAN, STD).log_prob(Y)
    assert_allclose(difference, torch.full((50,), -0.9189385), atol=1e-4)


@pytest.mark.parametrize("std", [1e-3, 1.0, 1e3])
def test_gaussian_nll_is_least_at_the_truth(std):
    """The expected loss is least where sigma is the root mean squared error: this is what calibrates."""
    y = std * torch.randn(20_000, generator=GENERATOR)
    error = y.square().mean().sqrt()
    losses = [gaussian_nll(Prediction(0 * y, y * 0 + error * factor), y).mean() for factor in (0.9, 1.0, 1.1)]
    assert losses[1] < min(losses[0], losses[2])


def test_collapsed_sigma_recovers():
    """A far too small sigma gets a strong gradient (torch's own loss clamps the variance and gives almost none)."""
    std = torch.tensor([1e-3], requires_grad=True)
    gaussian_nll(Prediction(torch.zeros(1), std), torch.ones(1)).backward()
    assert std.grad < -1e6


def test_criterion_is_the_likelihood_without_outliers():
    """Equal to eq. 1 within three standard deviations, constant beyond: one row cannot decide when to stop."""
    assert CRITERIA[gaussian_nll] is capped_gaussian_nll
    near = MEAN + 2.9 * STD
    assert_allclose(capped_gaussian_nll(Prediction(MEAN, STD), near), gaussian_nll(Prediction(MEAN, STD), near))
    far = [capped_gaussian_nll(Prediction(MEAN, STD), MEAN + z * STD) for z in (3.1, 1e6)]
    assert_allclose(far[0], far[1])

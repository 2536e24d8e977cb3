"""Sigmas that know nothing: constant, or random but always the same for the same row."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import kstest, spearmanr

from hetcal.estimators import ESTIMATORS, predict
from hetcal.estimators.uninformative import ConstantSigma, RandomSigma
from hetcal.networks import MLP
from hetcal.objectives import squared_error
from hetcal.testing import check_estimator
from hetcal.training import train

X = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))


def mlp(n_outputs=1):
    return MLP(3, n_outputs, width=8, depth=2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", [ConstantSigma, RandomSigma])
def test_they_are_estimators_of_the_mean(kind):
    """They keep the contract under squared error, and their mean is the network's."""
    check_estimator(kind, objective=squared_error)
    assert kind not in ESTIMATORS.values()
    assert_allclose(kind(mlp())(X).mean.detach(), mlp()(X)[:, 0].detach())


@pytest.mark.parametrize("kind", [ConstantSigma, RandomSigma])
def test_training_leaves_sigma_alone(kind):
    estimator = kind(mlp())
    before = predict(estimator, X)
    train(estimator, squared_error, X, X[:, 0], max_epochs=2)
    after = predict(estimator, X)
    assert_allclose(after.std, before.std)
    assert not torch.equal(after.mean, before.mean)


def test_constant():
    assert_allclose(ConstantSigma(mlp(2), n_targets=2)(X).std, torch.ones(2000, 2))


def test_random_is_log_normal_and_tells_nothing():
    """Logarithms of sigma are standard normal and uncorrelated with the inputs, their size and the next row.

    False alarms below 1e-6: p-values are asked to be above that, rank correlations to be below five standard errors.
    """
    std, x = RandomSigma(mlp())(X).std.numpy(), X.numpy()
    assert kstest(np.log(std), "norm").pvalue > 1e-6
    for values in (*x.T, *np.abs(x.T), np.linalg.norm(x, axis=1), np.roll(std, 1)):
        assert abs(spearmanr(std, values).statistic) < 5 / 2000**0.5


def test_random_belongs_to_the_row():
    """Another order, other neighbors and other targets change nothing."""
    estimator = RandomSigma(mlp())
    std = predict(estimator, X).std
    assert torch.equal(predict(estimator, X.flip(0)).std.flip(0), std)
    several = RandomSigma(mlp(2), n_targets=2)(X).std
    assert several.shape == (2000, 2)
    assert_allclose(several[:, 1], std, rtol=1e-6)


def test_images_have_rows_too():
    """Inputs with more than one axis are read as rows of numbers."""

    class Mean(torch.nn.Module):
        def forward(self, x):
            return x.mean(dim=(1, 2))[:, None]

    std = RandomSigma(Mean())(X[:, :, None].expand(-1, -1, 2)).std
    assert std.shape == (2000,)
    assert std.unique().numel() == 2000

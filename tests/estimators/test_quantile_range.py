"""Quantile heads: ordered by construction, both readings of sigma, pinball loss."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from sklearn.metrics import mean_pinball_loss
from torch import nn

from hetcal.estimators import QuantileRange, pinball
from hetcal.networks import MLP

X = 10 * torch.randn(500, 3, generator=torch.Generator().manual_seed(0))


def network():
    return MLP(3, 3, width=8, depth=1, generator=torch.Generator().manual_seed(1))


def test_heads_never_cross():
    """Lower < mean < upper whatever the weights are."""
    prediction = QuantileRange(network())(X)
    assert (prediction.lower <= prediction.mean).all()
    assert (prediction.mean <= prediction.upper).all()
    assert (prediction.std > 0).all()


def test_both_readings():
    """The paper's half range is 1.2816 times the consistent sigma, but for the floor."""
    paper = QuantileRange(network(), reading="half_range")(X)
    consistent = QuantileRange(network())(X)
    half_range = ((paper.upper - paper.lower) / 2).detach()
    assert_allclose(paper.std.detach(), half_range + 1e-6, rtol=1e-4)
    assert_allclose(consistent.std.detach(), half_range / 1.2815516 + 1e-6, rtol=1e-4)


def test_consistent_reading_is_right_for_a_gaussian():
    """Heads at the true quantiles of N(m, s^2) give sigma = s."""
    s, z = 2.0, 1.2815516
    raw = float(np.log(np.expm1(s * z)))  # softplus(raw) = s z
    linear = nn.Linear(3, 3)
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.copy_(torch.tensor([5.0, raw, raw]))
    prediction = QuantileRange(linear)(X)
    assert_allclose(prediction.std.detach(), np.full(500, s + 1e-6), rtol=1e-5)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_pinball(q):
    """Eq. 4 equals scikit-learn's, and its minimizer is the quantile."""
    y = torch.randn(400, generator=torch.Generator().manual_seed(1))
    quantile = torch.linspace(-1, 1, 400)
    assert_allclose(pinball(quantile, y, q).mean(), mean_pinball_loss(y, quantile, alpha=q), rtol=1e-5)
    best = minimize_scalar(lambda c: float(pinball(torch.full((400,), c), y, q).mean()), bounds=(-3, 3)).x
    assert_allclose(best, np.quantile(y, q), atol=0.05)


def test_own_loss_has_weight_one_each():
    """The two pinball terms are added with weight 1, as in the paper."""
    estimator = QuantileRange(network())
    prediction, y = estimator(X), X[:, 0]
    expected = pinball(prediction.upper, y, 0.9) + pinball(prediction.lower, y, 0.1)
    assert_allclose(estimator.own_loss(prediction, y, 500).detach(), expected.detach())


@pytest.mark.parametrize("wrong", [(0.9, 0.1), (0.1,), (0.1, 0.2), (0.0, 0.9)])
def test_wrong_quantiles(wrong):
    with pytest.raises(ValueError, match="quantiles must be"):
        QuantileRange(nn.Linear(3, 3), quantiles=wrong)

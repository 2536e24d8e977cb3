"""Every formula printed in a docstring of the torch layer, recomputed by another route.

The formulas of `hetcal.metrics` have theirs in `test_metrics.py`.
"""

import numpy as np
import torch
from numpy.testing import assert_allclose
from scipy.stats import norm

from hetcal.datasets import heteroscedastic
from hetcal.estimators import MCDropout, QuantileRange, VarianceHead, pinball
from hetcal.metrics import calibration_error
from hetcal.networks import MLP
from hetcal.objectives import gaussian_nll, squared_error
from hetcal.prediction import Prediction

RNG = np.random.default_rng(0)
Y, MU = RNG.normal(size=(2, 40))
SIGMA = RNG.uniform(0.1, 2, size=40)
TENSORS = Prediction(torch.tensor(MU), torch.tensor(SIGMA))


def test_eq_1_heteroscedastic_likelihood():
    expected = [(y - m) ** 2 / (2 * s**2) + 0.5 * np.log(s**2) for y, m, s in zip(Y, MU, SIGMA, strict=True)]
    assert_allclose(gaussian_nll(TENSORS, torch.tensor(Y)), expected)


def test_squared_error():
    assert_allclose(squared_error(TENSORS, torch.tensor(Y)), Y**2 - 2 * Y * MU + MU**2, atol=1e-12)


def test_eq_2_interval():
    """95 % is mu -+ 1.96 sigma, as the paper says below its eq. 2."""
    lower, upper = Prediction(MU, SIGMA).interval(0.95).T
    assert_allclose(lower, MU - 1.959964 * SIGMA, rtol=1e-6)
    assert_allclose(upper, MU + 1.959964 * SIGMA, rtol=1e-6)


def test_eq_3_calibration_error():
    """Summed over the paper's six levels, one interval at a time."""
    error = 0.0
    for alpha in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        inside = [
            norm.ppf((1 - alpha) / 2, m, s) <= y <= norm.ppf((1 + alpha) / 2, m, s)
            for y, m, s in zip(Y, MU, SIGMA, strict=True)
        ]
        error += abs(alpha - np.mean(inside))
    assert_allclose(calibration_error(Y, MU, SIGMA), error)


def test_eq_4_pinball():
    for tau in (0.1, 0.9):
        expected = [tau * (y - q) if y - q >= 0 else (1 - tau) * (q - y) for y, q in zip(Y, MU, strict=True)]
        assert_allclose(pinball(torch.tensor(MU), torch.tensor(Y), tau), expected)


def raw_and_input(n_outputs):
    generator = torch.Generator().manual_seed(0)
    network = MLP(3, n_outputs, width=8, depth=1, generator=generator)
    x = torch.randn(10, 3, generator=generator)
    return network, x, network(x).detach().double().numpy()


def softplus(values):
    return np.log1p(np.exp(values))


def test_variance_head():
    network, x, raw = raw_and_input(2)
    prediction = VarianceHead(network)(x)
    assert_allclose(prediction.mean.detach(), raw[:, 0], rtol=1e-5)
    assert_allclose(prediction.std.detach(), softplus(raw[:, 1]) + 1e-3, rtol=1e-5)


def test_quantile_range():
    """Eq. 5 and algorithm 2, both readings of sigma."""
    network, x, raw = raw_and_input(3)
    upper, lower = raw[:, 0] + softplus(raw[:, 1]), raw[:, 0] - softplus(raw[:, 2])
    for reading, c in {"half_range": 1.0, "normal": (norm.ppf(0.9) - norm.ppf(0.1)) / 2}.items():
        prediction = QuantileRange(network, reading=reading)(x)
        assert_allclose(prediction.std.detach(), (upper - lower) / (2 * c) + 1e-3, rtol=1e-5)


def test_mc_dropout():
    """Algorithm 1: mean and variance over the passes, S - 3 in training and S - 1 in evaluation below the sum."""
    estimator = MCDropout(MLP(3, dropout=0.3, width=8), samples=6, prediction_samples=12)
    x = torch.randn(5, 3)
    for training, c in ((True, 3), (False, 1)):
        estimator.train(training)
        estimator.generator.manual_seed(0)
        passes = estimator.sampled_passes(x).detach().double().numpy()
        estimator.generator.manual_seed(0)
        prediction = estimator(x)
        mu = passes.sum(axis=0) / len(passes)
        variance = ((passes - mu) ** 2).sum(axis=0) / (len(passes) - c)
        assert_allclose(prediction.mean.detach(), mu, rtol=1e-4, atol=1e-6)
        assert_allclose(prediction.std.detach(), np.sqrt(variance + 1e-6), rtol=1e-4)


def test_heteroscedastic_data():
    data = heteroscedastic(100)
    assert_allclose(data.mean, 2 * np.sin(2 * data.X[:, 0]) + data.X[:, 1])
    assert_allclose(data.std, 0.05 + 0.475 * (data.X[:, 0] + 1))

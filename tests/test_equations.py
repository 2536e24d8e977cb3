"""Every formula printed in a docstring of the torch layer, recomputed by another route.

The formulas of `hetcal.metrics` have theirs in `test_metrics.py`.
"""

import numpy as np
import torch
from numpy.testing import assert_allclose
from scipy import special, stats
from scipy.integrate import quad
from scipy.stats import norm
from torch import nn

from hetcal.datasets import heteroscedastic
from hetcal.distributions import TransformedPrediction
from hetcal.estimators import (
    BayesByBackprop,
    ConcreteDropout,
    Ensemble,
    EnsembleSpread,
    MCDropout,
    QuantileRange,
    SimultaneousQuantiles,
    VarianceHead,
    pinball,
)
from hetcal.estimators.uninformative import RandomSigma
from hetcal.families import GAUSSIAN, Laplace, StudentT, TensorFunctions
from hetcal.metrics import ce
from hetcal.networks import MLP
from hetcal.objectives import beta_nll, crps_loss, faithful_nll, gaussian_nll, nll_loss, squared_error
from hetcal.prediction import Prediction
from hetcal.transforms import Log, Quantile, YeoJohnson

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
    assert_allclose(ce(Y, MU, SIGMA), error)


def test_eq_4_pinball():
    for tau in (0.1, 0.9):
        expected = [tau * (y - q) if y - q >= 0 else (1 - tau) * (q - y) for y, q in zip(Y, MU, strict=True)]
        assert_allclose(pinball(torch.tensor(MU), torch.tensor(Y), tau), expected)


FLOOR = 1e-6  # of sigma


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
    assert_allclose(prediction.std.detach(), softplus(raw[:, 1]) + 1e-6, rtol=1e-5)


def test_quantile_range():
    """Eq. 5 and algorithm 2, both readings of sigma."""
    network, x, raw = raw_and_input(3)
    upper, lower = raw[:, 0] + softplus(raw[:, 1]), raw[:, 0] - softplus(raw[:, 2])
    for reading, c in {"half_range": 1.0, "normal": (norm.ppf(0.9) - norm.ppf(0.1)) / 2}.items():
        prediction = QuantileRange(network, reading=reading)(x)
        assert_allclose(prediction.std.detach(), (upper - lower) / (2 * c) + 1e-6, rtol=1e-5)


def test_mc_dropout():
    """Algorithm 1: mean and variance over the passes, S - 3 in training and S - 1 in evaluation below the sum."""
    generator = torch.Generator().manual_seed(0)
    estimator = MCDropout(MLP(3, dropout=0.3, width=8, generator=generator), samples=6, prediction_samples=12)
    x = torch.randn(5, 3, generator=generator)
    for training, c in ((True, 3), (False, 1)):
        estimator.train(training)
        estimator.generator.manual_seed(0)
        passes = estimator.sampled_passes(x).detach().double().numpy()
        estimator.generator.manual_seed(0)
        prediction = estimator(x)
        mu = passes.sum(axis=0) / len(passes)
        variance = ((passes - mu) ** 2).sum(axis=0) / (len(passes) - c)
        assert_allclose(prediction.mean.detach(), mu, rtol=1e-4, atol=1e-6)
        assert_allclose(prediction.std.detach(), np.sqrt(variance + FLOOR**2), rtol=1e-4)


def test_concrete_dropout():
    """Masks and divergence as printed; the uniform numbers drawn beforehand from the same generator."""
    estimator = ConcreteDropout(MLP(3, dropout=0.3, width=8, depth=1), length_scale=0.5, temperature=0.2, samples=4)
    (layer,) = estimator.concrete_layers
    u = torch.rand(4, 8, generator=layer.generator.manual_seed(0)).double().numpy()
    layer.generator.manual_seed(0)
    p, t = 0.3, 0.2
    mask = 1 - special.expit((np.log(p / (1 - p)) + np.log(u / (1 - u))) / t)
    assert_allclose(layer.pass_masks(torch.zeros(1, 8)).detach(), mask / (1 - p), rtol=1e-3, atol=1e-6)

    weights = estimator.network[3].weight.detach().double().numpy()
    divergence = 0.5**2 * (weights**2).sum() / (2 * (1 - p)) + 8 * (p * np.log(p) + (1 - p) * np.log(1 - p))
    x = torch.zeros(5, 3)
    assert_allclose(estimator.own_loss(estimator(x), x[:, 0], 7).detach(), divergence / 7, rtol=1e-5)


def test_bayes_by_backprop():
    """Outputs of a layer are m h + m_b + noise * sqrt(s^2 h^2 + s_b^2); the divergence is a sum over weights."""
    estimator = BayesByBackprop(nn.Linear(3, 1), prior_std=1.5, initial_std=0.2, kl_weight=0.4).eval()
    s0 = 1.5 * np.sqrt(2 / 3)
    s = 0.2 * s0
    m, m_b = (value.detach().double().numpy() for value in estimator.network.layer.parameters())
    h = np.random.default_rng(0).normal(size=(5, 3))
    noise = estimator.network.fixed_draws(torch.zeros(1, 1)).double().numpy()  # (passes, 1)
    a = (h @ m.T + m_b)[:, 0] + noise * np.sqrt(s**2 * (h**2).sum(axis=1) + s**2)
    assert_allclose(estimator.sampled_passes(torch.tensor(h).float()).detach(), a, rtol=1e-4, atol=1e-5)

    total = sum(np.log(s0 / s) + (s**2 + w**2) / (2 * s0**2) - 0.5 for w in [*m.ravel(), *m_b])
    x = torch.zeros(2, 3)
    assert_allclose(estimator.own_loss(estimator(x), x[:, 0], 9).detach(), 0.4 / 9 * total, rtol=1e-5)


def test_simultaneous_quantiles():
    """Q one level at a time, sigma from the pair, the mean as the average over 4000 levels."""
    network, x, raw = raw_and_input(5)
    estimator = SimultaneousQuantiles(network, quantiles=(0.2, 0.9))

    def q(level):
        z = norm.ppf(level)
        slopes = softplus(raw[:, 1:])
        g = max(z, 0), min(z, 0), max(np.sinh(z) - z, 0), min(np.sinh(z) - z, 0)
        return raw[:, 0] + sum(slope * value for slope, value in zip(slopes.T, g, strict=True))

    levels = [0.01, 0.3, 0.5, 0.77, 0.99]
    assert_allclose(estimator.quantile(x, levels), np.column_stack([q(level) for level in levels]), rtol=1e-4)
    prediction = estimator(x)
    sigma = (q(0.9) - q(0.2)) / (norm.ppf(0.9) - norm.ppf(0.2)) + 1e-6
    assert_allclose(prediction.std.detach(), sigma, rtol=1e-4)
    mean = np.mean([q(level) for level in (np.arange(4000) + 0.5) / 4000], axis=0)
    assert_allclose(prediction.mean.detach(), mean, atol=2e-3)


def test_ensembles():
    """Pooled mean and variance, member by member."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, generator=generator)
    ensemble = Ensemble(MLP(3, 2, width=8, depth=1, generator=generator), members=5)
    outputs = ensemble.member_outputs(x).detach().double().numpy()  # (5, 6, 2)
    mu, sigma = outputs[..., 0], softplus(outputs[..., 1]) + 1e-6
    mean = sum(mu) / 5
    aleatoric, epistemic = sum(sigma**2) / 5, sum((mu - mean) ** 2) / 5
    prediction = ensemble(x)
    assert_allclose(prediction.mean.detach(), mean, rtol=1e-4, atol=1e-6)
    assert_allclose(prediction.std.detach(), np.sqrt(aleatoric + epistemic), rtol=1e-4)
    y = np.linspace(-1, 1, 6)
    own_loss = -sum(norm.logpdf(y, mu, sigma)) / 5
    assert_allclose(ensemble.own_loss(prediction, torch.tensor(y), 6).detach(), own_loss, rtol=1e-4)

    spread = EnsembleSpread(MLP(3, width=8, depth=1, generator=generator), members=5)
    mu = spread.member_outputs(x)[..., 0].detach().double().numpy()
    mean = sum(mu) / 5
    for training, c in ((True, 3), (False, 1)):
        prediction = spread.train(training)(x)
        assert_allclose(prediction.std.detach(), np.sqrt(sum((mu - mean) ** 2) / (5 - c) + FLOOR**2), rtol=1e-4)
    own_loss = sum((y - mu) ** 2) / 5
    assert_allclose(spread.own_loss(prediction, torch.tensor(y), 6).detach(), own_loss, rtol=1e-4)


def test_random_sigma():
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    u = np.mod(1e4 * np.sin(1e3 * (x.astype(float) @ [1, 2, 3])), 1)
    std = RandomSigma(nn.Linear(3, 1))(torch.tensor(x)).std
    assert_allclose(std, np.exp(norm.ppf(u)), rtol=1e-4)


def test_likelihoods():
    """Each as printed, with the density f of the family from scipy; brackets hold no gradient but have a value."""
    y = torch.tensor(Y)
    for family, density in (
        (GAUSSIAN, stats.norm()),
        (Laplace(), stats.laplace(scale=np.sqrt(0.5))),
        (StudentT(5.0), stats.t(5, scale=np.sqrt(0.6))),
    ):
        prediction = Prediction(torch.tensor(MU), torch.tensor(SIGMA), family=family)
        z = (Y - MU) / SIGMA
        likelihood = -np.log(density.pdf(z)) + np.log(SIGMA)
        assert_allclose(nll_loss(prediction, y), likelihood)
        assert_allclose(beta_nll(prediction, y), (SIGMA**2) ** 0.5 * likelihood)
        assert_allclose(faithful_nll(prediction, y), (Y - MU) ** 2 / 2 + likelihood)
        scores = [s * crps_by_definition(density.cdf, value) for s, value in zip(SIGMA, z, strict=True)]
        assert_allclose(crps_loss(prediction, y), scores, rtol=1e-4)


def test_heteroscedastic_data():
    data = heteroscedastic(100)
    assert_allclose(data.mean, 2 * np.sin(2 * data.X[:, 0]) + data.X[:, 1])
    assert_allclose(data.std, 0.05 + 0.475 * (data.X[:, 0] + 1))


Z = np.array([-4.0, -1.3, -0.2, 0.0, 0.7, 2.5])


def crps_by_definition(cdf, z):
    below = quad(lambda x: cdf(x) ** 2, -np.inf, z)[0]
    above = quad(lambda x: (1 - cdf(x)) ** 2, z, np.inf)[0]
    return below + above


def test_gaussian_family():
    """The density as printed, and the CRPS as the integral it stands for."""
    assert_allclose(np.exp(GAUSSIAN.log_density(Z)), np.exp(-(Z**2) / 2) / np.sqrt(2 * np.pi))
    assert_allclose(GAUSSIAN.crps(Z), Z * (2 * norm.cdf(Z) - 1) + 2 * norm.pdf(Z) - 1 / np.sqrt(np.pi), atol=1e-12)
    assert_allclose(GAUSSIAN.crps(Z), [crps_by_definition(norm.cdf, z) for z in Z], rtol=1e-6)


def test_laplace_family():
    b = 1 / np.sqrt(2)
    assert_allclose(np.exp(Laplace().log_density(Z)), np.exp(-np.abs(Z) / b) / (2 * b))
    assert_allclose(Laplace().crps(Z), np.abs(Z) + b * np.exp(-np.abs(Z) / b) - 0.75 * b)
    assert_allclose(Laplace().crps(Z), [crps_by_definition(stats.laplace(0, b).cdf, z) for z in Z], rtol=1e-6)


def test_student_t_family():
    """As printed, with gamma and beta functions instead of their logarithms; and the CRPS as its integral."""
    for nu in (2.5, 4.0, 11.0):
        c = np.sqrt((nu - 2) / nu)
        t = Z / c
        constant = special.gamma((nu + 1) / 2) / (special.gamma(nu / 2) * np.sqrt(nu * np.pi) * c)
        assert_allclose(np.exp(StudentT(nu).log_density(Z)), constant * (1 + Z**2 / (nu - 2)) ** (-(nu + 1) / 2))
        truth = stats.t(nu)
        gini = 2 * np.sqrt(nu) / (nu - 1) * special.beta(0.5, nu - 0.5) / special.beta(0.5, nu / 2) ** 2
        printed = c * (t * (2 * truth.cdf(t) - 1) + 2 * truth.pdf(t) * (nu + t**2) / (nu - 1) - gini)
        assert_allclose(StudentT(nu).crps(Z), printed, atol=1e-12)
        assert_allclose(StudentT(nu).crps(Z), [crps_by_definition(stats.t(nu, 0, c).cdf, z) for z in Z], rtol=1e-5)


def test_student_t_distribution_function_on_tensors():
    """The integral of powers of the cosine, by another quadrature, is Student's distribution function."""
    for nu in (2.5, 4.0, 60.0):
        ends = np.arctan(Z / np.sqrt(nu))
        integrals = [quad(lambda theta, power: np.cos(theta) ** power, 0, end, args=(nu - 1,))[0] for end in ends]
        by_quad = 0.5 + np.array(integrals) / special.beta(0.5, nu / 2)
        by_tensors = TensorFunctions(torch.tensor(Z)).t_cdf(nu, torch.tensor(Z))
        assert_allclose(by_tensors, by_quad, atol=1e-10)
        assert_allclose(by_tensors, stats.t.cdf(Z, nu), atol=1e-10)


def test_location_scale_and_family():
    """Interval, quantile, density and distribution function of mean + std * z, with F and f the family's."""
    for family in (GAUSSIAN, Laplace(), StudentT(3.0)):
        prediction = Prediction(MU, SIGMA, family=family)
        z = family.quantile((1 + 0.8) / 2)
        assert_allclose(prediction.interval(0.8), np.column_stack([MU - z * SIGMA, MU + z * SIGMA]))
        assert_allclose(prediction.quantile(0.2), MU + family.quantile(0.2) * SIGMA)
        assert_allclose(np.exp(prediction.log_prob(Y)), np.exp(family.log_density((Y - MU) / SIGMA)) / SIGMA)
        assert_allclose(prediction.cdf(Y), family.cdf((Y - MU) / SIGMA))


def test_density_of_a_transformed_prediction():
    """The Jacobian, by differences of the distribution function over y."""
    y, step = np.exp(MU + 0.3), 1e-6
    for family in (GAUSSIAN, Laplace(), StudentT(3.0)):
        prediction = TransformedPrediction(Prediction(MU, SIGMA, family=family), Log())
        slope = (prediction.cdf(y + step) - prediction.cdf(y - step)) / (2 * step)
        assert_allclose(np.exp(prediction.log_prob(y)), slope, rtol=1e-4)
    assert_allclose(Log().forward(y), MU + 0.3)
    assert_allclose(Log().log_slope(y), -(MU + 0.3))


def test_yeo_johnson():
    """The two branches one value at a time, the slope, and the likelihood on a grid of powers."""
    rng = np.random.default_rng(1)
    y, weights = rng.gamma(9, size=80), rng.uniform(0.5, 2, size=80)
    transform = YeoJohnson().fit(y, weights)
    m = (weights * y).sum() / weights.sum()
    s = np.sqrt((weights * (y - m) ** 2).sum() / weights.sum())

    def g(y, power):
        x = (y - m) / s
        return ((1 + x) ** power - 1) / power if x >= 0 else -((1 - x) ** (2 - power) - 1) / (2 - power)

    def log_slope(y, power):
        x = (y - m) / s
        return np.sign(x) * (power - 1) * np.log(1 + abs(x)) - np.log(s)

    def likelihood(power):
        t = np.array([g(value, power) for value in y])
        variance = np.cov(t, aweights=weights, ddof=0)
        return -np.log(variance) / 2 + np.average([log_slope(value, power) for value in y], weights=weights)

    assert 0 < transform.power < 2
    assert_allclose(transform.forward(y), [g(value, transform.power) for value in y], atol=1e-12)
    assert_allclose(transform.log_slope(y), [log_slope(value, transform.power) for value in y], atol=1e-12)
    powers = np.arange(0.001, 2, 0.001)
    assert_allclose(transform.power, powers[np.argmax([likelihood(power) for power in powers])], atol=1.1e-3)


def test_normal_scores():
    """Mid-ranks counted pair by pair; 2 m^(2/5) knots, but for grid points that share a value."""
    y = np.array([2.0, 5.0, 2.0, 9.0, 7.0, 7.0, 7.0])
    ranks = [np.mean(y < value) + np.mean(y == value) / 2 for value in y]
    assert_allclose(Quantile().fit(y, np.ones(7)).forward(y), norm.ppf(ranks), atol=1e-12)
    for m, expected in ((300, 19), (3000, 49), (40_000, 100)):
        knots = Quantile().fit(norm.ppf((np.arange(m) + 0.5) / m), np.ones(m)).knots
        assert 0.9 * expected < len(knots) <= expected

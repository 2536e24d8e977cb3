"""Objectives against torch's own losses and distributions, scoringrules, and the gradients of their papers."""

import numpy as np
import pytest
import scoringrules
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.distributions import Laplace as TorchLaplace
from torch.distributions import Normal
from torch.distributions import StudentT as TorchStudentT

from hetcal.families import GAUSSIAN, Laplace, StudentT
from hetcal.objectives import (
    BETA,
    CRITERIA,
    OBJECTIVES,
    beta_nll,
    crps_loss,
    faithful_nll,
    gaussian_nll,
    nll_loss,
    scaled_crps,
    squared_error,
)
from hetcal.prediction import Prediction

GENERATOR = torch.Generator().manual_seed(0)
MEAN, Y = torch.randn(2, 50, generator=GENERATOR)
STD = torch.rand(50, generator=GENERATOR) + 0.1
# The family, torch's distribution with this mean and standard deviation, and scoringrules' score of it.
FAMILIES = {
    "gaussian": (GAUSSIAN, Normal, scoringrules.crps_normal),
    "laplace": (
        Laplace(),
        lambda mean, std: TorchLaplace(mean, std / 2**0.5),
        lambda y, mean, std: scoringrules.crps_laplace(y, mean, std / 2**0.5),
    ),
    "student_t": (
        StudentT(5.0),
        lambda mean, std: TorchStudentT(5.0, mean, std * 0.6**0.5),
        lambda y, mean, std: scoringrules.crps_t(y, 5.0, mean, std * 0.6**0.5),
    ),
}
every_family = pytest.mark.parametrize(("family", "distribution", "score"), FAMILIES.values(), ids=FAMILIES)


def gradients(objective, family=GAUSSIAN, y=Y):
    """Gradient of every row's loss in its mean and its std."""
    mean, std = MEAN.clone().requires_grad_(), STD.clone().requires_grad_()
    objective(Prediction(mean, std, family=family), y).sum().backward()
    return mean.grad, std.grad


def test_squared_error_is_torchs():
    assert_allclose(squared_error(Prediction(MEAN, STD), Y), nn.MSELoss(reduction="none")(MEAN, Y))


def test_gaussian_nll_is_torchs():
    """Eq. 1 is torch's loss without its constant."""
    expected = nn.GaussianNLLLoss(reduction="none")(MEAN, Y, STD**2)
    assert_allclose(gaussian_nll(Prediction(MEAN, STD), Y), expected, rtol=1e-5)


def test_gaussian_nll_is_the_log_density():
    """Eq. 1 is the negative log density but for log(2 pi) / 2, and has the same gradients."""
    difference = gaussian_nll(Prediction(MEAN, STD), Y) - nll_loss(Prediction(MEAN, STD), Y)
    assert_allclose(difference, torch.full((50,), -0.9189385), atol=1e-4)
    for one, other in zip(gradients(gaussian_nll), gradients(nll_loss), strict=True):
        assert_allclose(one, other, rtol=1e-4)


@every_family
def test_nll_is_torchs_density(family, distribution, score):
    """Value and gradients: whatever the family, `std` is its standard deviation."""
    assert_allclose(distribution(MEAN, STD).stddev, STD, rtol=1e-5)
    prediction = Prediction(MEAN, STD, family=family)
    assert_allclose(nll_loss(prediction, Y), -distribution(MEAN, STD).log_prob(Y), rtol=1e-4, atol=1e-5)
    expected = gradients(lambda prediction, y: -distribution(prediction.mean, prediction.std).log_prob(y))
    for one, other in zip(gradients(nll_loss, family), expected, strict=True):
        assert_allclose(one, other, rtol=1e-3, atol=1e-5)


@every_family
def test_crps_is_that_of_scoringrules(family, distribution, score):
    prediction = Prediction(MEAN.double(), STD.double(), family=family)
    expected = score(Y.double().numpy(), MEAN.double().numpy(), STD.double().numpy())
    assert_allclose(crps_loss(prediction, Y.double()), expected, rtol=1e-6)
    single = Prediction(MEAN, STD, family=family)
    assert_allclose(crps_loss(single, Y), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("std", [1e-3, 1.0, 1e3])
def test_gaussian_nll_is_least_at_the_truth(std):
    """The expected loss is least where sigma is the root mean squared error: this is what calibrates."""
    y = std * torch.randn(20_000, generator=GENERATOR)
    error = y.square().mean().sqrt()
    losses = [gaussian_nll(Prediction(0 * y, y * 0 + error * factor), y).mean() for factor in (0.9, 1.0, 1.1)]
    assert losses[1] < min(losses[0], losses[2])


@every_family
@pytest.mark.parametrize(
    "objective", [nll_loss, crps_loss, scaled_crps, beta_nll, faithful_nll], ids=lambda objective: objective.__name__
)
def test_objectives_are_least_at_the_truth(objective, family, distribution, score):
    """At the true mean and std, 40,000 quantiles of equal probability, no gradient is left, and it points there.

    beta_nll is no score; what it trains is where its gradient vanishes.
    """
    q = (np.arange(40_000) + 0.5) / 40_000
    y = torch.from_numpy(family.quantile(q))

    def mean_gradient(mu, sigma):
        mean, std = torch.tensor(mu, dtype=torch.float64), torch.tensor(sigma, dtype=torch.float64)
        prediction = Prediction(mean.requires_grad_(), std.requires_grad_(), family=family)
        objective(prediction, y).mean().backward()
        return float(mean.grad), float(std.grad)

    assert_allclose(mean_gradient(0.0, 1.0), [0, 0], atol=3e-3)
    assert mean_gradient(0.3, 1.0)[0] > 0.01
    assert mean_gradient(-0.3, 1.0)[0] < -0.01
    assert mean_gradient(0.0, 1.3)[1] > 0.01
    assert mean_gradient(0.0, 0.7)[1] < -0.01


def test_collapsed_sigma_recovers():
    """A far too small sigma gets a strong gradient (torch's own loss clamps the variance and gives almost none)."""
    std = torch.tensor([1e-3], requires_grad=True)
    gaussian_nll(Prediction(torch.zeros(1), std), torch.ones(1)).backward()
    assert std.grad < -1e6


@every_family
def test_beta_nll_scales_the_gradients(family, distribution, score):
    """Seitzer et al. (2022): the likelihood's gradients times sigma^(2 beta), here sigma; both of them."""
    assert BETA == 0.5
    for weighted, plain in zip(gradients(beta_nll, family), gradients(nll_loss, family), strict=True):
        assert_allclose(weighted, STD * plain, rtol=1e-4)
    prediction = Prediction(MEAN, STD, family=family)
    assert_allclose(beta_nll(prediction, Y), STD * nll_loss(prediction, Y), rtol=1e-6)


def test_beta_1_would_be_squared_error_for_the_mean(monkeypatch):
    """The other end of the paper's range: the gradient of the mean no longer knows sigma."""
    monkeypatch.setattr("hetcal.objectives.BETA", 1.0)
    assert_allclose(gradients(beta_nll)[0], MEAN - Y, rtol=1e-4, atol=1e-5)


@every_family
def test_faithful_nll_leaves_the_mean_to_squared_error(family, distribution, score):
    """Stirn et al. (2023): the mean's gradient is half that of squared error, sigma's that of the likelihood."""
    mean, std = gradients(faithful_nll, family)
    assert_allclose(mean, gradients(squared_error)[0] / 2, rtol=1e-5)
    assert_allclose(std, gradients(nll_loss, family)[1], rtol=1e-5)


def test_crps_grows_with_the_error_and_no_faster():
    """Its gradient in the mean is at most 1: an outlier pulls no harder than any other row. The likelihood's is not."""
    far = torch.full((50,), 1e4)
    assert gradients(crps_loss, y=far)[0].abs().max() <= 1
    assert gradients(nll_loss, y=far)[0].abs().max() > 1e4


@every_family
def test_scaled_crps_does_not_depend_on_the_scale_of_a_row(family, distribution, score):
    """In other units it changes by a constant for every row, like the likelihood; the CRPS changes in proportion."""
    plain = scaled_crps(Prediction(MEAN, STD, family=family), Y)
    scaled = scaled_crps(Prediction(10 * MEAN, 10 * STD, family=family), 10 * Y)
    assert_allclose(scaled - plain, torch.full((50,), np.log(10)), atol=1e-4)


def test_scaled_crps_sees_collapsed_sigmas_that_the_crps_does_not():
    """Half of the rows have a tenth of the noise of the others; their sigma is half of what it should be."""
    q = np.repeat((np.arange(2000) + 0.5) / 2000, 2)
    noise = torch.tensor([1.0, 0.1]).repeat(2000).double()
    y = noise * torch.from_numpy(GAUSSIAN.quantile(q))
    collapsed = noise * torch.tensor([1.0, 0.5]).repeat(2000)

    def excess(score):
        return float((score(Prediction(0 * y, collapsed), y) - score(Prediction(0 * y, noise), y)).mean())

    assert 0 < excess(crps_loss) < 0.02 * float(crps_loss(Prediction(0 * y, noise), y).mean())
    assert excess(scaled_crps) > 0.1


def test_scaled_crps_grows_with_the_error_and_no_faster():
    """Its gradient in the mean is at most sqrt(pi) / sigma: one outlier among a few dozen rows does not decide."""
    far = torch.full((50,), 1e4)
    assert (gradients(scaled_crps, y=far)[0].abs() * STD).max() <= np.pi**0.5 + 1e-4


def test_scaled_crps_of_several_targets_with_degrees_of_freedom_of_their_own():
    mean, std, y = (values.reshape(25, 2) for values in (MEAN, STD, Y))
    losses = scaled_crps(Prediction(mean, std, family=StudentT(np.array([3.0, 8.0]))), y)
    for j, df in enumerate((3.0, 8.0)):
        alone = scaled_crps(Prediction(mean[:, j], std[:, j], family=StudentT(df)), y[:, j])
        assert_allclose(losses[:, j], alone, rtol=1e-4, atol=1e-5)


def test_what_epochs_are_chosen_by():
    """Likelihoods by the scaled CRPS, which one outlier does not decide; squared error and CRPS by themselves."""
    assert {name for name, objective in OBJECTIVES.items() if objective in CRITERIA} == {
        "nll",
        "gaussian_nll",
        "beta_nll",
        "faithful_nll",
    }
    assert set(CRITERIA.values()) == {scaled_crps}


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@every_family
def test_several_targets(name, family, distribution, score):
    """(n, k) values in, (n, k) losses out, each that of its own column."""
    mean, std, y = (values.reshape(10, 5) for values in (MEAN, STD, Y))
    losses = OBJECTIVES[name](Prediction(mean, std, family=family), y)
    assert losses.shape == (10, 5)
    one = OBJECTIVES[name](Prediction(mean[:, 2], std[:, 2], family=family), y[:, 2])
    assert_allclose(losses[:, 2], one, rtol=1e-5)

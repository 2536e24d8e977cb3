"""Bayes by backprop: outputs sampled instead of weights, the divergence, and prediction as a function."""

import copy

import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose
from torch import nn
from torch.distributions import Normal, kl_divergence

from hetcal.estimators import BayesByBackprop, predict
from hetcal.estimators.bayes_by_backprop import GaussianWeights
from hetcal.networks import MLP
from hetcal.objectives import nll_loss
from hetcal.training import train

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(6, 3, generator=GENERATOR)
DRAWS = 20_000


def mlp(**settings):
    return MLP(3, generator=torch.Generator().manual_seed(1), **{"width": 8, "depth": 2, **settings})


def gaussian(layer, **settings):
    """The layer with Gaussian weights, of many different standard deviations."""
    generator = torch.Generator().manual_seed(2)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=generator)
    gaussian = GaussianWeights(layer, **{"prior_std": 1.0, "initial_std": 0.5, "generator": generator, **settings})
    for raw in gaussian.raw_std.values():
        nn.init.normal_(raw, generator=generator)
    return gaussian


def weights_of(layer):
    """The distributions of its weights, as torch has them."""
    return {
        name: Normal(getattr(layer.layer, name).detach(), (F.softplus(raw) * layer.prior_std).detach())
        for name, raw in layer.raw_std.items()
    }


@pytest.mark.parametrize(
    ("layer", "h", "call"),
    [
        (nn.Linear(3, 2), X[0], lambda w, h: F.linear(h, w["weight"], w["bias"])),
        (nn.Linear(3, 2, bias=False), X[1], lambda w, h: F.linear(h, w["weight"])),
        (
            nn.Conv2d(1, 2, 3, padding=1),
            torch.randn(1, 4, 4, generator=GENERATOR),
            lambda w, h: F.conv2d(h, w["weight"], w["bias"], padding=1),
        ),
    ],
    ids=["linear", "no bias", "convolution"],
)
def test_local_reparametrization(layer, h, call):
    """Mean and variance of 20,000 sampled outputs are those of outputs under 20,000 sampled weights.

    Means agree within six standard errors, variances within 10 %, which is seven standard errors.
    """
    layer = gaussian(layer)
    with torch.no_grad():
        sampled = layer(h.expand(DRAWS, *h.shape))
    torch.manual_seed(0)
    weights = {name: weight.sample((DRAWS,)) for name, weight in weights_of(layer).items()}
    explicit = torch.func.vmap(lambda weights: call(weights, h[None])[0])(weights)
    error = (sampled.var(0) + explicit.var(0)).sqrt() / DRAWS**0.5
    assert ((sampled.mean(0) - explicit.mean(0)).abs() < 6 * error).all()
    assert_allclose(sampled.var(0), explicit.var(0), rtol=0.1)


def test_divergence_is_torchs():
    """Kullback-Leibler divergence of all weights, against torch.distributions."""
    for layer in (gaussian(nn.Linear(3, 2)), gaussian(nn.Conv1d(2, 3, 3, bias=False), prior_std=0.3)):
        prior = Normal(0.0, layer.prior_std)
        expected = sum(kl_divergence(weight, prior).sum() for weight in weights_of(layer).values())
        assert_allclose(layer.divergence().detach(), expected, rtol=1e-5)


def test_divergence_of_the_prior_is_0():
    layer = gaussian(nn.Linear(3, 2), initial_std=1.0)
    with torch.no_grad():
        for mean in layer.layer.parameters():
            mean.zero_()
        for raw in layer.raw_std.values():
            raw.fill_(0.5413249)  # softplus of it is 1
    assert_allclose(layer.divergence().detach(), 0, atol=1e-6)


def test_own_loss_is_the_divergence_per_training_row():
    estimator = BayesByBackprop(mlp(), kl_weight=0.3)
    divergence = sum(layer.divergence() for layer in estimator.random_layers)
    own_loss = estimator.own_loss(estimator(X), X[:, 0], n_train=50)
    assert own_loss.shape == ()
    assert_allclose(own_loss.detach(), 0.3 * divergence.detach() / 50, rtol=1e-6)


def test_every_weight_layer_is_converted():
    """Linear and convolutional layers, at any depth; each mean is the layer's weight, each std a part of the prior."""
    network = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), nn.Flatten(), nn.Linear(4 * 36, 1)
    )
    weights = [copy.deepcopy(network[0][0].weight), copy.deepcopy(network[2].weight)]
    estimator = BayesByBackprop(network, prior_std=2.0, initial_std=0.25)
    layers = estimator.random_layers
    assert [type(layer.layer) for layer in layers] == [nn.Conv2d, nn.Linear]
    for layer, weight, fan_in in zip(layers, weights, (9, 144), strict=True):
        assert torch.equal(layer.layer.weight, weight)
        expected = 0.25 * 2.0 * (2 / fan_in) ** 0.5
        assert_allclose(weights_of(layer)["weight"].stddev.unique(), [expected], rtol=1e-5)
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert estimator(images).std.shape == (5,)
    assert predict(estimator, images).std.min() > 1e-3


def test_a_single_layer_is_a_network():
    assert BayesByBackprop(nn.Linear(3, 1))(X).std.shape == (6,)


def test_training_draws_for_every_row_prediction_once_for_all():
    """In training equal rows differ, also from call to call; in evaluation mode each pass is one smooth function."""
    estimator = BayesByBackprop(mlp(), prediction_samples=9)
    rows = X[:1].repeat(5, 1)
    with torch.no_grad():
        first, second = estimator.sampled_passes(rows), estimator.sampled_passes(rows)
        assert first.flatten().unique().numel() == 50
        assert not torch.equal(first, second)
        estimator.eval()
        passes = estimator.sampled_passes(rows)
        assert torch.equal(passes, estimator.sampled_passes(rows))
    assert_allclose(passes, passes[:, :1].expand(9, 5), atol=1e-6)
    assert passes[:, 0].unique().numel() == 9


def test_passes_by_hand():
    """The formula, pass by pass and layer by layer, from the frozen draws."""
    estimator = BayesByBackprop(mlp(), prediction_samples=5).eval()
    expected = []
    for j in range(5):
        h = X
        for layer in estimator.network:
            if isinstance(layer, GaussianWeights):
                weights = weights_of(layer)
                mean = h @ weights["weight"].mean.t() + weights["bias"].mean
                variance = h**2 @ weights["weight"].variance.t() + weights["bias"].variance
                h = mean + variance.sqrt() * layer.fixed_draws(mean)[j]
            else:
                h = layer(h)
        expected.append(h[:, 0])
    assert_allclose(estimator.sampled_passes(X).detach(), torch.stack(expected), atol=1e-5)


def test_the_prior_wins_without_data_to_speak_of():
    """A heavy divergence pulls the weights' spread to the prior's: from a tenth of it to more than half."""
    estimator = BayesByBackprop(mlp(), kl_weight=100.0)
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    train(estimator, nll_loss, x, x[:, 0], max_epochs=200, learning_rate=0.05, validation_fraction=0, weight_decay=0)
    ratios = torch.cat(
        [F.softplus(raw).flatten() for layer in estimator.random_layers for raw in layer.raw_std.values()]
    )
    assert ratios.min() > 0.5
    assert ratios.max() < 1.5


@pytest.mark.parametrize(
    ("network", "settings", "message"),
    [
        (nn.Sequential(nn.ReLU()), {}, "network must have a linear or convolutional layer, got network=Sequential"),
        (nn.Linear(3, 1), {"prior_std": 0}, "prior_std must be greater than 0, got prior_std=0"),
        (nn.Linear(3, 1), {"initial_std": 2}, "initial_std must be greater than 0 and at most 1, got initial_std=2"),
        (nn.Linear(3, 1), {"kl_weight": -1}, "kl_weight must be at least 0, got kl_weight=-1"),
    ],
)
def test_wrong_settings(network, settings, message):
    with pytest.raises(ValueError, match=message):
        BayesByBackprop(network, **settings)

"""MC dropout: masks, passes, and the fast ways of computing them. What all sampled networks share: `test_passes`."""

import copy

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal.estimators import MCDropout, predict
from hetcal.estimators.mc_dropout import ReLUThenMask, SampledDropout
from hetcal.exceptions import DropoutInsertedWarning
from hetcal.networks import MLP

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


def mlp(dropout=0.3, **settings):
    return MLP(3, dropout=dropout, width=32, generator=torch.Generator().manual_seed(1), **settings)


def by_loop(estimator, x):
    """The passes one after the other, each mask applied by hand: what the batched passes must equal."""
    answers = []
    for j in range(estimator.prediction_samples):
        h = x
        for layer in estimator.network:
            h = h * layer.fixed_draws(h)[j] if isinstance(layer, SampledDropout) else layer(h.clone())
        answers.append(h[:, 0])
    return torch.stack(answers)


def test_passes_are_sampled_networks():
    """Each pass is the network under one mask shared by all rows; mean and std are over the passes."""
    estimator = MCDropout(mlp(), prediction_samples=13).eval()
    passes = by_loop(estimator, X)
    assert_allclose(estimator.sampled_passes(X).detach(), passes.detach(), atol=1e-5)
    for prediction in (estimator(X), predict(estimator, X)):
        assert_allclose(prediction.mean.detach(), passes.mean(0).detach(), atol=1e-5)
        assert_allclose(prediction.std.detach(), (passes.var(0) + 1e-12).sqrt().detach(), rtol=1e-4)


def test_training_draws_new_masks_prediction_does_not():
    """A training pass differs from the next; in evaluation mode the sampled networks stay the same."""
    estimator = MCDropout(mlp())
    assert not torch.equal(estimator(X).mean, estimator(X).mean)
    estimator.eval()
    assert torch.equal(estimator(X).mean, estimator(X).mean)


def test_shared_and_own_masks():
    """Shared: equal rows get equal answers within a pass. Per row: they do not. Same moments either way.

    The means of 4000 passes over 40 equal rows differ by less than six standard errors (false alarm 1e-9).
    """
    rows = torch.ones(40, 3)
    shared = MCDropout(mlp(), samples=4000)
    own = MCDropout(mlp(), samples=4000, masks="per_row")
    with torch.no_grad():
        shared_passes, own_passes = shared.sampled_passes(rows), own.sampled_passes(rows)
    assert_allclose(shared_passes[:, 0], shared_passes[:, 7], rtol=1e-4, atol=1e-5)
    assert (own_passes[:, 0] - own_passes[:, 7]).abs().max() > 0.01
    std = own_passes.std()
    assert abs(shared_passes[:, 0].mean() - own_passes.mean()) < 6 * std / 4000**0.5
    assert_allclose(shared_passes[:, 0].std(), std, rtol=0.1)


def test_fused_relu_and_mask():
    """The fused operation has the value and the gradient of ReLU times mask."""
    masks = (torch.rand(4, 5) > 0.3).float() / 0.7
    h = torch.randn(12, 5, requires_grad=True)
    expected = torch.relu(h).unflatten(0, (4, 3)) * masks[:, None]
    weights = torch.randn(12, 5)
    (expected.flatten(0, 1) * weights).sum().backward()
    gradient, h.grad = h.grad.clone(), None
    fused = ReLUThenMask.apply(h * 1.0, masks, 1 / 0.7)
    (fused * weights).sum().backward()
    assert_allclose(fused.detach(), expected.flatten(0, 1).detach(), rtol=1e-6)
    assert_allclose(h.grad, gradient, rtol=1e-5)


@pytest.mark.parametrize("masks", ["shared", "per_row"])
def test_training_gradient_is_the_loops(masks):
    """Gradients of the batched passes equal those of the same network written out, for the same masks."""
    fused = MCDropout(mlp(), masks=masks)
    plain = copy.deepcopy(fused)
    for layer in plain.network:
        if isinstance(layer, nn.ReLU):
            layer.inplace = False  # takes the unfused way
    for estimator in (fused, plain):
        estimator.generator.manual_seed(3)
        for layer in estimator.dropout_layers:
            layer.generator = estimator.generator
        prediction = estimator(X)
        (prediction.mean + prediction.std).sum().backward()
    for one, other in zip(fused.parameters(), plain.parameters(), strict=True):
        assert_allclose(one.grad, other.grad, rtol=1e-3, atol=1e-5)


def test_network_without_dropout_gets_it_and_the_user_is_told():
    """Inserted before every weight layer but the first."""
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    with pytest.warns(DropoutInsertedWarning, match=r"rate 0.4 was inserted before 2 weight layer\(s\)"):
        estimator = MCDropout(network, rate=0.4)
    assert [layer.rate for layer in estimator.dropout_layers] == [0.4, 0.4]
    assert isinstance(network[0], nn.Linear)
    assert isinstance(network[2][0], SampledDropout)
    assert predict(estimator, X).std.min() > 1e-3


def test_convolutions_and_channel_dropout():
    """Images work: dropout before convolutions is inserted, nn.Dropout2d drops whole channels."""
    images = torch.randn(5, 1, 8, 8)
    head = [nn.Flatten(), nn.Linear(4 * 36, 1)]
    plain = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), *head)
    with pytest.warns(DropoutInsertedWarning):
        assert MCDropout(plain)(images).std.shape == (5,)
    by_channel = MCDropout(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(0.5), *head))
    assert predict(by_channel, images).std.min() > 1e-3


def test_refused_networks():
    """A network in which dropout has no place, or has rate 0, cannot give a spread."""
    with pytest.raises(ValueError, match=r"network must have nn\.Dropout or at least two weight layers"):
        MCDropout(nn.Linear(3, 1))
    with pytest.raises(ValueError, match="dropout must be greater than 0 for mc_dropout"):
        MCDropout(mlp(dropout=0.0))


def test_more_passes_less_noise():
    """The spread of the mean over seeds falls as 1 / sqrt(samples): 16 times the passes, a quarter of it.

    Ratio of two standard deviations of 60 each: within a factor of 2 of the expected 4 (false alarm below 1e-6).
    """

    def noise(samples):
        means = [predict(MCDropout(mlp(), prediction_samples=samples, seed=s * 100), X[:1]).mean for s in range(60)]
        return torch.stack(means).std()

    assert 2 < noise(10) / noise(160) < 8


def test_one_sample_is_ordinary_dropout():
    """With one pass and masks per row, training is what nn.Dropout does: the same mean and variance over many draws.

    Means of 4000 draws agree within 5 standard errors, variances within 15 %: a false alarm is practically impossible.
    """
    ours = MCDropout(mlp(), samples=1, masks="per_row")
    torch.manual_seed(0)
    usual = nn.Sequential(
        *(nn.Dropout(0.3) if isinstance(p, SampledDropout) else copy.deepcopy(p) for p in ours.network)
    )
    x = X[:1].repeat(4000, 1)
    with torch.no_grad():
        drawn, expected = ours(x), usual(x)[:, 0]
    assert_allclose(drawn.std, torch.full((4000,), ours.std_floor))
    assert abs(drawn.mean.mean() - expected.mean()) < 5 * (2 * expected.var() / 4000) ** 0.5
    assert_allclose(drawn.mean.var(), expected.var(), rtol=0.15)


def test_one_dropout_layer_in_two_places():
    """Neither place is left out, whether a ReLU stands before it (one fused operation) or something else."""
    dropout = nn.Dropout(0.5)
    layers = [nn.Linear(3, 8), nn.ReLU(inplace=True), dropout, nn.Linear(8, 8), nn.Tanh(), dropout, nn.Linear(8, 1)]
    estimator = MCDropout(nn.Sequential(*layers), prediction_samples=9).eval()
    assert len(estimator.dropout_layers) == 1
    passes = by_loop(estimator, X)
    assert_allclose(estimator.sampled_passes(X).detach(), passes.detach(), atol=1e-5)
    assert_allclose(predict(estimator, X).std, (passes.var(0) + 1e-12).sqrt().detach(), rtol=1e-4)


def test_several_targets_share_the_masks():
    """Two targets from one network: those of the single networks with the weights of one output each."""
    both = MCDropout(mlp(n_outputs=2), prediction_samples=20, n_targets=2)
    prediction = predict(both, X)
    for target in range(2):
        network = mlp(n_outputs=1)
        network.load_state_dict(
            {
                key: value[target : target + 1] if key.startswith("15.") else value
                for key, value in both.network.state_dict().items()
            }
        )
        one = predict(MCDropout(network, prediction_samples=20), X)
        assert_allclose(prediction.mean[:, target], one.mean, atol=1e-5)
        assert_allclose(prediction.std[:, target], one.std, rtol=1e-4)


def test_a_network_may_serve_two_estimators_in_turn():
    """Its dropout, replaced by the first, is still dropout to the second: none is inserted, no warning."""
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
    MCDropout(network)
    layers = MCDropout(network, seed=5).dropout_layers
    assert [layer.rate for layer in layers] == [0.3]
    assert layers[0].seed == 5

"""What all estimators with sampled networks share: moments over passes, frozen draws, passes as one batch."""

import pickle

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal.estimators import BayesByBackprop, ConcreteDropout, MCDropout, passes, predict
from hetcal.estimators.base import freeze_
from hetcal.estimators.passes import RandomLayer, SampledPasses, moments, split_at_first_random_layer
from hetcal.networks import MLP
from hetcal.objectives import gaussian_nll

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
KINDS = [MCDropout, ConcreteDropout, BayesByBackprop]


def mlp(n_outputs=1):
    return MLP(3, n_outputs, dropout=0.3, width=16, depth=2, generator=torch.Generator().manual_seed(1))


def test_moments_are_two_pass():
    """A spread of 1e-3 beside a mean of 1e3 survives; E[x^2] - E[x]^2 in float32 would lose it."""
    passes = 1e3 + 1e-3 * torch.tensor([[-1.0], [1.0], [0.0]], dtype=torch.float64)
    assert_allclose(moments(passes, 1e-12).std, [1e-3], rtol=1e-6)
    assert moments(torch.ones(5, 2), 1e-3).std.min() > 0


def test_ten_passes_do_not_widen_the_intervals():
    """The likelihood of ten passes is least at the sigma that is right, not 13 % beyond it.

    Passes drawn from N(0, s^2) for 200,000 rows of y from N(0, 1): the best s is 1 within 2 % (six standard errors);
    with the usual denominator it would be sqrt(9 / 7) = 1.13.
    """
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(200_000, generator=generator)
    passes = torch.randn(10, 200_000, generator=generator)
    candidates = torch.linspace(0.9, 1.2, 31)
    losses = torch.stack([gaussian_nll(moments(s * passes, 1e-3, lost=3), y).mean() for s in candidates])
    assert abs(candidates[losses.argmin()] - 1) < 0.021


def test_floor_is_inside_the_root():
    """With equal passes std is the floor, and its gradient is finite."""
    passes = torch.ones(5, 2, requires_grad=True)
    std = moments(passes, 0.01).std
    std.sum().backward()
    assert_allclose(std.detach(), [0.01, 0.01], rtol=1e-6)
    assert torch.isfinite(passes.grad).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_targets", [1, 2])
def test_rows_at_once_change_nothing(kind, n_targets, monkeypatch):
    """In evaluation mode the rows run in parts, here of 64 and 36, whose size affects memory only."""
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(2))
    estimator = kind(mlp(n_targets), prediction_samples=7, n_targets=n_targets).eval()
    whole = estimator.sampled_passes(x)
    assert whole.shape == ((7, 100) if n_targets == 1 else (7, 100, 2))
    monkeypatch.setattr(passes, "ROWS_AT_ONCE", 1)
    assert_allclose(estimator.sampled_passes(x).detach(), whole.detach(), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_skips_and_chains_give_the_same(kind):
    """A chain, whose start is computed once, and the same network as a module of its own, which is a black box."""

    class Box(nn.Module):
        def __init__(self):
            super().__init__()
            self.chain = mlp()

        def forward(self, x):
            return self.chain(x)

    chain, box = kind(mlp()), kind(Box())
    assert_allclose(predict(chain, X).std, predict(box, X).std, rtol=1e-5)
    assert_allclose(chain(X).std.detach(), box(X).std.detach(), rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_seed_decides_about_the_draws(kind):
    """The same network with another seed is sampled differently; layers of one network are sampled independently."""
    first, again, other = (predict(kind(mlp(), seed=seed), X).mean for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    layers = kind(mlp(), seed=5).random_layers
    assert [layer.seed for layer in layers] == list(range(5, 5 + len(layers)))


class Transformer(nn.Module):
    """A user's network, whose layers torch fuses into one where it assumes that they do nothing."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(1, 8), nn.Linear(8, 1)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)

    def forward(self, x):
        return self.last(self.encoder(self.first(x[:, :, None])).mean(1))


@pytest.mark.parametrize("kind", KINDS)
def test_no_random_layer_is_fused_away(kind):
    """Transformers: prediction without gradients does not bypass the draws."""
    estimator = kind(Transformer(), prediction_samples=20).eval()
    with_gradients, without = estimator(X), predict(estimator, X)
    assert_allclose(without.std, with_gradients.std.detach(), rtol=1e-3)
    assert without.std.min() > 5e-3


def test_fixed_draws():
    """The same for all inputs of one shape, whatever was drawn before; they are not kept."""

    class Normal(RandomLayer):
        prediction_samples = 4

        def draw_passes(self, h, passes, generator):
            return torch.randn(passes, h.shape[1], generator=generator)

    layer = Normal()
    attributes = dict(vars(layer))
    draws = layer.fixed_draws(torch.zeros(9, 3))
    assert draws.shape == (4, 3)
    assert layer.fixed_draws(torch.ones(2, 5)).shape == (4, 5)
    assert torch.equal(layer.fixed_draws(torch.ones(2, 3)), draws)
    assert vars(layer) == attributes
    with pytest.raises(NotImplementedError):
        RandomLayer().fixed_draws(torch.zeros(1, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_pickles_hold_no_draws(kind):
    """The sampled networks of a thousand passes are made again where they are needed, not sent along."""
    estimator = kind(mlp(), prediction_samples=1000).eval()
    before = len(pickle.dumps(estimator))
    freeze_(estimator)
    assert len(pickle.dumps(estimator)) < before + 1000


def test_split_at_first_random_layer():
    """A chain is split before its first random layer; anything else is one block; without any all is `after`."""

    class Draw(RandomLayer):
        pass

    class Own(nn.Sequential):
        def forward(self, x):
            return super().forward(x) + x

    first, relu, draw, last = nn.Linear(3, 3), nn.ReLU(), Draw(), nn.Linear(3, 3)
    assert split_at_first_random_layer(nn.Sequential(first, relu, draw, last, relu)) == (
        [first, relu],
        [draw, last, relu],
    )
    nested = nn.Sequential(draw)
    assert split_at_first_random_layer(nn.Sequential(first, nested)) == ([first], [nested])
    own = Own(first, draw)
    assert split_at_first_random_layer(own) == ([], [own])
    assert split_at_first_random_layer(nn.Sequential(first, relu)) == ([], [first, relu])


@pytest.mark.parametrize("kind", KINDS)
def test_one_pass_in_training_has_the_floor_as_sigma(kind):
    """For an objective that does not train sigma; prediction still has many passes."""
    estimator = kind(mlp(), samples=1, std_floor=0.25)
    assert_allclose(estimator(X).std.detach(), [0.25] * 6)
    assert len(estimator.eval().sampled_passes(X)) == 100


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 3}, "samples must be at least 4 and at most 10000, got samples=3"),
        ({"samples": 2.5}, "samples must be a whole number, got samples=2.5"),
        (
            {"prediction_samples": 1},
            "prediction_samples must be at least 2 and at most 10000, got prediction_samples=1",
        ),
        ({"std_floor": -1}, r"std_floor must be greater than 0 and at most 1e\+06, got std_floor=-1"),
    ],
)
def test_wrong_settings(kind, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        kind(mlp(), **settings)
    assert issubclass(kind, SampledPasses)

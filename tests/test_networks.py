"""The MLP of the paper, private dropout and surgery on networks."""

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal.networks import MLP, PrivateDropout, initialize_, replace_layers_


def test_mlp_is_the_papers():
    """Five hidden ReLU layers by default; dropout before every weight layer but the first."""
    kinds = [type(layer).__name__ for layer in MLP(7, 3, width=16, dropout=0.2)]
    assert kinds == ["Linear", "ReLU", "Dropout"] * 5 + ["Linear"]
    network = MLP(7, 3, width=16, depth=2)
    assert [tuple(p.shape) for p in network.parameters()] == [(16, 7), (16,), (16, 16), (16,), (3, 16), (3,)]
    assert network(torch.zeros(4, 7)).shape == (4, 3)


def test_mlp_is_kaiming_and_keeps_the_scale():
    """Hidden weights have variance 2 / fan_in. The estimate of 512 x 512 weights is within 1 % (6 standard errors)."""
    network = MLP(512, 1, width=512, depth=2, generator=torch.Generator().manual_seed(0))
    assert_allclose(network[3].weight.var().detach(), 2 / 512, rtol=0.02)
    assert 0 < network[3].bias.abs().max() <= 512**-0.5
    assert network[-1].bias.abs().max() == 0


def test_mlp_leaves_the_global_generator_alone():
    """Weights come from the given generator, the same for the same seed."""
    state = torch.random.get_rng_state()
    first, second = (MLP(3, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first[0].weight, second[0].weight)
    assert torch.equal(state, torch.random.get_rng_state())


def test_part_of_an_mlp_is_a_sequential():
    assert type(MLP(3)[:2]) is nn.Sequential
    assert isinstance(MLP(3)[0], nn.Linear)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be at least 1, got width=0"),
        ({"depth": 1.5}, "depth must be a whole number, got depth=1.5"),
        ({"dropout": 1}, "dropout must be at least 0 and less than 1, got dropout=1"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        MLP(3, **settings)


def test_private_dropout():
    """Mean 1, the right share dropped (false alarm 1e-9 at six standard errors), rows independent, eval is identity."""
    layer = PrivateDropout(0.3, generator=torch.Generator().manual_seed(0))
    h = layer(torch.ones(1000, 100))
    share = (h == 0).double().mean()
    assert abs(share - 0.3) < 6 * (0.3 * 0.7 / 1e5) ** 0.5
    assert_allclose(h.max(), 1 / 0.7, rtol=1e-6)
    assert not torch.equal(h[0], h[1])
    assert torch.equal(layer.eval()(torch.ones(3, 4)), torch.ones(3, 4))


def test_private_dropout_of_channels():
    """Whole channels are dropped, as in nn.Dropout2d."""
    h = PrivateDropout(0.5, channels=True)(torch.ones(50, 8, 4, 4))
    assert set((h == 0).double().mean(dim=(2, 3)).unique().tolist()) == {0.0, 1.0}


def test_replace_layers_reaches_every_depth():
    """Nested layers are replaced, and a network that is itself such a layer."""
    network = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    replace_layers_(network, nn.ReLU, lambda layer: nn.Tanh())
    assert isinstance(network[0], nn.Tanh)
    assert isinstance(network[1][1], nn.Tanh)
    assert isinstance(replace_layers_(nn.ReLU(), nn.ReLU, lambda layer: nn.Tanh()), nn.Tanh)


def test_replace_layers_keeps_sharing():
    """A layer that occurs several times, in one parent or in two, is replaced by one and the same layer."""
    shared = nn.ReLU()
    network = nn.Sequential(nn.Linear(2, 2), shared, nn.Linear(2, 2), shared, nn.Sequential(shared))
    replace_layers_(network, nn.ReLU, lambda layer: nn.Tanh())
    assert isinstance(network[1], nn.Tanh)
    assert network[3] is network[1]
    assert network[4][0] is network[1]
    assert not any(isinstance(layer, nn.ReLU) for layer in network.modules())


def test_replace_layers_leaves_attention_whole():
    """nn.MultiheadAttention takes the weights from its layer; a layer that has none would break it."""
    network = nn.Sequential(nn.Linear(4, 4), nn.MultiheadAttention(4, 2))
    replace_layers_(network, nn.Linear, lambda layer: nn.Sequential(nn.Dropout(), layer))
    assert isinstance(network[0], nn.Sequential)
    x = torch.zeros(1, 3, 4)
    assert network[1](x, x, x)[0].shape == (1, 3, 4)


class Own(nn.Module):
    """A user's network."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


@pytest.mark.parametrize("make", [Own, lambda: MLP(2, width=8, depth=2)])
def test_initialise(make):
    """All weights drawn anew, the same for the same seed; statistics start over; the global generator is put back."""
    network = make()
    network(torch.randn(20, 2))  # moves the statistics
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.random.get_rng_state()
    first, again, other = (initialize_(make(), seed).state_dict() for seed in (0, 0, 1))
    torch.random.set_rng_state(state)
    assert initialize_(network, 0) is network
    assert torch.equal(state, torch.random.get_rng_state())
    for name, value in network.state_dict().items():
        assert torch.equal(value, first[name])
        assert torch.equal(first[name], again[name])
        if name.endswith("weight") and not name.startswith("norm"):
            assert not torch.equal(first[name], other[name])
            assert not torch.equal(value, before[name])


def test_initialise_keeps_the_scale_of_an_mlp():
    """An MLP is drawn as it was built: Kaiming, not torch's default, which is a sixth of that variance."""
    network = initialize_(MLP(256, width=256, depth=2), seed=0)
    assert_allclose(network[3].weight.var().detach(), 2 / 256, rtol=0.03)

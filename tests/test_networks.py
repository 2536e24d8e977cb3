"""The MLP of the paper, the members of the default, private dropout and surgery on networks."""

import math

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.nn import functional as F

from hetcal.networks import (
    MLP,
    SQUASH_LIMIT,
    DropoutTape,
    LinearInputs,
    MemberMLPs,
    PrivateDropout,
    initialize_,
    replace_layers_,
)


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


def members(n_inputs=5, n_numbers=3, *, n_outputs=4, dropout=(0.0, 0.0, 0.0), scale=None, seed=0, width=16, depth=2):
    """Three small members; every weight is drawn, also those that are zero at first."""
    generator = torch.Generator().manual_seed(seed)
    network = MemberMLPs(
        n_inputs,
        n_outputs,
        n_numbers=n_numbers,
        dropout=dropout,
        frequency_scale=[0.2] * len(dropout) if scale is None else scale,
        width=width,
        depth=depth,
        generator=generator,
    )
    with torch.no_grad():
        for parameter in (network.embedding_bias, network.output, network.output_bias, network.linear):
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return network


def table(n=7, n_inputs=5, seed=1):
    return torch.randn(n, n_inputs, generator=torch.Generator().manual_seed(seed))


def one_member(network, j, x):
    """The equation of the docstring for member j, one row and one layer at a time."""
    path, rows = network.path, []
    for row in x:
        parts = [row]
        for column in range(network.n_embedded):
            waves = torch.cos(network.frequency[j, column, :, 0] * row[column] + network.phase[j, column, :, 0])
            parts.append(network.embedding[j, column] @ waves + network.embedding_bias[j, column, :, 0])
        h = torch.cat(parts)
        for weight, bias in zip(network.weights, network.biases, strict=True):
            h = F.silu(F.linear(h, weight[j], bias[j, :, 0]))
        outputs = F.linear(h, network.output[j], network.output_bias[j, :, 0])
        plain = row.clone()
        plain[: network.n_numbers] = SQUASH_LIMIT * torch.sinh(row[: network.n_numbers] / SQUASH_LIMIT)
        low, high = (limit[:, 0].clone() for limit in (path.low, path.high))
        for limit in (low, high):
            limit[: network.n_numbers] = SQUASH_LIMIT * torch.sinh(limit[: network.n_numbers] / SQUASH_LIMIT)
        plain = plain.clamp(2 * low - high, 2 * high - low)
        linear = network.linear[j] @ ((plain - path.center[:, 0]) / path.scale[:, 0])
        rows.append(torch.cat([outputs[:2] + linear, outputs[2:]]))
    return torch.stack(rows)


def test_members_are_a_loop_over_members():
    """The batched products, with the rows last, against one member, row and layer at a time."""
    network, x = members().eval(), table()
    network.path.fit(table(50, seed=2), torch.rand(50, generator=torch.Generator().manual_seed(3)))
    with torch.no_grad():
        together = network(x)
        assert together.shape == (3, 7, 4)
        for j in range(3):
            assert_allclose(together[j], one_member(network, j, x), rtol=1e-5, atol=1e-5)


def test_members_on_rows_of_their_own():
    network = members().eval()
    x = torch.stack([table(seed=seed) for seed in range(3)])
    with torch.no_grad():
        together = network(x)
        for j in range(3):
            assert_allclose(together[j], network(x[j])[j], rtol=1e-5, atol=1e-5)


def test_members_are_independent():
    """The loss of one member has no gradient in the weights of the others, in training mode with dropout."""
    network = members(dropout=(0.1, 0.3, 0.0)).train()
    network(table(20))[1].square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad[1].abs().max() > 0, name
        assert parameter.grad[[0, 2]].abs().max() == 0, name


def test_rows_of_members_are_independent():
    """The outputs of a row do not depend on the rows beside it, in evaluation mode."""
    network, x = members().eval(), table(40)
    with torch.no_grad():
        assert_allclose(network(x)[:, 3:5], network(x[3:5]), rtol=1e-5, atol=1e-5)


def test_only_numbers_are_embedded():
    """Columns behind the numbers (labels) enter as they are: no wave, and no sinh in the linear path."""
    network = members(n_numbers=3)
    assert network.frequency.shape[1] == network.embedding.shape[1] == 3
    assert network.weights[0].shape[2] == 5 + 3 * network.EMBEDDING
    none = members(n_numbers=0).eval()
    with torch.no_grad():
        assert_allclose(none(table())[0], one_member(none, 0, table()), rtol=1e-5, atol=1e-5)


def test_too_many_numbers_are_not_embedded(monkeypatch):
    monkeypatch.setattr(MemberMLPs, "MOST_EMBEDDED", 2)
    network = members(n_numbers=3).eval()
    assert network.n_embedded == 0
    with torch.no_grad():
        assert_allclose(network(table())[2], one_member(network, 2, table()), rtol=1e-5, atol=1e-5)


def test_frequencies_have_the_scale_of_their_member():
    """Standard deviations of 2 pi s within six standard errors of 6,400 draws each: false-alarm rate 1e-8."""
    network = members(400, 250, dropout=(0.0, 0.0), scale=(0.1, 0.9))
    count = network.frequency[0].numel()
    for j, scale in enumerate((0.1, 0.9)):
        expected = 2 * math.pi * scale
        assert abs(float(network.frequency[j].std()) - expected) < 6 * expected / math.sqrt(2 * count)


def test_dropout_rate_of_each_member():
    """The share of dropped units of each member within six standard errors (false-alarm rate 1e-8 for the test).

    A unit that is kept is divided by the share of those kept, so that the mean stays.
    """
    rates = (0.0, 0.25, 0.5, 0.999)
    network = members(2, 0, n_outputs=2, dropout=rates, width=64, depth=1).train()
    with torch.no_grad():
        network.weights[0].zero_()
        network.biases[0].fill_(1.0)
        network.output.zero_()
        network.linear.zero_()
        network.output_bias.zero_()
        network.output[:, :, 0] = 1.0  # the outputs are the first unit
        units = network(table(40_000, 2))[..., 0] / F.silu(torch.tensor(1.0))
    for j, rate in enumerate(rates):
        drawn = min(round(rate * 256), 255) / 256  # rates are multiples of 1 / 256
        share = float((units[j] == 0).double().mean())
        assert abs(share - drawn) <= 6 * math.sqrt(drawn * (1 - drawn) / 40_000)
        assert_allclose(units[j].max(), 1 / (1 - drawn), rtol=1e-5)


def test_masks_differ_between_members_and_draws():
    tape = DropoutTape([0.5, 0.5, 0.5], torch.Generator().manual_seed(0))
    first, second = tape.draw(16, 30), tape.draw(16, 30)
    assert first.shape == (3, 16, 30)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def test_windows_of_a_tape_are_independent():
    """Two masks agree in as many elements as chance has it, within six standard errors (false-alarm rate 1e-7 in all).

    Both for windows of one tape, which may overlap, and after it was drawn anew.
    """
    tape = DropoutTape([0.5], torch.Generator().manual_seed(0))
    masks = [tape.draw(40, 50).clone() for _ in range(DropoutTape.DRAWS + 5)]
    for k in (1, 2, DropoutTape.DRAWS, DropoutTape.DRAWS + 4):
        share = float((masks[0] == masks[k]).double().mean())
        assert abs(share - 0.5) < 6 * 0.5 / math.sqrt(masks[0].numel())


def test_a_tape_is_forgotten_with_the_mode_of_training():
    """A fitted model does not hold megabytes of random numbers; batches may differ in size."""
    network = members(dropout=(0.2, 0.2, 0.2)).train()
    for n in (10, 12, 300, 11):
        network(table(n))
    assert network.masks.tape.shape[1] >= 2 * 300 * network.output.shape[2]
    network.eval()
    assert network.masks.tape.numel() == 0


def test_members_are_reproducible_and_private():
    """Weights and masks come from the given generator only; in evaluation mode nothing is drawn."""
    state = torch.random.get_rng_state()
    first, again, other = (members(dropout=(0.2, 0.2, 0.2), seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert torch.equal(first.train()(table()), again.train()(table()))
    assert not torch.equal(first.weights[0], other.weights[0])
    assert not torch.equal(first.weights[0][0], first.weights[0][1])
    drawn = first.generator.get_state()
    assert torch.equal(first.eval()(table()), first(table()))
    assert torch.equal(first.generator.get_state(), drawn)
    assert torch.equal(state, torch.random.get_rng_state())


def test_members_start_at_the_mean_and_the_spread_of_y():
    """At first a standardized target is predicted as about 0, with a logarithm of sigma of about 0."""
    generator = torch.Generator().manual_seed(0)
    settings = {"n_numbers": 3, "dropout": [0.0] * 2, "frequency_scale": [0.2] * 2, "width": 32, "depth": 2}
    network = MemberMLPs(3, 2, generator=generator, **settings).eval()
    assert network(table(50, 3)).abs().max() < 0.5


def test_only_hidden_weights_of_members_decay():
    network = members()
    assert [id(value) for value in network.decaying()] == [id(value) for value in network.weights]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be at least 1, got width=0"),
        ({"depth": 0}, "depth must be at least 1, got depth=0"),
        ({"dropout": (0.1, 1.0)}, r"dropout must be at least 0 and less than 1, got dropout=1\.0"),
    ],
)
def test_wrong_settings_of_members(settings, message):
    with pytest.raises(ValueError, match=message):
        members(**settings)


def squashed(plain):
    return SQUASH_LIMIT * torch.asinh(plain / SQUASH_LIMIT)


def test_linear_inputs_undo_the_squash_and_standardize():
    """Mean 0 and variance 1 under the weights; a heavy-tailed input keeps its scale; labels are not unsquashed."""
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(200, 3, generator=generator, dtype=torch.float64).pow(3)
    weight = torch.rand(200, generator=generator, dtype=torch.float64)
    x = plain.clone()
    x[:, :2] = squashed(plain[:, :2])
    layer = LinearInputs(3, 2).double()
    layer.fit(x, weight)
    result = layer(x.T)
    share = weight / weight.sum()
    mean = share @ plain
    std = (share @ (plain - mean).square()).sqrt()
    assert_allclose(result.T, (plain - mean) / std, rtol=1e-9, atol=1e-9)
    assert_allclose(layer(x.T.expand(4, 3, 200))[2], result)


def test_linear_inputs_go_on_by_one_width_of_the_range():
    """Exactly so far, and no further, on either side."""
    plain = torch.tensor([[2.0], [3.0], [6.0]], dtype=torch.float64)
    layer = LinearInputs(1, 1).double()
    layer.fit(squashed(plain), torch.ones(3))
    center, scale = plain.mean(), plain.std(correction=0)

    def at(value):
        return float(layer(squashed(torch.tensor([[value]], dtype=torch.float64)))[0, 0] * scale + center)

    for value in (-2.0, -1.5, 0.0, 9.5, 10.0):
        assert_allclose(at(value), value, atol=1e-9)
    assert_allclose([at(-2.5), at(-1e6)], -2.0)
    assert_allclose([at(10.5), at(1e6)], 10.0)


def test_linear_inputs_of_a_constant_column_stay_constant():
    """A column that did not vary in training moves nothing when it varies in prediction."""
    layer = LinearInputs(2, 1)
    layer.fit(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.ones(2))
    values = layer(torch.tensor([[1.0, 5.0, -3.0], [0.0, 1.0, 1.0]]))
    assert_allclose(values, torch.zeros(2, 3), atol=1e-6)

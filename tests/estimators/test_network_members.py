"""The networks of the default: all members at once against one at a time, their inputs, masks and start."""

import math

import pytest
import torch
from numpy.testing import assert_allclose
from torch.nn import functional as F

from hetcal.estimators.network_members import DropoutTape, MemberMLPs
from hetcal.networks import SQUASH_LIMIT


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
        network.relevance.copy_(torch.randn(network.relevance.shape, generator=generator) / network.RELEVANCE_RATE)
    return network


def table(n=7, n_inputs=5, seed=1):
    return torch.randn(n, n_inputs, generator=torch.Generator().manual_seed(seed))


def one_member(network, j, x):
    """The equation of the docstring for member j, one row and one layer at a time."""
    path, rows = network.path, []
    for row in x:
        scale = torch.exp(12 * network.relevance[j, 0])
        parts = [scale * row]
        for column in range(network.n_embedded):
            waves = torch.cos(network.frequency[j, column, :, 0] * row[column] + network.phase[j, column, :, 0])
            embedded = network.embedding[j, column] @ waves + network.embedding_bias[j, column, :, 0]
            parts.append(scale[column] * embedded)
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


def test_columns_of_no_use_fade():
    """Two of twelve columns matter; after some training every member counts them more than all others.

    On the training rows alone the noise of the other columns would lower the loss, too.
    """
    generator = torch.Generator().manual_seed(0)
    settings = {"n_numbers": 12, "dropout": [0.1] * 3, "frequency_scale": [0.2] * 3, "width": 32, "depth": 2}
    network = MemberMLPs(12, 2, generator=generator, **settings).train()
    assert_allclose(network.input_scale().detach(), 1.0)
    x = table(200, 12)
    y = torch.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * torch.randn(200, generator=generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=4e-3)
    for _ in range(150):
        optimizer.zero_grad()
        (network(x)[..., 0] - y).square().mean(1).sum().backward()
        optimizer.step()
    scale = network.input_scale()[:, 0, :12].detach()  # (members, columns)
    assert (scale[:, :2].amin(1) > 1.2 * scale[:, 2:].amax(1)).all()


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

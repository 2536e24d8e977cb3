"""Any network for several members at once: equal to a loop over the members, with rows of their own or shared."""

import copy

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal.estimators.stacked import MemberNetworks, StackedNetworks
from hetcal.networks import MLP, PrivateDropout

MEMBERS = 3


class Recurrent(nn.Module):
    """A network that torch cannot run for several members at once."""

    def __init__(self, n_outputs=2):
        super().__init__()
        self.lstm, self.last = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, n_outputs)

    def forward(self, x):
        return self.last(self.lstm(x[..., None])[0][:, -1])


def plain(n_outputs=2):
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.4), nn.Linear(8, n_outputs))


def table(n=6, seed=0):
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))


def own_tables():
    return torch.stack([table(seed=seed) for seed in range(MEMBERS)])


def member(networks, network, j):
    """A plain copy of the user's network with the weights of member j."""
    stacked = networks.networks.stacked
    state = {name: stacked[name.replace(".", "/")][j].detach() for name, _ in network.named_parameters()}
    one = copy.deepcopy(network)
    one.load_state_dict(state)
    return one.eval()


@pytest.mark.parametrize("make", [plain, Recurrent], ids=["vmap", "one by one"])
def test_members_are_a_loop_over_copies(make):
    """On the same rows and on rows of their own, in prediction and as in training; all means come first."""
    network = make(4)  # mean and sigma of the first target, then of the second
    networks = MemberNetworks(copy.deepcopy(network), MEMBERS, n_targets=2, seed=0).eval()
    with torch.no_grad():
        shared, own = networks(table()), networks(own_tables())
        assert shared.shape == own.shape == (MEMBERS, 6, 4)
        together = [networks.networks.train_together(x, own_rows=x.ndim == 3) for x in (table(), own_tables())]
        for j in range(MEMBERS):
            one = member(networks, network, j)
            assert_allclose(shared[j], one(table())[:, [0, 2, 1, 3]], rtol=1e-5, atol=1e-6)
            assert_allclose(own[j], one(own_tables()[j])[:, [0, 2, 1, 3]], rtol=1e-5, atol=1e-6)
            assert_allclose(together[0][j], one(table()), rtol=1e-5, atol=1e-6)
            assert_allclose(together[1][j], one(own_tables()[j]), rtol=1e-5, atol=1e-6)
    assert networks.networks.one_by_one == (make is Recurrent)


def test_fallback_learns_too():
    """Gradients reach every member of a network that runs one by one."""
    networks = MemberNetworks(Recurrent(), MEMBERS, n_targets=1, seed=0).train()
    networks(own_tables()).square().sum().backward()
    for parameter in networks.parameters():
        assert (parameter.grad.flatten(1).abs().sum(1) > 0).all()


def test_other_errors_are_not_swallowed():
    networks = MemberNetworks(plain(), MEMBERS, n_targets=1, seed=0)
    with pytest.raises(RuntimeError, match=r"shape|size"):
        networks(torch.zeros(2, 4))
    assert not networks.networks.one_by_one


def test_members_are_independent():
    networks = MemberNetworks(plain(), MEMBERS, n_targets=1, seed=0).train()
    networks(own_tables())[1].square().sum().backward()
    for parameter in networks.parameters():
        assert parameter.grad[1].abs().sum() > 0
        assert parameter.grad[[0, 2]].abs().sum() == 0


def test_dropout_is_private_and_differs_between_members():
    """In training each member has its own masks, from the seed; in evaluation mode there are none."""
    state = torch.random.get_rng_state()
    identity = nn.Sequential(nn.Dropout(0.5))
    networks = MemberNetworks(identity, MEMBERS, n_targets=100, seed=0).train()
    ones = torch.ones(50, 200)
    first, second = networks(ones), networks(ones)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    share = float((first == 0).double().mean())
    assert abs(share - 0.5) < 6 * 0.5 / (MEMBERS * 10_000) ** 0.5  # six standard errors: false alarm 2e-9
    again = MemberNetworks(nn.Sequential(nn.Dropout(0.5)), MEMBERS, n_targets=100, seed=0).train()
    assert torch.equal(again(ones), first)
    assert torch.equal(networks.eval()(ones), torch.ones(MEMBERS, 50, 200))
    assert torch.equal(state, torch.random.get_rng_state())


def test_members_start_from_weights_of_their_own():
    """The first is the given network; the others are drawn anew, the same for the same seed."""
    network = MLP(5, 2, width=8, depth=2, dropout=0.1, generator=torch.Generator().manual_seed(3))
    first, again, other = (StackedNetworks(copy.deepcopy(network), MEMBERS, seed) for seed in (0, 0, 1))
    weight = first.stacked["0/weight"]
    assert torch.equal(weight[0], network[0].weight)
    assert not torch.equal(weight[1], weight[2])
    assert torch.equal(weight, again.stacked["0/weight"])
    assert not torch.equal(weight[1], other.stacked["0/weight"][1])


def test_frozen_weights_stay_frozen():
    network = plain()
    network[0].weight.requires_grad_(False)
    stacked = MemberNetworks(network, MEMBERS, n_targets=1, seed=0).networks.stacked
    assert not stacked["0/weight"].requires_grad
    assert stacked["0/bias"].requires_grad


def test_wrong_number_of_outputs():
    networks = MemberNetworks(plain(3), MEMBERS, n_targets=1, seed=0)
    with pytest.raises(ValueError, match=r"^network must return 2 column\(s\) per row for this estimator"):
        networks(table())


def test_every_dropout_layer_is_replaced():
    network = nn.Sequential(nn.Dropout(0.1), PrivateDropout(0.2), nn.Linear(5, 2))
    networks = MemberNetworks(network, MEMBERS, n_targets=1, seed=0)
    layers = networks.networks.template[0]
    assert [layer.rate for layer in layers[:2]] == [0.1, 0.2]
    assert all(layer.members == MEMBERS for layer in layers[:2])

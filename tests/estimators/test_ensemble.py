"""Deep ensembles: members that differ, run as one network, pooled as a mixture; noise separated from disagreement."""

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.func import functional_call

from hetcal.datasets import gap, heteroscedastic
from hetcal.estimators import Ensemble, EnsembleSpread, VarianceHead, predict
from hetcal.estimators.stacked import stored
from hetcal.families import Laplace
from hetcal.networks import MLP
from hetcal.objectives import nll_loss
from hetcal.training import train

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0]
KINDS = [Ensemble, EnsembleSpread]
both = pytest.mark.parametrize("kind", KINDS)


def mlp(n_outputs=2, dropout=0.0, seed=1):
    return MLP(3, n_outputs, width=8, depth=2, dropout=dropout, generator=torch.Generator().manual_seed(seed))


def make(kind, dropout=0.0, **settings):
    return kind(mlp(kind.n_outputs, dropout), **settings)


def state_of(ensemble, member):
    """The weights and statistics of one member, by the names of the user's network."""
    template = ensemble.networks.template[0]
    parameters = {name: ensemble.networks.stacked[stored(name)][member] for name, _ in template.named_parameters()}
    buffers = {
        name: getattr(ensemble.networks.stacked_buffers, stored(name))[member]
        for name, _ in template.named_buffers()
        if not name.endswith(".member")
    }
    return {**parameters, **buffers}


def set_equal(ensemble):
    """Give every member the weights of the first."""
    with torch.no_grad():
        for stack in ensemble.networks.stacked.values():
            stack.copy_(stack[:1].expand_as(stack))


class Images(nn.Module):
    """A user's network: convolution, batch normalization, dropout of whole channels, parameters of its own."""

    def __init__(self, n_outputs):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout2d(0.5)
        self.last = nn.Linear(4, n_outputs)
        self.shift = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, x):
        h = self.dropout(torch.relu(self.norm(self.convolution(x))))
        return self.last(h.mean(dim=(2, 3))) + self.shift


@both
def test_stacked_is_a_loop_over_the_members(kind):
    """All members at once answer what they answer one by one."""
    for network, x in ((mlp(kind.n_outputs), X), (Images(kind.n_outputs), torch.randn(7, 1, 6, 6))):
        plain = copy.deepcopy(network).eval()
        ensemble = kind(network, members=5).eval()
        together = ensemble.member_outputs(x)
        one_by_one = [functional_call(plain, state_of(ensemble, member), (x,)) for member in range(5)]
        assert_allclose(together.detach(), torch.stack(one_by_one).detach(), rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_the_loop():
    """Training steps too: the gradient of each member is the one it has by itself."""
    ensemble = Ensemble(mlp(), members=3)
    ensemble(X).mean.sum().backward()
    for member in range(3):
        network = mlp()
        network.load_state_dict({name: value.detach().clone() for name, value in state_of(ensemble, member).items()})
        (network(X)[:, 0].sum() / 3).backward()
        for name, parameter in network.named_parameters():
            assert_allclose(ensemble.networks.stacked[stored(name)].grad[member], parameter.grad, rtol=1e-4, atol=1e-6)


def test_ensemble_of_one_is_its_only_member():
    head, one = VarianceHead(mlp()), Ensemble(mlp(), members=1)
    expected, got = predict(head, X), predict(one, X)
    assert_allclose(got.mean, expected.mean, atol=1e-6)
    assert_allclose(got.std, expected.std, rtol=1e-6)
    assert_allclose(got.epistemic_std, np.zeros(20))
    assert_allclose(one.own_loss(one(X), Y, 20).detach(), nll_loss(expected, Y), rtol=1e-5)
    one.at_rows(torch.arange(20), 20)
    assert one._batch_weights is None


def test_pooled_moments_are_those_of_the_mixture():
    """Mean and variance of the explicit mixture, from its second moment, in float64."""
    prediction = Ensemble(mlp(), members=5).eval()(X)
    mu, sigma = (values.detach().double().numpy() for values in (prediction.members.mean, prediction.members.std))
    mean = mu.mean(0)
    second_moment = (sigma**2 + mu**2).mean(0)
    assert_allclose(prediction.mean.detach(), mean, rtol=1e-4, atol=1e-6)
    assert_allclose(prediction.std.detach() ** 2, second_moment - mean**2, rtol=1e-4)
    assert_allclose(prediction.aleatoric_std**2, (sigma**2).mean(0), rtol=1e-4)
    assert_allclose(prediction.epistemic_std, mu.std(0), rtol=1e-4)


def test_spread_is_that_of_the_members():
    """M - 1 below the sum, M - 3 in training, the floor inside the root."""
    ensemble = EnsembleSpread(mlp(1), members=6, std_floor=0.1)
    mu = ensemble.member_outputs(X)[..., 0].detach().double().numpy()
    for training, lost in ((True, 3), (False, 1)):
        prediction = ensemble.train(training)(X)
        variance = ((mu - mu.mean(0)) ** 2).sum(0) / (6 - lost)
        assert_allclose(prediction.mean.detach(), mu.mean(0), rtol=1e-4, atol=1e-6)
        assert_allclose(prediction.std.detach(), np.sqrt(variance + 0.01), rtol=1e-4)


@both
def test_members_differ(kind):
    """The first member is the network as it was given; all others, and those of another seed, start elsewhere."""
    ensemble, other = make(kind, members=6), make(kind, members=6, seed=1)
    given = mlp(kind.n_outputs).state_dict()
    for name, value in given.items():
        assert torch.equal(state_of(ensemble, 0)[name], value)
    answers = torch.cat([ensemble.member_outputs(X), other.member_outputs(X)[1:]])[..., 0]  # (11, n)
    distances = torch.cdist(answers, answers) + torch.eye(11)
    assert distances.min() > 0.1


@both
def test_number_of_parameters(kind):
    """Every member has its own, and nothing else is trained."""
    count = sum(value.numel() for value in mlp(kind.n_outputs).parameters())
    assert sum(value.numel() for value in make(kind, members=5).parameters()) == 5 * count
    assert all(value.requires_grad for value in make(kind).parameters())


@both
def test_users_network(kind):
    """Batch normalization keeps statistics for each member, Dropout2d drops whole channels of each member."""
    images = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    ensemble = kind(Images(kind.n_outputs), members=4)
    train(ensemble, nll_loss, images, images.mean(dim=(1, 2, 3)), max_epochs=3)
    running_mean = dict(ensemble.networks.stacked_buffers.named_buffers())["norm/running_mean"]
    assert running_mean.shape == (4, 4)
    assert running_mean.unique(dim=0).shape == (4, 4)
    assert dict(ensemble.networks.stacked_buffers.named_buffers())["norm/num_batches_tracked"].unique().numel() == 1
    assert predict(ensemble, images).std.shape == (40,)


class Recurrent(nn.Module):
    def __init__(self, n_outputs):
        super().__init__()
        self.first, self.norm, self.dropout = nn.LSTM(1, 8, batch_first=True), nn.BatchNorm1d(8), nn.Dropout(0.2)
        self.last = nn.Linear(8, n_outputs)

    def forward(self, x):
        return self.last(self.dropout(self.norm(self.first(x[:, :, None])[0][:, -1])))


@both
def test_layers_that_torch_cannot_batch(kind):
    """An LSTM has no rule for several members at once; they then run one by one, with the same answers."""
    network = Recurrent(kind.n_outputs)
    plain = copy.deepcopy(network).eval()
    ensemble = kind(network, members=4)
    train(ensemble, nll_loss, X, Y, max_epochs=2)
    running_mean = dict(ensemble.networks.stacked_buffers.named_buffers())["norm/running_mean"]
    assert running_mean.unique(dim=0).shape == (4, 8)
    expected = [functional_call(plain, state_of(ensemble, member), (X,)) for member in range(4)]
    assert_allclose(ensemble.member_outputs(X).detach(), torch.stack(expected).detach(), atol=1e-5)


def test_dropout_masks_differ_between_members_and_rows():
    """Equal weights: in evaluation mode all members agree, in training none, and equal rows differ too."""
    ensemble = Ensemble(mlp(dropout=0.5), members=6)
    set_equal(ensemble)
    rows = X[:1].repeat(8, 1)
    answers = ensemble.member_outputs(rows)[..., 0]  # (6, 8)
    assert answers.unique().numel() > 40
    again = ensemble.member_outputs(rows)[..., 0]
    assert not torch.equal(answers, again)
    same = ensemble.eval().member_outputs(rows)[..., 0]
    assert_allclose(same.detach(), same[:1, :1].expand(6, 8).detach(), atol=1e-6)


def test_share_of_dropped_units():
    """Each member drops the share that it should: 6 members x 50 rows x 8 units (six standard errors)."""
    network = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 2, bias=False))
    ensemble = Ensemble(network, members=6)
    with torch.no_grad():
        ensemble.networks.stacked["1/weight"].copy_(
            torch.full((6, 2, 8), 0.7 / 8)
        )  # the mean output is the share that is kept
    kept = ensemble.member_outputs(torch.ones(50, 8))[..., 0].mean(1)
    assert ((kept - 0.7).abs() < 6 * (0.3 * 0.7 / 400) ** 0.5).all()


def test_halves_of_a_batch():
    """Each member's own loss leaves out its own random half, and doubles the rest; once, and in training only."""
    ensemble = Ensemble(mlp(), members=5)
    prediction = ensemble(X)
    losses = -prediction.members.log_prob(Y)  # (5, n)
    ensemble.at_rows(torch.arange(20), 100)
    weights = ensemble._batch_weights
    assert set(weights.unique().tolist()) == {0.0, 2.0}
    assert weights.unique(dim=0).shape == (5, 20)
    assert_allclose(ensemble.own_loss(prediction, Y, 100).detach(), (weights * losses).mean(0).detach(), rtol=1e-5)
    assert_allclose(ensemble.own_loss(prediction, Y, 100).detach(), losses.mean(0).detach(), rtol=1e-5)
    ensemble.at_rows(torch.arange(20), 100)
    ensemble.eval()
    assert_allclose(ensemble.own_loss(prediction, Y, 100).detach(), losses.mean(0).detach(), rtol=1e-5)


@both
def test_own_loss_of_several_targets(kind):
    """Weights go by row and member, whatever the number of targets."""
    ensemble = kind(mlp(2 * kind.n_outputs), members=4, n_targets=2)
    y = X[:, :2]
    prediction = ensemble(X)
    losses = -prediction.members.log_prob(y) if kind is Ensemble else (y - prediction.members.mean).square()
    ensemble.at_rows(torch.arange(20), 20)
    weights = ensemble._batch_weights[..., None]
    got = ensemble.own_loss(prediction, y, 20)
    assert got.shape == (20, 2)
    assert_allclose(got.detach(), (weights * losses).mean(0).detach(), rtol=1e-4)


def test_bootstrap():
    """Each member's rows are drawn with replacement: n in all, a share of 1/e never; the same in every epoch."""
    ensemble = Ensemble(mlp(), members=4, bootstrap=True)
    n = 2000
    ensemble.at_rows(torch.arange(20), n)
    counts = ensemble._row_weights
    assert counts.shape == (4, n)
    assert_allclose(counts.sum(1), [n] * 4)
    assert_allclose((counts == 0).double().mean(1), [np.exp(-1)] * 4, atol=6 * (0.37 * 0.63 / n) ** 0.5)
    assert counts.unique(dim=0).shape == (4, n)
    index = torch.tensor([7, 3, 1999])
    ensemble.at_rows(index, n)
    assert ensemble._row_weights is counts
    halves = ensemble._batch_weights
    assert (halves <= 2 * counts[:, index]).all()
    ensemble.at_rows(torch.arange(20), 50)  # other data
    assert ensemble._row_weights.shape == (4, 50)


def test_bootstrap_changes_the_training():
    """And the weights reach the loss through the training loop."""
    stds = []
    for bootstrap in (False, True):
        ensemble = Ensemble(mlp(), members=4, bootstrap=bootstrap)
        train(ensemble, nll_loss, X, Y, max_epochs=3)
        stds.append(predict(ensemble, X).std)
    assert not torch.equal(*stds)


def test_family_reaches_the_members():
    """The members' own likelihood is that of the family."""
    prediction = Ensemble(mlp(), members=4)(X).with_family(Laplace())
    assert prediction.members.family == Laplace()
    log_prob = torch.distributions.Laplace(prediction.members.mean, prediction.members.std / 2**0.5).log_prob(Y)
    own_loss = Ensemble(mlp(), members=4).own_loss(prediction, Y, 20)
    assert_allclose(own_loss.detach(), -log_prob.mean(0).detach(), rtol=1e-4)


@both
def test_state_names_say_which_layer(kind):
    """A file of weights can be read by people: stacked.<layer>/<name>."""
    keys = set(make(kind, dropout=0.2).state_dict())
    assert {"networks.stacked.0/weight", "networks.stacked.6/bias", "networks.stacked_buffers.2/member"} <= keys


def as_tensor(values):
    return torch.from_numpy(values).float()


def trained(data):
    ensemble = Ensemble(MLP(2, 2, width=32, depth=2, generator=torch.Generator().manual_seed(0)), members=6)
    train(ensemble, nll_loss, as_tensor(data.X), as_tensor(data.y), max_epochs=60, learning_rate=5e-3)
    return ensemble


def test_ignorance_is_larger_where_no_data_are():
    """In the gap the members disagree more: the median epistemic std is 1.5 times that outside, or more.

    Seen over four seeds: 2.0 to 2.7 times.
    """
    ensemble = trained(gap(600))
    inside = predict(ensemble, as_tensor(gap(300, inside=True, seed=1).X))
    outside = predict(ensemble, as_tensor(gap(300, seed=1).X))
    assert inside.epistemic_std.median() > 1.5 * outside.epistemic_std.median()


def test_noise_is_found_where_it_is():
    """The aleatoric std correlates with the known noise of new rows; seen over four seeds: 0.978 to 0.994."""
    ensemble = trained(heteroscedastic(1500))
    new = heteroscedastic(500, seed=1)
    prediction = predict(ensemble, as_tensor(new.X))
    assert np.corrcoef(prediction.aleatoric_std, new.std)[0, 1] > 0.8
    assert np.median(prediction.epistemic_std) < np.median(prediction.aleatoric_std)


@pytest.mark.parametrize(
    ("kind", "members", "message"),
    [
        (Ensemble, 0, "members must be at least 1 and at most 10000, got members=0"),
        (EnsembleSpread, 3, "members must be at least 4 and at most 10000, got members=3"),
        (EnsembleSpread, 4.5, "members must be a whole number, got members=4.5"),
    ],
)
def test_wrong_settings(kind, members, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(kind, members=members)


def test_tied_and_frozen_parameters():
    """Weights that two layers share stay shared, and what is frozen stays frozen."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
            self.second.weight = self.first.weight
            self.last.bias.requires_grad_(False)

        def forward(self, x):
            return self.last(torch.relu(self.second(torch.relu(self.first(x)))))

    ensemble = Ensemble(Tied(), members=3)
    assert ensemble(torch.zeros(5, 4)).mean.shape == (5,)
    trained = {name: parameter.requires_grad for name, parameter in ensemble.networks.stacked.items()}
    assert trained == {
        "first/weight": True,
        "first/bias": True,
        "second/bias": True,
        "last/weight": True,
        "last/bias": False,
    }

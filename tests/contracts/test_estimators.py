"""The contract of an estimator, for every one in the registry: what `training.train` and `predict` rely on."""

import copy
import pickle

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal.estimators import ESTIMATORS, predict
from hetcal.networks import MLP
from hetcal.objectives import OBJECTIVES, gaussian_nll
from hetcal.training import train

D = 4
pytestmark = pytest.mark.parametrize("name", sorted(ESTIMATORS))


def make(name, seed=0, network=None, **options):
    kind = ESTIMATORS[name]
    if network is None:
        generator = torch.Generator().manual_seed(1)
        network = MLP(D, kind.n_outputs, width=16, depth=2, dropout=0.2, generator=generator)
    return kind(network, seed=seed, **options)


def rows(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, D, generator=generator)
    return x, x[:, 0] + 0.3 * torch.randn(n, generator=generator)


class Residual(nn.Module):
    """A user's network: a skip connection, batch normalisation and dropout."""

    def __init__(self, n_outputs):
        super().__init__()
        self.first = nn.Linear(D, 16)
        self.norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(0.2)
        self.second = nn.Linear(16, 16)
        self.last = nn.Linear(16, n_outputs)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        return self.last(h + torch.relu(self.second(self.dropout(h))))


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("training", [True, False])
def test_shapes_and_positive_std(name, n, training):
    """Mean and std are (n,), std is positive, a batch of one row works."""
    prediction = make(name).train(training)(rows(n)[0])
    assert prediction.mean.shape == prediction.std.shape == (n,)
    assert (prediction.std > 0).all()


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_gradients(name, objective):
    """Under the likelihood the gradient reaches every parameter; no objective gives a non-finite one."""
    estimator = make(name)
    x, y = rows(32)
    prediction = estimator(x)
    loss = OBJECTIVES[objective](prediction, y) + estimator.own_loss(prediction, y, 32)
    assert loss.shape == y.shape
    loss.mean().backward()
    for parameter in estimator.parameters():
        assert torch.isfinite(parameter.grad).all()
        if objective == "gaussian_nll":
            assert parameter.grad.abs().max() > 0


def test_sigma_reacts_to_the_likelihood(name):
    """Rows that are far off make sigma larger: a step down the likelihood widens the intervals."""
    estimator = make(name)
    x, _ = rows(64)
    y = 30.0 + torch.zeros(64)
    before = predict(estimator, x).std.mean()
    history = train(estimator, gaussian_nll, x, y, max_epochs=3, learning_rate=1e-2, validation_fraction=0)
    assert len(history) == 3
    assert predict(estimator, x).std.mean() > before


def test_seed_decides(name):
    """The same seed gives the same bits, another seed another model; torch's global generator plays no part."""
    x, y = rows(100)

    def fitted(seed):
        estimator = make(name, seed=seed)
        train(estimator, gaussian_nll, x, y, max_epochs=4, seed=seed)
        return predict(estimator, x)

    state = torch.random.get_rng_state()
    first = fitted(0)
    torch.rand(17)
    second, other = fitted(0), fitted(1)
    torch.random.set_rng_state(state)
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.std, second.std)
    assert not torch.equal(first.mean, other.mean)


def test_global_state_is_untouched(name):
    """Training and prediction leave torch's generator, default dtype, threads and gradient mode as they were."""
    before = torch.random.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    estimator = make(name)
    x, y = rows(50)
    train(estimator, gaussian_nll, x, y, max_epochs=2)
    predict(estimator, x)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1:] == (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())


def test_rows_do_not_depend_on_their_neighbours(name):
    """Subsets, permutations and other numbers of rows give the same bits for a row."""
    estimator = make(name, network=MLP(D, ESTIMATORS[name].n_outputs, dropout=0.2))
    x, _ = rows(3000)
    whole = predict(estimator, x)
    for index in (torch.tensor([5]), torch.arange(70), torch.randperm(3000, generator=torch.Generator())):
        part = predict(estimator, x[index])
        assert torch.equal(part.mean, whole.mean[index])
        assert torch.equal(part.std, whole.std[index])


def test_prediction_is_the_estimator_in_evaluation_mode(name):
    """The fast way of `predict` gives what the estimator itself gives, and leaves its mode alone."""
    estimator = make(name).train()
    x, _ = rows(80)
    fast = predict(estimator, x)
    assert estimator.training
    slow = estimator.eval()(x)
    assert_allclose(fast.mean, slow.mean.detach(), atol=1e-5)
    assert_allclose(fast.std, slow.std.detach(), rtol=1e-4)


def test_users_network(name):
    """A network with skips and batch normalisation trains, and its statistics are frozen while predicting."""
    estimator = make(name, network=Residual(ESTIMATORS[name].n_outputs))
    x, y = rows(200)
    train(estimator, gaussian_nll, x, y, max_epochs=5)
    running = copy.deepcopy(estimator.network.norm.state_dict())
    prediction = predict(estimator, x)
    assert torch.isfinite(prediction.mean).all()
    assert (prediction.std > 0).all()
    assert_allclose(running["running_mean"], estimator.network.norm.running_mean)


def test_wrong_number_of_outputs(name):
    """A network with the wrong number of outputs is refused with the right number."""
    n_outputs = ESTIMATORS[name].n_outputs
    estimator = make(name, network=nn.Sequential(nn.Linear(D, 8), nn.Dropout(0.1), nn.Linear(8, n_outputs + 1)))
    with pytest.raises(ValueError, match=rf"network must return {n_outputs} column\(s\) per row.*end it with a layer"):
        estimator(rows(5)[0])


def test_state_dict_pickle_and_copy(name):
    """Weights travel by state_dict, whole estimators by pickle and deepcopy, with the same predictions."""
    estimator = make(name)
    x, y = rows(60)
    train(estimator, gaussian_nll, x, y, max_epochs=2)
    expected = predict(estimator, x)
    other = make(name)
    other.load_state_dict(estimator.state_dict())
    for twin in (other, pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
        assert torch.equal(predict(twin, x).mean, expected.mean)
        assert torch.equal(predict(twin, x).std, expected.std)


def test_prediction_follows_the_weights(name):
    """Nothing of an earlier prediction survives a change of the weights."""
    estimator = make(name)
    x, _ = rows(10)
    before = predict(estimator, x).mean
    with torch.no_grad():
        for parameter in estimator.parameters():
            parameter.mul_(1.5)
    after = predict(estimator, x).mean
    assert not torch.equal(before, after)
    assert_allclose(after, estimator.eval()(x).mean.detach(), atol=1e-4)

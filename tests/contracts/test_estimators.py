"""The contract of an estimator, for every one in the registry: what `training.train` and `predict` rely on.

`hetcal.testing` has the checks for every estimator, hetcal's and users'. Here they run on those of hetcal, together
with stronger tests that only these need to pass.
"""

import copy
import pickle

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal import testing
from hetcal.estimators import ESTIMATORS, AbstractEstimator, WithFamily, predict
from hetcal.estimators.ensemble import AbstractEnsemble
from hetcal.estimators.passes import SampledPasses
from hetcal.networks import MLP
from hetcal.objectives import gaussian_nll, nll_loss
from hetcal.training import train

D = 4
pytestmark = pytest.mark.parametrize("name", sorted(ESTIMATORS))


def make(name, seed=0, network=None, n_targets=1, **options):
    kind = ESTIMATORS[name]
    if network is None:
        generator = torch.Generator().manual_seed(1)
        network = MLP(D, n_targets * kind.n_outputs, width=16, depth=2, dropout=0.2, generator=generator)
    return kind(network, seed=seed, n_targets=n_targets, **options)


def rows(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, D, generator=generator)
    return x, x[:, 0] + 0.3 * torch.randn(n, generator=generator)


class Residual(nn.Module):
    """A user's network: a skip connection, batch normalization and dropout."""

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


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_what_users_estimators_must_keep(name, check):
    """The checks of `hetcal.testing.check_estimator`, one by one."""
    check(testing.Trial(ESTIMATORS[name], D, nll_loss))


def test_members(name):
    """The required members, and the optional ones, which `AbstractEstimator` declares, under a family too."""
    for estimator in (make(name), WithFamily(make(name), "laplace")):
        assert estimator.n_outputs == ESTIMATORS[name].n_outputs
        x, y = rows(20)
        assert estimator.at_rows(torch.arange(20), n_train=100) is None
        prediction = estimator(x)
        assert estimator.own_loss(prediction, y, 100).shape in ((), (20,))
        faster = estimator.eval().for_prediction()
        with torch.no_grad():
            assert_allclose(faster(x).std, estimator(x).std, rtol=1e-4)


def test_optional_members_may_be_missing(name):
    """`train` and `predict` use them only where they are; most estimators give the very same result without."""

    class Required(nn.Module):
        n_outputs = ESTIMATORS[name].n_outputs

        def __init__(self):
            super().__init__()
            self.inner = make(name)

        def forward(self, x):
            return self.inner(x)

        def own_loss(self, prediction, y, n_train):
            return self.inner.own_loss(prediction, y, n_train)

    x, y = rows(64)
    means = []
    for estimator in (make(name), Required()):
        train(estimator, gaussian_nll, x, y, max_epochs=2)
        means.append(predict(estimator, x).mean)
    ignores_rows = ESTIMATORS[name].at_rows is AbstractEstimator.at_rows
    assert ignores_rows != issubclass(ESTIMATORS[name], AbstractEnsemble)
    if ignores_rows:
        assert_allclose(means[0], means[1], atol=1e-4)
    else:
        assert not torch.equal(*means)


def test_another_seed_another_model(name):
    """The seed determines more than the network, whose initial weights are the same here."""
    x, y = rows(100)
    means = []
    for seed in (0, 1):
        estimator = make(name, seed=seed)
        train(estimator, gaussian_nll, x, y, max_epochs=4, seed=seed)
        means.append(predict(estimator, x).mean)
    assert not torch.equal(*means)


def test_global_state_is_untouched(name):
    """Training and prediction leave torch's generator, default dtype, threads and gradient mode as they were."""
    before = torch.random.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    estimator = make(name)
    x, y = rows(50)
    train(estimator, gaussian_nll, x, y, max_epochs=2)
    predict(estimator, x)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1:] == (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())


@pytest.mark.parametrize("n_targets", [1, 3])
def test_rows_do_not_depend_on_their_neighbors(name, n_targets):
    """Subsets, permutations and other numbers of rows give the same bits for a row."""
    network = MLP(D, n_targets * ESTIMATORS[name].n_outputs, dropout=0.2, depth=5 if n_targets == 1 else 2)
    few = {"prediction_samples": 20} if issubclass(ESTIMATORS[name], SampledPasses) else {}
    estimator = make(name, network=network, n_targets=n_targets, **few)
    x, _ = rows(1500)
    whole = predict(estimator, x)
    for index in (torch.tensor([5]), torch.arange(70), torch.randperm(1500, generator=torch.Generator())):
        part = predict(estimator, x[index])
        assert torch.equal(part.mean, whole.mean[index])
        assert torch.equal(part.std, whole.std[index])


def test_rows_hardly_depend_on_their_neighbors_at_odd_widths(name):
    """A width that is not a multiple of 4: the last bit of MKL's narrow products then depends on a row's position."""
    network = MLP(D, ESTIMATORS[name].n_outputs, dropout=0.2, width=30, depth=2)
    estimator = make(name, network=network)
    x, _ = rows(1500)
    whole, part = predict(estimator, x).take(slice(3, 133)), predict(estimator, x[3:133])
    assert_allclose(part.mean, whole.mean, atol=1e-5)
    assert_allclose(part.std, whole.std, rtol=1e-5)


def test_no_rows(name):
    """Predictions of a table without rows have none."""
    assert predict(make(name), torch.zeros(0, D)).std.shape == (0,)
    assert predict(make(name, n_targets=3), torch.zeros(0, D)).std.shape == (0, 3)


def test_prediction_is_the_estimator_in_evaluation_mode(name):
    """The fast path of `predict` agrees with the estimator itself, also for several targets, and keeps the mode."""
    for n_targets in (1, 3):
        estimator = make(name, n_targets=n_targets).train()
        x, _ = rows(80)
        fast = predict(estimator, x)
        assert estimator.training
        slow = estimator.eval()(x)
        assert_allclose(fast.mean, slow.mean.detach(), atol=1e-5)
        assert_allclose(fast.std, slow.std.detach(), rtol=1e-4)


def test_users_network(name):
    """A network with skips and batch normalization trains; its statistics change in training and not in prediction."""
    estimator = make(name, network=Residual(ESTIMATORS[name].n_outputs))
    x, y = rows(200)
    train(estimator, gaussian_nll, x + 1, y, max_epochs=5)
    statistics = {key: value.clone() for key, value in estimator.named_buffers() if "running_" in key}
    assert len(statistics) == 2  # an ensemble holds those of its members in one
    for key, value in statistics.items():
        assert (value != (0 if key.endswith("mean") else 1)).all()
    prediction = predict(estimator, x)
    assert torch.isfinite(prediction.mean).all()
    assert (prediction.std > 0).all()
    for key, value in statistics.items():
        assert torch.equal(value, dict(estimator.named_buffers())[key])


def test_layers_that_stand_in_several_places(name):
    """One ReLU or one dropout layer used throughout is as good as several."""
    n_outputs = ESTIMATORS[name].n_outputs
    relu, dropout = nn.ReLU(), nn.Dropout(0.2)

    def chain(*relus):
        first, second, last = nn.Linear(D, 16), nn.Linear(16, 16), nn.Linear(16, n_outputs)
        for number, layer in enumerate((first, second, last)):
            nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(number))
            nn.init.zeros_(layer.bias)
        return nn.Sequential(first, relus[0], nn.Dropout(0.2), second, relus[1], nn.Dropout(0.3), last)

    one, several = make(name, network=chain(relu, relu)), make(name, network=chain(nn.ReLU(), nn.ReLU()))
    x, _ = rows(20)
    assert torch.equal(predict(one, x).mean, predict(several, x).mean)
    assert torch.equal(one.train()(x).mean, several.train()(x).mean)

    network = nn.Sequential(nn.Linear(D, 16), relu, dropout, nn.Linear(16, 16), nn.Tanh(), dropout)
    estimator = make(name, network=network.append(nn.Linear(16, n_outputs)))
    layers = [part for module in (estimator, *getattr(estimator, "template", [])) for part in module.modules()]
    assert not any(isinstance(layer, nn.Dropout) for layer in layers)
    assert_allclose(predict(estimator, x).mean, estimator.eval()(x).mean.detach(), atol=1e-5)


def test_double_precision(name):
    """An estimator in float64 predicts in float64, the same as in float32 up to rounding."""
    single = make(name).eval()
    double = copy.deepcopy(single).double()
    x, y = rows(20)
    prediction = double(x.double())
    assert prediction.mean.dtype == prediction.std.dtype == torch.float64
    assert double.own_loss(prediction, y.double(), 20).dtype == torch.float64
    if name not in ("concrete_dropout", "bayes_by_backprop"):  # uniform and normal draws differ between the types
        assert_allclose(prediction.mean.detach(), single(x).mean.detach(), atol=1e-5)
        assert_allclose(prediction.std.detach(), single(x).std.detach(), rtol=1e-4)


def test_wrong_number_of_outputs(name):
    """A network with the wrong number of outputs is refused with the right number."""
    n_outputs = ESTIMATORS[name].n_outputs
    network = nn.Sequential(nn.Linear(D, 8), nn.Dropout(0.1), nn.Linear(8, n_outputs + 1))
    message = r"network must return {} column\(s\) per row.*end it with a layer of {} output"
    for n_targets in (1, 3):
        columns = n_targets * n_outputs
        with pytest.raises(ValueError, match=message.format(columns, columns)):
            make(name, network=copy.deepcopy(network), n_targets=n_targets)(rows(5)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_targets": 0}, "n_targets must be at least 1, got n_targets=0"),
        ({"n_targets": 1.5}, "n_targets must be a whole number, got n_targets=1.5"),
        ({"seed": -1}, "seed must be at least 0, got seed=-1"),
        ({"std_floor": 0}, r"std_floor must be greater than 0 and at most 1e\+06, got std_floor=0"),
    ],
)
def test_wrong_settings(name, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ESTIMATORS[name](MLP(D, ESTIMATORS[name].n_outputs, dropout=0.2), **options)


def test_pickle_and_copy(name):
    """Whole estimators can be pickled and deep-copied, before and after training, with the same predictions."""
    estimator = make(name)
    x, y = rows(60)
    predict(estimator, x)
    untrained = pickle.loads(pickle.dumps(estimator))
    for other in (estimator, untrained):
        train(other, nll_loss, x, y, max_epochs=2)
    expected = predict(estimator, x)
    for twin in (untrained, pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
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

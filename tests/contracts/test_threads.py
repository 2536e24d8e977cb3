"""One model for many threads: prediction writes nothing, so that threads neither disturb each other nor wait.

The switch interval is so short that threads interleave between any two operations. Every model is tiny: the point is
the number of calls. Nothing is random but the schedule of the operating system: a correct model passes for certain, and
the state of the model is compared too, which shows a write even in a run without a race.
"""

import pickle
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn

import hetcal
from hetcal import HCClassifier, HCRegressor
from hetcal.estimators import VarianceHead, predict
from hetcal.methods import METHODS, make
from hetcal.networks import MLP
from hetcal.objectives import nll_loss
from hetcal.training import train

pytestmark = pytest.mark.usefixtures("few_members")
THREADS, CALLS = 8, 12  # of each thread: about a hundred calls in all
COLUMNS = 3
SIZES = {"width": 8, "depth": 2, "max_steps": 4, "max_epochs": 2, "random_state": 0}
SAMPLED = ("mc_dropout", "concrete_dropout", "bayes_by_backprop")
FEW = {"estimator_options": {"prediction_samples": 20}}


def rows(n=60, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, COLUMNS))
    return X, X[:, 0] + 0.3 * generator.normal(size=n)


class Plain(nn.Module):
    """A user's network without anything random."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(n_inputs, 8), nn.Linear(8, 8), nn.Linear(8, n_outputs)

    def forward(self, x):
        h = torch.relu(self.first(x))
        return self.last(h + torch.relu(self.second(h)))


class Normalized(Plain):
    """A user's network with dropout and batch normalization."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__(n_inputs, n_outputs)
        self.norm, self.dropout = nn.BatchNorm1d(8), nn.Dropout(0.2)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        return self.last(h + torch.relu(self.second(self.dropout(h))))


class Recurrent(nn.Module):
    """A user's network that torch cannot run for several members at once."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.lstm, self.last = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, n_outputs)

    def forward(self, x):
        return self.last(self.lstm(x[..., None])[0][:, -1])


def method(name):
    few = FEW if METHODS[name].estimator in SAMPLED else {}
    return make(name, **SIZES, **few)


def with_network(estimator, network, **settings):
    few = FEW if estimator in SAMPLED else {}
    return HCRegressor(estimator, network=network, **SIZES, **few, **settings)


MODELS = {
    **{name: lambda name=name: method(name) for name in METHODS},
    **{
        f"{name}, {network.__name__}": lambda name=name, network=network: with_network(name, network)
        for name in ("cross_ensemble", *SAMPLED, "ensemble", "variance_head")
        for network in (Plain, Normalized)
    },
    "ensemble, Recurrent": lambda: with_network("ensemble", Recurrent),
    "a module": lambda: with_network("ensemble", Normalized(COLUMNS, 2)),
    "a family and a transform": lambda: make("hnn", **SIZES, family="student_t", target_transform="yeo-johnson"),
    **{f"classifier, {name}": lambda name=name: classifier(name) for name in (*SAMPLED, "variance_head")},
}


def classifier(estimator):
    few = FEW if estimator in SAMPLED else {}
    return HCClassifier(estimator, likelihood="sampling", **SIZES, **few)


def fit(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dropout was inserted; training is too short
        return model.fit(X, y > 0 if isinstance(model, HCClassifier) else y)


def answer(model, X):
    """All that a model predicts, as bytes."""
    if isinstance(model, HCClassifier):
        logits = model.predict_logits(X)
        return b"".join(values.tobytes() for values in (model.predict_proba(X), logits.mean, logits.std))
    prediction = model.predict_dist(X)
    return b"".join(values.tobytes() for values in (prediction.mean, prediction.std, prediction.interval(0.9)))


def in_threads(work, count=THREADS):
    """`work(number)` in this many threads that start together and are switched all the time."""
    barrier, interval = Barrier(count), sys.getswitchinterval()

    def start(number):
        barrier.wait()
        return work(number)

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(start, range(count)))
    finally:
        sys.setswitchinterval(interval)


def state_of(model):
    """Weights, buffers, and every attribute of every part: what prediction must not touch."""
    parts = list(model.estimator_.modules())
    weights = {name: value.clone() for name, value in model.estimator_.state_dict().items()}
    attributes = [
        {name: id(value) for name, value in vars(part).items()} | {key: id(value) for key, value in tensors(part)}
        for part in parts
    ]
    return weights, attributes, set(vars(model))


def tensors(part):
    return [
        (f"{kind} {name}", value) for kind in ("_parameters", "_buffers") for name, value in vars(part)[kind].items()
    ]


def assert_same_state(before, model):
    weights, *others = before
    now, *others_now = state_of(model)
    assert others == others_now
    assert weights.keys() == now.keys()
    assert all(torch.equal(value, now[name]) for name, value in weights.items())


@pytest.mark.parametrize("name", MODELS)
def test_threads_share_a_model(name):
    """8 threads, a hundred calls, tables of different lengths: bit-equal to one thread, and nothing has changed.

    The model in use comes from a pickle, so that no earlier call has prepared anything.
    """
    X, y = rows()
    fitted = fit(MODELS[name](), X, y)
    tables = [X[:1], X[:20], X]
    expected = [answer(fitted, table) for table in tables]
    model = pickle.loads(pickle.dumps(fitted))
    before = state_of(model)

    def work(number):
        return [answer(model, tables[(number + call) % 3]) == expected[(number + call) % 3] for call in range(CALLS)]

    assert all(map(all, in_threads(work)))
    assert_same_state(before, model)
    assert [answer(model, table) for table in tables] == expected


OWN_NETWORKS = [("variance_head", Plain), ("mc_dropout", Normalized), ("ensemble", Normalized), ("ensemble", "module")]


def test_fits_in_threads():
    """A user's network gives the same bits as alone: its weights are drawn from torch's global generator, by turns.

    The state of that generator is as before.
    """
    X, y = rows()
    module = Normalized(COLUMNS, 2)

    def train_one(number):
        name, network = OWN_NETWORKS[number % len(OWN_NETWORKS)]
        model = with_network(name, module if network == "module" else network).set_params(random_state=number)
        return answer(model.fit(X, y), X)

    torch.manual_seed(7)
    state = torch.random.get_rng_state()
    alone = [train_one(number) for number in range(THREADS)]
    together = in_threads(train_one)
    assert together == alone
    assert torch.equal(state, torch.random.get_rng_state())


def test_loads_in_threads(tmp_path):
    """The same answers; the generator and the filters of warnings, which belong to all threads, are as before."""
    X, y = rows()
    model = fit(with_network("mc_dropout", Plain), X, y)
    model.save(tmp_path / "model.hetcal")
    expected, state, filters = answer(model, X), torch.random.get_rng_state(), list(warnings.filters)

    def load(number):
        return [answer(hetcal.load(tmp_path / "model.hetcal", network=Plain), X) == expected for _ in range(3)]

    assert all(map(all, in_threads(load)))
    assert torch.equal(state, torch.random.get_rng_state())
    assert warnings.filters == filters


@pytest.mark.parametrize("make_table", [np.asarray, pd.DataFrame, pl.DataFrame])
def test_filters_of_warnings_are_not_changed_even_for_a_moment(make_table, monkeypatch, tmp_path):
    """They belong to all threads: of two calls that change and restore them, one may restore those of the other.

    That needs a race, which few runs have; here any change fails.
    """
    X, y = rows()
    table = make_table(X)
    fit(method("cross_hc"), table, y).save(tmp_path / "model.hetcal")

    def refuse(*_, **__):
        raise AssertionError("filters of warnings must not be changed")

    with monkeypatch.context() as patch:
        patch.setattr(warnings, "catch_warnings", refuse)
        model = hetcal.load(tmp_path / "model.hetcal")
        assert model.predict_interval(table).shape == (len(y), 2)


def test_an_estimator_in_training_mode():
    """`predict` then uses a copy: the mode is never changed, not even for the duration of a call."""
    X, y = rows()
    estimator = fit(method("dropout_hc"), X, y).estimator_
    x = torch.from_numpy(X).float()
    expected = predict(estimator, x).std
    estimator.train()

    def work(number):
        return [estimator.training and torch.equal(predict(estimator, x).std, expected) for _ in range(3)]

    assert all(map(all, in_threads(work)))
    assert all(part.training for part in estimator.modules())


MODES = {"float64": nullcontext, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["cross_hc", "dropout_hc", "bayes_hc", "ensemble_hc", "sqr_hc", "concrete_hc", "hnn"])
def test_modes_of_torch(mode, name, tmp_path):
    """`fit`, `predict` and `load` under another default dtype, `no_grad` or `inference_mode` give the same bits."""
    X, y = rows(40)
    plain = fit(method(name), X, y)
    plain.save(tmp_path / "model.hetcal")
    expected = answer(plain, X)
    try:
        torch.set_default_dtype(torch.float64 if mode == "float64" else torch.float32)
        with MODES[mode]():
            models = plain, fit(method(name), X, y), hetcal.load(tmp_path / "model.hetcal")
            answers = [answer(model, X) for model in models]
            models[1].save(tmp_path / "again.hetcal")
    finally:
        torch.set_default_dtype(torch.float32)
    models = *models, hetcal.load(tmp_path / "again.hetcal")
    assert answers == [expected] * 3
    assert [answer(model, X) for model in models] == [expected] * 4
    assert not any(value.is_inference() for model in models for value in model.estimator_.state_dict().values())


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_torch_with_a_network(mode):
    """A user's network too. One that is built in float64 is converted, because the rows are float32."""
    X, y = rows(40)
    try:
        torch.set_default_dtype(torch.float64 if mode == "float64" else torch.float32)
        with MODES[mode]():
            model = fit(with_network("ensemble", Normalized), X, y)
            answers = answer(model, X)
    finally:
        torch.set_default_dtype(torch.float32)
    assert answers == answer(model, X)
    assert {value.dtype for value in model.estimator_.parameters()} == {torch.float32}
    if mode != "float64":  # where other numbers are drawn
        assert answers == answer(fit(with_network("ensemble", Normalized), X, y), X)


def test_an_estimator_of_inference_tensors():
    """`train` refuses it with one sentence, instead of failing in the first step."""
    with torch.inference_mode():
        estimator = VarianceHead(MLP(COLUMNS, 2, width=8, depth=1))
    x = torch.zeros(20, COLUMNS)
    with pytest.raises(ValueError, match=r"^estimator must have parameters that can be trained, got .*inference_mode$"):
        train(estimator, nll_loss, x, x[:, 0])

"""One model for many threads: prediction writes nothing, so that threads neither disturb each other nor wait.

The switch interval is as short as Python allows in practice, so that threads interleave between any two operations.
Every model is tiny: the point is the number of calls. A race of the former code gave wrong answers in nearly all runs of
these tests; here nothing is random but the schedule of the operating system, and a correct model passes for certain.
"""

import pickle
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from torch import nn

from hetcal import HCClassifier, HCRegressor
from hetcal.estimators import ESTIMATORS
from hetcal.methods import METHODS, make

THREADS, CALLS = 8, 25  # of each thread: 200 calls in all
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
        f"{estimator}, {network.__name__}": lambda estimator=estimator, network=network: with_network(
            estimator, network
        )
        for estimator in ("cross_ensemble", *ESTIMATORS)
        for network in (Plain, Normalized)
    },
    "ensemble, Recurrent": lambda: with_network("ensemble", Recurrent),
    "a module": lambda: with_network("ensemble", Normalized(COLUMNS, 2)),
    "a family and a transform": lambda: make(
        "ensemble_hc", **SIZES, family="student_t", target_transform="yeo-johnson"
    ),
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
    """8 threads, 200 calls, tables of different lengths: bit-equal to one thread, and nothing has changed.

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

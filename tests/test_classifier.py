"""HCClassifier: the likelihood of a class under Gaussian logits, real tables, and the regressor's promises kept."""

import pickle
import random

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict, train_test_split
from torch import nn

from hetcal import HCClassifier
from hetcal.classifier import CLASS_ESTIMATORS, LIKELIHOODS, class_nll, probit, sampling
from hetcal.estimators import ESTIMATORS, Ensemble, MCDropout, VarianceHead
from hetcal.exceptions import DegenerateDataWarning
from hetcal.metrics.classification import (
    expected_calibration_error,
    perfect_errors,
)
from hetcal.networks import MLP
from hetcal.prediction import Prediction

X, Y = load_iris(return_X_y=True)
NAMES = load_iris().target_names[Y]


def quick(estimator="mc_dropout", likelihood="probit", **settings):
    small = {"width": 16, "depth": 2, "max_epochs": 10, "learning_rate": 1e-2, "random_state": 0}
    return HCClassifier(estimator, likelihood, **{**small, **settings})


@pytest.fixture(scope="module")
def fitted():
    return quick(max_epochs=40).fit(X, NAMES)


def gaussian_logits(mean, std):
    return Prediction(torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64))


def random_logits(n=200, classes=4, spread=2.0):
    random = np.random.default_rng(0)
    return gaussian_logits(random.normal(0, 2, (n, classes)), random.uniform(0.1, spread, (n, classes)))


# The likelihood.


def test_probit_is_its_equation():
    """Recomputed by NumPy and SciPy."""
    logits = random_logits()
    mu, sigma = logits.mean.numpy(), logits.std.numpy()
    assert_allclose(probit(logits).exp().numpy(), softmax(mu / np.sqrt(1 + np.pi / 8 * sigma**2), axis=1), rtol=1e-12)


def test_probit_is_the_integral_for_one_uncertain_logit():
    """Two classes, one logit certain: within 0.02 of the integral by Gauss-Hermite quadrature, up to sigma = 4."""
    nodes, weights = hermegauss(80)
    mean, std = np.meshgrid(np.linspace(-6, 6, 25), [0.1, 1.0, 2.0, 4.0])
    exact = expit(mean[..., None] + std[..., None] * nodes) @ weights / weights.sum()
    pair = [np.stack([values.ravel(), np.zeros(values.size)], axis=1) for values in (mean, std)]
    assert_allclose(probit(gaussian_logits(*pair))[:, 0].exp().numpy(), exact.ravel(), atol=0.02)


def test_sampling_is_the_integral():
    """Against 200,000 draws of NumPy's: 64 draws leave an error of 0.02 on average (sigma up to 2, four classes)."""
    logits = random_logits(n=20)
    noise = np.random.default_rng(1).normal(size=(200_000, 1, 4))
    parts = [softmax(logits.mean.numpy() + logits.std.numpy() * part, axis=2).mean(0) for part in np.split(noise, 20)]
    got = sampling(logits).exp().numpy()
    assert np.abs(got - np.mean(parts, axis=0)).mean() < 0.02
    assert_allclose(got.sum(axis=1), 1, rtol=1e-12)


def test_probit_and_sampling_agree_roughly():
    """The same class nearly always, and 0.05 on average; exactly the softmax where sigma vanishes."""
    first, second = (likelihood(random_logits()).exp().numpy() for likelihood in (probit, sampling))
    assert np.abs(first - second).mean() < 0.05
    assert np.mean(first.argmax(1) == second.argmax(1)) > 0.9
    certain = gaussian_logits(random_logits().mean.numpy(), np.full((200, 4), 1e-9))
    for likelihood in (probit, sampling):
        assert_allclose(likelihood(certain).exp().numpy(), softmax(certain.mean.numpy(), axis=1), rtol=1e-6)


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values())
def test_larger_sigma_is_nearer_to_uniform(likelihood):
    """Probability of the likeliest of three classes falls with every step of sigma, towards a third."""
    steps = [0.1, 0.5, 1.0, 2.0, 4.0, 8.0]
    logits = gaussian_logits([[3.0, 0.0, -1.0]] * len(steps), [[s] * 3 for s in steps])
    top = likelihood(logits)[:, 0].exp().numpy()
    assert (np.diff(top) < 0).all()
    assert top[0] > 0.9
    assert 0.3 < top[-1] < 0.6


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values())
def test_class_nll(likelihood):
    """Minus the log probability of the row's class, with gradients to mean and sigma, finite at absurd logits."""
    logits = random_logits(n=6)
    logits.mean.requires_grad_()
    logits.std.requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    loss = class_nll(logits, y, likelihood)
    assert_allclose(loss.detach().numpy(), -likelihood(logits).detach().numpy()[np.arange(6), y.numpy()])
    loss.sum().backward()
    assert (logits.mean.grad != 0).all()
    assert (logits.std.grad != 0).all()
    far = gaussian_logits([[1e4, -1e4]], [[1e-3, 1e3]])
    assert torch.isfinite(class_nll(far, torch.tensor([1]), likelihood)).all()


# Which estimators.


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_allowed_are_those_whose_own_loss_ignores_y(name):
    """The list in the classifier is a fact about own losses: with other y they stay the same, or the name is not in."""
    factory = ESTIMATORS[name]
    estimator = factory(MLP(3, 3 * factory.n_outputs, width=8, depth=1, dropout=0.2), n_targets=3).eval()
    prediction = estimator(torch.zeros(5, 3))

    def own_loss(value):
        return estimator.own_loss(prediction, torch.full((5, 3), value), 5).detach().numpy()

    same = np.array_equal(own_loss(0.0), own_loss(1.0))
    assert same == (name in CLASS_ESTIMATORS)


@pytest.mark.parametrize("estimator", ["ensemble", Ensemble, "quantile_range", "simultaneous_quantiles"])
def test_other_estimators_are_refused(estimator):
    message = r"estimator must be one of \['bayes_by_backprop', 'concrete_dropout', 'mc_dropout', 'variance_head'\] for"
    with pytest.raises(ValueError, match=message + r" classes, got estimator=.*; its own loss measures distances to a"):
        quick(estimator).fit(X, Y)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("estimator", CLASS_ESTIMATORS)
def test_every_estimator_learns_iris(estimator, likelihood):
    """Nine of ten new flowers are named rightly, and the history holds what there is to hold."""
    train, test, y, y_test = train_test_split(X, NAMES, test_size=60, random_state=2, stratify=NAMES)
    model = quick(estimator, likelihood, max_epochs=100, learning_rate=2e-2).fit(train, y)
    assert model.score(test, y_test) > 0.9
    logits, probabilities = model.predict_logits(test), model.predict_proba(test)
    assert logits.mean.shape == logits.std.shape == probabilities.shape == (60, 3)
    assert (logits.std > 0).all()
    assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    assert_array_equal(model.predict(test), model.classes_[probabilities.argmax(axis=1)])
    assert len(model.history_.validation["objective"]) == len(model.history_) == len(model.history_.criterion)
    assert model.history_.best_epoch == np.argmin(model.history_.criterion)
    assert model.history_.train["rmse"] == model.history_.train["ce"] == []


class Tempered(VarianceHead):
    """A user's estimator: sigma twice that of the variance head."""

    def forward(self, x):
        prediction = super().forward(x)
        return Prediction(prediction.mean, 2 * prediction.std)


def test_own_estimator_network_and_likelihood():
    """Classes and functions in place of names give the same bits; others are taken as they are."""
    expected = quick().fit(X, Y).predict_proba(X)
    assert_array_equal(quick(MCDropout, probit).fit(X, Y).predict_proba(X), expected)
    assert (quick(Tempered).fit(X, Y).predict_proba(X) != quick("variance_head").fit(X, Y).predict_proba(X)).any()
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
    assert quick(network=network, max_epochs=60).fit(X, Y).score(X, Y) > 0.9
    with pytest.raises(ValueError, match=r"network must return 2 column\(s\) per row .*end it with a layer of 2"):
        quick(network=network).fit(X, Y == 0)


# Real and synthetic problems.


def test_breast_cancer_and_digits():
    """Default settings but for the time they may take: as right as is usual on these two, with useful probabilities."""
    for load, accuracy, loss in ((load_breast_cancer, 0.93, 0.3), (load_digits, 0.9, 0.4)):
        train, test, y, y_test = train_test_split(*load(return_X_y=True), test_size=0.5, random_state=0)
        model = HCClassifier(width=64, depth=2, max_epochs=30, random_state=0).fit(train, y)
        assert model.score(test, y_test) > accuracy
        assert log_loss(y_test, model.predict_proba(test)) < loss


def test_known_probabilities_are_found():
    """Three classes with known probabilities: calibrated within noise, near the truth, and not too sure.

    The limit is the 99.9 % quantile for a perfect model of these very probabilities, so a perfect model would fail in
    one of 1,000 cases; the data and the seed are fixed, so this test always gives the same answer.
    """
    random = np.random.default_rng(0)
    table = random.normal(size=(3000, 2))
    truth = softmax(table @ [[1.5, 0.0, -1.0], [0.0, 1.5, -1.0]], axis=1)
    y = (random.random((3000, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    model = HCClassifier(width=32, depth=2, max_epochs=40, random_state=0).fit(table[:2000], y[:2000])
    got = model.predict_proba(table[2000:])
    limit = np.quantile(perfect_errors(got, bins=15), 0.999)
    assert expected_calibration_error(y[2000:], got) < limit
    assert np.abs(got - truth[2000:]).mean() < 0.06
    too_sure = got**3 / (got**3).sum(axis=1, keepdims=True)
    assert expected_calibration_error(y[2000:], too_sure) > np.quantile(perfect_errors(too_sure, bins=15), 0.999)


# Tables, targets, weights, seeds: what the regressor promises.


@pytest.mark.parametrize(
    ("target", "classes"),
    [
        (NAMES.tolist(), ["setosa", "versicolor", "virginica"]),
        (NAMES.astype(object), ["setosa", "versicolor", "virginica"]),
        (pd.Series(pd.Categorical(NAMES)), ["setosa", "versicolor", "virginica"]),
        (pl.Series(NAMES.tolist()), ["setosa", "versicolor", "virginica"]),
        (10 * Y - 5, [-5, 5, 15]),
        (Y.astype(np.uint8), [0, 1, 2]),
        (Y.astype(float), [0.0, 1.0, 2.0]),
        (Y == 1, [False, True]),
        ((Y == 1).tolist(), [False, True]),
        (pd.Series(Y == 1, dtype="boolean"), [False, True]),
    ],
    ids=[
        "list",
        "objects",
        "categories",
        "polars",
        "integers",
        "bytes",
        "floats",
        "booleans",
        "list of bool",
        "nullable",
    ],
)
def test_classes_come_back_as_they_came(target, classes):
    model = quick(max_epochs=30).fit(X, target)
    assert model.classes_.tolist() == classes
    assert set(model.predict(X).tolist()) <= set(classes)
    assert model.score(X, np.asarray(target)) > 0.6


def test_other_names_give_the_same_model(fitted):
    """Only the order of the classes counts."""
    assert_array_equal(quick(max_epochs=40).fit(X, Y).predict_proba(X), fitted.predict_proba(X))


def test_mixed_tables():
    """Text and missing values go in as they are; columns are matched by name; a text column alone tells the class."""
    random = np.random.default_rng(0)
    town = random.choice(["Aix", "Bonn", None], 300)
    frame = pd.DataFrame({"noise": np.where(random.random(300) < 0.2, np.nan, random.normal(size=300)), "town": town})
    y = np.select([town == "Aix", town == "Bonn"], ["a", "b"], "none")
    model = quick(max_epochs=60).fit(frame, y)
    assert model.score(frame, y) > 0.99
    assert_array_equal(model.predict_proba(frame[["town", "noise"]]), model.predict_proba(frame))
    assert np.isfinite(model.predict_proba(frame.assign(town="Cork"))).all()


SHARES = np.array([0.1, 0.3, 0.5, 0.7, 0.9, 0.5])
TOWN = np.repeat(list("abcdef"), 100)
MOVED = (np.arange(100) < 100 * SHARES[:, None]).ravel()


@pytest.mark.parametrize("seed", range(4))
def test_shares_of_common_combinations(seed):
    """Rows of equal X: the share of each class comes back within 0.25, and 0.15 on average, whatever is held out.

    Merged into one row per town and class, two of twelve would be held out whole, and a town be all yes or all no:
    errors above 0.35, and 0.2 on average.
    """
    frame = pd.DataFrame({"town": TOWN})
    model = quick(width=64, max_epochs=50, random_state=seed).fit(frame, MOVED)
    error = np.abs(model.predict_proba(frame)[::100, 1] - SHARES)
    assert error.max() < 0.25
    assert error.mean() < 0.15


def test_shares_and_weights():
    """Repeating is nearly weighing in a table of repeated rows, whose number counts; any unit of weights will do."""
    frame, weights = pd.DataFrame({"town": TOWN}), 1 + np.arange(600) % 3
    weighted = quick().fit(frame, MOVED, sample_weight=weights).predict_proba(frame)
    repeated = quick().fit(frame.loc[np.arange(600).repeat(weights)], MOVED.repeat(weights)).predict_proba(frame)
    assert_allclose(repeated, weighted, atol=0.02)
    assert_allclose(quick().fit(frame, MOVED, sample_weight=weights * 1e-9).predict_proba(frame), weighted, atol=1e-3)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_weights_are_repetitions_and_order_does_not_matter(likelihood):
    """Bit for bit, with mini-batches and validation."""
    order, weights = np.random.default_rng(0).permutation(150), np.arange(150) % 3
    model = quick(likelihood=likelihood, batch_size=32)
    plain = model.fit(X, NAMES).predict_proba(X)
    assert_array_equal(model.fit(X[order], NAMES[order]).predict_proba(X), plain)
    weighted = model.fit(X, NAMES, sample_weight=weights).predict_proba(X)
    assert (weighted != plain).any()
    assert_array_equal(model.fit(X.repeat(weights, axis=0), NAMES.repeat(weights)).predict_proba(X), weighted)


def test_a_class_without_weight_is_no_class():
    """As if its rows were omitted, whether it comes first, last or between."""
    for gone in range(3):
        model = quick(max_epochs=3).fit(X, Y, sample_weight=(gone != Y) * 1.0)
        assert model.classes_.tolist() == [c for c in range(3) if c != gone]
        kept = quick(max_epochs=3).fit(X[gone != Y], Y[gone != Y])
        assert_array_equal(model.predict_proba(X), kept.predict_proba(X))


def test_rows_do_not_see_their_neighbors(fitted):
    """Any subset in any order gives the same bits, also across blocks and chunks."""
    expected = fitted.predict_proba(X)
    some = np.random.default_rng(0).permutation(150)[:77]
    assert_array_equal(fitted.predict_proba(X[some]), expected[some])
    assert_array_equal(fitted.predict_proba(X[:1]), expected[:1])
    assert_array_equal(fitted.predict_proba(np.tile(X, (120, 1))), np.tile(expected, (120, 1)))


def test_seeds_and_global_generators():
    """An integer seed gives the same bits; global generators stay untouched, also those that `sampling` might use."""
    before = random.getstate(), np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
    model = quick(likelihood="sampling")
    first, second = (model.fit(X, Y).predict_proba(X) for _ in range(2))
    assert_array_equal(first, second)
    assert (quick(likelihood="sampling", random_state=1).fit(X, Y).predict_proba(X) != first).any()
    assert before[0] == random.getstate()
    assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(before[2], torch.random.get_rng_state())


def test_groups():
    """Held out whole."""
    groups = np.arange(150) // 10
    model = quick(max_epochs=2).fit(X + 1e-3 * np.arange(150)[:, None], Y, groups=groups)
    rows = model.history_.validation_rows
    assert len(rows) % 10 == 0
    with pytest.raises(ValueError, match=r"groups must have one label per row of X \(150\)"):
        model.fit(X, Y, groups=groups[:7])


def test_scikit_learn_tools(fitted):
    """Clone, pickle, search by log loss, probabilities by cross-validation."""
    assert not hasattr(clone(fitted), "classes_")
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))
    grid = {"estimator": ["mc_dropout", "variance_head"], "likelihood": ["probit", "sampling"]}
    search = GridSearchCV(quick(max_epochs=2), grid, cv=2, scoring="neg_log_loss").fit(X, NAMES)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert cross_val_predict(quick(max_epochs=2), X, NAMES, cv=2, method="predict_proba").shape == (150, 3)


# Messages.


def replaced(row, value):
    target = NAMES.astype(object)
    target[row] = value
    return target


REFUSED = {
    "one class": (["a"] * 150, ValueError, r"y must hold more than one class, got y=\['a'\]; give rows of"),
    "no y": (None, ValueError, r"y must be given: HCClassifier requires y"),
    "numbers": (X[:, 0] + 0.01, ValueError, r"Unknown label type: continuous"),
    "too short": (Y[:-1], ValueError, r"y must have one value per row of X \(150\), got y='149 values'; give both"),
    "two columns": (np.column_stack([Y, Y]), ValueError, r"y should be a 1d array, got an array of shape \(150, 2\)"),
    "sparse": (sparse.csr_array(Y[:, None]), TypeError, r"y must be dense, got y='a sparse csr_array'; call y.toarray"),
    "None": (
        replaced(3, None),
        ValueError,
        r"y must contain no missing value .*y=None; remove or label the 1 .* row 3",
    ),
    "NaN": (replaced(4, np.nan), ValueError, r"y must contain no missing value .*got y=nan; .*the first is row 4"),
    "infinity": (
        np.where(Y == 2, np.inf, Y),
        ValueError,
        r"y must contain .*no infinity, got y=inf; .* the 50 such row",
    ),
    "numbers as objects": (Y.astype(object), ValueError, r"Unknown label type: unknown"),
    "text and numbers": (
        replaced(3, 7),
        ValueError,
        r"y must hold text or numbers, not both, got y=\['setosa', 7\]; conv",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_targets(case):
    target, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        quick().fit(X, target)


SETTINGS = [
    ({"estimator": "mc_droput"}, r"estimator must be one of .*got estimator='mc_droput'; did you mean 'mc_dropout'\?"),
    ({"estimator": 3}, r"estimator must be one of .*got estimator=3; choose one"),
    ({"estimator": dict}, r"estimator must be a name or a class with the member\(s\)"),
    ({"likelihood": "probits"}, r"likelihood must be one of \['probit', 'sampling'\], got .*did you mean 'probit'\?"),
    ({"column_order": "by_nam"}, r"column_order must be one of .*did you mean 'by_name'\?"),
    ({"max_epochs": 0}, r"max_epochs must be at least 1"),
    ({"dropout": 0}, r"dropout must be greater than 0 for mc_dropout"),
    ({"estimator_options": {"sample": 3}}, r"estimator_options must be one of .*did you mean 'samples'\?"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=[message[:40] for _, message in SETTINGS])
def test_wrong_settings(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        quick(**settings).fit(X, Y)


def test_before_fit():
    for method in ("predict", "predict_proba", "predict_logits"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(HCClassifier(), method)(X)


def test_nothing_to_learn_from():
    """Constant columns are told, and leave the shares of the classes, a third each."""
    model = quick(max_epochs=60)
    with pytest.warns(DegenerateDataWarning, match="no column of X varies"):
        model.fit(np.ones((150, 2)), Y)
    assert_allclose(model.predict_proba(np.ones((1, 2))), [[1 / 3] * 3], atol=0.1)

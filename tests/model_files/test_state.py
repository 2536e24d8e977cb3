"""Saved and loaded: the same model, bit for bit, for every estimator, family, transform, kind of column and target."""

import pickle
import random
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from torch import nn

import hetcal
from hetcal import HCClassifier, HCRegressor, load
from hetcal.classifier import CLASS_ESTIMATORS, probit
from hetcal.estimators import ESTIMATORS, Ensemble, VarianceHead
from hetcal.estimators.uninformative import ConstantSigma
from hetcal.exceptions import DegenerateDataWarning, DropoutInsertedWarning, ModelFileError
from hetcal.families import Family, Gaussian, Laplace, StudentT
from hetcal.metrics.history import History
from hetcal.model_files.archive import read
from hetcal.networks import MLP
from hetcal.objectives import crps_loss, nll_loss
from hetcal.transforms import TRANSFORMS
from tests.model_files.samples import SMALL, fit_small

N = 40
SMALL = {**SMALL, "depth": 2}


def table(n=N):
    """Numbers, missing ones, dates, few and many labels."""
    generator = np.random.default_rng(0)
    some_missing = generator.normal(size=n)
    some_missing[::6] = np.nan
    dates = pd.Series(pd.date_range("2020-02-28", periods=n, freq="31h"))
    dates[3] = pd.NaT
    return pd.DataFrame(
        {
            "number": generator.normal(size=n) * 1e6,
            "some missing": some_missing,
            "all missing": np.full(n, np.nan),
            "town": generator.choice(["Köln", "Ulm", None], n),
            "date": dates,
            "flag": generator.random(n) > 0.5,
        }
    )


X = table()
Y = np.exp(np.random.default_rng(1).normal(size=N))
TWO = np.column_stack([Y, 1 / Y + 3])


def answers(model, X):
    """Everything a model says, on rows unlike those of fit."""
    if isinstance(model, HCClassifier):
        logits = model.predict_logits(X)
        return [model.predict(X), model.predict_proba(X), logits.mean, logits.std]
    prediction = model.predict_dist(X)
    return [
        *model.predict(X, return_std=True),
        prediction.interval([0.5, 0.9]),
        prediction.quantile([0.05, 0.5]),
        prediction.log_prob(prediction.mean + prediction.std),
        *(part for part in (prediction.epistemic_std, prediction.aleatoric_std) if part is not None),
    ]


def check_round_trip(model, path, X=X, **handed):
    """Save, load, compare all answers; what was loaded can do all that the model can. Returns the loaded model."""
    model.save(path)
    loaded = load(path, **handed)
    for before, after in zip(answers(model, X), answers(loaded, X), strict=True):
        assert_array_equal(after, before)
        assert after.dtype == before.dtype
    written = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == written
    assert loaded.n_features_in_ == model.n_features_in_
    assert hasattr(loaded, "feature_names_in_") == hasattr(model, "feature_names_in_")
    assert repr(clone(loaded)) == repr(loaded)
    return loaded


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_every_estimator(tmp_path, estimator):
    """On a table of every kind of column; refitted, what was loaded gives what the model gives when refitted."""
    model = HCRegressor(estimator, family="student_t", **SMALL).fit(X, Y)
    loaded = check_round_trip(model, tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    assert loaded.encoder_.kinds == model.encoder_.kinds
    assert loaded.encoder_.ranges == model.encoder_.ranges
    again = model.fit(X, Y).predict(X, return_std=True)
    assert_array_equal(loaded.fit(X, Y).predict(X, return_std=True), again)
    for before, after in zip(answers(loaded, X), answers(pickle.loads(pickle.dumps(loaded)), X), strict=True):
        assert_array_equal(after, before)


@pytest.mark.parametrize(
    "settings",
    [
        {"family": "laplace"},
        {"family": Laplace()},
        {"family": Gaussian()},
        {"family": StudentT(4)},
        {"target_transform": "log"},
        {"target_transform": "yeo-johnson"},
        {"target_transform": "quantile", "family": "student_t"},
        {"target_transform": "auto"},
        {"estimator": "ensemble", "estimator_options": {"members": np.int64(3), "bootstrap": True}},
        {"estimator": "quantile_range", "estimator_options": {"quantiles": (0.2, 0.7), "reading": "half_range"}},
        {"estimator_options": {"masks": "per_row", "samples": 5, "prediction_samples": 13}},
        {"estimator": Ensemble, "objective": crps_loss},
        {"width": np.int32(6), "learning_rate": np.float32(1e-3), "random_state": np.int64(3)},
        {"random_state": None},
        {"random_state": np.random.default_rng(5)},
        {"random_state": 2**32 - 1, "column_order": "as_fitted", "validation_fraction": 0.0},
    ],
    ids=lambda settings: ", ".join(settings),
)
def test_settings(tmp_path, settings):
    check_round_trip(HCRegressor(**{**SMALL, **settings}).fit(X, Y), tmp_path / "model")


@pytest.mark.parametrize("transform", [None, *TRANSFORMS])
def test_several_targets(tmp_path, transform):
    settings = {"family": "student_t", "target_transform": transform}
    check_round_trip(HCRegressor("variance_head", **settings, **SMALL).fit(X, TWO), tmp_path / "model")


@pytest.mark.parametrize("df", [[3.0, 5.0], (3, 5), np.array([3.0, 5.0])], ids=["list", "tuple", "array"])
def test_degrees_of_freedom_of_each_target(tmp_path, df):
    check_round_trip(HCRegressor("variance_head", family=StudentT(df), **SMALL).fit(X, TWO), tmp_path / "model")


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("transform", [None, "yeo-johnson", "quantile"])
def test_units(tmp_path, scale, transform):
    model = HCRegressor("variance_head", target_transform=transform, **SMALL).fit(X, Y * scale)
    check_round_trip(model, tmp_path / "model")


def test_arrays_numbered_columns_and_many_labels(tmp_path):
    """Columns without names, and more labels than have a column of their own."""
    numbers = np.random.default_rng(0).normal(size=(N, 3))
    loaded = check_round_trip(HCRegressor(**SMALL).fit(numbers, Y), tmp_path / "model", numbers)
    assert not hasattr(loaded, "feature_names_in_")
    numbered = pd.DataFrame(numbers, columns=[5, 7, 9])
    check_round_trip(HCRegressor(**SMALL).fit(numbered, Y), tmp_path / "model", numbered)
    many = pd.DataFrame({"label": [f"{i:03}x" for i in range(70)], "text": ['"\n\\\0', "=1+1"] * 35})
    model = HCRegressor(**SMALL).fit(many, np.arange(70.0))
    assert model.encoder_.vocabularies["label"].has_rare
    check_round_trip(model, tmp_path / "model", many[:N])


def test_names_of_people_are_not_in_the_file(tmp_path):
    """A column that is different in every row is kept as one rare label: no row of the training is in a model."""
    people = X.assign(name=[f"Jane Doe {i}" for i in range(N)])
    check_round_trip(HCRegressor(**SMALL).fit(people, Y), tmp_path / "model", people)
    assert b"Jane" not in (tmp_path / "model").read_bytes()


def test_constant_target(tmp_path):
    with pytest.warns(DegenerateDataWarning):
        model = HCRegressor(**SMALL).fit(X, np.full(N, 7.0))
    check_round_trip(model, tmp_path / "model")


@pytest.mark.parametrize("estimator", CLASS_ESTIMATORS)
def test_every_estimator_for_classes(tmp_path, estimator):
    model = HCClassifier(estimator, "sampling", **SMALL).fit(X, np.where(Y > 1, "much", "little"))
    loaded = check_round_trip(model, tmp_path / "model")
    assert isinstance(loaded, HCClassifier)
    assert loaded.get_params() == model.get_params()


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["a", "b", "ç\n"]),
        np.array(["a", "b", "ç\n"], dtype=object),
        np.array([-1, 0, 5]),
        np.array([0, 1, 255], dtype=np.uint8),
        np.array([1, 2**63, 2**64 - 1], dtype=np.uint64),
        np.array([1.0, 2.0, 7.0]),
        np.array([1.0, 2.0, 7.0], dtype=np.float32),
        np.array([False, True]),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_classes_come_back_in_their_type(tmp_path, classes):
    y = classes[np.arange(N) % len(classes)]
    loaded = check_round_trip(HCClassifier(**SMALL, likelihood=probit).fit(X, y), tmp_path / "model")
    assert_array_equal(loaded.classes_, classes)
    assert loaded.classes_.dtype.kind == classes.dtype.kind


def test_classes_that_no_file_holds(tmp_path):
    model = HCClassifier(**SMALL).fit(X, np.array(["2020", "2021"], dtype="M8[Y]")[np.arange(N) % 2])
    with pytest.raises(ValueError, match=r"a file can hold, got classes.type='datetime64\[Y\]' .* fit again"):
        model.save(tmp_path / "model")


class Wide(nn.Module):
    """A network of the user's own, with statistics, tied weights, a mask with infinities and no dropout."""

    def __init__(self, n_inputs, n_outputs, width=8):
        super().__init__()
        self.first, self.norm = nn.Linear(n_inputs, width), nn.BatchNorm1d(width)
        self.second, self.third = nn.Linear(width, width), nn.Linear(width, width)
        self.third.weight = self.second.weight
        self.last = nn.Linear(width, n_outputs)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf] + [0.0] * (width - 2)))

    def forward(self, x):
        h = self.norm(self.first(x)).relu()
        return self.last(self.third(self.second(h).relu()) * self.mask.softmax(0))


def factory(n_inputs, n_outputs):
    return nn.Sequential(nn.Linear(n_inputs, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, n_outputs))


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_own_network(tmp_path, estimator):
    """A class, a factory and a module; the file has their weights, `load` is given the network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DropoutInsertedWarning)
        model = HCRegressor(estimator, network=Wide, **SMALL).fit(X, Y)
    loaded = check_round_trip(model, tmp_path / "model", network=Wide)
    assert loaded.network is Wide
    model = HCRegressor(estimator, network=factory, **SMALL).fit(X, Y)
    check_round_trip(model, tmp_path / "model", network=factory)
    module = factory(read(tmp_path / "model").model.n_inputs, ESTIMATORS[estimator].n_outputs)
    model = HCRegressor(estimator, network=module, **SMALL).fit(X, Y)
    check_round_trip(model, tmp_path / "model", network=module)


def test_own_network_that_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    HCRegressor("variance_head", network=factory, **SMALL).fit(X, Y).save("model.hetcal")
    with pytest.raises(ModelFileError) as caught:
        load("model.hetcal", network=lambda n_inputs, n_outputs: MLP(n_inputs, n_outputs, width=6, depth=2))
    assert str(caught.value) == (
        "model.hetcal must fit the network it is loaded with, got 'network.3.bias' F32 of shape (2,) where F32 of "
        "shape (6,) is needed; 'network.3.weight' F32 of shape (2, 6) where F32 of shape (6, 6) is needed, and 2 more; "
        "hand over what the model was fitted with"
    )
    with pytest.raises(ModelFileError, match="must fit the network it is loaded with, got network must take rows of"):
        load("model.hetcal", network=nn.Linear(3, 2))
    with pytest.raises(ModelFileError) as caught:
        load("model.hetcal")
    assert str(caught.value) == (
        "model.hetcal must be loaded with the network of your own that it was fitted with, got network=None; write "
        "hetcal.load('model.hetcal', network=...)"
    )


def test_what_a_file_does_not_need(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit_small().save("model.hetcal")
    for handed in ({"network": factory}, {"estimator": "ensemble"}, {"objective": nll_loss}, {"likelihood": probit}):
        (name,) = handed
        message = f"model.hetcal must be loaded without {name}, for it was fitted with none of your own, got {name}="
        with pytest.raises(ModelFileError, match=message):
            load("model.hetcal", **handed)


class Shifted(VarianceHead):
    """An estimator of the user's own, with a setting and a parameter that the others have not."""

    def __init__(self, network, *, shift=0.0, n_targets=1, seed=0):
        super().__init__(network, n_targets=n_targets, seed=seed)
        self.shift, self.raw_more = shift, nn.Parameter(torch.ones(()))

    def forward(self, x):
        prediction = super().forward(x)
        return prediction.scaled(1.0, self.shift * self.raw_more)


def own_objective(prediction, y):
    return (prediction.mean - y).abs() + prediction.std


def own_likelihood(prediction):
    return torch.log_softmax(2 * prediction.mean, dim=1)


def test_own_estimator_objective_and_likelihood(tmp_path):
    """Those of the user's own are handed to `load`, all that are missing are asked for."""
    options = {"estimator_options": {"shift": 0.5}}
    model = HCRegressor(Shifted, own_objective, **options, **SMALL).fit(X, Y)
    loaded = check_round_trip(model, tmp_path / "model", estimator=Shifted, objective=own_objective)
    assert loaded.get_params() == model.get_params()
    with pytest.raises(ModelFileError, match="loaded with the objective of your own"):
        load(tmp_path / "model", estimator=Shifted)
    with pytest.raises(
        ModelFileError, match="fit the estimator and objective it is loaded with, got estimator_options"
    ):
        load(tmp_path / "model", estimator=ConstantSigma, objective=own_objective)
    model = HCClassifier(Shifted, own_likelihood, **options, **SMALL).fit(X, Y > 1)
    check_round_trip(model, tmp_path / "model", estimator=Shifted, likelihood=own_likelihood)
    model = hetcal.make("random_sigma", **SMALL).fit(X, Y)
    check_round_trip(model, tmp_path / "model", estimator=model.estimator)


def test_another_number_of_threads(tmp_path):
    model = HCRegressor("ensemble", **SMALL).fit(X, Y)
    model.save(tmp_path / "model")
    threads = torch.get_num_threads()
    expected = model.predict(X, return_std=True)
    try:
        torch.set_num_threads(threads + 1)
        assert_allclose(load(tmp_path / "model").predict(X, return_std=True), expected, rtol=1e-5)
    finally:
        torch.set_num_threads(threads)


def global_state():
    return (
        torch.random.get_rng_state().tolist(),
        str(np.random.get_state()),  # noqa: NPY002
        random.getstate(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        list(warnings.filters),
    )


def test_global_state_is_left_alone(tmp_path):
    """By save and by load, of a network of the user's own too, which draws its first weights from torch's generator."""
    model = HCRegressor(network=factory, **SMALL).fit(X, Y)
    before = global_state()
    model.save(tmp_path / "model")
    assert global_state() == before
    loaded = load(tmp_path / "model", network=factory)
    assert global_state() == before
    assert not loaded.estimator_.training


def test_saving_changes_nothing(tmp_path):
    model = HCRegressor("concrete_dropout", **SMALL).fit(X, Y)
    weights = {name: value.clone() for name, value in model.estimator_.state_dict().items()}
    names, before = set(vars(model)), model.predict(X)
    model.save(tmp_path / "model")
    assert set(vars(model)) == names
    assert_array_equal(model.predict(X), before)
    for name, value in model.estimator_.state_dict().items():
        assert torch.equal(value, weights[name])


def test_history_and_summary(tmp_path):
    """The curves come back, also where they are not finite; the numbers of the rows that were held back do not."""
    model = fit_small(max_epochs=3)
    model.history_.criterion[:2] = [np.inf, np.nan]
    created = "2024-02-29T12:00:00+00:00"
    said = {"target": "<y>", "dropped": ["id"], "rows": np.int64(30), "metrics": {"nll": np.inf}, "created": created}
    model.save(tmp_path / "model", summary=said)
    history = load(tmp_path / "model").history_
    assert history.train == model.history_.train
    assert history.validation == model.history_.validation
    assert_array_equal(history.criterion, model.history_.criterion)
    assert (history.best_epoch, history.stopped) == (model.history_.best_epoch, model.history_.stopped)
    assert model.history_.validation_rows
    assert history.validation_rows == []
    summary = read(tmp_path / "model").summary
    assert (summary.target, summary.dropped, summary.rows, summary.group) == ("<y>", ["id"], 30, None)
    assert summary.metrics == {"nll": "inf"}
    with pytest.raises(ValueError, match=r"summary must be one of .*, got summary='targets'; did you mean 'target'"):
        model.save(tmp_path / "model", summary={"targets": "y"})
    with pytest.raises(ValueError, match=r"summary must keep to hetcal.model_files.schema.Summary, got rows=-1"):
        model.save(tmp_path / "model", summary={"rows": -1})


def test_a_history_without_end_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("hetcal.model_files.schema.MOST_EPOCHS", 2)
    fit_small(max_epochs=3).save(tmp_path / "model")
    assert read(tmp_path / "model").summary.history is None
    assert load(tmp_path / "model").history_ == History()


class Forgetful(nn.Module):
    """Keeps what it learns outside of parameters and buffers."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.layer, self.seen = nn.Linear(n_inputs, n_outputs), 0

    def forward(self, x):
        self.seen += self.training
        return self.layer(x) + self.seen


class Clamped(nn.Module):
    """Keeps the range of its inputs in a number, which matters far from the middle only."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.layer, self.top = nn.Linear(n_inputs, n_outputs), 1.5

    def forward(self, x):
        if self.training:
            self.top = max(self.top, float(x.abs().max()))
        return self.layer(x.clamp(-self.top, self.top))


class Drifting(Forgetful):
    """Forgets little: the fifth digit of its answers."""

    def forward(self, x):
        self.seen += self.training
        return self.layer(x) * (1 + 1e-5 * self.seen)


class Talkative(Forgetful):
    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]


class Own(Family):
    name = "own"


def test_models_that_would_not_come_back_are_not_saved(tmp_path):
    """A save that succeeds is a file that loads: everything else is said when there is still a model to save."""
    path = tmp_path / "model"
    with pytest.raises(ValueError, match="not fitted"):
        HCRegressor().save(path)
    for changes, found in [
        ({"width": 5}, "'network.0.bias' F32 of shape \\(4,\\) where F32 of shape \\(5,\\) is needed"),
        ({"dropout": 0.7}, "another prediction from the model as it would be loaded"),
        ({"estimator": "variance_head"}, "'network.3.bias' F32 of shape \\(1,\\) where"),
        ({"estimator_options": {"prediction_samples": 7}}, "another prediction"),
    ]:
        model = fit_small().set_params(**changes)
        with pytest.raises(ValueError, match="the model must be what its settings and weights say, got .*" + found):
            model.save(path)
    for changes, found in [
        ({"width": "wide"}, "settings.width='wide' .Input should be a valid integer"),
        (
            {"estimator_options": {"rate": 0.2, "prediction_samples": 10**6}},
            "settings .prediction_samples is from 1 to",
        ),
        ({"estimator_options": {"rate": object()}}, "settings.estimator_options.rate"),
    ]:
        with pytest.raises(ValueError, match="the model must be one that a file can hold, got " + found):
            fit_small().set_params(**changes).save(path)
    for network, found in [
        (Forgetful, "another prediction from the model as it would be loaded"),
        (Clamped, "another prediction from the model as it would be loaded"),
        (Drifting, "another prediction from the model as it would be loaded"),
        (Talkative, "the network must keep nothing but usual tensors in its state_dict, got .*_extra_state"),
    ]:
        with pytest.raises(ValueError, match=found):
            HCRegressor("variance_head", network=network, **SMALL).fit(X, Y).save(path)
    model = fit_small()
    with torch.no_grad():
        next(model.estimator_.parameters())[0] = torch.nan
    with pytest.raises(ValueError, match=r"weights must be finite, got nan in 'network.0.weight'"):
        model.save(path)
    with pytest.raises(ValueError, match=r"family must be one of .* to be saved, got family=<.*Own"):
        fit_small().set_params(family=Own()).save(path)
    assert list(tmp_path.iterdir()) == []

"""Saved and loaded: the same model, bit for bit, for every estimator, family, transform, kind of column and target."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from hetcal import HCClassifier, HCRegressor
from hetcal.classifier import CLASS_ESTIMATORS, probit
from hetcal.estimators import ESTIMATORS, CrossEnsemble, Ensemble
from hetcal.exceptions import DegenerateDataWarning, TrainingWarning
from hetcal.families import Gaussian, Laplace, StudentT
from hetcal.objectives import crps_loss
from hetcal.transforms import TRANSFORMS
from tests.model_files.round_trip import SMALL, TWO, N, X, Y, answers, check_round_trip


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_every_estimator(tmp_path, estimator):
    """On a table of every kind of column; refitted, what was loaded gives what the model gives when refitted."""
    family = "laplace" if estimator == "cross_ensemble" else "student_t"  # whose shape is learned from held-out rows
    model = HCRegressor(estimator, family=family, **SMALL).fit(X, Y)
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
        {"target_transform": "quantile", "family": "student_t", "estimator": "mc_dropout"},
        {"target_transform": "auto"},
        {"estimator": "ensemble", "estimator_options": {"members": np.int64(3), "bootstrap": True}},
        {"estimator": "quantile_range", "estimator_options": {"quantiles": (0.2, 0.7), "reading": "half_range"}},
        {"estimator": "mc_dropout", "estimator_options": {"masks": "per_row", "samples": 5, "prediction_samples": 13}},
        {"estimator": CrossEnsemble, "objective": "nll"},
        {"width": None, "depth": None, "max_epochs": None, "max_steps": 5, "max_seconds": 100},
        {"estimator": Ensemble, "objective": crps_loss},
        {"width": np.int32(6), "learning_rate": np.float32(1e-3), "random_state": np.int64(3)},
        {"random_state": None},
        {"random_state": np.random.default_rng(5)},
        {"random_state": 2**32 - 1, "column_order": "as_fitted"},
        {"estimator": "variance_head", "validation_fraction": 0.0, "patience": 3, "input_noise": 1.0},
    ],
    ids=lambda settings: ", ".join(settings),
)
def test_settings(tmp_path, settings):
    check_round_trip(HCRegressor(**{**SMALL, **settings}).fit(X, Y), tmp_path / "model")


@pytest.mark.parametrize("transform", [None, *TRANSFORMS])
def test_several_targets(tmp_path, transform):
    settings = {"family": "student_t", "target_transform": transform}
    check_round_trip(HCRegressor("variance_head", **settings, **SMALL).fit(X, TWO), tmp_path / "model")
    check_round_trip(HCRegressor(target_transform=transform, **SMALL).fit(X, TWO), tmp_path / "model")


def test_members_and_atoms(tmp_path):
    """How many members there are depends on the table; a grid of values and a cap have infinite ends."""
    for n, members in ((4, 4), (N, 16)):
        model = HCRegressor(**SMALL).fit(X[:n], Y[:n])
        loaded = check_round_trip(model, tmp_path / "model")
        assert loaded.estimator_.networks.members == members
        assert loaded.atoms_ is None
    labels = X[["town"]].assign(name=[f"n{i}" for i in range(N)])  # no number, so that no column is embedded
    check_round_trip(HCRegressor(**SMALL).fit(labels, Y), tmp_path / "model", labels)
    signal = X["number"].to_numpy() / 1e6
    for y, count in ((np.round(signal), len(np.unique(np.round(signal)))), (np.minimum(signal, 0.5), 1)):
        model = HCRegressor(**SMALL).fit(X, y)
        loaded = check_round_trip(model, tmp_path / "model")
        assert len(loaded.atoms_.values) == count
        assert loaded.atoms_.upper[-1] == np.inf
        for name in ("values", "lower", "upper"):
            assert_array_equal(getattr(loaded.atoms_, name), getattr(model.atoms_, name))


def test_training_that_ran_out_of_time(tmp_path):
    with pytest.warns(TrainingWarning, match="max_seconds"):
        model = HCRegressor(**{**SMALL, "max_epochs": None, "max_seconds": 1e-9}).fit(X, Y)
    assert check_round_trip(model, tmp_path / "model").history_.stopped == "max_seconds"


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
    with pytest.raises(ValueError, match=r"fit into a model file, got classes.type='datetime64\[Y\]' .* fit again"):
        model.save(tmp_path / "model")

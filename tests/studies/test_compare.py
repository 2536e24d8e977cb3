"""Comparison of methods: the same rows for all, whole groups, the same result for the same seed.

Most tests replace the regressor by one that predicts at once, so that only the comparison is tested.
"""

import json
import re
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.model_selection import KFold
from torch import nn

from hetcal import metrics
from hetcal.cli.options import CompareOptions
from hetcal.datasets import heteroscedastic
from hetcal.exceptions import DegenerateDataWarning
from hetcal.methods import METHODS, PAPER, make
from hetcal.metrics.verdict import judge
from hetcal.prediction import Prediction
from hetcal.recalibration import RECALIBRATORS
from hetcal.studies import compare as comparison
from hetcal.studies.compare import AUTO, INFORMATIVE, choose_method, compare, draw_rows, method_names
from hetcal.studies.peers import BASELINES, PEERS, installed_peers
from hetcal.studies.statistics import COMPARED
from hetcal.tabular.columns import read_table

TINY = {"width": 16, "depth": 2, "max_epochs": 3}
DATA = heteroscedastic(120)
# Row numbers as the only feature tell which rows a model was given.
NUMBERS = np.arange(40.0)[:, None]


class Fake:
    """A regressor that predicts 0 with a method's own std, and remembers the rows that it was given."""

    stds = {"hnn": 1.0, "ensemble_hc": 1.2, "quantile_hc": 3.0}
    errors = {}
    given = []

    def __init__(self, method, **settings):
        self.method, self.settings = method, settings

    def fit(self, X, y, groups=None):
        self.train, self.groups = X.columns["x0"].astype(int), groups
        if self.method in self.errors:
            raise self.errors[self.method]
        return self

    def predict_dist(self, X):
        Fake.given.append((self.method, self.train, X.columns["x0"].astype(int), self.groups))
        return Prediction(np.zeros(len(X)), np.full(len(X), self.stds[self.method]))


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(comparison, "make", Fake)
    monkeypatch.setattr(Fake, "given", [])
    monkeypatch.setattr(Fake, "errors", {})
    return Fake


@pytest.fixture
def untrained(monkeypatch):
    """Training a model fails the test."""

    def fit_fold(task, fit):
        raise AssertionError("trained")

    monkeypatch.setattr(comparison, "fit_fold", fit_fold)


def without_seconds(result):
    return json.dumps(
        [{**m, "metrics": {k: v for k, v in m["metrics"].items() if k != "seconds"}} for m in result["methods"]]
    )


# Names and settings.


def test_method_names():
    """Groups and names in a text or a list, each once; an error suggests the closest name."""
    assert method_names("all") == INFORMATIVE
    assert set(METHODS) - set(INFORMATIVE) == {"constant_sigma", "random_sigma"}
    assert method_names("paper") == PAPER
    assert set(method_names("hc")) == {name for name in METHODS if name.endswith("_hc")} > {"dropout_hc", "bayes_hc"}
    assert method_names(" hnn , paper") == ("hnn", "mc_dropout", "dropout_hc", "quantile_hc")
    assert method_names(["random_sigma", "hnn", "hnn"]) == ("random_sigma", "hnn")
    assert method_names("dropout-hc,ensemble-spread-hc") == ("dropout_hc", "ensemble_spread_hc")  # hyphens may be used
    with pytest.raises(
        ValueError, match=r"^methods must be one of .* got methods='emsemble_hc'; did you mean 'ensemble_hc'"
    ):
        method_names("hnn,emsemble-hc")
    with pytest.raises(ValueError, match=r"^methods must be one of \['all', .*did you mean 'paper'\?"):
        method_names("papper")
    with pytest.raises(
        ValueError, match=r"^methods must name at least one method, got methods=\[\]; give names, or 'all'"
    ):
        method_names([])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["hnm"]}, r"^methods must be one of .* did you mean 'hnn'\?"),
        ({"settings": {"widht": 3}}, r"^setting must be one of .* got setting='widht'; did you mean 'width'\?"),
        ({"settings": {"objective": "crps"}}, r"^setting must be one of .* got setting='objective'"),
        ({"settings": {"random_state": 1}}, r"^setting must be one of .* got setting='random_state'"),
        ({"folds": 1}, r"^folds must be at least 2, got folds=1"),
        (
            {"folds": 21},
            r"^folds must be at most half the number of rows \(40\), got folds=21; give more rows, or fewer",
        ),
        ({"max_rows": 9}, r"^folds must be at most half the number of rows \(9\), got folds=5"),
        ({"max_rows": 0}, r"^max_rows must be at least 1, got max_rows=0"),
        ({"seed": -1}, r"^seed must be at least 0 and at most"),
        ({"jobs": 0}, r"^jobs must be at least 1, got jobs=0"),
        ({"y": np.full(40, np.nan)}, r"^y must be finite, got y=nan; remove or repair the 40 such value"),
        ({"y": np.zeros((40, 2))}, r"^y must be one-dimensional"),
        ({"y": np.zeros(39)}, r"^X must have one row per value of y \(39\), got X='40 rows'"),
        (
            {"groups": np.arange(40) // 10},
            r"^folds must be at most the number of groups \(4\), got folds=5; choose fewer",
        ),
        ({"groups": np.zeros(39)}, r"^groups must have one label per row of X \(40\)"),
        ({"X": pd.DataFrame([[1, 2]] * 40, columns=["a", "a"])}, r"^X must have column names that differ"),
        ({"X": pd.DataFrame({"a": ["7"] * 40})}, r"^column 'a' must not hold numbers as text"),
        ({"X": pd.DataFrame(index=range(40))}, r"^X must have at least one feature"),
        ({"X": np.arange(40.0)}, r"Expected 2D array, got 1D array instead"),
    ],
)
def test_nonsense_is_refused_before_anything_is_trained(untrained, arguments, message):
    arguments = {"X": NUMBERS, "y": np.arange(40.0), "methods": ["hnn"], **arguments}
    with pytest.raises(ValueError, match=message):
        compare(arguments.pop("X"), arguments.pop("y"), **arguments)


def test_settings_reach_every_method(fake, monkeypatch):
    seen = []
    monkeypatch.setattr(comparison, "make", lambda method, **settings: seen.append(settings) or Fake(method))
    compare(NUMBERS, np.arange(40.0), methods=["hnn", "ensemble_hc"], folds=2, seed=7, settings=TINY)
    assert all(callable(settings.pop("progress")) for settings in seen)
    assert seen == 4 * [{**TINY, "random_state": 7}]


# Figures.


def test_figures_are_those_of_the_held_out_rows():
    """Recomputed by hand: folds by the seed, every metric, mean and standard error, the curve of all rows together."""
    result = compare(DATA.X, DATA.y, methods=["hnn"], folds=3, seed=4, settings=TINY, target="price")
    truths = []
    for train, test in KFold(3, shuffle=True, random_state=4).split(DATA.y):
        model = make("hnn", **TINY, random_state=4).fit(DATA.X[train], DATA.y[train])
        truths.append((DATA.y[test], model.predict_dist(DATA.X[test])))
    (hnn,) = result["methods"]
    scores = [metrics.evaluate(*truth) for truth in truths]
    assert tuple(hnn["metrics"]) == COMPARED
    for name in set(COMPARED) - {"seconds"}:
        values = [score[name] for score in scores]
        np.testing.assert_allclose(hnn["metrics"][name]["values"], values, rtol=1e-6)
        np.testing.assert_allclose(hnn["metrics"][name]["mean"], np.mean(values), rtol=1e-6)
        error = np.sqrt(np.var(values, ddof=1) / 3)
        np.testing.assert_allclose(hnn["metrics"][name]["standard_error"], error, rtol=1e-5, atol=1e-12)
    for level, covered in zip(hnn["curve"]["levels"], hnn["curve"]["coverage"], strict=True):
        inside = [metrics.coverage(*truth, level=level) for truth in truths]  # equally many rows in each
        np.testing.assert_allclose(covered, np.mean(inside), atol=1e-9)
    assert hnn["curve"]["levels"][::49] == [0.01, 0.5, 0.99]
    # The verdict is the one rule on all held-out rows, as if they were one test set.
    pooled = Prediction(*(np.concatenate([getattr(p, name) for _, p in truths]) for name in ("mean", "std")))
    expected = judge(np.concatenate([y for y, _ in truths]), pooled)
    assert json.loads(json.dumps(hnn["verdict"])) == hnn["verdict"]
    for name in ("label", "status", "finding", "rows"):
        assert hnn["verdict"][name] == getattr(expected, name)
    for name in ("coverage", "coverage_low", "coverage_high", "share_above"):
        np.testing.assert_allclose(hnn["verdict"][name], getattr(expected, name), atol=1e-9)
    del result["methods"], result["recommendation"]
    floor = metrics.ce_noise_floor(40)
    facts = {
        "target": "price",
        "rows": 120,
        "held_out_rows": 120,
        "folds": 3,
        "seed": 4,
        "groups": None,
        "recalibration": None,
    }
    assert result == {**facts, "ce_noise_floor": floor}


def test_same_seed_same_result_with_any_number_of_processes():
    """To the last bit, apart from the seconds; the number of threads is restored."""
    torch.set_num_threads(2)
    try:
        here, again, elsewhere = (
            compare(DATA.X, DATA.y, methods=["hnn", "dropout_hc"], folds=2, settings=TINY, jobs=jobs)
            for jobs in (1, 1, 2)
        )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert without_seconds(here) == without_seconds(again) == without_seconds(elsewhere)
    assert here["recommendation"] == elsewhere["recommendation"]
    other = compare(DATA.X, DATA.y, methods=["hnn", "dropout_hc"], folds=2, settings=TINY, seed=1)
    assert without_seconds(other) != without_seconds(here)


def test_the_better_method_is_recommended():
    """The noise grows twentyfold: a method that models it beats a constant sigma, and the text says so."""
    data = heteroscedastic(600)
    settings = {"width": 32, "depth": 2, "max_epochs": 60}
    result = compare(data.X, data.y, methods=["constant_sigma", "hnn"], folds=3, settings=settings)
    assert result["recommendation"]["method"] == "hnn"
    assert re.match(
        r"HNN: lowest CRPS, 0\.\d+ ± 0\.\d+, \d+\.\d % below Constant sigma, more", result["recommendation"]["text"]
    )


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_keep_the_kinds_of_their_columns(kind):
    """One label makes a column text; without it, a fold would have numbers as text, and fail."""
    labels = ["12a", *(["7", "12", None] * 20)[:59]]
    frame = kind({"house": labels, "size": DATA.X[:60, 0]})
    result = compare(frame, DATA.y[:60], methods=["hnn"], folds=2, settings=TINY)
    assert result["methods"][0]["failed"] is None
    # A table that was read before gives the same result.
    again = compare(read_table(frame), DATA.y[:60], methods=["hnn"], folds=2, settings=TINY)
    assert without_seconds(again) == without_seconds(result)


def test_json_even_where_a_density_vanishes(fake, monkeypatch):
    """An infinite NLL is None, and does not affect the other figures."""
    monkeypatch.setattr(Fake, "stds", {"hnn": 1e-200})
    result = compare(NUMBERS, np.linspace(-1, 1, 40), methods=["hnn"], folds=2)
    figures = json.loads(json.dumps(result, allow_nan=False))["methods"][0]["metrics"]
    assert figures["nll"] == {"mean": None, "standard_error": None, "values": [None, None]}
    assert figures["crps"]["mean"] == pytest.approx(np.mean(np.abs(np.linspace(-1, 1, 40))))


# Rows.


def test_all_methods_have_the_same_folds(fake):
    """Paired differences need the same rows; every row is held out once."""
    compare(NUMBERS, np.arange(40.0), methods=["hnn", "ensemble_hc"], folds=4, seed=3)
    folds = {method: [] for method in ("hnn", "ensemble_hc")}
    for method, train, test, groups in fake.given:
        assert sorted([*train, *test]) == list(range(40))
        assert groups is None
        folds[method].append(test.tolist())
    assert folds["hnn"] == folds["ensemble_hc"]
    assert sorted(row for fold in folds["hnn"] for row in fold) == list(range(40))


def test_groups_are_never_split(fake):
    """Neither between folds nor in training; the noise floor is that of folds of unequal size."""
    labels = np.array([f"patient {i % 7}" for i in range(40)])
    result = compare(NUMBERS, np.arange(40.0), methods=["hnn"], folds=3, groups=labels, group_name="patient")
    for _, train, test, groups in fake.given:
        assert not set(labels[train]) & set(labels[test])
        assert sorted([*train, *test]) == list(range(40))
        pairs = set(zip(labels[train], groups, strict=True))
        assert len(pairs) == len(set(labels[train])) == len(set(groups))
    floors = [metrics.ce_noise_floor(len(test)) for _, _, test, _ in fake.given]
    assert result["ce_noise_floor"] == pytest.approx(np.mean(floors))
    assert result["groups"] == "patient"


def test_equal_rows_are_in_one_fold(fake):
    """As in `hetcal fit`: a held-out row is never a copy of a training row, unless there are too few different ones."""
    pairs = np.repeat(NUMBERS[:20], 2, axis=0)
    compare(pairs, pairs[:, 0], methods=["hnn"], folds=4)
    assert len(fake.given) == 4
    for _, train, test, groups in fake.given:
        assert not set(train) & set(test)
        assert groups is None
    fake.given.clear()
    compare(np.repeat(NUMBERS[:4], 10, axis=0), np.repeat(NUMBERS[:4, 0], 10), methods=["hnn"], folds=4)
    assert any(set(train) & set(test) for _, train, test, _ in fake.given)


def test_folds_forward_in_time(fake):
    """Every fold is later than its training rows; the earliest rows are never held out."""
    times = np.random.default_rng(0).permutation(40)
    result = compare(NUMBERS, np.arange(40.0), methods=["hnn"], folds=3, times=times)
    assert [sorted(times[test]) for _, _, test, _ in fake.given] == [[*range(k, k + 10)] for k in (10, 20, 30)]
    assert all(times[train].max() == times[test].min() - 1 for _, train, test, _ in fake.given)
    assert (result["rows"], result["held_out_rows"]) == (40, 30)
    assert result["methods"][0]["verdict"]["rows"] == 30


def test_two_groups_can_be_compared():
    """Then each training part is a single group, which the model is not given."""
    result = compare(DATA.X, DATA.y, methods=["hnn"], folds=2, groups=np.arange(120) % 2, settings=TINY)
    assert result["methods"][0]["failed"] is None
    assert result["groups"] == "groups"


def test_max_rows(fake):
    """At most so many rows, drawn with the seed; all rows if there are fewer."""
    assert compare(NUMBERS, np.arange(40.0), methods=["hnn"], folds=2, max_rows=11)["rows"] == 11
    for _, train, test, _ in fake.given:
        assert len({*train, *test}) == 11
    assert compare(NUMBERS, np.arange(40.0), methods=["hnn"], folds=2, max_rows=40)["rows"] == 40
    first, again, other = (draw_rows(1000, None, 100, 2, seed).tolist() for seed in (0, 0, 1))
    assert first == again != other
    assert len(set(first)) == 100


def test_max_rows_takes_whole_groups_where_they_fit():
    """Ten groups of ten: five whole ones. Groups too large for that: rows of all of them."""
    labels = np.repeat(np.arange(10), 10)
    rows = draw_rows(100, labels, 55, 3, seed=0)
    assert len(rows) == 50
    assert set(np.bincount(labels[rows], minlength=10)) == {0, 10}
    large = np.repeat(np.arange(4), 25)
    rows = draw_rows(100, large, 55, 3, seed=0)
    assert len(rows) == 55
    assert set(large[rows]) == {0, 1, 2, 3}


# What goes wrong.


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("y must be kind, got y=3; ask it"), "fold 1 of 2: y must be kind, got y=3; ask it"),
        (RuntimeError("first line\nsecond line"), "fold 1 of 2: first line"),
        (MemoryError(), "fold 1 of 2: MemoryError"),
    ],
)
def test_a_method_that_fails_leaves_the_others(fake, error, sentence):
    fake.errors["hnn"] = error
    result = compare(NUMBERS, np.linspace(-2, 2, 40), methods=["hnn", "ensemble_hc"], folds=2)
    hnn, ensemble = result["methods"]
    expected = {"name": "hnn", "title": "HNN", "failed": sentence, "metrics": {}, "curve": None, "verdict": None}
    assert hnn == expected
    assert ensemble["failed"] is None
    assert result["recommendation"]["method"] == "ensemble_hc"
    assert "with no other method to compare" in result["recommendation"]["text"]
    assert " Not evaluated, because of an error: HNN." in result["recommendation"]["text"]


def test_an_error_in_another_process_is_reported_as_one_here():
    """A setting that only some methods have; the rest is compared."""
    settings = {**TINY, "estimator_options": {"members": 2}}
    result = compare(DATA.X, DATA.y, methods=["hnn", "ensemble_hc"], folds=2, settings=settings, jobs=2)
    hnn, ensemble = result["methods"]
    assert hnn["failed"].startswith("fold 1 of 2: estimator_options must be one of ")
    assert ensemble["failed"] is None


def test_no_method_left(fake):
    fake.errors |= {"hnn": ValueError("sorry"), "ensemble_hc": ValueError("sorry too")}
    with pytest.raises(ValueError, match=r"^no method could be trained; HNN, fold 1 of 2: sorry$"):
        compare(NUMBERS, np.arange(40.0), methods=["hnn", "ensemble_hc"], folds=2)


def test_a_score_beyond_all_floats_is_a_failure(fake):
    with pytest.raises(ValueError, match=r"HNN, fold 1 of 2: its CRPS exceeds the range of floats$"):
        compare(NUMBERS, np.full(40, 1.7e308) * np.tile([1, -1], 20), methods=["hnn"], folds=2)


class Impatient(nn.Module):
    """Presses Ctrl-C in the middle of training."""

    calls = 0

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_inputs, 8), nn.ReLU(), nn.Linear(8, n_outputs))

    def forward(self, x):
        Impatient.calls += 1
        if Impatient.calls == 20:
            raise KeyboardInterrupt
        return self.layers(x)


def test_ctrl_c_ends_the_comparison(fake, monkeypatch):
    """A single training would keep its best weights and return; a comparison must not start the next fit."""
    monkeypatch.setattr(comparison, "make", make)
    monkeypatch.setattr(Impatient, "calls", 0)
    done = []
    with pytest.raises(KeyboardInterrupt):
        compare(
            DATA.X,
            DATA.y,
            methods=["hnn"],
            folds=2,
            settings={"network": Impatient, "max_epochs": 30},
            progress=lambda *step: done.append(step),
        )
    assert Impatient.calls == 20
    assert all(fits < 1 for fits, *_ in done)


def test_warnings_are_issued_once():
    """Not once per fit; here all four fits of two folds issue the same warning."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        compare(DATA.X, np.full(120, 5.0), methods=["hnn", "quantile_hc"], folds=2, settings=TINY)
    (warning,) = (entry for entry in seen if entry.category is DegenerateDataWarning)
    assert len(seen) == len({str(entry.message) for entry in seen})
    assert str(warning.message).startswith("y is constant (5)")
    assert warning.filename == __file__


def test_progress(fake):
    steps = []
    compare(
        NUMBERS, np.arange(40.0), methods=["hnn", "ensemble_hc"], folds=2, progress=lambda *step: steps.append(step)
    )
    assert steps == [
        (1, 4, "HNN, fold 1 of 2"),
        (2, 4, "Ensemble-HC, fold 1 of 2"),
        (3, 4, "HNN, fold 2 of 2"),
        (4, 4, "Ensemble-HC, fold 2 of 2"),
    ]


# Baselines, peers and recalibration.


def test_groups_of_names():
    """The methods to choose among have one home; peers are those that are installed."""
    assert method_names("auto") == AUTO
    assert method_names("baselines") == ("no_model", "ridge", "hist_gradient_boosting")
    assert method_names("hnn,peers") == ("hnn", *installed_peers())
    assert set(installed_peers()) <= set(PEERS) - {"realmlp", "tabm", *BASELINES}
    assert CompareOptions.methods == "auto,baselines,peers"


def test_a_missing_library_is_reported_before_anything_is_trained(untrained, monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(ImportError, match="the method CatBoost needs catboost"):
        compare(NUMBERS, np.arange(40.0), methods="catboost", folds=2)


def test_baselines_are_compared_but_not_recommended(fake):
    """A baseline on the same folds, without our settings; if it is better, the recommendation says so."""
    y = np.arange(40.0)
    result = compare(NUMBERS, y, methods="hnn,ridge,no_model", folds=2, settings={"width": 3})
    crps = {method["name"]: method["metrics"]["crps"]["mean"] for method in result["methods"]}
    assert crps["ridge"] < crps["no_model"] < crps["hnn"]  # of a line, and of 0 with a std of 1
    assert result["recommendation"]["method"] == "hnn"
    found = (
        r"Ridge, constant sigma, which is not a method of hetcal, has a lower CRPS: .* below, more than fold noise\."
    )
    assert re.search(found, result["recommendation"]["text"])
    alone = compare(NUMBERS, y, methods="ridge,no_model", folds=2)
    assert alone["recommendation"]["method"] == "ridge"
    assert "not a method of hetcal" not in alone["recommendation"]["text"]


@pytest.mark.parametrize("groups", [None, np.arange(40) // 4])
def test_rows_that_recalibrate_are_neither_training_nor_test_rows(fake, groups):
    """A fifth of the training rows of every fold, whole groups; the rest is trained on."""
    y = np.random.default_rng(0).normal(size=40)
    result = compare(NUMBERS, y, methods="hnn", folds=2, recalibrate="std", groups=groups)
    assert result["recalibration"] == {"method": "std", "rows": 4}
    assert result["methods"][0]["title"] == "HNN + std"
    (_, train, calibration, _), (_, again, test, _) = fake.given[:2]
    assert list(train) == list(again)
    assert len(train) == 16
    assert sorted([*train, *calibration, *test]) == list(range(40))
    if groups is not None:
        assert not set(groups[train]) & set(groups[calibration])


@pytest.mark.parametrize("method", RECALIBRATORS)
def test_every_recalibration_repairs_a_wrong_scale(fake, method):
    """A std of 3 for a standard normal: the coverage of 1,000 rows is 0.9 within four standard errors afterwards."""
    X, y = np.arange(1000.0)[:, None], np.random.default_rng(1).normal(size=1000)
    plain, repaired = (
        compare(X, y, methods="quantile_hc", folds=2, recalibrate=name)["methods"][0] for name in (None, method)
    )
    assert plain["verdict"]["coverage"] > 0.99
    assert abs(repaired["verdict"]["coverage"] - 0.9) < 4 * 0.0095 + 0.01  # 400 rows recalibrate, which is noise, too


def test_an_unknown_recalibration(untrained):
    with pytest.raises(ValueError, match=r"^recalibrate must be one of .*, got recalibrate='platt'"):
        compare(NUMBERS, np.arange(40.0), methods="hnn", recalibrate="platt")


# The choice.


def test_choose_method(fake):
    """Three folds over AUTO, of 3,000 rows at most, fewer folds for few rows or groups."""
    X, y = np.arange(4000.0)[:, None], np.random.default_rng(0).normal(size=4000)
    method, result = choose_method(X, y, seed=2)
    assert method == result["recommendation"]["method"] == "hnn"
    assert [m["name"] for m in result["methods"]] == list(AUTO)
    assert (result["rows"], result["folds"], result["seed"]) == (3000, 3, 2)
    assert choose_method(X[:5], y[:5])[1]["folds"] == 2
    assert choose_method(X[:50], y[:50], groups=np.arange(50) % 2)[1]["folds"] == 2
    with pytest.raises(
        ValueError, match=r"^y must have at least 4 values to choose a method, got y='3 values'; name a"
    ):
        choose_method(X[:3], y[:3])


class Reporting(Fake):
    """Reports that a quarter of its training is done, and all of it."""

    def fit(self, X, y, groups=None):
        for steps in (5, 20):
            self.settings["progress"](steps, 20)
        return super().fit(X, y, groups)


def test_progress_within_a_fit(fake, monkeypatch):
    """The time left is known from the first seconds on."""
    monkeypatch.setattr(comparison, "make", Reporting)
    steps = []
    compare(NUMBERS, np.arange(40.0), methods=["hnn"], folds=2, progress=lambda *step: steps.append(step[:2]))
    assert steps == [(0.25, 2), (1, 2), (1.25, 2), (2, 2)]

"""`hetcal fit` from Python: the split, the groups, the choice of a method, and what the file remembers."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import hetcal
from hetcal.cli.columns import Observations
from hetcal.cli.fit import fit_file, hold_out_rows
from hetcal.cli.options import FitOptions
from hetcal.cli.show import render_result
from hetcal.exceptions import SharedGroupsWarning
from hetcal.model_files.archive import read_model_file
from hetcal.regressor import HCRegressor
from hetcal.tabular.columns import read_table

TINY = ["max_epochs=3", "width=8", "depth=1"]


@pytest.fixture
def table(tmp_path):
    """60 rows of 12 patients."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=60), "patient": [f"p{i % 12}" for i in range(60)]})
    frame["y"] = 2 * frame["a"] + random.normal(size=60)
    frame.to_csv(tmp_path / "train.csv", index=False)
    return tmp_path / "train.csv"


def fit(table, **options):
    out = table.parent / "model.hetcal"
    chosen = {"target": "y", "method": "hnn", "set": TINY, "quiet": True, **options}
    result = fit_file(FitOptions(table=str(table), out=out, **chosen))
    return result, hetcal.load(out)


def observe(frame, group=None):
    """The rows of a frame, as `hetcal fit` reads them."""
    return Observations(
        read_table(frame[["a"]]), frame["y"].to_numpy(), None if group is None else frame[group].to_numpy()
    )


def test_groups_are_never_split():
    """Every patient is on one side only, for several seeds; without groups they are not. Rows stay in order."""
    groups = np.array([f"p{i % 12}" for i in range(60)], dtype=object)
    rows = Observations(read_table(pd.DataFrame({"a": range(60)})), np.arange(60.0), groups)
    for seed in range(5):
        train, test = hold_out_rows(rows, 0.25, seed)
        assert set(train.groups).isdisjoint(test.groups)
        assert len(train) + len(test) == 60
        assert len(set(test.groups)) == 3
        assert (np.diff(train.y) > 0).all()
        assert (np.diff(test.y) > 0).all()
    train, test = hold_out_rows(Observations(rows.X, rows.y), 0.25, 0)
    assert not set(groups[train.y.astype(int)]).isdisjoint(groups[test.y.astype(int)])
    assert sorted([*train.y, *test.y]) == list(range(60))
    assert (np.diff(test.y) > 0).all()


def test_too_few_rows_to_split():
    rows = Observations(read_table(pd.DataFrame({"a": range(20)})), np.arange(20.0))
    with pytest.raises(ValueError, match=r"test_size must leave at least one of 20 rows for training, got"):
        hold_out_rows(rows, 0.99, 0)
    with pytest.raises(ValueError, match=r"the table must have at least 5 rows to be split, got .*=4; give more rows"):
        hold_out_rows(rows.take(np.arange(4)), 0.2, 0)


def test_the_file_is_the_model_that_was_evaluated(table):
    """Its test metrics follow from the file; the same seed gives the same model, another seed another model."""
    result, model = fit(table, drop=["patient"])
    rows = observe(pd.read_csv(table))
    _, test = hold_out_rows(rows, 0.2, seed=0)
    again = hetcal.evaluate(test.y, model.predict_dist(test.X))
    assert result["metrics"]["crps"] == pytest.approx(again["crps"])
    _, same = fit(table, drop=["patient"])
    assert_array_equal(same.predict(rows.X), model.predict(rows.X))
    _, other = fit(table, drop=["patient"], seed=1)
    assert (other.predict(rows.X) != model.predict(rows.X)).any()


def test_what_the_file_remembers(table):
    result, _ = fit(table, group="patient")
    summary = read_model_file(table.parent / "model.hetcal").summary
    assert (summary.target, summary.method, summary.group, summary.dropped) == ("y", "hnn", "patient", [])
    assert (summary.rows, summary.test_rows) == (result["rows"], result["test_rows"])
    assert summary.metrics == result["metrics"]
    assert result["report"]["kind"] == "model"
    json.dumps(result, allow_nan=False)
    assert str(table.parent) not in json.dumps(result["report"])


def test_without_test_rows_all_train_and_nothing_is_evaluated(table):
    result, _ = fit(table, test_size=0.0, drop=["patient"])
    assert (result["rows"], result["test_rows"], result["metrics"]) == (60, 0, {})
    assert "report" not in result


def test_auto_chooses_and_says_why(table):
    """One of the three candidates, with its reason in the report."""
    result, model = fit(table, method="auto", drop=["patient"])
    assert result["method"] in ("cross_hc", "hnn", "quantile_hc", "ensemble_hc")
    assert "CRPS" in result["recommendation"]
    assert any(result["recommendation"] in str(entry) for entry in result["report"]["settings"])
    assert model.estimator == hetcal.METHODS[result["method"]].estimator


@pytest.fixture
def calls(monkeypatch):
    """What the choice of a method and the training were given."""
    seen = {}

    def choose(X, y, **options):
        seen["choose"] = X, y, options
        return "hnn", {"recommendation": {"method": "hnn", "text": "CRPS"}}

    fit_method = HCRegressor.fit

    def fit_and_note(self, X, y, **options):
        seen["fit"] = X, y, options
        return fit_method(self, X, y, **options)

    monkeypatch.setattr("hetcal.cli.fit.choose_method", choose)
    monkeypatch.setattr(HCRegressor, "fit", fit_and_note)
    return seen


@pytest.mark.parametrize("group", [None, "patient"])
def test_test_rows_are_kept_from_training_and_from_the_choice(table, calls, group):
    """Both see the training rows, all of them and no other, with their groups and the seed that was asked for."""
    drop = [] if group else ["patient"]
    result, _ = fit(table, method="auto", seed=3, group=group, drop=drop)
    frame = pd.read_csv(table)
    train, _ = hold_out_rows(observe(frame, group), 0.2, seed=3)
    for X, y, options in calls.values():
        assert_array_equal(X.columns["a"], train.X.columns["a"])
        assert_array_equal(y, train.y)
        assert (options["groups"] is None) if group is None else (list(options["groups"]) == list(train.groups))
    assert calls["choose"][2]["seed"] == 3
    assert result["rows"] == len(train)


def test_groups_of_the_test_table_in_the_training_table_are_reported(table):
    frame = pd.read_csv(table)
    frame[frame["patient"].isin(["p0", "p1"])].to_csv(table.parent / "test.csv", index=False)
    with pytest.warns(SharedGroupsWarning, match="2 of 2 groups of the test table are also in the training table"):
        fit(table, test=str(table.parent / "test.csv"), group="patient")


def test_two_groups_are_enough(table):
    """One to train and one to test; a single one is refused."""
    frame = pd.read_csv(table)
    frame.assign(patient=np.where(frame.index < 40, "p", "q")).to_csv(table, index=False)
    result, _ = fit(table, group="patient")
    assert {result["rows"], result["test_rows"]} == {20, 40}
    frame.assign(patient="p").to_csv(table, index=False)
    with pytest.raises(ValueError, match="group must have at least 2 different labels, got group='p'"):
        fit(table, group="patient")


def test_the_command_names_the_method_that_was_chosen(table, calls):
    """So that the report is reproduced without the cross-validation."""
    result, _ = fit(table, method="auto", drop=["patient"], test_size=0.5)
    (command,) = result["report"]["reproduce"]
    assert command == (
        "hetcal fit train.csv --target y --out model.hetcal --method hnn --test-size 0.5 --drop patient "
        "--set max_epochs=3 --set width=8 --set depth=1"
    )


def test_labels_that_look_like_numbers_stay_labels(table):
    """From the file to the model: in training, in the test table and in the report."""
    frame = pd.read_csv(table)
    frame["patient"] = [str(7000 + i % 3) for i in range(60)]
    frame.to_csv(table, index=False)
    frame[frame["patient"] == "7001"].to_csv(table.parent / "test.csv", index=False)
    result, model = fit(table, text=["patient"], test=str(table.parent / "test.csv"))
    assert model.encoder_.kinds == {"a": "numbers", "patient": "text"}
    assert model.encoder_.vocabularies["patient"].labels == ["7000", "7001", "7002"]
    assert result["test_rows"] == 20


@pytest.mark.parametrize("method", ["conformal", "isotonic", "std"])
@pytest.mark.parametrize("group", [None, "patient"])
def test_recalibration(table, method, group, monkeypatch):
    """By rows that are neither trained nor tested on; the saved model is the recalibrated one, and says so."""
    seen = {}
    real = HCRegressor.fit, HCRegressor.recalibrate
    monkeypatch.setattr(HCRegressor, "fit", lambda self, X, y, **k: (seen.update(fit=y), real[0](self, X, y, **k))[1])
    monkeypatch.setattr(
        HCRegressor, "recalibrate", lambda self, X, y, m: (seen.update(calibrate=y), real[1](self, X, y, m))[1]
    )
    result, model = fit(table, recalibrate=method, group=group, report=table.parent / "r.html")
    frame = pd.read_csv(table)
    rows = {name: set(np.flatnonzero(np.isin(frame["y"], y))) for name, y in seen.items()}
    assert result["rows"] == len(rows["fit"])
    assert result["calibration_rows"] == len(rows["calibrate"]) >= 9
    assert result["rows"] + result["calibration_rows"] + result["test_rows"] == 60
    assert not rows["fit"] & rows["calibrate"]
    if group:
        assert set(frame["patient"][list(rows["fit"])]).isdisjoint(frame["patient"][list(rows["calibrate"])])
    assert model.recalibration_.method == method
    crps = result["report"]["metrics"]["crps"]
    test = frame[~frame.index.isin(rows["fit"] | rows["calibrate"])]
    assert hetcal.evaluate(test["y"], model.predict_dist(test[["a"]] if group else test[["a", "patient"]]))[
        "crps"
    ] == pytest.approx(crps)
    text = render_result({**result, "command": "fit"})
    assert f"{method} recalibration by {result['calibration_rows']} others" in text
    assert f"rows for {method} recalibration" in str(result["report"]["data"])
    assert f"--recalibrate {method}" in str(result["report"]["reproduce"])


def test_an_unknown_recalibration_is_refused_before_the_table_is_read(table):
    with pytest.raises(ValueError, match=r"recalibrate must be one of .*, got recalibrate='isotonik'; did you mean"):
        fit(table.parent / "none.csv", recalibrate="isotonik")

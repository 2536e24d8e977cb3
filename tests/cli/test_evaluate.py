"""`hetcal evaluate`: a model on a table, and anyone's predictions without torch."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import hetcal
from hetcal.cli.evaluate import evaluate_file
from hetcal.cli.fit import fit_file
from hetcal.cli.options import EvaluateOptions, FitOptions
from hetcal.cli.predictions import quantiles_by_name
from hetcal.cli.show import render_result
from hetcal.exceptions import OtherTargetWarning, TrainingRowsWarning, UnseenLabelsWarning


def evaluate_model(folder, **options):
    return evaluate_file(EvaluateOptions(file=folder / "model.hetcal", table=str(folder / "test.csv"), **options))


def evaluate_predictions(path, **options):
    return evaluate_file(EvaluateOptions(file=path, **options))


@pytest.fixture
def model(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=80), "town": random.choice(["Aix", "Bonn"], 80)})
    frame["y"] = frame["a"] + random.normal(size=80)
    fitted = hetcal.make("hnn", max_epochs=3, width=8, depth=1, random_state=0).fit(frame[["a", "town"]], frame["y"])
    fitted.save(tmp_path / "model.hetcal")
    frame.to_csv(tmp_path / "test.csv", index=False)
    return fitted, frame, tmp_path


def test_a_model_that_python_saved_needs_the_target(model):
    """A file of `model.save` alone does not know the name of the target."""
    fitted, frame, folder = model
    with pytest.raises(ValueError, match=r"model.hetcal was saved from Python and does not name its .*add --target"):
        evaluate_model(folder)
    result = evaluate_model(folder, target="y", group="town", report=folder / "r.html")
    expected = hetcal.evaluate(frame["y"], fitted.predict_dist(frame[["a", "town"]]))
    assert result["report"]["metrics"]["crps"] == pytest.approx(expected["crps"])
    assert (folder / "r.html").stat().st_size > 5000
    assert result["report"]["subgroups"]["groups"] == "town"
    frame.assign(town=["Aix", None] * 40).to_csv(folder / "test.csv", index=False)
    with pytest.raises(ValueError, match="group must be a column with a label in every row, got group='town'"):
        evaluate_model(folder, target="y", group="town")


def test_unseen_labels_are_counted_and_warned_of(model):
    _, frame, folder = model
    frame.assign(town="Cork").to_csv(folder / "test.csv", index=False)
    with pytest.warns(UnseenLabelsWarning, match="column 'town' holds labels .* in 80 of 80 rows"):
        result = evaluate_model(folder, target="y")
    assert "80" in str(result["report"]["data"])


def test_other_columns_define_subgroups(tmp_path):
    """Intervals that are right in the north and far too narrow in the south: the report says so."""
    random = np.random.default_rng(0)
    site = np.repeat(["north", "south"], 200)
    noise = np.where(site == "north", 1.0, 3.0) * random.normal(size=400)
    pd.DataFrame({"y": noise, "m": 0.0, "s": 1.0, "site": site}).to_csv(tmp_path / "p.csv", index=False)
    result = evaluate_predictions(tmp_path / "p.csv", target="y", mean="m", std="s")
    worst = result["report"]["subgroups"]["worst"][0]
    assert (worst["name"], worst["where"], worst["stands_out"]) == ("site", "= south", True)
    dropped = evaluate_predictions(tmp_path / "p.csv", target="y", mean="m", std="s", drop=["site"])
    assert "site" not in str(dropped["report"].get("subgroups"))


def test_predictions_are_evaluated_without_torch(tmp_path):
    """Fast, and on machines without torch."""
    pd.DataFrame({"y": [0.0, 1.0], "mean": 0.5, "std": 1.0}).to_csv(tmp_path / "p.csv", index=False)
    code = (
        "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); "
        "sys.argv[1:] = ['evaluate', 'p.csv', '--target', 'y', '--report', 'r.html']; "
        "from hetcal.cli.app import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "90 % intervals cover 100.0 % of 2 rows" in ended.stdout
    assert ended.stdout.endswith("False\n")
    assert (tmp_path / "r.html").exists()


def test_a_target_other_than_that_of_the_model_is_reported(model):
    """It may be the same quantity under another name, so it is evaluated."""
    fitted, frame, folder = model
    fitted.save(folder / "model.hetcal", summary={"target": "y"})
    frame.assign(a2=frame["a"]).to_csv(folder / "test.csv", index=False)
    with pytest.warns(OtherTargetWarning, match="was fitted to predict 'y', not 'a2'"):
        evaluate_model(folder, target="a2")


# Any form of predictions.


@pytest.fixture
def normal(tmp_path):
    """A calibrated normal prediction of 400 rows as mean, std, ends at three levels, and quantiles."""
    random = np.random.default_rng(0)
    mean, std = random.normal(size=400), random.uniform(0.5, 2, size=400)
    prediction = hetcal.prediction.Prediction(mean, std)
    frame = pd.DataFrame({"y": random.normal(mean, std), "mean": mean, "std": std, "site": "north"})
    for level in (50, 80, 90):
        frame[[f"lower_{level}", f"upper_{level}"]] = prediction.interval(level / 100)
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        frame[f"quantile_{q}"] = prediction.quantile(q)
    return frame, tmp_path / "p.csv"


@pytest.mark.parametrize(
    ("columns", "levels", "form"),
    [
        (["mean", "std"], [], "mean and std of a normal distribution"),
        (["mean", "lower_90", "upper_90"], [0.9], "the quantiles 0.05, 0.95; between and beyond them a normal"),
        (["lower_80", "upper_80"], [0.8], "the quantiles 0.1, 0.9; between and"),
        (["quantile_0.05", "quantile_0.5", "quantile_0.95"], [0.9], "the quantiles 0.05, 0.5, 0.95; between them"),
    ],
)
def test_every_form_gives_the_same_verdict(normal, columns, levels, form):
    """Found by name, as `hetcal predict` names them; a normal distribution is the same in every form."""
    frame, path = normal
    frame[["y", "mean", "std"]].to_csv(path, index=False)
    expected = evaluate_predictions(path, target="y")["report"]
    frame[["y", "site", *columns]].to_csv(path, index=False)
    result = evaluate_predictions(path, target="y")
    assert result["form"].startswith(form)
    assert [interval["level"] for interval in result["intervals"]] == levels
    verdict = result["report"]["verdict"]
    assert verdict["level"] == (levels or [0.9])[0]
    if verdict["level"] == 0.9:
        assert verdict["coverage"] == expected["verdict"]["coverage"]
    assert result["report"]["metrics"]["crps"] == pytest.approx(expected["metrics"]["crps"], rel=1e-2)
    assert result["report"]["metrics"]["rmse"] == pytest.approx(expected["metrics"]["rmse"], rel=1e-2)


def test_named_columns(normal):
    """The same under other names; the coverage is that of the given intervals."""
    frame, path = normal
    renamed = frame.rename(columns={"lower_80": "lo", "upper_80": "hi", "quantile_0.5": "mid", "mean": "m"})
    renamed[["y", "lo", "hi", "mid", "m"]].to_csv(path, index=False)
    result = evaluate_predictions(path, target="y", lower="lo", upper="hi", level=0.8, quantile=["0.5=mid"], mean="m")
    inside = ((renamed["lo"] <= renamed["y"]) & (renamed["y"] <= renamed["hi"])).mean()
    (interval,) = result["intervals"]
    assert (interval["level"], interval["coverage"]) == (0.8, pytest.approx(inside))
    assert interval["low"] < inside < interval["high"]
    assert f"The given 80 % intervals cover {100 * inside:.1f} % of 400 rows" in render_result(result)
    assert "--quantile 0.5=mid" in str(result["report"]["reproduce"])


def test_the_mean_beside_intervals_is_used(normal):
    """RMSE and bias are those of the column; the verdict and the report are about the given level."""
    frame, path = normal
    frame["m"] = frame["mean"] + 5
    frame[["y", "m", "lower_80", "upper_80"]].to_csv(path, index=False)
    result = evaluate_predictions(path, target="y", lower="lower_80", upper="upper_80", level=0.8, mean="m")
    error = frame["m"] - frame["y"]
    assert result["report"]["metrics"]["rmse"] == pytest.approx(np.sqrt((error**2).mean()))
    assert result["mean"]["bias"] == pytest.approx(error.mean())
    noise = 1.96 * error.std() / 20
    assert (result["mean"]["low"], result["mean"]["high"]) == pytest.approx(
        (error.mean() - noise, error.mean() + noise)
    )
    assert "The given mean (m) is biased: 5.08 above" in render_result(result)
    assert "80 % intervals cover 85" in result["report"]["verdict"]["text"]
    assert "biased" in str(result["report"]["data"])
    for section in ("sharpness", "intervals", "subgroups"):
        assert result["report"][section]["level"] == pytest.approx(0.8)
    plain = evaluate_predictions(path, target="y", lower="lower_80", upper="upper_80", level=0.8)
    assert plain["mean"] is None


@pytest.mark.parametrize("form", ["q{:02.0f}", "P{:02.0f}", "q_{:02.0f}"])
def test_short_names_of_quantiles(normal, form):
    """q05 and q95 are quantiles, and no subgroups; without their counterparts such columns are features."""
    frame, path = normal
    names = {f"quantile_{q}": form.format(100 * q) for q in (0.05, 0.5, 0.95)}
    frame = frame[["y", "mean", *names]].rename(columns=names)
    frame.to_csv(path, index=False)
    result = evaluate_predictions(path, target="y")
    assert result["form"].startswith("the quantiles 0.05, 0.5, 0.95")
    assert {one["kind"] for one in result["report"]["subgroups"]["worst"]} == {"prediction"}
    frame.drop(columns=form.format(95)).assign(std=1.0).to_csv(path, index=False)
    result = evaluate_predictions(path, target="y")
    assert result["form"].startswith("mean and std")
    assert {one["kind"] for one in result["report"]["subgroups"]["worst"]} == {"prediction", "feature"}


def test_short_names_that_hold_the_probability():
    names = ["0.05", "q0.5", "p.95", "q025", "q975", "x"]
    assert quantiles_by_name(dict.fromkeys(names)) == {
        0.05: "0.05",
        0.5: "q0.5",
        0.95: "p.95",
        0.025: "q025",
        0.975: "q975",
    }
    assert quantiles_by_name(dict.fromkeys(["q1", "q2", "q3", "q4", "q01", "q02", "0", "100", "q00", "q100"])) == {}


def test_columns_of_predictions_are_never_subgroups(normal):
    """All that `hetcal predict` writes, whichever of them is read; other columns are."""
    frame, path = normal
    frame.assign(site=np.resize(["north", "south"], 400)).to_csv(path, index=False)
    for options in ({}, {"std": "std"}, {"lower": "lower_50", "upper": "upper_50", "level": 0.5}):
        subgroups = evaluate_predictions(path, target="y", **options)["report"]["subgroups"]
        names = {one["name"] for one in subgroups["worst"]}
        assert names <= {"site", "predicted value", "interval width"}
    assert evaluate_predictions(path, target="y", std="std")["form"] == "mean and std of a normal distribution"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lower": "lower_90"}, "--lower and --upper must be given together, got .*='lower_90'; name both columns"),
        ({"quantile": ["0.5:mid"]}, "--quantile must have the form q=column, got .*='0.5:mid'; write for example"),
        ({"quantile": ["150=mid"]}, "--quantile must have the form q=column, got .*='150=mid'"),
        ({"quantile": ["0.0=mid"]}, "--quantile must have the form q=column, got .*='0.0=mid'"),
        ({"quantile": ["5=low"]}, "must name a probability, got .*='5=low'; .* is 0.05: write --quantile 0.05=low"),
        ({"quantile": ["0.1=mean", "0.9=mean"]}, "have a probability and a column of their own, got .*0.9=mean"),
        ({"quantile": ["0.1=mean", "0.1=std"]}, "have a probability and a column of their own, got .*0.1=std"),
        ({"lower": "mean", "upper": "mean"}, "have a probability and a column of their own, got .*0.95=mean"),
        ({"quantile": ["0.5=mean"]}, "--quantile must be given at least twice"),
        ({"quantile": ["0.5=meen", "0.9=upper_80"]}, "quantile must be one of .*did you mean 'mean'"),
        ({"lower": "upper_90", "upper": "lower_90"}, "'upper_90' must be at most 'lower_90', got .* see rows 2, 3"),
    ],
)
def test_options_that_make_no_prediction(normal, options, message):
    frame, path = normal
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match=message):
        evaluate_predictions(path, target="y", **options)


def test_training_rows_are_recognized(tmp_path):
    """In any order of rows and columns, in a part of the table, from another format; not if the values differ."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=300), "town": random.choice(["Aix", "Bonn"], 300)})
    frame.loc[3, "a"] = None
    frame["y"] = random.normal(size=300)
    frame.to_csv(tmp_path / "train.csv", index=False)
    settings = {"method": "hnn", "set": ["max_epochs=2", "width=8", "depth=1"], "quiet": True}
    fit_file(FitOptions(table=str(tmp_path / "train.csv"), target="y", out=tmp_path / "model.hetcal", **settings))
    options = EvaluateOptions(file=tmp_path / "model.hetcal", table=str(tmp_path / "test.parquet"))
    frame.sample(frac=1, random_state=0)[["y", "town", "a"]].to_parquet(tmp_path / "test.parquet")
    message = r"^about 240 of 300 rows of test.parquet are rows that model.hetcal was trained on, which look better"
    with pytest.warns(TrainingRowsWarning, match=message):
        result = evaluate_file(options)
    assert result["training_rows"] == 240
    assert "About 240 of 300 rows are rows that the model was trained on, so that this" in render_result(result)
    assert "trained on" in str(result["report"]["data"])
    assert result["report"]["verdict"]["status"] != "good"  # of a model of two epochs, with advice on other rows
    assert "advice" not in result["report"]
    frame[:150].to_parquet(tmp_path / "test.parquet")
    with pytest.warns(TrainingRowsWarning):
        result = evaluate_file(options)
    assert 90 <= result["training_rows"] <= 150  # 120 on average, with a standard error of 15
    frame.assign(y=frame["y"] + 1e-9).to_parquet(tmp_path / "test.parquet")
    result = evaluate_file(options)
    assert result["training_rows"] == 0
    assert "advice" in result["report"]


def test_rows_without_a_target_are_omitted(normal, model):
    frame, path = normal
    frame.loc[[1, 5], "y"] = None
    frame[["y", "mean", "std"]].to_csv(path, index=False)
    with pytest.raises(
        ValueError, match="missing in rows 3, 7; remove these rows, or omit them with --drop-missing-target"
    ):
        evaluate_predictions(path, target="y")
    result = evaluate_predictions(path, target="y", drop_missing_target=True)
    assert (result["rows"], result["omitted"]) == (398, 2)
    assert "Rows without a target, omitted: 2" in render_result(result)
    _, table, folder = model
    table.assign(y=table["y"].mask(table.index == 7)).to_csv(folder / "test.csv", index=False)
    result = evaluate_model(folder, target="y", drop_missing_target=True)
    assert (result["rows"], result["omitted"]) == (79, 1)

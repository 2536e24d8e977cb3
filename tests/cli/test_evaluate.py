"""`hetcal evaluate`: a model on a table, and anyone's predictions without torch."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import hetcal
from hetcal.cli.evaluate import evaluate_file
from hetcal.cli.options import EvaluateOptions
from hetcal.exceptions import OtherTargetWarning, UnseenLabelsWarning


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
    with pytest.raises(ValueError, match="group 'town' must have a label in every row"):
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
    assert "site" not in str(dropped["report"].get("places"))


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

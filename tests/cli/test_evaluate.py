"""`hetcal evaluate`: a model on a table, and anyone's predictions without torch."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import hetcal
from hetcal.cli.evaluate import evaluate_model, evaluate_predictions
from hetcal.exceptions import OtherTargetWarning, UnseenLabelsWarning


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
    """A file of `model.save` alone knows no name of the target."""
    fitted, frame, folder = model
    files = folder / "model.hetcal", str(folder / "test.csv")
    with pytest.raises(ValueError, match=r"model.hetcal does not say what it predicts.*add --target NAME"):
        evaluate_model(*files)
    result = evaluate_model(*files, target="y", group="town", report=folder / "r.html")
    expected = hetcal.evaluate(frame["y"], fitted.predict_dist(frame[["a", "town"]]))
    assert result["report"]["metrics"]["crps"] == pytest.approx(expected["crps"])
    assert (folder / "r.html").stat().st_size > 5000
    assert result["report"]["places"]["groups"] == "town"
    frame.assign(town=["Aix", None] * 40).to_csv(files[1], index=False)
    with pytest.raises(ValueError, match="group 'town' must have a label in every row"):
        evaluate_model(*files, target="y", group="town")


def test_new_labels_are_counted_and_warned_of(model):
    _, frame, folder = model
    frame.assign(town="Cork").to_csv(folder / "test.csv", index=False)
    with pytest.warns(UnseenLabelsWarning, match="column 'town' holds labels .* in 80 of 80 rows"):
        result = evaluate_model(folder / "model.hetcal", str(folder / "test.csv"), target="y")
    assert "80" in str(result["report"]["data"])


def test_other_columns_are_places_to_look_at(tmp_path):
    """Intervals that are right in the north and far too narrow in the south: the page says so."""
    random = np.random.default_rng(0)
    site = np.repeat(["north", "south"], 200)
    noise = np.where(site == "north", 1.0, 3.0) * random.normal(size=400)
    pd.DataFrame({"y": noise, "m": 0.0, "s": 1.0, "site": site}).to_csv(tmp_path / "p.csv", index=False)
    result = evaluate_predictions(str(tmp_path / "p.csv"), target="y", mean="m", std="s")
    worst = result["report"]["places"]["worst"][0]
    assert (worst["name"], worst["where"], worst["stands_out"]) == ("site", "= south", True)
    dropped = evaluate_predictions(str(tmp_path / "p.csv"), target="y", mean="m", std="s", drop=["site"])
    assert "site" not in str(dropped["report"].get("places"))


def test_predictions_are_judged_without_torch(tmp_path):
    """Fast, and on machines that have none."""
    pd.DataFrame({"y": [0.0, 1.0], "mean": 0.5, "std": 1.0}).to_csv(tmp_path / "p.csv", index=False)
    code = (
        "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); "
        "sys.argv[1:] = ['evaluate', 'p.csv', '--target', 'y', '--report', 'r.html']; "
        "from hetcal.cli.app import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "90 % intervals covered 100.0 % of 2 test rows" in ended.stdout
    assert ended.stdout.endswith("False\n")
    assert (tmp_path / "r.html").exists()


def test_another_target_than_that_of_the_model_is_told(model):
    """It may be the same quantity under another name, so it is judged."""
    fitted, frame, folder = model
    fitted.save(folder / "model.hetcal", summary={"target": "y"})
    frame.assign(a2=frame["a"]).to_csv(folder / "test.csv", index=False)
    with pytest.warns(OtherTargetWarning, match="was fitted to predict 'y', not 'a2'"):
        evaluate_model(folder / "model.hetcal", str(folder / "test.csv"), target="a2")

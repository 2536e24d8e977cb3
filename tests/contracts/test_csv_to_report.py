"""From a CSV to a decision, as a person without Python does it: the real command, once in processes of its own."""

import csv
import json
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

QUICK = ("--method", "hnn", "--set", "max_epochs=20", "--set", "width=32")


@pytest.fixture
def run(warm_python, tmp_path):
    """`hetcal ...` in a process and a folder of its own; fails the test unless it ends well."""

    def call(*arguments):
        ended = warm_python.run("-m", "hetcal.cli", *arguments, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr
        return ended

    return call


def mixed_table(n, seed):
    """Numbers, labels, dates, booleans and gaps, and noise that grows with the area; every value is made up."""
    random = np.random.default_rng(seed)
    area = random.uniform(20, 200, n)
    town = random.choice(["Aix", "Bonn", "Cork, North"], n)
    return pd.DataFrame(
        {
            "id": [f"flat-{i}" for i in range(n)],
            "area": area,
            "town": np.where(random.random(n) < 0.1, None, town),
            "garden": random.choice(["true", "false"], n),
            "sold": (pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 1000, n), unit="D")).astype(str),
            "age": np.where(random.random(n) < 0.2, np.nan, random.uniform(0, 90, n)),
            "price": 3 * area + 80 * (town == "Bonn") + area / 5 * random.normal(size=n),
        }
    )


def test_red_wine(raw_file, run, tmp_path):
    """The file as its authors publish it (semicolons, quoted names with blanks), to predictions and both reports."""
    source = raw_file("winequality-red.csv")
    done = run("fit", source, "--target", "quality", "--out", "wine.hetcal", *QUICK, "--report", "fit.html")
    assert "wine.hetcal: hnn for quality, trained on 1281 rows" in done.stdout
    assert "90 % intervals cover" in done.stdout
    assert "90 % intervals cover" in (tmp_path / "fit.html").read_text()

    levels = ("--level", "0.9", "--level", "0.5", "--quantiles", "0.05,0.5")
    run("predict", "wine.hetcal", source, "--out", "predictions.csv", *levels, "--keep", "quality", "--keep", "alcohol")
    predictions = pd.read_csv(tmp_path / "predictions.csv")
    ends = ["lower_90", "upper_90", "lower_50", "upper_50"]
    assert list(predictions) == ["quality", "alcohol", "mean", "std", *ends, "quantile_0.05", "quantile_0.5"]
    assert len(predictions) == 1599
    assert_allclose(predictions["lower_90"], predictions["quantile_0.05"])
    assert (predictions["lower_90"] < predictions["lower_50"]).all()
    coverage = predictions["quality"].between(predictions["lower_90"], predictions["upper_90"]).mean()
    assert 0.7 < coverage < 0.97  # a sanity check of units and columns, not of calibration

    by_model = json.loads(run("evaluate", "wine.hetcal", source, "--json", "--report", "model.html").stdout)
    by_file = json.loads(run("evaluate", "predictions.csv", "--target", "quality", "--json").stdout)
    assert by_model["report"]["verdict"]["coverage"] == pytest.approx(coverage)
    # The distribution of the file is read from its quantiles, and interpolated between them.
    for metric, tolerance in {"rmse": 1e-6, "coverage_90": 1e-6, "crps": 1e-3, "ce": 1e-2}.items():
        expected = pytest.approx(by_file["report"]["metrics"][metric], rel=tolerance)
        assert by_model["report"]["metrics"][metric] == expected
    assert str(tmp_path) not in (tmp_path / "model.html").read_text()


def test_mixed_table_with_missing_values(hetcal, monkeypatch, tmp_path):
    """Text, dates, booleans and gaps; a test file, ids kept, new labels counted, standard input and output."""

    def run(*arguments, code=0, text=""):
        (tmp_path / "stdin").write_text(text)
        with (tmp_path / "stdin").open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            ended, out, err = hetcal(*arguments)
        assert ended == code, err
        return out, err

    mixed_table(400, seed=0).to_csv(tmp_path / "train.csv", index=False)
    mixed_table(200, seed=1).to_csv(tmp_path / "test.csv", index=False)
    arguments = ("--target", "price", "--drop", "id", "--test", "test.csv", "--out", "flats.hetcal", *QUICK)
    fitted = json.loads(run("fit", "train.csv", *arguments, "--json")[0])
    assert (fitted["rows"], fitted["test_rows"], fitted["dropped"]) == (400, 200, ["id"])
    assert fitted["report"]["metrics"]["rmse"] < 0.7 * mixed_table(200, seed=1)["price"].std()

    facts, _ = run("info", "flats.hetcal")
    for words in ("area", "numbers", "Cork, North", "sold", "dates", "2020-01-0", "missing values", "price"):
        assert words in facts

    new = mixed_table(50, seed=2).drop(columns="price")
    new.loc[3:4, "town"] = "Delft"
    new.loc[5, "id"] = "=HYPERLINK(1)"
    out, err = run("predict", "flats.hetcal", "-", "--out", "-", "--keep", "id", text=new.to_csv(index=False))
    assert "column 'town' holds labels that were not seen in training in 2 of 50 rows" in err
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["id"] for row in rows] == [*new["id"][:5], "'=HYPERLINK(1)", *new["id"][6:]]
    assert all(float(row["lower_90"]) < float(row["mean"]) < float(row["upper_90"]) for row in rows)

    wrong = new.rename(columns={"area": "surface"})
    out, err = run("predict", "flats.hetcal", "-", "--out", "-", code=2, text=wrong.to_csv(index=False))
    assert "area" in err
    assert "surface" in err
    assert len(err.splitlines()) == 1
    assert out == ""

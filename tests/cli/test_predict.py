"""`hetcal predict`: the columns are the model's, whatever the size of the chunks."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hetcal
from hetcal.cli import predict
from hetcal.cli.options import PredictOptions
from hetcal.cli.predict import predict_file
from hetcal.cli.tables import read_chunks
from hetcal.exceptions import OutsideRangeWarning, UnseenLabelsWarning


@pytest.fixture
def files(tmp_path):
    """A model of the logarithm, whose intervals are not symmetric, and a table for it."""
    random = np.random.default_rng(0)
    X = pd.DataFrame({"a": random.normal(size=90), "town": random.choice(["Aix", "Bonn"], 90)})
    model = hetcal.make("hnn", target_transform="log", max_epochs=3, width=8, depth=1, random_state=0)
    model.fit(X, np.exp(X["a"] + random.normal(size=90)))
    model.save(tmp_path / "model.hetcal")
    X.assign(id=range(90)).to_csv(tmp_path / "new.csv", index=False)
    return model, X, tmp_path


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(
        predict, "read_chunks", lambda *arguments, **options: read_chunks(*arguments, **options, rows=7)
    )


def run(folder, out="p.csv", **options):
    out = out if out == "-" else str(folder / out)
    files = {"model": folder / "model.hetcal", "table": str(folder / "new.csv"), "out": out}
    return predict_file(PredictOptions(**files, **options, quiet=True))


@pytest.mark.usefixtures("small_chunks")
def test_columns_are_those_of_the_model(files):
    """Read in chunks of 7 rows; exactly what the model predicts for the whole table."""
    model, X, folder = files
    out = folder / "p.csv"
    result = run(folder, level=["0.9", "0.5"], quantiles="0.05", upper=["0.95", "0.8"], lower=["0.95"], keep=["id"])
    assert result == {"command": "predict", "out": str(out), "rows": 90, "unseen_labels": {}, "outside_range": {}}
    frame = pd.read_csv(out)
    prediction = model.predict_dist(X)
    assert_array_equal(frame["id"], range(90))
    assert_array_equal(frame["mean"], prediction.mean)
    assert_array_equal(frame["std"], prediction.std)
    assert_array_equal(frame[["lower_90", "upper_90"]], prediction.interval(0.9))
    assert_array_equal(frame[["lower_50", "upper_50"]], prediction.interval(0.5))
    assert_allclose(frame["quantile_0.05"], frame["lower_90"])
    assert_allclose(frame["upper_bound_95"], frame["upper_90"])
    assert_allclose(frame["lower_bound_95"], frame["lower_90"])
    assert_array_equal(frame["upper_bound_80"], prediction.quantile(0.8))


def test_a_kept_column_may_not_have_the_name_of_a_prediction(files):
    _, X, folder = files
    X.assign(mean=1).to_csv(folder / "new.csv", index=False)
    with pytest.raises(ValueError, match=r"keep must not name a column of the predictions, got keep=\['mean'\]"):
        run(folder, "-", keep=["mean"])


def test_levels_and_quantiles_must_differ(files):
    _, _, folder = files
    with pytest.raises(ValueError, match=r"levels, quantiles and bounds must differ .*\['lower_90', 'upper_90'\]"):
        run(folder, "-", level=["0.9", "0.9"])
    with pytest.raises(ValueError, match=r"must differ .*\['upper_bound_95'\]"):
        run(folder, "-", upper=["0.95", "0.95"])
    with pytest.raises(ValueError, match=r"upper must be .*between 0 and 1"):
        run(folder, "-", upper=["95"])


@pytest.mark.usefixtures("small_chunks")
def test_unseen_labels_are_counted_over_all_chunks(files):
    _, X, folder = files
    X.assign(town=np.where(np.arange(90) % 30 == 0, "Cork", "Aix")).to_csv(folder / "new.csv", index=False)
    with pytest.warns(UnseenLabelsWarning, match="in 3 of 90 rows"):
        result = run(folder)
    assert result["unseen_labels"] == {"town": 3}


def test_rows_far_outside_the_training_range_are_reported(files):
    """Such as a value in other units; a value slightly beyond the range is not reported."""
    _, X, folder = files
    X.assign(a=np.where(X.index < 4, 1000.0, X["a"].max() + 0.1)).to_csv(folder / "new.csv", index=False)
    with pytest.warns(OutsideRangeWarning, match="column 'a' lies far outside .* in 4 of 90 rows"):
        result = run(folder)
    assert result["outside_range"] == {"a": 4}


def test_dates_beyond_the_training_rows_are_counted(tmp_path):
    """Every one of them: a year beyond a training period of weeks, and the day after it."""
    days = pd.date_range("2024-01-01", periods=60)
    X = pd.DataFrame({"day": days, "a": np.random.default_rng(0).normal(size=60)})
    model = hetcal.make("hnn", max_epochs=1, width=8, depth=1, random_state=0).fit(X, X["a"])
    model.save(tmp_path / "model.hetcal")
    for shift, beyond in [(366, 60), (1, 1), (0, 0), (-1, 1)]:
        X.assign(day=days + pd.Timedelta(days=shift)).to_csv(tmp_path / "new.csv", index=False)
        if beyond:
            with pytest.warns(OutsideRangeWarning, match=f"'day' lies beyond the dates .* in {beyond} of 60 rows"):
                result = run(tmp_path)
        else:
            result = run(tmp_path)
        assert result["outside_range"] == ({"day": beyond} if beyond else {})

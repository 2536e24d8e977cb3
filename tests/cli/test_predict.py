"""`hetcal predict`: the columns are the model's, whatever the size of the pieces."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hetcal
from hetcal.cli import predict
from hetcal.cli.predict import percent, predict_file
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


def in_pieces(*arguments, **options):
    return read_chunks(*arguments, **options, rows=7)


def test_columns_are_those_of_the_model(files, monkeypatch):
    """Read in pieces of 7 rows; exactly what the model says of the whole table."""
    model, X, folder = files

    monkeypatch.setattr(predict, "read_chunks", in_pieces)
    out = folder / "p.csv"
    options = {"levels": [0.9, 0.5], "quantiles": [0.05], "keep": ["id"], "quiet": True}
    result = predict_file(folder / "model.hetcal", str(folder / "new.csv"), str(out), **options)
    assert result == {"command": "predict", "out": str(out), "rows": 90, "unseen_labels": {}, "outside_range": {}}
    frame = pd.read_csv(out)
    prediction = model.predict_dist(X)
    assert_array_equal(frame["id"], range(90))
    assert_array_equal(frame["mean"], prediction.mean)
    assert_array_equal(frame["std"], prediction.std)
    assert_array_equal(frame[["lower_90", "upper_90"]], prediction.interval(0.9))
    assert_array_equal(frame[["lower_50", "upper_50"]], prediction.interval(0.5))
    assert_allclose(frame["quantile_0.05"], frame["lower_90"])


def test_a_kept_column_may_not_be_called_as_a_prediction(files):
    _, X, folder = files
    X.assign(mean=1).to_csv(folder / "new.csv", index=False)
    with pytest.raises(ValueError, match=r"keep must name no column that the predictions have, got keep=\['mean'\]"):
        predict_file(folder / "model.hetcal", str(folder / "new.csv"), "-", keep=["mean"])


def test_names_of_levels():
    """No rounding error of the level is seen in a name."""
    assert [percent(level) for level in (0.9, 0.29, 0.58, 0.999, 0.07)] == ["90", "29", "58", "99.9", "7"]


def test_levels_and_quantiles_must_differ(files):
    _, _, folder = files
    with pytest.raises(ValueError, match=r"level and quantiles must differ .*\['lower_90', 'upper_90'\]"):
        predict_file(folder / "model.hetcal", str(folder / "new.csv"), "-", levels=[0.9, 0.9])


def test_unseen_labels_are_counted_over_all_pieces(files, monkeypatch):
    _, X, folder = files
    X.assign(town=np.where(np.arange(90) % 30 == 0, "Cork", "Aix")).to_csv(folder / "new.csv", index=False)
    monkeypatch.setattr(
        predict, "read_chunks", lambda *arguments, **options: read_chunks(*arguments, **options, rows=7)
    )
    with pytest.warns(UnseenLabelsWarning, match="in 3 of 90 rows"):
        result = predict_file(folder / "model.hetcal", str(folder / "new.csv"), str(folder / "p.csv"), quiet=True)
    assert result["unseen_labels"] == {"town": 3}


def test_rows_far_outside_the_training_rows_are_told(files):
    """A value in other units, say; a little beyond the range is nothing to speak of."""
    _, X, folder = files
    X.assign(a=np.where(X.index < 4, 1000.0, X["a"].max() + 0.1)).to_csv(folder / "new.csv", index=False)
    with pytest.warns(OutsideRangeWarning, match="column 'a' lies far outside .* in 4 of 90 rows"):
        result = predict_file(folder / "model.hetcal", str(folder / "new.csv"), str(folder / "p.csv"), quiet=True)
    assert result["outside_range"] == {"a": 4}

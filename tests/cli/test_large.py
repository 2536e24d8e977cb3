"""`hetcal fit` on tables that stay in their files."""

import numpy as np
import pandas as pd
import pytest

import hetcal
from hetcal.cli import large
from hetcal.cli.fit import fit_file
from hetcal.cli.options import FitOptions
from hetcal.tabular import streaming

TINY = ["max_epochs=3", "width=8", "depth=1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """2,000 rows of 100 patients in four files, with a sample of 300."""
    for module, name in ((streaming, "SAMPLE_ROWS"), (large, "INSPECTED_ROWS"), (large, "EVALUATED_ROWS")):
        monkeypatch.setattr(module, name, 300)
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"a": random.normal(size=2000), "patient": random.integers(100, size=2000).astype(str)})
    rows["y"] = 2 * rows["a"] + random.normal(size=2000)
    rows["patient"] = "p" + rows["patient"]
    (tmp_path / "rows").mkdir()
    for number in range(4):
        rows[500 * number : 500 * (number + 1)].to_parquet(tmp_path / "rows" / f"{number}.parquet")
    return tmp_path / "rows"


def options(table, **changes):
    chosen = {"target": "y", "method": "hnn", "set": TINY, "quiet": True, **changes}
    return FitOptions(table=str(table), out=table.parent / "model.hetcal", **chosen)


def test_a_folder_becomes_a_model_with_a_report(folder):
    result = fit_file(options(folder, drop=["patient"], report=folder.parent / "report.html"))
    assert result["rows"] + 300 < 2000
    assert abs(result["rows"] - 1600) < 80  # 4.5 standard deviations
    assert result["test_rows"] == 300
    assert "300 of" in result["split"]
    assert 0 < result["metrics"]["crps"] < 3  # trained for a moment
    assert result["inspection"]["findings"][0]["text"] == "these are a random sample of the 2,000 rows of the table"
    assert (folder.parent / "report.html").stat().st_size > 10_000
    model = hetcal.load(folder.parent / "model.hetcal")
    assert list(model.feature_names_in_) == ["a"]


def test_test_rows_are_no_training_rows(folder):
    """Each row is on one side, whichever pass reads it, and so are the rows of a patient."""
    for group in (None, "patient"):
        split = large.read_large_split(options(folder, group=group))
        train = list(split.train.X())
        y = np.concatenate([rows.y for rows in train])
        assert len(y) == len(split.train)
        assert not set(y) & set(split.test.y)
        if group is not None:
            assert not {label for rows in train for label in rows.groups} & set(split.test.groups)


def test_no_test_rows(folder):
    assert fit_file(options(folder, test_size=0.0))["test_rows"] == 0


def test_a_table_of_repeated_rows_is_split_row_by_row(folder):
    ratings = pd.DataFrame({"product": np.tile(["a", "b"], 500), "y": np.tile([1.0, 2.0], 500)})
    ratings.to_parquet(folder.parent / "ratings.parquet")
    split = large.read_large_split(options(folder.parent / "ratings.parquet", stream=True))
    assert abs(len(split.train) - 800) < 60
    assert set(split.test.y) == {1.0, 2.0}


def test_rows_without_a_target_are_omitted(folder):
    part = pd.read_parquet(folder / "1.parquet")
    part.loc[part.index[:7], "y"] = np.nan
    part.to_parquet(folder / "1.parquet")
    with pytest.raises(ValueError, match="y must be finite"):
        large.read_large_split(options(folder))
    split = large.read_large_split(options(folder, drop_missing_target=True))
    assert split.omitted == 7
    assert split.total == 1993


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time": "a"}, "--time must not be given for a table that is streamed"),
        ({"method": "auto"}, "--method must not be given for a table that is streamed"),
        ({"recalibrate": "std"}, "--recalibrate must not be given for a table that is streamed"),
        ({"target": "z"}, "target must be one of .*'patient', 'y'"),
        ({"drop": ["pateint"]}, "did you mean 'patient'"),
        ({"target": "patient"}, "y must hold numbers"),
    ],
)
def test_bad_options(folder, changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit_file(options(folder, **changes))


def test_csv_is_not_streamed(folder):
    (folder.parent / "rows.csv").write_text("a,y\n1,2\n")
    with pytest.raises(ValueError, match="be a Parquet file"):
        fit_file(options(folder.parent / "rows.csv", stream=True))

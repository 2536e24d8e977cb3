"""`hetcal compare`: what was asked for reaches the comparison."""

import numpy as np
import pandas as pd
import pytest

from hetcal.cli import compare
from hetcal.cli.compare import compare_file
from hetcal.cli.options import CompareOptions
from hetcal.cli.show import render_result
from hetcal.exceptions import InspectionWarning


def test_rows_groups_and_seed_reach_the_comparison(tmp_path, monkeypatch):
    """Seen through the real comparison, which is run as well."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": random.normal(size=40), "g": [f"g{i % 8}" for i in range(40)], "y": random.normal(size=40)}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    seen, real = {}, compare.compare

    def note(X, y, **options):
        seen.update(options, columns=list(X.columns))
        return real(X, y, **options)

    monkeypatch.setattr(compare, "compare", note)
    settings = ["max_epochs=2", "width=8", "depth=1"]
    options = {"target": "y", "group": "g", "seed": 7, "folds": 2, "set": settings, "quiet": True}
    result = compare_file(CompareOptions(table=str(tmp_path / "t.csv"), methods="hnn", **options))
    assert seen["columns"] == ["a"]
    assert list(seen["groups"]) == list(frame["g"])
    assert (seen["seed"], seen["folds"], result["groups"], result["seed"]) == (7, 2, "g", 7)
    assert "--group g" in str(result["report"]["reproduce"])


@pytest.fixture
def days(tmp_path):
    random = np.random.default_rng(0)
    day = pd.date_range("2024-01-01", periods=60)
    frame = pd.DataFrame({"day": day, "a": random.normal(size=60), "y": random.normal(size=60)})
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "t.csv", index=False)
    return frame, str(tmp_path / "t.csv")


def test_the_table_is_inspected_before(days, capsys):
    """With the same findings as in `hetcal fit`, of which --time answers one; copies of rows are not split by folds."""
    frame, path = days
    pd.concat([frame, frame[:5]]).to_csv(path, index=False)
    with pytest.warns(InspectionWarning, match="test on the later rows with --time day"):
        result = compare_file(CompareOptions(table=path, target="y", methods="ridge", folds=2))
    told = capsys.readouterr().err
    assert told.startswith("t.csv: 65 rows, 2 features\n")
    assert "exact copies of another row, and copies stay on one side of the test split\n" in told
    assert "  2 folds, each held out once\n" in told
    assert [finding["name"] for finding in result["inspection"]["findings"]] == ["dates", "equal_rows"]


def test_folds_in_time_and_rows_without_a_target(days):
    frame, path = days
    frame.loc[3, "y"] = None
    frame.to_csv(path, index=False)
    options = {"table": path, "target": "y", "methods": "ridge", "folds": 2, "quiet": True, "time": "day"}
    result = compare_file(CompareOptions(**options, drop_missing_target=True, drop=["day"]))
    assert (result["rows"], result["held_out_rows"]) == (59, 39)
    assert result["inspection"]["findings"][0]["text"] == "1 row without a target was omitted"
    assert [column["name"] for column in result["inspection"]["columns"]] == ["a"]
    assert "over 2 folds, each later than its training rows." in render_result(result)
    assert result["report"]["blocks"][0]["caption"].startswith("39 of 59 rows held out in 2 folds, each later")
    with pytest.raises(ValueError, match="or omit them with --drop-missing-target"):
        compare_file(CompareOptions(**options))
    with pytest.raises(ValueError, match="--time must not be given with --group, got --time='day'; a group has rows"):
        compare_file(CompareOptions(**options, group="a"))


def test_settings_of_one_estimator_are_refused_before_anything_is_trained(tmp_path):
    options = CompareOptions(table=str(tmp_path / "none.csv"), target="y", methods="hnn,ensemble_hc", set=["members=4"])
    with pytest.raises(ValueError, match="hnn does not have it; name only methods that have it"):
        compare_file(options)

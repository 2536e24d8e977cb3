"""`hetcal compare`: what was asked for reaches the comparison."""

import numpy as np
import pandas as pd
import pytest

from hetcal.cli import compare
from hetcal.cli.compare import compare_file
from hetcal.cli.options import CompareOptions


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


def test_settings_of_one_estimator_are_refused_before_anything_is_trained(tmp_path):
    options = CompareOptions(table=str(tmp_path / "none.csv"), target="y", methods="hnn,ensemble_hc", set=["members=4"])
    with pytest.raises(ValueError, match="hnn does not have it; name only methods that have it"):
        compare_file(options)

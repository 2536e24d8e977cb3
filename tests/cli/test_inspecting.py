"""What `hetcal fit` says before training: warnings always, the rest only to a reader."""

import warnings

import numpy as np
import pandas as pd
import pytest

from hetcal.cli.inspecting import inspect_split
from hetcal.cli.options import FitOptions
from hetcal.cli.splits import read_split
from hetcal.exceptions import InspectionWarning


@pytest.fixture
def table(tmp_path):
    """Dates, a constant column with an escape sequence in its name, and 400 rows."""
    y = np.random.default_rng(0).normal(size=400)
    frame = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=400), "a\x1b[2J": 1, "b": y**2, "y": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    return str(tmp_path / "t.csv")


def look(table, **more):
    options = FitOptions(table=table, target="y", out="m.hetcal", **more)
    return inspect_split(options, read_split(options), {})


def test_a_reader_is_told(table, capsys):
    """On standard error, before the result; names from the file cannot play with the terminal."""
    with pytest.warns(InspectionWarning, match="with --time day"):
        inspection = look(table)
    out, told = capsys.readouterr()
    assert out == ""
    assert told.startswith("t.csv: 400 rows, 3 features\n  y: from ")
    assert "320 training rows, 80 test rows: at random; no two rows are equal" in told
    assert "a?[2J is constant; omit it with --drop" in told
    assert "\x1b" not in told
    assert "--time" not in told  # said by the warning
    assert [finding.name for finding in inspection.findings] == ["dates", "constant", "few_test_rows"]


@pytest.mark.parametrize("silent", ["quiet", "json"])
def test_only_warnings_are_told_to_scripts(table, capsys, silent):
    with pytest.warns(InspectionWarning):
        look(table, **{silent: True})
    assert capsys.readouterr() == ("", "")


def test_a_split_in_time_or_a_test_table_answers_the_warning(table, tmp_path):
    pd.read_csv(table).assign(b=5.0).to_csv(tmp_path / "later.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        look(table, time="day", quiet=True)
        look(table, test=str(tmp_path / "later.csv"), quiet=True)

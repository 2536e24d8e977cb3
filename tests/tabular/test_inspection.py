"""What a table shows before training: each finding where it is due, with its answer, and nowhere else."""

import json

import numpy as np
import pandas as pd
import pytest

import hetcal
from hetcal.metrics.verdict import rows_needed
from hetcal.tabular.inspection import inspect

RANDOM = np.random.default_rng(0)
N = 200
X = pd.DataFrame({"a": RANDOM.normal(size=N), "town": RANDOM.choice(["Aix", "Bonn", "Cork"], N)})
Y = RANDOM.normal(size=N)


def findings(X, y=Y, **options):
    return {finding.name: finding for finding in inspect(X, y, **options).findings}


def test_an_ordinary_table_has_no_findings():
    """Numbers, labels and a symmetric target."""
    assert findings(X) == {}
    assert hetcal.inspect is inspect


@pytest.mark.parametrize(
    ("columns", "name", "flag"),
    [
        ({"row": np.arange(N)}, "id", "--drop row"),
        ({"customer_id": RANDOM.permutation(10 * N)[:N]}, "id", "--drop customer_id"),
        ({"name": [f"person {i}" for i in range(N)]}, "id", "--drop name"),
        ({"b": 3.0}, "constant", "--drop b"),
        ({"the same": X["a"]}, "duplicate", "--drop 'the same'"),
        ({"town too": X["town"]}, "duplicate", "--drop 'town too'"),
        ({"b": np.where(np.arange(N) % 5, np.nan, X["a"] ** 2)}, "missing", "--drop b"),
        ({"kelvin": 273.15 + 2 * Y}, "target_among_features", "--drop kelvin"),
        ({"patient": np.arange(N) // 10, "age": 20 + np.arange(N) // 10 % 7}, "groups", "--group patient"),
        ({"subject#": np.arange(N) % 20}, "groups", "--group 'subject#'"),
        ({"day": pd.date_range("2024-01-01", periods=N)}, "dates", "--time day"),
    ],
)
def test_each_finding_has_its_answer(columns, name, flag):
    found = findings(X.assign(**columns))
    assert list(found) == [name]
    assert found[name].flag == flag
    assert found[name].text.endswith(flag)
    assert found[name].is_warning == (name == "dates")


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S"])
def test_dates_as_text_are_recognized(form):
    """As the command line reads them, and what to do about them in Python; they are no ids."""
    day = pd.Series(pd.date_range("2024-01-01", periods=N).strftime(form), dtype=object)
    found = findings(X.assign(day=day.mask(day.index == 7)))
    assert list(found) == ["dates_as_text", "dates"]
    assert found["dates_as_text"].text.endswith("give the column a date type, for example with pandas.to_datetime")
    assert "day holds dates (2024-01-01 to 2024-07-18)" in found["dates"].text
    assert list(findings(X.assign(day=day), time="day")) == ["dates_as_text"]
    assert "id" in findings(X.assign(day=day.mask(day.index == 7, "soon")))
    assert "dates_as_text" not in findings(X.assign(day=day.mask(day.index == 7, "2024-02-30")))


def test_findings_that_were_answered_are_not_repeated():
    grouped = X.assign(patient=np.arange(N) // 10, age=20 + np.arange(N) // 10 % 7)
    assert findings(grouped.drop(columns="patient"), groups=grouped["patient"]) == {}
    assert findings(X.assign(day=pd.date_range("2024-01-01", periods=N)), time="day") == {}
    skewed = np.exp(2 * Y)
    assert findings(X, skewed)["skew"].flag == "--set target_transform=log"
    assert findings(X, skewed - 1)["skew"].flag == "--set target_transform=yeo-johnson"
    assert findings(X, skewed, target_transform="log") == {}


@pytest.mark.parametrize("columns", [{"grade": RANDOM.integers(1, 40, N)}, {"month": pd.Series(range(N)) % 12}])
def test_a_whole_number_is_no_label_of_groups(columns):
    """It repeats, but the rows of a value share nothing else."""
    assert findings(X.assign(**columns)) == {}


def test_equal_rows():
    """Rows are equal if X and y are; the same row of two patients is two rows."""
    twice, y = pd.concat([X, X[:50]], ignore_index=True), np.append(Y, Y[:50])
    found = findings(twice, y)["equal_rows"]
    assert found.text.startswith("50 of 250 rows (20.0 %) are exact copies of another row, and copies stay on one side")
    assert found.flag == "--split random"
    assert findings(twice, np.append(Y, Y[:50] + 1)) == {}
    assert findings(twice, y, groups=np.arange(250)) == {}
    few = findings(X[["town"]], np.arange(N) % 3.0)["equal_rows"]
    assert "too many to keep copies on one side" in few.text
    assert few.flag is None


def test_few_test_rows():
    """Fewer than the verdict needs; with more rows in the table, a larger share of them is enough."""
    needed = rows_needed()
    assert findings(X, test_rows=needed) == {}
    assert findings(X, test_rows=0) == {}
    found = findings(pd.concat([X, 1 + X["a"]], axis=0, ignore_index=True)[["a"]], np.append(Y, Y), test_rows=20)
    assert found["few_test_rows"].flag == f"--test-size {np.ceil(100 * needed / 400) / 100:g}"
    few = findings(X[:40], Y[:40], test_rows=8)["few_test_rows"]
    assert few.flag is None
    assert few.text.startswith(f"8 test rows will be too few for a verdict, which needs {needed}")


def test_the_result_is_json_and_text():
    inspection = inspect(X.assign(b=1.0), Y)
    json.dumps(inspection.as_dict(), allow_nan=False)
    assert inspection.as_dict()["findings"][0]["flag"] == "--drop b"
    assert str(inspection).splitlines()[-1] == "* b is constant; omit it with --drop b"


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e9, 1e300])
def test_units_do_not_matter(scale):
    """Nothing overflows, and nothing is found because numbers are large or small."""
    assert findings(X.assign(a=scale * X["a"]), scale * Y) == {}
    assert inspect(X, scale * Y).target.skewness == pytest.approx(inspect(X, Y).target.skewness)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (np.ones(N), ValueError, r"y must vary, got y=1.0; all rows have this value"),
        (X["town"], TypeError, r"y must hold numbers, got y='text'; use HCClassifier for classes"),
        (np.array(["a", "b"] * 100), ValueError, r"y must hold numbers, got .*; use HCClassifier for classes"),
        (Y[1:], ValueError, r"y must have one value per row of X \(200\)"),
        (np.column_stack([Y, Y]), ValueError, r"y must have one value per row of X \(200\).*give one target"),
    ],
)
def test_targets_that_cannot_be_learned(y, error, message):
    with pytest.raises(error, match=message):
        inspect(X, y)


def test_copies_of_rows_do_not_hide_an_id():
    """An id is counted on the rows that differ; with a split by time, no other split is offered."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": rng.permutation(10_000)[:200], "x": rng.normal(size=200), "y": rng.normal(size=200)})
    frame = pd.concat([frame, frame[:30]])
    findings = {finding.name: finding for finding in inspect(frame[["id", "x"]], frame["y"]).findings}
    assert findings["id"].flag == "--drop id"
    assert findings["equal_rows"].flag == "--split random"
    forward = {one.name: one for one in inspect(frame[["id", "x"]], frame["y"], time="day").findings}
    assert forward["equal_rows"].flag is None

"""Where the coverage is worst: right rows, right figures, and no subgroup named by chance."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, binomtest

from hetcal.metrics.grouping import Grouping
from hetcal.metrics.subgroups import MINIMUM_ROWS, check_coverage
from hetcal.report.subgroups import describe_subgroups, find_subgroups, group_label
from tests.report.samples import ROWS, make_features

LEVEL = 0.9
RNG = np.random.default_rng(5)


def subgroups_of(column, rows=None):
    """Subgroups of one column: where -> row numbers."""
    rows = len(column) if rows is None else rows
    frame = pd.DataFrame({"x": column})
    found = find_subgroups(np.zeros(rows), np.ones(rows), frame, None, None)
    return {subgroup.where: subgroup.rows.tolist() for subgroup in found}


def describe_some(inside, features=None, groups=None, group_name=None, center=None, width=None):
    n = len(inside)
    center = np.zeros(n) if center is None else center
    width = np.ones(n) if width is None else width
    found = list(find_subgroups(center, width, features, groups, group_name))
    return describe_subgroups(check_coverage(found, inside, LEVEL, Grouping.of(groups, n)), width, group_name)


def test_figures_by_another_route():
    """Coverage, rows, width and p-values of every subgroup shown, recomputed with pandas and scipy."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"label": rng.choice(["a", "b"], 300), "number": rng.permutation(300).astype(float)})
    frame.loc[rng.random(300) < 0.2, "number"] = np.nan
    inside, width = rng.random(300) < 0.85, rng.random(300)
    content = describe_some(inside, frame, width=width)
    assert content["tested"] == 2 + 6 + 5  # labels, ranges and missing numbers, ranges of the width
    judged = [one for one in content["worst"] if one["kind"] == "feature"]
    assert {subgroup["name"] for subgroup in judged} == {"label", "number"}
    for subgroup in judged:
        column, where = frame[subgroup["name"]], subgroup["where"]
        if where == "missing":
            rows = column.isna()
        elif where.startswith("= "):
            rows = column == where[2:]
        else:
            rows = column.between(*map(float, where.split(" to ")))
        hits, n = int(inside[rows].sum()), int(rows.sum())
        assert (subgroup["rows"], subgroup["coverage"]) == (n, hits / n)
        np.testing.assert_allclose(subgroup["width"], np.median(width[rows]))
        tails = [binomtest(hits, n, LEVEL, alternative=side).pvalue for side in ("less", "greater")]
        np.testing.assert_allclose(subgroup["p"], min(1, 2 * min(tails)))
        interval = binomtest(hits, n).proportion_ci(0.95, method="exact")
        np.testing.assert_allclose([subgroup["coverage_low"], subgroup["coverage_high"]], interval)


def test_family_wise_false_alarms():
    """A calibrated model has a range of the prediction that stands out in at most 5 % of samples; so have columns.

    500 samples, 10 and 43 subgroups each: Holm promises at most 25 alarms on average of either kind, and the test fails
    above 51 (probability 1e-6 at the nominal level). Without the correction more than half of the samples would alarm.
    """
    features = make_features().assign(**{f"x{i}": RNG.random(ROWS) for i in range(5)})
    subgroups = list(find_subgroups(RNG.random(ROWS), RNG.random(ROWS), features, None, None))
    assert [one.kind for one in subgroups] == ["prediction"] * 10 + ["feature"] * 43
    alarms, uncorrected = np.zeros(2), 0
    rng = np.random.default_rng(11)
    for _ in range(500):
        tests = check_coverage(subgroups, rng.random(ROWS) < LEVEL, LEVEL)
        alarms += [tests.stands_out[:10].any(), tests.stands_out[10:].any()]
        uncorrected += tests.p.min() <= 0.05
    assert (alarms <= binom.isf(1e-6, 500, 0.05)).all()
    assert uncorrected > 250


def test_a_broken_subgroup_is_found():
    """Intervals that fail for one label are named first, with the sentence; too narrow before too wide."""
    features = make_features()
    rng = np.random.default_rng(3)
    level = np.where(features["grade"] == 2, 0.55, 0.9)
    content = describe_some(rng.random(ROWS) < level, features)
    first = content["worst"][0]
    assert (first["name"], first["where"], first["reading"]) == ("grade", "= 2", "too narrow")
    assert first["stands_out"]
    assert first["p_corrected"] < 0.001
    assert "The worst is grade = 2: 90 % intervals cover" in content["text"]
    assert "stand" in content["text"]


def test_too_wide_is_said():
    content = describe_some(np.ones(2000, dtype=bool), pd.DataFrame({"x": np.repeat(["a", "b"], 1000)}))
    assert content["standing_out"] == 2
    assert content["worst"][0]["reading"] == "wider than needed"


def test_what_the_verdict_does_not_count_is_told_apart():
    """A coverage of 87 % stands out of many rows, but is not 5 points too low, the limit of the verdict."""
    content = describe_some(np.arange(20_000) % 100 < 87, pd.DataFrame({"x": np.repeat(["a", "b"], 10_000)}))
    assert (content["standing_out"], content["weak"]) == (2, 0)
    assert (
        "2 of 2 subgroups stand out beyond chance, none with a coverage that is more than 5 points too low."
        in (content["text"])
    )


def test_no_subgroup_stands_out():
    content = describe_some(np.arange(100) % 10 > 0, pd.DataFrame({"x": np.repeat(["a", "b"], 50)}))
    assert content["text"] == "No subgroup stands out beyond chance (2 subgroups tested)."
    assert content["standing_out"] == 0


def test_what_many_rows_prove_may_trouble_nobody():
    """89.5 % of 40,000 rows is more than chance and less than a point: it is said, and does not stand out."""
    n = 80_000
    inside = np.arange(n) % 1000 < 895
    content = describe_some(inside, pd.DataFrame({"x": np.repeat(["a", "b"], n // 2)}))
    assert content["worst"][0]["reading"] == "slightly off"
    assert content["text"] == "No subgroup is off by more than 1 point (2 subgroups tested)."


def test_too_few_rows_or_no_parts():
    """Subgroups of fewer than 30 rows are not tested, nor is the whole; without any subgroup there is no section."""
    assert MINIMUM_ROWS == 30
    assert describe_some(np.ones(50, dtype=bool), pd.DataFrame({"x": np.arange(50), "c": 1.0})) is None
    assert subgroups_of(["a"] * 29 + ["b"] * 71) == {"= b": list(range(29, 100))}


def test_ids_are_never_shown():
    """A label of few rows, such as a name or a number, is no subgroup: nothing of it reaches the report."""
    assert subgroups_of([f"patient {i}" for i in range(500)]) == {}


def test_ranges_of_numbers():
    """Five ranges of equal count, together all rows; few values have a subgroup each; missing and infinite are one."""
    values = RNG.permutation(500).astype(float)
    found = subgroups_of(values)
    assert list(found) == ["0 to 99", "100 to 199", "200 to 299", "300 to 399", "400 to 499"]
    for where, rows in found.items():
        low, high = map(float, where.split(" to "))
        assert sorted(values[rows]) == list(np.arange(low, high + 1))
    assert {where: len(rows) for where, rows in subgroups_of([1, 2, 2] * 40).items()} == {"= 1": 40, "= 2": 80}
    assert len(subgroups_of([np.nan, np.inf, 1.0, 2.0] * 40)["missing"]) == 80
    assert subgroups_of([np.nan] * 100) == {}
    assert subgroups_of([3.0] * 100) == {}
    assert subgroups_of([1.0, 1.0 + 1e-15] * 50) == {}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([True, False] * 50, ["= True", "= False"]),
        (pd.array([True, None, False] * 50, dtype="boolean"), ["missing", "= True", "= False"]),
        (pd.array([1, None, 2] * 50, dtype="Int64"), ["missing", "= 1", "= 2"]),
        (pd.Categorical(["b", "a"] * 50), ["= b", "= a"]),
        ([Decimal(1), Decimal(2)] * 50, ["= 1", "= 2"]),
        ([1, "a", None] * 50, ["missing", "= 1", "= a"]),
        ([[1], [2]] * 50, ["= [1]", "= [2]"]),
        (np.array([1j, 2j] * 50), ["= 1j", "= 2j"]),
        (pd.to_timedelta(np.repeat([1, 2], 50), "h"), ["= 3,600", "= 7,200"]),
        (pd.Series(["\ud800", "b"] * 50, dtype=object), ["= �", "= b"]),
    ],
    ids=["bool", "boolean", "Int64", "category", "decimal", "mixed", "lists", "complex", "timedelta", "surrogate"],
)
def test_kinds_of_columns(column, expected):
    assert list(subgroups_of(column)) == expected


def test_dates():
    """Ranges of dates are shown as dates, with the time where a day holds several; zones keep their own clock."""
    days = pd.date_range("2020-01-01", periods=150, freq="D")
    expected = ["2020-01-01 to 2020-01-30", "2020-01-31 to 2020-02-29"]
    assert list(subgroups_of(days))[:2] == expected
    assert list(subgroups_of(days.tz_localize("Asia/Tokyo")))[:2] == expected
    assert list(subgroups_of([day.date() for day in days]))[:2] == expected
    minutes = pd.date_range("2020-01-01", periods=150, freq="min")
    assert next(iter(subgroups_of(minutes))) == "2020-01-01 00:00:00 to 2020-01-01 00:29:00"
    far = np.array(["0001-01-01", "9999-12-31"] * 50, dtype="datetime64[s]")
    assert list(subgroups_of(far)) == ["= 0001-01-01", "= 9999-12-31"]
    assert "missing" in subgroups_of([datetime.date(2020, 1, 1), None] * 50)


def test_index_and_repeated_names_do_not_matter():
    """Rows go by their position, columns too."""
    frame = pd.DataFrame({"x": ["a", "b"] * 50, "y": ["c", "d"] * 50}, index=np.arange(100)[::-1] + 7)
    frame.columns = ["x", "x"]
    found = list(find_subgroups(np.zeros(100), np.ones(100), frame, None, None))
    assert [(one.name, one.where) for one in found] == [("x", "= a"), ("x", "= b"), ("x", "= c"), ("x", "= d")]
    assert found[0].rows.tolist() == list(range(0, 100, 2))


def test_predictions_and_groups_are_subgroups():
    """Without any feature there are ranges of the prediction and the width; groups come with their name."""
    center, width = np.arange(150.0), np.arange(150.0) % 2 + 1
    found = list(find_subgroups(center, width, None, ["north", "south", None] * 50, "region"))
    assert [(one.kind, one.name, one.where) for one in found][4:] == [
        ("prediction", "predicted value", "120 to 149"),
        ("prediction", "interval width", "= 1"),
        ("prediction", "interval width", "= 2"),
        ("group", "region", "= north"),
        ("group", "region", "= south"),
        ("group", "region", "= None"),
    ]


def test_features_must_be_a_frame():
    with pytest.raises(TypeError, match="features must be a pandas DataFrame, got features='ndarray'; wrap it"):
        list(find_subgroups(np.zeros(2), np.ones(2), np.zeros((2, 1)), None, None))


def test_a_group_is_no_subgroup_by_chance():
    """In groups that differ, each as a whole, none stands out; as if they were independent rows, some do."""
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(20), 40)
    inside = rng.random(800) < np.clip(LEVEL + rng.normal(0, 0.12, 20), 0.5, 1)[codes]
    told = describe_some(inside, groups=codes.tolist(), group_name="patient")
    alone = describe_some(inside, features=pd.DataFrame({"patient": codes.astype(str)}))
    assert told["groups"] == "patient"
    assert told["standing_out"] == 0 < alone["standing_out"]


def test_labels_are_written_as_people_do():
    """Ids that were read as numbers have no fraction or exponent, and days have no time."""
    assert group_label(np.float64(1e5)) == "100000"
    assert group_label(1e17) == "100000000000000000"
    assert group_label(2.5) == "2.5"
    assert group_label(np.datetime64("2024-01-02T00:00:00.000000")) == "2024-01-02"
    assert group_label(pd.Timestamp("2024-01-02")) == "2024-01-02"
    assert group_label(np.datetime64("2024-01-02T03:04:05.000000")) == "2024-01-02 03:04:05"
    assert group_label("T 1.0") == "T 1.0"

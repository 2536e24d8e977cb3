"""What the intervals depend on, in the dict, in pictures and on the page."""

import json

import numpy as np
import pytest

from hetcal.report import describe, render
from hetcal.report.explanation import course_charts, describe_explanation, importance_chart
from hetcal.tabular.explaining import ColumnImportance, Course, Explanation
from tests.report.samples import HOSTILE, make_truth


def make_explanation(name="age", columns=12):
    importances = [ColumnImportance(f"{name}{i}", 0.5 / (1 + i), 0.01, 0.3 / (1 + i), 0.02) for i in range(columns)]
    mean, lower, upper = [10.0, 12.0], [8.0, 9.0], [11.0, 16.0]
    courses = [
        Course(f"{name}0", "numbers", [100000.0, 250000.0], mean, lower, upper),
        Course("day", "dates", [19723.0, 19790.0], mean, lower, upper),
        Course("site", "text", ["north", "a very long label"], mean, lower, upper),
    ]
    return Explanation(importances, courses, rows=300, repeats=5, crps=1.5)


def test_words_and_columns():
    content = describe_explanation(make_explanation())
    assert content["text"].startswith("The width depends most on age0: ")
    assert "sigma changes by 30.0 %" in content["text"]
    assert (len(content["columns"]), content["omitted"]) == (10, 2)
    assert [course["shown"][0] for course in content["courses"]] == ["100,000", "2024-01-01", "north"]
    assert describe_explanation(None) is None


def test_no_column_drives_sigma():
    flat = Explanation([ColumnImportance("a", 1.0, 0.1, 0.0, 0.0)], [], rows=300, repeats=5, crps=1.5)
    assert describe_explanation(flat)["text"].startswith("The width does not depend on any column")


def test_pictures():
    """Error bars lie around their dots, in the order of the numbers; courses share one vertical axis."""
    content = describe_explanation(make_explanation())
    chart = importance_chart(content)
    for row in chart["rows"]:
        for key in ("sigma", "crps"):
            assert chart["zero"][key] < row[key]["low"] < row[key]["at"] < row[key]["high"]
    assert chart["rows"][0]["sigma"]["at"] > chart["rows"][1]["sigma"]["at"]
    numbers, dates, labels = course_charts(content)
    assert numbers["y"] == dates["y"] == labels["y"]
    assert labels["band"] is None
    assert [tick["label"] for tick in labels["x"]["ticks"]] == ["north", "a very lo…"]
    assert [tick["label"] for tick in dates["x"]["ticks"]] == ["2024-01-01", "2024-03-08"]
    assert numbers["text"] == "The interval is 3.00 wide at 100,000 and 7.00 wide at 250,000."


@pytest.mark.parametrize("name", ["age", *HOSTILE])
def test_page(name):
    y, prediction = make_truth(rows=60)
    content = describe(y, prediction, target="y", title="t", explanation=make_explanation(name))
    json.dumps(content, allow_nan=False)
    html = render(content)
    assert "What the intervals depend on" in html
    assert "<script" not in html
    assert "1e+05" not in html


def test_infinite_predictions_are_not_drawn():
    course = Course("a", "numbers", [0.0, 1.0], [1.0, np.inf], [0.0, 1.0], [2.0, np.inf])
    explanation = Explanation([ColumnImportance("a", np.inf, np.nan, 0.1, 0.01)], [course], 300, 5, 1.5)
    content = describe_explanation(explanation)
    assert content["columns"][0]["crps"] is None
    assert course_charts(content) == []
    y, prediction = make_truth(rows=60)
    render(describe(y, prediction, target="y", title="t", explanation=explanation))

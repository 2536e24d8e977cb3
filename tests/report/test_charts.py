"""From numbers to places in a picture: percentages that are right, inside the picture, and ticks that are round."""

import re

import numpy as np
import pytest

from hetcal.report import charts, describe
from hetcal.report.charts import AxisScale
from tests.report.samples import LEVELS, make_features, make_history, make_truth


@pytest.fixture(scope="module")
def content():
    return describe(*make_truth(), target="y", title="t", features=make_features(), history=make_history())


def vertices(path):
    """The places of an SVG path."""
    return np.array([list(map(float, pair.split())) for pair in re.split("[ML]", path.rstrip("Z"))[1:]])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-7.0, 13.0, [-5.0, 0.0, 5.0, 10.0]),
        (0.0, 3e12, [0.0, 1e12, 2e12, 3e12]),
        (1e9, 1e9 + 5, [1e9 + i for i in range(6)]),
    ],
)
def test_round_ticks(low, high, expected):
    assert charts.round_ticks(low, high) == expected


@pytest.mark.parametrize("unit", [1e-305, 1e-12, 1.0, 1e12, 1e305])
def test_ticks_in_any_unit(unit):
    """Two to six ticks, in the range, evenly spaced."""
    for low, high in ((0.0, 1.0), (-0.3, 0.11), (2.0, 2.5)):
        ticks = np.array(charts.round_ticks(low * unit, high * unit))
        assert 2 <= len(ticks) <= 6
        assert low - 1e-9 <= ticks[0] / unit
        assert ticks[-1] / unit <= high + 1e-9
        np.testing.assert_allclose(np.diff(ticks), np.diff(ticks)[0], rtol=1e-6)


def test_log_ticks():
    assert charts.log_ticks(0.5, 20.0) == [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    assert charts.log_ticks(1e-3, 1e3) == [1e-3, 1e-1, 1e1, 1e3]  # every other: six fit


def test_places_are_linear():
    x, y = AxisScale(10.0, 20.0), AxisScale(10.0, 20.0, flip=True)
    assert [x.place(value) for value in (10, 15, 20, 99, -99)] == [0, 50, 100, 100, 0]
    assert [y.place(value) for value in (10, 15, 20)] == [100, 50, 0]
    assert AxisScale(1.0, 100.0, log=True).place(10.0) == 50
    assert x.place(30.0, beyond=1) == 200
    assert AxisScale(-1.7e308, 1.7e308).place(0.0) == 50


def test_axis_names_its_unit():
    """Ticks are short in any unit, and the title says what they are multiples of."""
    axis = AxisScale(0.0, 3e12).axis("Width")
    assert axis["title"] == "Width (\N{MULTIPLICATION SIGN} 10¹²)"
    assert [tick["label"] for tick in axis["ticks"]] == ["0", "1", "2", "3"]
    assert AxisScale(0.0, 3.0).axis("Width")["title"] == "Width"


def test_calibration(content):
    """The curve goes through its points, the band's edges are the band's, and 90 % is the larger dot."""
    chart = charts.calibration_chart(content["calibration"])
    curve = vertices(chart["curve"])
    np.testing.assert_allclose(curve[1:-1, 0], 100 * np.array(LEVELS), atol=0.006)
    np.testing.assert_allclose(curve[1:-1, 1], 100 - 100 * np.array(content["calibration"]["coverage"]), atol=0.006)
    band = vertices(chart["band"])
    np.testing.assert_allclose(band[:99, 1], 100 - 100 * np.array(content["calibration"]["lower"]), atol=0.006)
    np.testing.assert_allclose(band[99:, 1][::-1], 100 - 100 * np.array(content["calibration"]["upper"]), atol=0.006)
    (main,) = [dot for dot in chart["dots"] if dot["main"]]
    assert main["x"] == 90
    assert main["text"].startswith("90 % intervals cover ")


def test_histogram(content):
    """Heights are in proportion to the counts, bars touch, and the median lies among them."""
    chart = charts.histogram_chart(content["sharpness"])
    counts = np.array(content["sharpness"]["counts"])
    heights = np.array([bar["height"] for bar in chart["bars"]])
    np.testing.assert_allclose(heights / heights.max(), counts / counts.max(), atol=1e-3)
    ends = [bar["x"] + bar["width"] for bar in chart["bars"][:-1]]
    np.testing.assert_allclose(ends, [bar["x"] for bar in chart["bars"][1:]], atol=0.011)
    assert chart["bars"][0]["x"] <= chart["median"]["x"] <= ends[-1]
    assert chart["bars"][0]["text"].endswith(f": {counts[0]} row{'' if counts[0] == 1 else 's'}")


def test_intervals(content):
    """A truth inside lies between the ends of its bar, one outside does not."""
    chart = charts.interval_chart(content["intervals"])
    assert {mark["inside"] for mark in chart["marks"]} == {True, False}
    for mark in chart["marks"]:
        assert mark["inside"] == (mark["upper"] <= mark["y"] <= mark["lower"])
        assert mark["upper"] < mark["center"] < mark["lower"]
        assert ("outside" in mark["text"]) != mark["inside"]


def test_one_huge_interval_does_not_flatten_the_rest():
    row = {"y": 0.5, "center": 0.5, "lower": 0.0, "upper": 1.0, "inside": True}
    rows = [row, {**row, "y": 0.9}, {**row, "lower": -1e9, "upper": 1e9}]
    marks = charts.interval_chart({"rows": rows, "level": 0.9})["marks"]
    assert marks[0]["lower"] - marks[0]["upper"] > 25
    assert (marks[2]["upper"], marks[2]["lower"]) == pytest.approx((0, 100), abs=5)


def test_residuals(content):
    """Bins lie on the line of equality exactly where the RMSE is as large as stated."""
    residuals = content["residuals"]
    chart = charts.residual_chart(residuals)
    assert len(chart["dots"]) + chart["hidden"] == len(residuals["points"])
    (x0, y0), (x1, y1) = vertices(chart["equality"])
    for mark, one in zip(chart["marks"], residuals["bins"], strict=True):
        line = y0 + (mark["x"] - x0) / (x1 - x0) * (y1 - y0)
        assert (mark["rmse"] < line) == (one["rmse"] > one["std"])
        assert mark["upper"] <= mark["rmse"] <= mark["lower"]


def test_residuals_of_all_sizes_have_logarithmic_axes():
    bins = [{"std": s, "rmse": s, "lower": 0.0, "upper": 2 * s, "rows": 9} for s in (0.01, 1.0, 100.0)]
    chart = charts.residual_chart({"bins": bins, "points": [[0.01, 0.0], [1.0, 1.0]]})
    xs = [mark["x"] for mark in chart["marks"]]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.02)
    assert chart["hidden"] == 1  # no logarithm of 0
    assert chart["marks"][0]["lower"] == 100


def test_subgroups(content):
    chart = charts.subgroup_chart(content["subgroups"])
    for row in chart["rows"]:
        assert 0 <= row["low"] <= row["at"] <= row["high"] <= 100
    assert 0 < chart["level"] < 100


def test_history(content):
    """The kept epoch lies on the curve that chose it; the objective has its own picture if it is another curve."""
    chosen_by, objective = charts.history_charts(content["history"])
    assert [line["name"] for line in chosen_by["lines"]] == ["criterion"]
    criterion = vertices(chosen_by["lines"][0]["path"])
    np.testing.assert_allclose(criterion[25], [chosen_by["best"]["x"], chosen_by["best"]["y"]], atol=0.01)
    assert [line["name"] for line in objective["lines"]] == ["train", "validation"]
    assert objective["best"]["y"] is None
    same = {**content["history"], "criterion": content["history"]["validation"]}
    (chart,) = charts.history_charts(same)
    validation = vertices(chart["lines"][1]["path"])
    np.testing.assert_allclose(validation[25], [chart["best"]["x"], chart["best"]["y"]], atol=0.01)


def test_history_without_a_criterion():
    """A first epoch that towers over all is cut, not squeezed in."""
    tower = {"train": [1e9, 3.0, 2.0, *np.linspace(2, 1, 60)], "validation": [], "epochs": 63, "best_epoch": 62}
    line = vertices(charts.history_charts(tower)[0]["lines"][0]["path"])
    assert line[0, 1] < -100
    assert np.ptp(line[10:, 1]) > 30


def test_long_history_is_thinned():
    curve = np.linspace(2, 1, 10_000).tolist()
    (chart,) = charts.history_charts({"train": curve, "validation": curve, "epochs": 10_000, "best_epoch": 9_999})
    assert len(vertices(chart["lines"][0]["path"])) == charts.MOST_VERTICES


def test_whiskers():
    """The best on top, bars of one standard error, the noise floor in the same scale, no method without a figure."""
    entries = [
        {"title": "worse", "mean": 2.0, "standard_error": 0.5, "mark": None},
        {"title": "best " * 20, "mean": 1.0, "standard_error": None, "mark": "best"},
        {"title": "failed", "mean": None, "standard_error": None, "mark": None},
    ]
    chart = charts.whisker_chart(entries, floor=1.5)
    first, second = chart["rows"]
    assert second["title"] == "worse"
    assert len(first["title"]) == charts.LONGEST_LABEL
    assert second["low"] == pytest.approx(chart["floor"], abs=0.01)
    assert first["low"] == first["at"] == first["high"]
    assert chart["y"]["margin"] == charts.LONGEST_LABEL


def test_margins_have_a_width_in_the_style_sheet():
    """A label of any length gets a margin that the style sheet knows."""
    from hetcal.report.render import TEMPLATES

    css = (TEMPLATES / "style.css").read_text()
    for length in range(40):
        assert f".left-{charts.margin_for(['x' * length])} " in css


def test_truths_are_drawn_where_they_are():
    """Also where they lie below or above every interval: the picture is large enough for all of them."""
    rows = [
        {"y": y, "center": 5.0, "lower": 4.0, "upper": 6.0, "inside": 4 <= y <= 6} for y in (3.0, 4.5, 5.0, 5.5, 8.0)
    ]
    marks = charts.interval_chart({"rows": rows})["marks"]
    places = [mark["y"] for mark in marks]
    assert places == sorted(places, reverse=True)
    step = (places[1] - places[2]) / 0.5  # percent of the picture per unit
    assert places[0] - places[1] == pytest.approx(1.5 * step, abs=0.05)
    assert places[3] - places[4] == pytest.approx(2.5 * step, abs=0.05)

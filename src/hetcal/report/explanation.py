"""What the intervals depend on: from an `Explanation` to the dict, and from the dict to its pictures."""

from typing import Any

import numpy as np

from hetcal.metrics.wording import count, label, number, percent
from hetcal.report.charts import AxisScale, Chart, area, line, padded
from hetcal.report.text import clean, finite
from hetcal.tabular.explaining import Course, Explanation

MOST_COLUMNS = 10
LONGEST_TICK = 10
# A column matters if its importance is above 0 by this many standard errors.
CLEAR_ERRORS = 2.0


def describe_explanation(explanation: Explanation | None) -> dict[str, Any] | None:
    """The importance of the first columns and the partial dependence of the first few; None without an explanation."""
    if explanation is None or not explanation.importances:
        return None
    columns: list[dict[str, Any]] = [
        {
            "name": clean(one.name),
            "crps": finite(one.crps),
            "crps_error": finite(one.crps_error),
            "sigma": finite(one.sigma),
            "sigma_error": finite(one.sigma_error),
        }
        for one in explanation.importances
    ]
    clear = [one for one in columns if (one["sigma"] or 0) > CLEAR_ERRORS * (one["sigma_error"] or 0)]
    if clear:
        text = f"The width depends most on {clear[0]['name']}: with its values exchanged among the rows, sigma changes "
        text += f"by {percent(clear[0]['sigma'])}."
    else:
        text = "The width does not depend on any column: sigma is about the same for every row."
    return {
        "rows": explanation.rows,
        "repeats": explanation.repeats,
        "crps": finite(explanation.crps),
        "level": explanation.level,
        "columns": columns[:MOST_COLUMNS],
        "omitted": max(len(columns) - MOST_COLUMNS, 0),
        "courses": [describe_course(course) for course in explanation.courses],
        "text": text,
    }


def describe_course(course: Course) -> dict[str, Any]:
    name, shown = clean(course.name), [show_point(value, course.kind) for value in course.values]
    curves = {key: [finite(value) for value in getattr(course, key)] for key in ("mean", "lower", "upper")}
    return {"name": name, "kind": course.kind, "values": list(course.values), "shown": shown, **curves}


def show_point(value: Any, kind: str) -> str:
    """A value of a column: a label, a number or a day."""
    if kind == "text":
        return clean(value)
    if value != value:
        return "missing"
    return str(np.datetime64(int(np.floor(value)), "D")) if kind == "dates" else label(value)


# Pictures


def importance_chart(explanation: dict[str, Any]) -> Chart:
    """Both importances of each column with their error bars, small enough for a row of a table."""
    scales = {key: strip_scale(explanation["columns"], key) for key in ("sigma", "crps")}
    rows = []
    for one in explanation["columns"]:
        strips = {}
        for key, scale in scales.items():
            value, error = one[key] or 0.0, one[f"{key}_error"] or 0.0
            ends = {"low": value - error, "at": value, "high": value + error}
            strips[key] = {name: scale.place(end) for name, end in ends.items()}
        rows.append(strips)
    return {"rows": rows, "zero": {key: scale.place(0.0) for key, scale in scales.items()}}


def strip_scale(columns: list[dict[str, Any]], key: str) -> AxisScale:
    low = min(0.0, *((one[key] or 0) - (one[f"{key}_error"] or 0) for one in columns), 0.0)
    high = max(0.0, *((one[key] or 0) + (one[f"{key}_error"] or 0) for one in columns), 0.0)
    return AxisScale(*padded(low, high, 0.05))


def course_charts(explanation: dict[str, Any]) -> list[Chart]:
    """Mean and interval against the values of a column, all on the same vertical axis; labels as bars."""
    courses = [course for course in explanation["courses"] if is_complete(course)]
    if not courses:
        return []
    low, high = min(min(course["lower"]) for course in courses), max(max(course["upper"]) for course in courses)
    y = AxisScale(*padded(low, high), flip=True)
    return [course_chart(course, y) for course in courses]


def is_complete(course: dict[str, Any]) -> bool:
    return all(value is not None for key in ("mean", "lower", "upper") for value in course[key])


def course_chart(course: dict[str, Any], y: AxisScale) -> Chart:
    places = {key: [y.place(value) for value in course[key]] for key in ("mean", "lower", "upper")}
    is_bars = course["kind"] == "text" or len(course["values"]) == 1
    n = len(course["values"])
    if is_bars:
        xs = [round(100 * (i + 0.5) / n, 2) for i in range(n)]
        ticks = [{"at": x, "label": cut(text)} for x, text in zip(xs, course["shown"], strict=True)]
        axis: Chart = {"title": "", "ticks": ticks}
    else:
        x = AxisScale(*padded(min(course["values"]), max(course["values"]), 0.02))
        xs = [x.place(value) for value in course["values"]]
        axis = date_axis(course, xs) if course["kind"] == "dates" else x.axis("", most=3)
    marks = []
    for i, shown in enumerate(course["shown"]):
        text = f"{shown}: mean {number(course['mean'][i])}, interval {number(course['lower'][i])} to "
        where = {key: values[i] for key, values in places.items()}
        marks.append({"x": xs[i], **where, "text": text + number(course["upper"][i])})
    return {
        "name": course["name"],
        "x": axis,
        "y": y.axis("", most=4),
        "band": None if is_bars else area(xs, places["lower"], places["upper"]),
        "curve": None if is_bars else line(xs, places["mean"]),
        "marks": marks,
        "text": describe_ends(course),
    }


def date_axis(course: dict[str, Any], xs: list[float]) -> Chart:
    ends = (0, len(xs) - 1)
    return {"title": "", "ticks": [{"at": xs[i], "label": course["shown"][i]} for i in ends]}


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TICK else text[: LONGEST_TICK - 1] + "…"


def describe_ends(course: dict[str, Any]) -> str:
    """The picture in words: the widths at which the interval begins and ends."""
    widths = [high - low for low, high in zip(course["lower"], course["upper"], strict=True)]
    first, last = course["shown"][0], course["shown"][-1]
    if course["kind"] == "text" or len(widths) == 1:
        return f"Mean and interval for {count(len(widths), 'value')} of {course['name']}."
    return f"The interval is {number(widths[0])} wide at {first} and {number(widths[-1])} wide at {last}."

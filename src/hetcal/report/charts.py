"""From the numbers of the dict to positions in a picture: percentages, ticks and labels for the templates.

Every position is in percent of the picture, x from the left and y from the top, so that a picture fits any screen width
while its text keeps its size. Lines and areas come as the text of an SVG path in a box of 100 by 100.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hetcal.metrics.wording import count, format_for, nominal, number, percent, scale_by

Chart = dict[str, Any]
# More points on a line would not be visible.
MOST_VERTICES = 400
# Standard deviations that differ by more than this factor are drawn on logarithmic axes.
LOGARITHMIC_FROM = 20.0
LONGEST_LABEL = 22
NO_AXIS: Chart = {"title": "", "ticks": []}


@dataclass(frozen=True)
class AxisScale:
    """A range of numbers along an axis; `flip` for axes that point upward."""

    low: float
    high: float
    flip: bool = False
    log: bool = False

    def place(self, value: float, beyond: float = 0.0) -> float:
        """Position on the axis in percent; values further outside than `beyond` times its width are put at its end."""
        low, high = self.low, self.high
        value = min(max(value, low - beyond * (high - low)), high + beyond * (high - low))
        if self.log:
            share = math.log(value / low) / math.log(high / low)
        else:
            share = (value / 2 - low / 2) / (high / 2 - low / 2)  # halves: differences stay in the range of floats
        return round(100 * (1 - share if self.flip else share), 2)

    def axis(self, name: str, most: int = 5) -> Chart:
        """Title, and ticks with their labels."""
        ticks = log_ticks(self.low, self.high) if self.log else round_ticks(self.low, self.high, most)
        step = ticks[1] - ticks[0] if len(ticks) > 1 and not self.log else None
        shown = [number(tick, 1).removeprefix("1 \N{MULTIPLICATION SIGN} ") for tick in ticks] if self.log else []
        unit = ""
        if not self.log:
            form = format_for(ticks, step)
            shown, unit = [form(tick) for tick in ticks], form.unit
        return {
            "title": f"{name} ({unit})" if unit and name else unit or name,
            "ticks": [{"at": self.place(tick), "label": text} for tick, text in zip(ticks, shown, strict=True)],
            "margin": margin_for(shown),
        }

    def percent_axis(self, name: str, step: float = 0.2) -> Chart:
        ticks = [step * i for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]
        shown = [f"{100 * tick:.0f} %" for tick in ticks]
        return {
            "title": name,
            "ticks": [{"at": self.place(tick), "label": text} for tick, text in zip(ticks, shown, strict=True)],
            "margin": margin_for(shown),
        }


def margin_for(labels: Iterable[str]) -> int:
    """Margin for labels on the left: their length, rounded up to one of the widths in the style sheet."""
    longest = max((len(text) for text in labels), default=0)
    return min(max(2 * math.ceil(longest / 2), 4), LONGEST_LABEL)


def round_step(step: float) -> float:
    """The next of 1, 2, 5, 10, ... times a power of ten.

    >>> round_step(0.3), round_step(11.0)
    (0.5, 20.0)
    """
    exponent = math.floor(math.log10(step))
    return next(
        scale_by(factor, exponent)
        for factor in (1.0, 2.0, 5.0, 10.0)
        if scale_by(factor, exponent) >= step * (1 - 1e-9)
    )


def round_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from low to high, at most `most` + 1 of them.

    >>> round_ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    step = round_step((high / 2 - low / 2) / most * 2)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.14g}") for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; in a small range also 2 and 5 times these."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors: tuple[float, ...] = (1.0, 2.0, 5.0) if high / low <= 100 else (1.0,)
    ticks = [scale_by(factor, exponent) for exponent in range(first, last + 1) for factor in factors]
    ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    return ticks[:: max(math.ceil(len(ticks) / 6), 1)]


def padded(low: float, high: float, share: float = 0.04) -> tuple[float, float]:
    """The range with a margin; an empty range becomes one around its value."""
    room = share * (high / 2 - low / 2) * 2
    if high / 2 - low / 2 <= 1e-13 * max(abs(low), abs(high)):
        room = 0.5 * abs(high) if high else 1.0
    return low - room, high + room


def line(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Path through the points."""
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in zip(xs, ys, strict=True))


def area(xs: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> str:
    """Path around the area between two lines."""
    return line([*xs, *reversed(xs)], [*lower, *reversed(upper)]) + "Z"


def spread_evenly(values: Sequence[Any], most: int) -> list[int]:
    """At most `most` positions in a list, evenly spread, including the first and the last."""
    n = len(values)
    if n <= most:
        return list(range(n))
    return sorted({round(i * (n - 1) / (most - 1)) for i in range(most)})


# One model


def calibration_chart(curve: dict[str, Any]) -> Chart:
    """Observed against nominal coverage, the noise band, and dots with a tooltip at every tenth level."""
    x, y = AxisScale(0, 1), AxisScale(0, 1, flip=True)
    levels = curve["levels"]
    xs = [x.place(level) for level in levels]
    dots = [i for i, level in enumerate(levels) if round(100 * level) % 10 == 0 or round(100 * level) in (95, 99)]
    return {
        "x": x.percent_axis("Nominal coverage (level of the interval)"),
        "y": y.percent_axis("Observed coverage (share of rows inside)"),
        "band": area(xs, [y.place(v) for v in curve["lower"]], [y.place(v) for v in curve["upper"]]),
        "curve": line([0, *xs, 100], [100, *(y.place(v) for v in curve["coverage"]), 0]),
        "dots": [
            {
                "x": xs[i],
                "y": y.place(curve["coverage"][i]),
                "main": round(100 * levels[i]) == 90,
                "text": f"{percent(levels[i], 0)} intervals cover {percent(curve['coverage'][i])}; "
                f"noise: {percent(curve['lower'][i])} to {percent(curve['upper'][i])}",
            }
            for i in dots
        ],
        "table": [{name: curve[name][i] for name in ("levels", "coverage", "lower", "upper")} for i in dots],
    }


def histogram_chart(sharpness: dict[str, Any]) -> Chart:
    """Bars of the interval widths, and the median."""
    edges, counts = sharpness["edges"], sharpness["counts"]
    x = AxisScale(*(padded(edges[0], edges[-1], 0.02) if len(counts) > 1 else padded(edges[0], edges[-1], 2.0)))
    y = AxisScale(0, 1.08 * max(*counts, 1), flip=True)
    form = format_for(edges, edges[1] - edges[0])
    bars = []
    for low, high, rows in zip(edges[:-1], edges[1:], counts, strict=True):
        left, right, top = x.place(low), x.place(high), y.place(rows)
        where = {"x": left, "width": round(right - left, 2), "y": top, "height": round(100 - top, 2)}
        title = f"{form(low)} to {form(high)}{' ' + form.unit if form.unit else ''}"
        bars.append({**where, "rows": rows, "label": title, "text": f"{title}: {count(rows, 'row')}"})
    return {
        "x": x.axis(f"Width of the {nominal(sharpness['level'])} interval"),
        "y": y.axis("Rows", most=min(max(counts) + 1, 5)),
        "bars": bars,
        "median": {"x": x.place(sharpness["median"]), "label": f"median {number(sharpness['median'])}"},
    }


def interval_chart(intervals: dict[str, Any]) -> Chart:
    """A vertical bar per row, the prediction as a dash, the true value as a dot inside or a cross outside."""
    rows = intervals["rows"]
    low = min(min(row["y"], row["center"]) for row in rows)
    high = max(max(row["y"], row["center"]) for row in rows)
    # An interval far wider than the range of values would flatten the picture, so it is cut at the edge.
    room = max(high / 2 - low / 2, min(row["upper"] / 2 - row["lower"] / 2 for row in rows)) * 2
    low = min(low, max(min(row["lower"] for row in rows), low - room))
    high = max(high, min(max(row["upper"] for row in rows), high + room))
    y = AxisScale(*padded(low, high), flip=True)
    form = format_for([low, high], resolution_of(rows))
    unit = f" {form.unit}" if form.unit else ""
    marks = []
    for i, row in enumerate(rows):
        where = "inside" if row["inside"] else "outside"
        text = f"true value {form(row['y'])}, {where} {form(row['lower'])} to {form(row['upper'])}{unit}"
        places = {name: y.place(row[name]) for name in ("y", "center", "lower", "upper")}
        marks.append({"x": round(100 * (i + 0.5) / len(rows), 2), **places, "inside": row["inside"], "text": text})
    axis = y.axis("True value, prediction and interval")
    return {
        "x": {**NO_AXIS, "title": "Rows, in the order of the prediction"},
        "y": axis,
        "marks": marks,
        "form": form,
        "unit": form.unit,
    }


def resolution_of(rows: Sequence[dict[str, Any]]) -> float:
    """A hundredth of the typical interval, so that its ends can be distinguished."""
    widths = sorted(row["upper"] / 2 - row["lower"] / 2 for row in rows)
    return max(widths[len(widths) // 2] / 50, 1e-300)


def residual_chart(residuals: dict[str, Any]) -> Chart:
    """RMSE of each bin against its standard deviation with noise bars, rows as thin dots, and the line of equality."""
    bins, points = residuals["bins"], residuals["points"]
    stds, errors = [one["std"] for one in bins], [one["rmse"] for one in bins]
    highest = max(*stds, *errors)
    if max(stds) > LOGARITHMIC_FROM * min(stds):
        lowest = min(*stds, *(error for error in errors if error > 0))
        x = AxisScale(0.6 * min(stds), 1.6 * max(stds), log=True)
        y = AxisScale(lowest / 8, 4 * highest, flip=True, log=True)
    else:
        left, right = points[0][0], min(points[-1][0], 1.5 * stds[-1])
        top = max(highest, min(max(error for _, error in points), 3 * highest))
        x, y = AxisScale(*padded(min(left, stds[0]), max(right, stds[-1]))), AxisScale(0, 1.04 * top, flip=True)
    dots = [{"x": x.place(std), "y": y.place(error)} for std, error in points if is_in(x, std) and is_in(y, error)]
    marks = []
    for one in bins:
        text = f"standard deviation {number(one['std'])}: RMSE {number(one['rmse'])} "
        text += f"({number(one['lower'])} to {number(one['upper'])}), {count(one['rows'], 'row')}"
        places = {name: y.place(max(one[name], y.low)) for name in ("rmse", "lower", "upper")}
        marks.append({"x": x.place(one["std"]), **places, "text": text})
    return {
        "x": x.axis("Predictive standard deviation"),
        "y": y.axis("Error: distance from the true value"),
        "dots": dots,
        "hidden": len(points) - len(dots),
        "marks": marks,
        "equality": equality_line(x, y),
    }


def equality_line(x: AxisScale, y: AxisScale) -> str:
    """The line where the error is as large as predicted, within both axes."""
    low, high = max(x.low, y.low), min(x.high, y.high)
    return line([x.place(low), x.place(high)], [y.place(low), y.place(high)])


def is_in(scale: AxisScale, value: float) -> bool:
    return scale.low <= value <= scale.high


def subgroup_chart(subgroups: dict[str, Any]) -> Chart:
    """Coverage of each subgroup with its confidence interval, small enough for a row of a table."""
    low = min(min(one["coverage_low"] for one in subgroups["worst"]), subgroups["level"] - 0.1)
    x = AxisScale(max(math.floor(10 * low) / 10, 0), 1)
    names = {"low": "coverage_low", "at": "coverage", "high": "coverage_high"}
    return {
        "from": percent(x.low, 0),
        "level": x.place(subgroups["level"]),
        "rows": [{name: x.place(one[key]) for name, key in names.items()} for one in subgroups["worst"]],
    }


def history_charts(history: dict[str, Any]) -> list[Chart]:
    """The curve that chose the epoch, with the epoch on it, and the objective, if that is another one."""
    validation, criterion = (history.get(name) or [] for name in ("validation", "criterion"))
    if not any(v is not None for v in criterion):
        return [history_chart(history, "Objective (smaller is better)", ("train", "validation"))]
    known = [pair for pair in zip(validation, criterion, strict=False) if None not in pair]
    if known and all(math.isclose(a, b, rel_tol=0.01, abs_tol=1e-9) for a, b in known):
        return [history_chart(history, "Objective (smaller is better)", ("train", "validation"))]
    chosen_by = history_chart(history, "CRPS, which chose the epoch (smaller is better)", ("criterion",))
    others = history_chart(history, "Objective that was trained (smaller is better)", ("train", "validation"))
    return [chosen_by, {**others, "best": {**others["best"], "y": None}}] if others["lines"] else [chosen_by]


def history_chart(history: dict[str, Any], title: str, names: Sequence[str]) -> Chart:
    """Curves by epoch; a first epoch far above the others is cut off, and the kept epoch lies on the last curve."""
    curves = {name: history[name] for name in names if any(v is not None for v in history[name])}
    if not curves:
        return {"lines": [], "best": {}}
    values = sorted(v for curve in curves.values() for v in curve if v is not None)
    low, high = values[0], values[-1]
    usual = values[int(0.95 * (len(values) - 1))]
    if high / 2 - low / 2 > 4 * (usual / 2 - low / 2) > 0:
        high = usual + 0.5 * (usual - low)
    x, y = AxisScale(*padded(1, history["epochs"], 0.02)), AxisScale(*padded(low, high), flip=True)
    lines = []
    for name, curve in curves.items():
        kept = [i for i in spread_evenly(curve, MOST_VERTICES) if curve[i] is not None]
        path = line([x.place(i + 1) for i in kept], [y.place(curve[i], beyond=5) for i in kept])
        lines.append({"name": name, "path": path})
    best = history["best_epoch"]
    judged = list(curves.values())[-1]
    kept_value = judged[best] if best < len(judged) else None
    return {
        "x": x.axis("Epoch"),
        "y": y.axis(title),
        "lines": lines,
        "best": {"x": x.place(best + 1), "y": None if kept_value is None else y.place(kept_value)},
    }


# Several methods


def whisker_chart(entries: Sequence[dict[str, Any]], floor: float | None = None) -> Chart:
    """A dot with a bar of one standard error for each method (title, mean, standard_error, mark), best on top."""
    drawn = sorted((one for one in entries if one["mean"] is not None), key=lambda one: one["mean"])
    ends = [
        value
        for one in drawn
        for value in (one["mean"] - (one["standard_error"] or 0), one["mean"] + (one["standard_error"] or 0))
    ]
    low, high = min(ends), max(ends)
    if floor is not None:
        low, high = 0.0, max(high, floor)
    elif low >= 0 and low < 0.5 * high:
        low = 0.0
    x = AxisScale(*(padded(low, high, 0.05) if low else (0.0, 1.05 * high or 1.0)))
    rows = []
    for i, one in enumerate(drawn):
        error = one["standard_error"] or 0
        places = {"at": one["mean"], "low": one["mean"] - error, "high": one["mean"] + error}
        text = f"{one['title']}: {number(one['mean'])}" + (f" ± {number(error, 2)}" if error else "")
        title = one["title"] if len(one["title"]) <= LONGEST_LABEL else one["title"][: LONGEST_LABEL - 1] + "…"
        rows.append(
            {
                "y": round(100 * (i + 0.5) / len(drawn), 2),
                **{key: x.place(value) for key, value in places.items()},
                "title": title,
                "text": text,
                "mark": one["mark"],
            }
        )
    return {
        "x": x.axis("", most=4),
        "y": {**NO_AXIS, "margin": margin_for(row["title"] for row in rows)},
        "rows": rows,
        "floor": None if floor is None else x.place(floor),
        "height": 30 * len(rows) + 12,
    }


def curve_chart(curve: dict[str, Any], band: dict[str, Any]) -> Chart:
    """A small calibration curve, with the band of a calibrated model."""
    x, y = AxisScale(0, 1), AxisScale(0, 1, flip=True)
    xs = [x.place(level) for level in curve["levels"]]
    bounds = [[y.place(v) for v in band[name]] for name in ("lower", "upper")]
    return {
        "x": x.percent_axis("", step=0.5),
        "y": y.percent_axis("", step=0.5),
        "band": area([x.place(level) for level in band["levels"]], *bounds),
        "curve": line([0, *xs, 100], [100, *(y.place(v) for v in curve["coverage"]), 0]),
        "dots": [],
    }

"""The result of a command, in words for a terminal."""

from typing import Any

import numpy as np

from hetcal._checks import printable
from hetcal.metrics import METRICS
from hetcal.metrics.wording import label, number
from hetcal.studies.statistics import COMPARED, FIGURES

SHOWN_METRICS = ("rmse", "mae", "crps", "nll", "ce")


def render_result(result: dict[str, Any]) -> str:
    """Describe the result of any command in lines of text; names from a file cannot move the cursor or break a line."""
    return "\n".join(map(printable, DESCRIPTIONS[result["command"]](result)))


def fitted(result: dict[str, Any]) -> list[str]:
    lines = [f"{result['model']}: {result['method']} for {result['target']}, trained on {result['rows']} rows"]
    if result["recalibrate"]:
        lines[0] += f", {result['recalibrate']} recalibration by {result['calibration_rows']} others"
    if result["recommendation"]:
        lines.append(f"Chosen by cross-validation: {result['recommendation']}")
    lines += [f"{name.capitalize()}: {value}" for name, value in result["choices"].items()]
    if result["test_rows"]:
        lines.append(f"Tested on {result['test_rows']} rows: {result['split']}")
    if "report" not in result:
        return [*lines, "Not evaluated: there are no test rows"]
    return [*lines, "", *judged(result)]


def judged(result: dict[str, Any]) -> list[str]:
    report = result["report"]
    verdict, figures = report["verdict"], report["metrics"]
    lines = [f"{verdict['label']}. {verdict['text']}", ""]
    if "advice" in report:
        lines += ["What to do next:", *advised(report["advice"]), ""]
    for name in SHOWN_METRICS:
        lines.append(f"  {METRICS[name].title:<25}{show_value(figures[name]):>10}")
    lines[-1] += f"   (a perfect model has {show_value(figures['ce_noise_floor'])} on average)"
    for section in ("subgroups", "explanation"):
        if section in report:
            lines += ["", report[section]["text"]]
    return lines + report_line(result)


def evaluated(result: dict[str, Any]) -> list[str]:
    lines = [f"Predictions: {result['form']}"] * bool(result["form"])
    lines += [f"Rows without a target, omitted: {result['omitted']}"] * bool(result["omitted"])
    lines += [interval["text"] for interval in result["intervals"]]
    lines += [result["mean"]["text"]] if result["mean"] else []
    return [*lines, *[""] * bool(lines), *judged(result)]


def advised(steps: list[dict[str, Any]]) -> list[str]:
    """Each step on a line, its command on the next."""
    lines = []
    for step in steps:
        lines.append(f"  - {step['text']}")
        lines += [f"    {step['command']}"] * (step["command"] is not None)
    return lines


def predicted(result: dict[str, Any]) -> list[str]:
    return [f"{result['rows']} rows predicted" + (f": {result['out']}" if result["out"] != "-" else "")]


def compared(result: dict[str, Any]) -> list[str]:
    rows = [["Method", *(FIGURES[name].heading for name in COMPARED)]]
    for method in result["methods"]:
        metrics = method["metrics"]
        if method["failed"]:
            rows.append([method["title"], f"failed: {method['failed']}"])
            continue
        rows.append([method["title"], *(show_figure(metrics[name]) for name in COMPARED)])
    floor = show_value(result["ce_noise_floor"])
    forward = ", each later than its training rows" if result["held_out_rows"] < result["rows"] else ""
    note = f"Mean ± standard error over {result['folds']} folds{forward}. "
    note += f"CE: calibration error; a perfect model has {floor}."
    if result["recalibration"]:
        count, method = result["recalibration"]["rows"], result["recalibration"]["method"]
        note += f" {count} training rows of each fold were not trained on, for {method} recalibration."
    return [*aligned(rows), "", note, "", result["recommendation"]["text"], *report_line(result)]


def exported(result: dict[str, Any]) -> list[str]:
    return [f"{result['onnx']}: features -> mean, std"]


def methods(result: dict[str, Any]) -> list[str]:
    rows = [["name", "title", "sigma from", "trained with"]]
    rows += [[row["name"], row["title"], row["estimator"], row["objective"]] for row in result["methods"]]
    peers = [["name", "only for compare", ""]]
    peers += [[row["name"], row["title"], "" if row["installed"] else "not installed"] for row in result["peers"]]
    return [*aligned(rows), "", *aligned(peers)]


def described(result: dict[str, Any]) -> list[str]:
    lines = [f"{result['file']}: {result['title']}"]
    lines += [f"  {name:<18}{value}" for name, value in result["facts"].items()]
    rows = [["column", "kind", "seen in training"]]
    rows += [[column["name"], column["kind"], seen(column)] for column in result["columns"]]
    lines += ["", *aligned(rows)]
    for title, figures in (("Settings", result["settings"]), ("Test metrics", result["metrics"])):
        if figures:
            lines += ["", title, *(f"  {name:<28}{show_value(value)}" for name, value in figures.items())]
    return lines


def seen(column: dict[str, Any]) -> str:
    """The range of numbers and dates; the labels of text."""
    if column["kind"] == "text":
        labels = [f"{label!r}" if "," in label else label for label in column["labels"]]
        more = [f"{len(labels) - MOST_LABELS} more"] * (len(labels) > MOST_LABELS)
        return ", ".join([*labels[:MOST_LABELS], *more, *["rare labels"] * column["has_rare"]])
    if column["range"] is None:
        return "only missing values"
    ends = [day(end) if column["kind"] == "dates" else show_value(end) for end in column["range"]]
    return f"{ends[0]} to {ends[1]}" + (", missing values" if column["has_missing"] else "")


MOST_LABELS = 8


def day(days: float) -> str:
    return str(np.datetime64(int(np.floor(days)), "D"))


def describe_choices(transform: str | None, is_cross: bool, atoms: int) -> dict[str, str]:
    """What a model has chosen itself: the transform of the target, the shape of the errors, atoms."""
    choices = {"target transform": transform or "none"}
    if is_cross:
        choices["shape of errors"] = "learned from held-out rows"
    if atoms:
        choices["atoms"] = f"{atoms} values of the target, on which intervals end"
    return choices


def report_line(result: dict[str, Any]) -> list[str]:
    return ["", f"Report: {result['report_file']}"] if result.get("report_file") else []


def show_figure(figure: dict[str, Any]) -> str:
    """A mean with its standard error."""
    return f"{number(figure['mean'])} ± {number(figure['standard_error'], 2)}"


def show_value(value: Any) -> str:
    """Format a number with four digits; anything else is unchanged.

    >>> show_value(3.14159), show_value(412), show_value(None), show_value("log")
    ('3.142', '412', '–', 'log')
    """
    if value is None:
        return number(None)
    return label(value, 4) if isinstance(value, float) else str(value)


def aligned(rows: list[list[str]]) -> list[str]:
    """Align columns; a row with fewer cells does not affect their width."""
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[j]) for row in full) for j in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


DESCRIPTIONS = {
    "fit": fitted,
    "predict": predicted,
    "evaluate": evaluated,
    "compare": compared,
    "info": described,
    "export": exported,
    "methods": methods,
}

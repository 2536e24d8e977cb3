"""From the numbers of the dict to the cells of a table: text with one format per column, for the templates."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hetcal.metrics.wording import NumberFormat, format_for

FigureCell = dict[str, Any] | None
# Shown as a percentage.
SHARES = ("coverage_90",)
NO_FIGURE: dict[str, Any] = {"mean": None, "error": None, "published": None, "mark": None}


def method_table(methods: Sequence[Mapping[str, Any]], columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Methods by metrics: heads, and a row of cells per method."""
    heads, forms = [], []
    for column in columns:
        form = column_form((method["metrics"].get(column["metric"]) for method in methods), column["metric"])
        unit = "%" if column["metric"] in SHARES else form.unit
        heads.append(f"{column['label']} ({unit})" if unit else column["label"])
        forms.append(form)
    rows = [
        {
            "title": method["title"],
            "recommended": method["recommended"],
            "failed": method["failed"],
            "cells": [
                cell_text(form, method["metrics"].get(column["metric"]))
                for form, column in zip(forms, columns, strict=True)
            ],
        }
        for method in methods
    ]
    return {"heads": heads, "rows": rows}


def overview_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Data sets by methods, or the transpose if there are more methods; each data set has its own format."""
    names: list[str] = []
    lines: list[list[FigureCell]] = []
    for row in table["rows"]:
        form = column_form(row["cells"], table["metric"])
        names.append(f"{row['name']} ({form.unit})" if form.unit else row["name"])
        floor: list[FigureCell] = [] if row["floor"] is None else [{**NO_FIGURE, "mean": form(row["floor"])}]
        lines.append(floor + [cell_text(form, cell) for cell in row["cells"]])
    titles = ["Noise floor"] * (len(lines[0]) - len(table["methods"])) + list(table["methods"])
    if len(titles) > len(names):
        corner, titles, names, lines = "Method", names, titles, [list(line) for line in zip(*lines, strict=True)]
    else:
        corner = "Data set"
    rows = [{"name": name, "cells": line} for name, line in zip(names, lines, strict=True)]
    return {"title": table["title"], "corner": corner, "heads": titles, "rows": rows}


def cell_text(form: NumberFormat, cell: FigureCell) -> FigureCell:
    """Mean, error and published figure as text; "not finite" for a mean that is not a finite number."""
    if cell is None:
        return None
    error, published = cell["standard_error"], cell.get("published")
    return {
        "mean": "not finite" if cell["mean"] is None else form(cell["mean"]),
        "error": None if error is None or cell["mean"] is None else form(error),
        "published": None if published is None else form(published),
        "mark": cell["mark"],
    }


def column_form(cells: Iterable[FigureCell], metric: str) -> NumberFormat:
    """One format for means with standard errors: two digits of the typical error, or three of the largest mean."""
    filled = [cell for cell in cells if cell is not None and cell["mean"] is not None]
    means = [cell["mean"] for cell in filled]
    if metric in SHARES:
        return NumberFormat(exponent=-2, decimals=1)
    errors = sorted(cell["standard_error"] for cell in filled if cell["standard_error"])
    if not errors:
        return format_for(means)
    typical = sorted(abs(mean) for mean in means)[len(means) // 2]
    return format_for(means, max(errors[len(errors) // 2] / 10, typical / 1e5))

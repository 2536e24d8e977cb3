"""The content of the report on several methods: from a comparison to a plain dict.

The dict has a block per data set: methods with mean and standard error of every metric, the best method and those as
good within noise, the noise floor of the calibration error, and the calibration curves with their noise band. A
comparison on one table has one block, a study of many data sets (`hetcal.report.bench`) has many.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hetcal import __version__
from hetcal.metrics import calibration_band
from hetcal.metrics.evidence import LEVEL
from hetcal.metrics.wording import count
from hetcal.report.text import LONGEST_VALUE, clean, commands, finite, listing, without_folders
from hetcal.studies.statistics import COMPARED, FIGURES

# By the status of the verdict on the held-out rows.
LABELS_OF_CHOICE = {
    "good": "Recommended",
    "caution": "Recommended, but look closer",
    "bad": "Recommended, but not reliable",
    "unknown": "Recommended, but too few rows to tell whether it is reliable",
}


def describe_comparison(
    comparison: Mapping[str, Any],
    *,
    title: str,
    data: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    reproduce: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the content of the report on a comparison, as plain JSON values.

    Args:
        comparison: The result of `hetcal.studies.compare.compare`.
        title: Heading of the page.
        data: What to list about the data in addition to rows, folds, groups and seed, label -> value.
        settings: What to list about the models, label -> value.
        reproduce: Commands that reproduce this report. Absolute paths lose their folders, here and in the lists.
    """
    chosen = comparison.get("recommendation")
    facts = {
        "Target": comparison["target"],
        "Rows": comparison["rows"],
        "Folds": comparison["folds"],
        "Groups kept together": comparison.get("groups"),
        "Seed": comparison["seed"],
        **(data or {}),
    }
    block = describe_block(
        name="All methods",
        caption=describe_folds(comparison),
        methods=[read_method(method) for method in comparison["methods"]],
        floor=comparison["ce_noise_floor"],
        band_rows=comparison["held_out_rows"],
        recommended=chosen["method"] if chosen else None,
    )
    content = {
        "kind": "comparison",
        "made_by": f"hetcal {__version__}",
        "title": clean(without_folders(title)),
        "eyebrow": f"Comparison of methods for {clean(comparison['target'])}",
        "recommendation": read_recommendation(chosen, block),
        "columns": columns_of([block]),
        "blocks": [block],
        "data": listing({label: value for label, value in facts.items() if value is not None}),
        "settings": listing(settings),
        "reproduce": commands(reproduce),
    }
    return {name: section for name, section in content.items() if name == "columns" or section not in (None, [])}


def describe_folds(comparison: Mapping[str, Any]) -> str:
    rows, held_out, folds = comparison["rows"], comparison["held_out_rows"], count(comparison["folds"], "fold")
    if held_out == rows:
        return f"{count(rows, 'row')}, each held out once in {folds}"
    return f"{held_out:,} of {count(rows, 'row')} held out in {folds}, each later than its training rows"


def read_recommendation(chosen: Mapping[str, Any] | None, block: dict[str, Any]) -> dict[str, Any] | None:
    if chosen is None:
        return None
    text = clean(chosen["text"], LONGEST_VALUE)
    if chosen["method"] is None:
        return {"method": None, "title": None, "status": "caution", "label": "No recommendation", "text": text}
    name = clean(chosen["method"])
    method: dict[str, Any] = next(
        (one for one in block["methods"] if one["name"] == name), {"title": name, "metrics": {}}
    )
    status = (method.get("verdict") or {}).get("status", "caution")
    label = f"{LABELS_OF_CHOICE[status]}: {method['title']}"
    return {"method": name, "title": method["title"], "status": status, "label": label, "text": text}


def read_method(method: Mapping[str, Any]) -> dict[str, Any]:
    """What the report shows of a method of a comparison."""
    failed = method.get("failed")
    curve = None if failed else method.get("curve")
    figures = {} if failed else method["metrics"]
    return {
        "name": clean(method["name"]),
        "title": clean(method["title"]),
        "failed": clean(without_folders(failed), LONGEST_VALUE) if failed else None,
        "verdict": None if failed else method.get("verdict"),
        "metrics": {
            name: {key: finite_or_none(figures[name].get(key)) for key in ("mean", "standard_error")}
            for name in COMPARED
            if figures.get(name)
        },
        "curve": curve and {key: [float(value) for value in curve[key]] for key in ("levels", "coverage")},
    }


def finite_or_none(value: Any) -> float | None:
    return None if value is None else finite(value)


def describe_block(
    *, name: str, caption: str, methods: list[dict[str, Any]], floor: float, band_rows: int, recommended: str | None
) -> dict[str, Any]:
    """Methods on one data set: their figures with marks, and the noise band of their curves."""
    for method in methods:
        method["recommended"] = recommended is not None and method["name"] == recommended
    for metric in COMPARED:
        mark_best([method["metrics"][metric] for method in methods if metric in method["metrics"]], metric, floor)
    levels = next((method["curve"]["levels"] for method in methods if method["curve"]), None)
    band = None
    if levels:
        lower, upper = calibration_band(band_rows, levels)
        band = {"rows": band_rows, "levels": levels, "lower": lower.tolist(), "upper": upper.tolist()}
    return {"name": clean(name), "caption": caption, "ce_noise_floor": float(floor), "methods": methods, "band": band}


def mark_best(figures: list[dict[str, Any]], metric: str, floor: float) -> None:
    """Mark the best mean, and as ties those within one standard error of it or below the noise floor."""
    better = FIGURES[metric].better
    for figure in figures:
        figure["mark"] = None
    ranked = [figure for figure in figures if figure["mean"] is not None]
    if not better or len(ranked) < 2:
        return

    def loss(figure: dict[str, Any]) -> float:
        return abs(figure["mean"] - LEVEL) if better == "near" else figure["mean"]

    best = min(ranked, key=loss)
    limit = loss(best) + (best["standard_error"] or 0.0)
    if metric == "ce":
        limit = max(limit, floor)
    for figure in ranked:
        figure["mark"] = "best" if figure is best else "tie" if loss(figure) <= limit else None


def columns_of(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The metrics that at least one method has."""
    found = {metric for block in blocks for method in block["methods"] for metric in method["metrics"]}
    return [
        {"metric": name, "label": text.heading, "better": text.better or None, "text": text.meaning}
        for name, text in ((name, FIGURES[name]) for name in COMPARED)
        if name in found
    ]

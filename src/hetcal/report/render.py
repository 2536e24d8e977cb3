"""The dict as one HTML page: no script, no request, and every name from outside shown as text.

Pictures are inline SVG, drawn by the templates at the positions that `hetcal.report.charts` computes. A
Content-Security-Policy forbids the browser to load or run anything; the only style sheet is allowed by its hash, so
there is no other style and no style attribute.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetcal._checks import check_choice
from hetcal.metrics import wording
from hetcal.report import charts, explanation, tables
from hetcal.studies.statistics import FIGURES

try:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
except ImportError as error:
    raise ImportError("hetcal.report needs jinja2; install it with: pip install 'hetcal[report]'") from error

TEMPLATES = Path(__file__).parent / "templates"
PAGES = ("model", "comparison")
WHISKERS = ("crps", "ce")


def render(content: dict[str, Any]) -> str:
    """Render a dict from `describe`, `describe_comparison` or `describe_bench` as a page."""
    draw = {"model": draw_model, "comparison": draw_comparison}[check_choice("kind", content["kind"], PAGES)]
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return (
        environment()
        .get_template(f"{content['kind']}.html.j2")
        .render(
            content=content,
            charts=draw(content),
            css=Markup(css),  # our own file, unescaped, because the hash covers exactly this text
            css_hash=base64.b64encode(hashlib.sha256(css.encode()).digest()).decode(),
        )
    )


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        count=wording.count,
        number=wording.number,
        nominal=lambda level: keep_together(wording.nominal(level)),
        percent=lambda share, decimals=1: keep_together(wording.percent(share, decimals)),
        keep_together=keep_together,
        probability=wording.probability,
        setting=setting,
    )
    return made


def keep_together(text: str) -> str:
    """Prevent a line break between a number and its percent sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def setting(value: Any) -> str:
    """A listed value as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return wording.label(value, 6) if isinstance(value, float) else str(value)


def draw_model(content: Mapping[str, Any]) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "calibration": charts.calibration_chart(content["calibration"]),
        "sharpness": charts.histogram_chart(content["sharpness"]),
        "intervals": charts.interval_chart(content["intervals"]),
        "residuals": charts.residual_chart(content["residuals"]),
    }
    if "subgroups" in content:
        drawn["subgroups"] = charts.subgroup_chart(content["subgroups"])
    if "history" in content:
        drawn["history"] = charts.history_charts(content["history"])
    if "explanation" in content:
        drawn["importance"] = explanation.importance_chart(content["explanation"])
        drawn["courses"] = explanation.course_charts(content["explanation"])
    return drawn


def draw_comparison(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "blocks": [draw_block(block, content["columns"]) for block in content["blocks"]],
        "overview": [tables.overview_table(table) for table in content.get("overview", ())],
    }


def draw_block(block: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    whiskers = []
    for metric in WHISKERS:
        entries = [
            {"title": method["title"], **method["metrics"][metric]}
            for method in block["methods"]
            if method["metrics"].get(metric, {}).get("mean") is not None
        ]
        if entries:
            floor = block["ce_noise_floor"] if metric == "ce" else None
            whiskers.append({"metric": metric, "name": FIGURES[metric].title, **charts.whisker_chart(entries, floor)})
    curves = [
        {"title": method["title"], **charts.curve_chart(method["curve"], block["band"])}
        for method in block["methods"]
        if method["curve"]
    ]
    return {"table": tables.method_table(block["methods"], columns), "whiskers": whiskers, "curves": curves}

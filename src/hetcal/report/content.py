"""The content of the report on one model: from arrays and a table to a plain dict.

The dict is the report; the page only shows it. It holds numbers, points and sentences, in the order of the page, and
no markup: `verdict`, `advice`, `figures`, `calibration`, `sharpness`, `intervals`, `residuals`, `subgroups`,
`explanation`, `inspection`, `history`, `data`, `settings`, `reproduce`. A section without data is omitted. All figures
refer to all rows; only points are a sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetcal import __version__
from hetcal._checks import Floats, must
from hetcal.distributions import RandomizedPIT
from hetcal.metrics import CURVE_LEVELS, calibration_band, ce_quantile, equal_count_bins
from hetcal.metrics.evaluation import compute_metrics
from hetcal.metrics.evidence import Evidence
from hetcal.metrics.grouping import GroupLabels
from hetcal.metrics.inputs import read_prediction
from hetcal.metrics.subgroups import FALSE_POSITIVE_RATE, CoverageTests, check_coverage
from hetcal.metrics.verdict import FEWEST_ROWS, judge_evidence
from hetcal.metrics.wording import count, nominal, number
from hetcal.prediction import Prediction
from hetcal.report.advice import Situation, advise, is_transformed
from hetcal.report.charts import round_step
from hetcal.report.explanation import describe_explanation
from hetcal.report.subgroups import date_columns, describe_subgroups, find_subgroups
from hetcal.report.text import LONGEST_VALUE, clean, commands, finite, listing, without_folders
from hetcal.tabular.explaining import Explanation

if TYPE_CHECKING:
    import pandas as pd

    from hetcal.tabular.columns import Table

SAMPLE_SEED = 0  # of the rows that are shown
MOST_INTERVALS, MOST_POINTS = 60, 300
MOST_BARS, MOST_BINS, ROWS_PER_BIN = 24, 10, 20
CONFIDENCE = 0.95
# Limit of the ends of intervals, so that sums of them stay finite.
LARGEST_END = 2e307
REASONS_TO_STOP = {
    "patience": "training stopped early, when the validation loss no longer improved",
    "max_epochs": "training ended at the maximum number of epochs",
    "max_steps": "training ended at the maximum number of steps",
    "max_seconds": "training ended at its time limit",
    "interrupted": "training was interrupted",
}


def describe(
    y: ArrayLike,
    prediction: Any,
    *,
    target: str,
    title: str,
    features: "pd.DataFrame | Table | None" = None,
    groups: GroupLabels | None = None,
    group_name: str | None = None,
    explanation: Explanation | None = None,
    history: Mapping[str, Any] | None = None,
    inspection: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    reproduce: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the content of the report on a model, for rows that it was not trained on, as plain JSON values.

    Args:
        y: (n,) true values.
        prediction: The prediction of these rows, in the units of y, such as `model.predict_dist(X)`.
        target: Name of y.
        title: Heading of the page.
        features: (n, d) columns by which to look for subgroups: numbers, dates, booleans, labels, missing values.
        groups: (n,) labels of rows that belong together, such as the patient. They are subgroups as well, and every
            test takes into account that rows of a group share errors.
        group_name: What the groups are.
        explanation: What the predictions depend on, from `hetcal.explain`.
        history: `train`, `validation` (each with a list `objective`), `criterion`, `best_epoch` and `stopped` of the
            training.
        inspection: What `hetcal.inspect(X, y).as_dict()` has found before training.
        data: What to list about the data, label -> value.
        settings: What to list about the model, label -> value.
        reproduce: Commands that reproduce this report. Absolute paths lose their folders, here and in the lists.
    """
    truth, prediction = read_prediction(y, prediction)
    for name, rows in (("features", features), ("groups", groups)):
        if rows is not None and len(rows) != len(truth):
            rule = f"have as many rows as y ({len(truth)})"
            raise must(name, rule, f"{len(rows)} rows", "give one row per row of y")
    judged = JudgedRows.of(truth, prediction, groups)
    subgroups = list(find_subgroups(judged.center, judged.width, features, groups, group_name))
    tests = check_coverage(subgroups, judged.inside, judged.level, judged.evidence.grouping)
    content = {
        "kind": "model",
        "made_by": f"hetcal {__version__}",
        "title": clean(without_folders(title)),
        "target": clean(target),
        "rows": len(truth),
        "level": judged.level,
        **describe_judgment(judged, tests, clean(target), date_columns(features), reproduce),
        "subgroups": describe_subgroups(tests, judged.width, judged.name_groups(group_name)),
        "explanation": describe_explanation(explanation),
        "inspection": describe_inspection(inspection),
        "history": describe_training(history),
        "data": listing(data),
        "settings": listing(settings),
        "reproduce": commands(reproduce),
    }
    return {name: section for name, section in content.items() if section not in (None, [])}


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """True values with the intervals that are judged, kept within the range in which sums of them are finite."""

    truth: Floats
    prediction: Any
    center: Floats
    lower: Floats
    upper: Floats
    width: Floats
    evidence: Evidence

    @property
    def inside(self) -> NDArray[np.bool_]:
        return self.evidence.inside

    @property
    def level(self) -> float:
        return self.evidence.level

    def name_groups(self, name: str | None) -> str | None:
        return None if self.evidence.grouping is None else clean(name or "group")

    @classmethod
    def of(cls, truth: Floats, prediction: Any, groups: GroupLabels | None = None) -> "JudgedRows":
        evidence = Evidence.of(truth, prediction, groups)
        center, lower, upper = np.clip([evidence.median, evidence.lower, evidence.upper], -LARGEST_END, LARGEST_END)
        width = widths(prediction, lower, upper, evidence.level)
        return cls(truth, prediction, center, lower, upper, width, evidence)


def describe_judgment(
    judged: JudgedRows, subgroups: CoverageTests, target: str, dates: Sequence[str], reproduce: Sequence[str]
) -> dict[str, Any]:
    """The sections that depend on the true values and their predictions."""
    truth, prediction = judged.truth, judged.prediction
    with np.errstate(over="ignore"):
        values = compute_metrics(truth, prediction)
        verdict = judge_evidence(judged.evidence, subgroups)
    scores = {"n": len(truth), **{name: finite(value) for name, value in values.items()}}
    typical = float(np.median(judged.width))
    worst = subgroups.subgroups[subgroups.order[0]] if subgroups.is_weak.any() else None
    situation = Situation(
        verdict,
        truth,
        is_transformed(prediction),
        dates,
        None if worst is None else str(worst),
        next(iter(commands(reproduce)), None),
        target,
    )
    text = f"{capitalized(verdict.text)}. The typical width of an interval is {number(typical)}."
    return {
        "verdict": {**verdict.as_dict(), "text": text, "width": typical},
        "advice": advise(situation),
        "figures": describe_figures(judged, scores, target),
        "metrics": scores,
        "calibration": describe_calibration(judged.evidence),
        "sharpness": describe_sharpness(judged.width, judged.level),
        "intervals": describe_intervals(judged),
        "residuals": describe_residuals(truth, prediction),
    }


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def describe_figures(judged: JudgedRows, scores: dict[str, Any], target: str) -> list[dict[str, Any]]:
    """A handful of figures: name, label, value and what it means."""
    n, level = len(judged.truth), judged.level
    low, high = np.quantile(judged.truth, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf").tolist()
    spread = finite(high - low)
    limit = ce_quantile(n, 1 - FALSE_POSITIVE_RATE)
    about_width = f"Half of the {nominal(level)} intervals are narrower."
    if n >= FEWEST_ROWS and spread:
        middle = f"the middle {nominal(level)} of {target}"
        about_width += f" Without a model, an interval of width {number(spread)} would be needed, {middle}."
    about_ce = "Distance of observed from nominal coverage, summed over six levels. On "
    about_ce += f"{count(n, 'row')} a perfect model has {number(scores['ce_noise_floor'])} on average, "
    about_ce += f"and rarely more than {number(limit)}."
    texts = {
        "width": ("Typical width", float(np.median(judged.width)), about_width),
        "rmse": (
            "RMSE",
            scores["rmse"],
            f"Typical distance of the predicted mean from the true value, in the units of {target}.",
        ),
        "crps": (
            "CRPS",
            scores["crps"],
            "Distance of the true value from the whole predictive distribution, in the same units. It rewards "
            "calibration and sharpness together. Smaller is better; compare on the same rows.",
        ),
        "ce": ("Calibration error", scores["ce"], about_ce),
    }
    figures = [
        {"name": name, "label": label, "value": value, "text": text} for name, (label, value, text) in texts.items()
    ]
    figures[-1] |= {"noise_floor": scores["ce_noise_floor"], "noise_limit": limit}
    return figures


def widths(prediction: Any, lower: Floats, upper: Floats, level: float) -> Floats:
    """Widths of the intervals; from std if possible, because the difference of two large ends is mostly rounding."""
    if isinstance(prediction, Prediction):
        low, high = prediction.family.quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
        return np.minimum((high - low) * prediction.std, LARGEST_END)
    return np.maximum(upper - lower, 0.0)


def describe_calibration(evidence: Evidence) -> dict[str, Any]:
    coverage, rows = evidence.coverage, evidence.rows_of_curve
    lower, upper = calibration_band(rows, CURVE_LEVELS, CONFIDENCE)
    outside = ((coverage < lower - 1e-9) | (coverage > upper + 1e-9)) & evidence.is_given
    if not evidence.is_given.all():
        count_given = count(int(evidence.is_given.sum()), "level")
        text = (
            f"The predictions have intervals of {count_given}; the rest of the curve is interpolated, and not judged."
        )
    elif not outside.any():
        text = "The curve stays inside the noise band at every level: observed and nominal coverage agree within noise."
    else:
        below = int((outside & (coverage < CURVE_LEVELS)).sum())
        above = int(outside.sum()) - below
        where = "below it: the intervals are too narrow" if below else "above it: the intervals are wider than needed"
        if below and above:
            where = f"below it at {below} (too narrow), above it at {above} (wider than needed)"
        text = f"The curve leaves the noise band at {below + above} of {len(outside)} levels, {where}."
    return {
        "levels": CURVE_LEVELS.tolist(),
        "coverage": coverage.tolist(),
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "confidence": CONFIDENCE,
        "effective_rows": rows,
        "inside_band": not outside.any(),
        "text": text,
    }


def describe_sharpness(width: Floats, level: float) -> dict[str, Any]:
    """A histogram over round ranges; very wide intervals are counted, not drawn."""
    median = float(np.median(width))
    p05, p90, p95 = np.quantile(width, [0.05, 0.9, 0.95], method="inverted_cdf").tolist()
    reach = median + 3 * (p90 - median) if p90 > median else np.inf
    low, high = float(width.min()), float(width[width <= reach].max())
    edges = histogram_edges(low, high, int(np.clip(2 * np.sqrt(len(width)), 4, MOST_BARS)))
    counts, _ = np.histogram(width, edges)
    above = int((width > edges[-1]).sum())
    if len(counts) == 1:
        text = f"All {nominal(level)} intervals are {number(median)} wide: "
        text += "the model is equally certain about every row."
    else:
        text = f"Half of the {nominal(level)} intervals are narrower than {number(median)}, "
        text += f"and nine in ten are between {number(p05)} and {number(p95)} wide."
    return {
        "level": level,
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "above": above,
        "p05": p05,
        "median": median,
        "p95": p95,
        "text": text,
    }


def histogram_edges(low: float, high: float, most: int) -> Floats:
    """About `most` ranges of equal, round width; one range if all values are equal up to rounding."""
    if high - low <= 1e-9 * high:
        return np.array([low, high]) if high > low else np.array([0.95, 1.05]) * low
    step = round_step((high - low) / most)
    first, last = np.floor(low / step * (1 + 1e-12)), np.ceil(high / step * (1 - 1e-12))
    return np.asarray(step * np.arange(first, max(last, first + 1) + 1))


def describe_intervals(judged: JudgedRows) -> dict[str, Any]:
    """Some rows, drawn at random, in the order of their prediction; their row numbers are not included."""
    truth, center = judged.truth, judged.center
    shown = sample_rows(len(truth), MOST_INTERVALS)
    shown = shown[np.argsort(center[shown], kind="stable")]
    rows = [
        {
            "y": float(truth[i]),
            "center": float(center[i]),
            "lower": float(judged.lower[i]),
            "upper": float(judged.upper[i]),
            "inside": bool(judged.inside[i] or judged.lower[i] <= truth[i] <= judged.upper[i]),
        }
        for i in shown
    ]
    outside = sum(not row["inside"] for row in rows)
    chosen = "all test rows" if len(rows) == len(truth) else f"of {len(truth):,} test rows, drawn at random"
    text = f"{count(len(rows), 'row')} ({chosen}), in the order of the prediction; "
    expected = (1 - judged.level) * len(rows)
    decimals = 0 if len(rows) >= 10 else 1  # an expected number below one row is not shown as 0
    whose = "its" if len(rows) == 1 else "their"
    most = "at most " if isinstance(judged.prediction, RandomizedPIT) else ""  # ends on atoms cover more than the level
    text += f"{outside} outside {whose} interval, where {most}about {expected:.{decimals}f} are expected."
    return {"level": judged.level, "of": len(truth), "outside": outside, "rows": rows, "text": text}


def describe_residuals(truth: Floats, prediction: Any) -> dict[str, Any]:
    """Whether the error is as large as predicted: RMSE in bins of equal count of the std, with 95 % noise bars."""
    std = np.minimum(prediction.std, LARGEST_END)
    with np.errstate(over="ignore"):
        residual = np.minimum(np.abs(truth - prediction.mean), LARGEST_END)
    scale = float(residual.max()) or 1.0  # squares then stay in the range of floats
    bins = []
    for b in equal_count_bins(std, int(np.clip(len(truth) // ROWS_PER_BIN, 1, MOST_BINS))):
        squares = (residual[b] / scale) ** 2
        noise = 1.96 * float(squares.std(ddof=1)) / np.sqrt(len(b)) if len(b) > 1 else 0.0
        mean = float(squares.mean())
        bins.append(
            {
                "rows": len(b),
                "std": float(np.sqrt(np.mean((std[b] / std[b].max()) ** 2)) * std[b].max()),
                "rmse": float(np.sqrt(mean)) * scale,
                "lower": float(np.sqrt(max(mean - noise, 0.0))) * scale,
                "upper": float(np.sqrt(mean + noise)) * scale,
            }
        )
    agree = sum(one["lower"] <= one["std"] <= one["upper"] for one in bins)
    shown = sample_rows(len(truth), MOST_POINTS)
    points = [[float(std[i]), float(residual[i])] for i in shown[np.argsort(std[shown], kind="stable")]]
    if len(bins) == 1:
        stated, observed = number(bins[0]["std"]), number(bins[0]["rmse"])
        text = f"The RMSE is {observed}, and the predictive standard deviation is {stated}."
    else:
        text = f"In {agree} of {len(bins)} bins of rows the error is as large as predicted, within noise."
    return {"bins": bins, "points": points, "text": text}


def describe_inspection(inspection: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What was seen before training; names of columns are made safe, and columns are a table."""
    if inspection is None:
        return None
    columns = [
        {**column, "name": clean(column["name"]), "use": clean(column["use"])} for column in inspection["columns"]
    ]
    return {
        "rows": inspection["rows"],
        "target": clean(inspection["target"]["text"], LONGEST_VALUE),
        "columns": columns,
        "findings": [
            {
                **finding,
                "text": clean(finding["text"], LONGEST_VALUE),
                "flag": finding["flag"] and clean(finding["flag"]),
            }
            for finding in inspection["findings"]
        ],
    }


def describe_training(history: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Objective and criterion by epoch; None where there is nothing to draw."""
    parts = {name: (history or {}).get(name, {}).get("objective", ()) for name in ("train", "validation")}
    parts["criterion"] = (history or {}).get("criterion", ())
    curves = {name: [finite(value) for value in values] for name, values in parts.items()}
    if history is None or all(value is None for curve in curves.values() for value in curve):
        return None
    epochs = max(len(curve) for curve in curves.values())
    best = int(history.get("best_epoch", epochs - 1))
    stopped = str(history.get("stopped", ""))
    text = f"The weights of epoch {best + 1} of {epochs} were kept"
    text += f"; {REASONS_TO_STOP[stopped]}." if stopped in REASONS_TO_STOP else "."
    return {**curves, "epochs": epochs, "best_epoch": best, "stopped": clean(stopped), "text": text}


def sample_rows(n: int, most: int) -> NDArray[np.intp]:
    """Draw at most `most` row numbers; they are always the same."""
    if n <= most:
        return np.arange(n)
    return np.random.default_rng(SAMPLE_SEED).choice(n, most, replace=False)

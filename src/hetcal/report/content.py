"""What the report of one model says: arrays and a frame in, a plain dict out.

The dict is the report; the page only shows it. It holds numbers, points and sentences, in the order of the page, and
no markup: `verdict`, `figures`, `calibration`, `sharpness`, `intervals`, `residuals`, `places`, `history`, `data`,
`settings`, `reproduce`. A section without data is left out. All figures are of all rows; only points are a sample.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetcal import __version__
from hetcal._checks import must
from hetcal.metrics import calibration_curve, equal_count_bins, evaluate
from hetcal.metrics.inputs import read_prediction
from hetcal.metrics.verdict import LEVEL, describe_figures, describe_verdict, share_above
from hetcal.prediction import Prediction
from hetcal.report.charts import round_step
from hetcal.report.places import describe_places
from hetcal.report.wording import clean, commands, count, finite, listing, number, percent, without_folders

if TYPE_CHECKING:
    import pandas as pd

from hetcal._checks import Floats

SEED = 0  # of the rows that are shown
MOST_INTERVALS, MOST_POINTS = 60, 300
MOST_BARS, MOST_BINS, ROWS_PER_BIN = 24, 10, 20
CONFIDENCE = 0.95
# Where interval ends level off, so that sums of them stay finite.
LARGEST = 2e307
STOPPED = {
    "patience": "training stopped when the validation rows no longer gained",
    "max_epochs": "training ended after the number of epochs that was set",
    "max_steps": "training ended after the number of steps that was set",
    "interrupted": "training was interrupted",
}


def describe(
    y: ArrayLike,
    prediction: Any,
    *,
    target: str,
    title: str,
    features: "pd.DataFrame | None" = None,
    groups: Sequence[Any] | None = None,
    group_name: str | None = None,
    history: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    reproduce: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything the report of a model says about rows that it was not trained on, as plain JSON values.

    Args:
        y: (n,) the truth.
        prediction: Of these rows, in the units of y: whatever the metrics take, such as `model.predict_dist(X)`.
        target: Name of y.
        title: Heading of the page.
        features: (n, d) columns by which to look for weak places; numbers, dates, booleans, labels, missing values.
        groups: (n,) labels, such as the patient, by which to look as well.
        group_name: What the groups are.
        history: `train`, `validation` (each with a list `objective`), `best_epoch` and `stopped` of the training.
        data: What to list about the data, label -> value.
        settings: What to list about the model, label -> value.
        reproduce: Commands that make this report again. Absolute paths lose their folders, here and in the lists.
    """
    truth, prediction = read_prediction(y, prediction)
    rows = len(truth)
    for name, table in (("features", features), ("groups", groups)):
        if table is not None and len(table) != rows:
            raise must(name, f"have as many rows as y ({rows})", f"{len(table)} rows", "give one row per row of y")
    with np.errstate(over="ignore"):
        z = np.asarray(prediction.z(truth))
        lower, upper = np.clip(prediction.interval(LEVEL).T, -LARGEST, LARGEST)
        width = widths(prediction, lower, upper)
        center = np.clip(prediction.quantile(0.5), -LARGEST, LARGEST)
    inside = np.abs(z) <= prediction.family.quantile((1 + LEVEL) / 2)
    scores = {name: value if name == "n" else finite(value) for name, value in scores_of(truth, prediction).items()}
    calibration = describe_calibration(truth, prediction)
    places = describe_places(inside, width, LEVEL, center, features, groups, group_name)
    content = {
        "kind": "model",
        "made_by": f"hetcal {__version__}",
        "title": clean(without_folders(title)),
        "target": clean(target),
        "rows": rows,
        "level": LEVEL,
        "verdict": describe_verdict(z, share_above(truth, center), prediction, width, calibration, places),
        "figures": describe_figures(truth, width, scores, clean(target)),
        "metrics": scores,
        "calibration": calibration,
        "sharpness": describe_sharpness(width),
        "intervals": describe_intervals(truth, center, lower, upper, inside),
        "residuals": describe_residuals(truth, prediction),
        "places": places,
        "history": describe_history(history),
        "data": listing(data),
        "settings": listing(settings),
        "reproduce": commands(reproduce),
    }
    return {name: section for name, section in content.items() if section not in (None, [])}


def scores_of(truth: Floats, prediction: Any) -> dict[str, Any]:
    with np.errstate(over="ignore"):
        scores = evaluate(truth, prediction)
    del scores["verdict"]  # the report has its own words
    return scores


def widths(prediction: Any, lower: Floats, upper: Floats) -> Floats:
    """Widths of the intervals; from std where there is one, as the difference of two large ends is mostly rounding."""
    if isinstance(prediction, Prediction):
        return np.minimum(2 * prediction.family.quantile((1 + LEVEL) / 2) * prediction.std, LARGEST)
    return np.maximum(upper - lower, 0.0)


def describe_calibration(truth: Floats, prediction: Any) -> dict[str, Any]:
    curve = calibration_curve(truth, prediction, confidence=CONFIDENCE)
    outside = (curve.coverage < curve.lower - 1e-9) | (curve.coverage > curve.upper + 1e-9)
    if not outside.any():
        text = (
            "The curve stays inside the noise band at every level: promised and observed coverage agree within noise."
        )
    else:
        below = int((outside & (curve.coverage < curve.levels)).sum())
        above = int(outside.sum()) - below
        where = "below it: the intervals are too narrow" if below else "above it: the intervals are wider than needed"
        if below and above:
            where = f"below it at {below} (too narrow), above it at {above} (wider than needed)"
        text = f"The curve leaves the noise band at {below + above} of {len(outside)} levels, {where}."
    return {
        "levels": curve.levels.tolist(),
        "coverage": curve.coverage.tolist(),
        "lower": curve.lower.tolist(),
        "upper": curve.upper.tolist(),
        "confidence": CONFIDENCE,
        "inside_band": not outside.any(),
        "text": text,
    }


def describe_sharpness(width: Floats) -> dict[str, Any]:
    """A histogram over round ranges; what lies far out to the right is counted, not drawn."""
    median = float(np.median(width))
    p05, p90, p95 = np.quantile(width, [0.05, 0.9, 0.95], method="inverted_cdf").tolist()
    reach = median + 3 * (p90 - median) if p90 > median else np.inf
    low, high = float(width.min()), float(width[width <= reach].max())
    edges = histogram_edges(low, high, int(np.clip(2 * np.sqrt(len(width)), 4, MOST_BARS)))
    counts, _ = np.histogram(width, edges)
    above = int((width > edges[-1]).sum())
    if len(counts) == 1:
        text = f"All {percent(LEVEL, 0)} intervals are {number(median)} wide: "
        text += "the model is as sure of one row as of any other."
    else:
        text = f"Half of the {percent(LEVEL, 0)} intervals are narrower than {number(median)}, "
        text += f"nine in ten are between {number(p05)} and {number(p95)} wide."
    return {
        "level": LEVEL,
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "above": above,
        "p05": p05,
        "median": median,
        "p95": p95,
        "text": text,
    }


def histogram_edges(low: float, high: float, most: int) -> Floats:
    """Ranges of equal, round width, about `most`; one range if all values are alike but for rounding."""
    if high - low <= 1e-9 * high:
        return np.array([low, high]) if high > low else np.array([0.95, 1.05]) * low
    step = round_step((high - low) / most)
    first, last = np.floor(low / step * (1 + 1e-12)), np.ceil(high / step * (1 - 1e-12))
    return np.asarray(step * np.arange(first, max(last, first + 1) + 1))


def describe_intervals(
    truth: Floats, center: Floats, lower: Floats, upper: Floats, inside: NDArray[np.bool_]
) -> dict[str, Any]:
    """Some rows, chosen by lot, in the order of their prediction; without their number in the table."""
    shown = sample(len(truth), MOST_INTERVALS)
    shown = shown[np.argsort(center[shown], kind="stable")]
    rows = [
        {
            "y": float(truth[i]),
            "center": float(center[i]),
            "lower": float(lower[i]),
            "upper": float(upper[i]),
            "inside": bool(inside[i]),
        }
        for i in shown
    ]
    outside = sum(not row["inside"] for row in rows)
    chosen = "all test rows" if len(rows) == len(truth) else f"of {len(truth):,} test rows, drawn by lot"
    text = f"{count(len(rows), 'row')} ({chosen}), in the order of the prediction; "
    expected = (1 - LEVEL) * len(rows)
    decimals = 0 if len(rows) >= 10 else 1  # less than one row is not none
    whose = "its" if len(rows) == 1 else "their"
    text += f"{outside} outside of {whose} interval, about {expected:.{decimals}f} to be expected."
    return {"level": LEVEL, "of": len(truth), "outside": outside, "rows": rows, "text": text}


def describe_residuals(truth: Floats, prediction: Any) -> dict[str, Any]:
    """Is the error as large as the standard deviation says? RMSE in bins of equal count, with 95 % noise bars."""
    std = np.minimum(prediction.std, LARGEST)
    with np.errstate(over="ignore"):
        residual = np.minimum(np.abs(truth - prediction.mean), LARGEST)
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
    shown = sample(len(truth), MOST_POINTS)
    points = [[float(std[i]), float(residual[i])] for i in shown[np.argsort(std[shown], kind="stable")]]
    if len(bins) == 1:
        stated, observed = number(bins[0]["std"]), number(bins[0]["rmse"])
        text = f"The RMSE is {observed} where the model states a standard deviation of {stated}."
    else:
        text = f"In {agree} of {len(bins)} groups of rows the error is as large as the model says, within noise."
    return {"bins": bins, "points": points, "text": text}


def describe_history(history: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The objective by epoch; None where there is nothing to draw."""
    parts = {name: (history or {}).get(name, {}).get("objective", ()) for name in ("train", "validation")}
    curves = {name: [finite(value) for value in values] for name, values in parts.items()}
    if history is None or all(value is None for curve in curves.values() for value in curve):
        return None
    epochs = max(len(curve) for curve in curves.values())
    best = int(history.get("best_epoch", epochs - 1))
    stopped = str(history.get("stopped", ""))
    text = f"The weights of epoch {best + 1} of {epochs} were kept"
    text += f"; {STOPPED[stopped]}." if stopped in STOPPED else "."
    return {**curves, "epochs": epochs, "best_epoch": best, "stopped": clean(stopped), "text": text}


def sample(n: int, most: int) -> NDArray[np.intp]:
    """Row numbers, at most so many; always the same."""
    if n <= most:
        return np.arange(n)
    return np.random.default_rng(SEED).choice(n, most, replace=False)

"""The verdict in one sentence, with its mark, and the few figures beside it, each in plain words.

Four tests decide: the number of rows inside their 90 % interval, exactly (binomial); the whole calibration curve
against its noise band; the number of truths above the predicted median (binomial), as the first two look at the size of
the errors alone, not at their sign; and all places together (`hetcal.report.places`). Each is wrong about a calibrated
model in at most 5 % of samples; together they deny it the green mark in 13 to 14 % (of
1,000 samples each of 100 and of 400 rows), and less often where many rows make all chance gaps small.
"""

from typing import Any

import numpy as np
from scipy.stats import binom

from hetcal._checks import Floats
from hetcal.metrics import ce_quantile
from hetcal.prediction import Prediction
from hetcal.report.places import ROUNDING, SMALL_GAP
from hetcal.report.wording import count, finite, number, percent

LEVEL = 0.9
FALSE_ALARMS = 0.05
# With fewer rows even 100 % coverage says little.
FEWEST_ROWS = 30
# Anywhere on the curve, a gap up to the first troubles nobody. Coverage too small by more than the second is worse than
# a reason to look closer; in some place alone it is such a reason.
SMALL_CURVE_GAP, LARGE_GAP = 0.02, 0.05
# Truths on one side of the prediction, beyond half of the rows: more than this is worse than a reason to look closer,
# if chance shows it this seldom only; 100 rows are 60 to 40 too often for a red mark.
LARGE_BIAS, SELDOM = 0.1, 0.001
MOST_TIMES = 1000.0
LABELS = {"good": "Reliable", "caution": "Look closer", "bad": "Not reliable"}


def describe_verdict(
    z: Floats, above: float, prediction: Any, width: Floats, calibration: dict[str, Any], places: dict[str, Any] | None
) -> dict[str, Any]:
    """Status ("good", "caution", "bad"), the sentence, and the numbers in it; `above` is that of `share_above`."""
    n = len(z)
    hits = int((np.abs(z) <= prediction.family.quantile((1 + LEVEL) / 2)).sum())
    observed = hits / n
    low, high = noise_bounds(n, LEVEL)
    is_biased = beyond(above, *noise_bounds(n, 0.5)) and abs(above - 0.5) > SMALL_GAP
    finding = find(n, observed, low, high, is_biased, calibration)
    factor = width_factor(z, prediction, width) if finding in ("narrow", "wide") and n >= FEWEST_ROWS else None
    weak = (
        [one for one in places["worst"] if one["stands_out"] and one["coverage"] < LEVEL - LARGE_GAP] if places else []
    )
    status = "good" if finding in ("calibrated", "slight") and not weak else "caution"
    if finding == "narrow" and observed < LEVEL - LARGE_GAP:
        status = "bad"
    if n >= FEWEST_ROWS and abs(above - 0.5) > LARGE_BIAS and beyond(above, *noise_bounds(n, 0.5, SELDOM)):
        status = "bad"
    typical = float(np.median(width))
    sentence = read(finding, n, observed, beyond(observed, low, high), factor, calibration)
    if is_biased:
        sentence += (", but " if finding == "biased" else "; ") + read_bias(above)
    return {
        "status": status,
        "label": LABELS[status],
        "finding": finding,
        "text": f"{percent(LEVEL, 0)} intervals covered {percent(observed)} of {count(n, 'test row')}; "
        f"{sentence}. Typical width {number(typical)}.",
        "coverage": observed,
        "noise_low": low,
        "noise_high": high,
        "factor": factor,
        "above": above,
        "width": typical,
    }


def noise_bounds(n: int, share: float, false_alarms: float = FALSE_ALARMS) -> tuple[float, float]:
    """What n rows show by chance of a share, but for half of the false alarms at either end."""
    low, high = (float(binom.ppf(q, n, share)) / n for q in (false_alarms / 2, 1 - false_alarms / 2))
    return low, high


def beyond(share: float, low: float, high: float) -> bool:
    return not low <= share <= high


def share_above(truth: Floats, center: Floats) -> float:
    """The share of truths above the predicted median.

    A truth that comes in steps, such as a whole number, stands for all values that round to it, and counts with the
    part of its step above the median: in full a step away, half where it is the median itself. Otherwise a median of
    5.4 would have every 5 below it and every 6 above it, and the share would tell of the steps, not of the prediction.
    """
    with np.errstate(over="ignore", under="ignore"):
        values = np.unique(truth)
        rounding = max(ROUNDING * float(np.abs(truth).max()), float(np.finfo(float).tiny))
        gaps = np.diff(values)
        gaps = gaps[gaps > rounding]
        step = gaps.min() if len(gaps) and len(values) < len(truth) else rounding  # steps are where values recur
        return float(np.clip((truth - center) / step + 0.5, 0, 1).mean())


def find(n: int, observed: float, low: float, high: float, is_biased: bool, calibration: dict[str, Any]) -> str:
    """What matters most.

    "narrow", "wide"; "few" rows; "shape" where other levels than 90 % fail; "biased"; "slight" where only so many rows
    can prove so small a gap; "calibrated".
    """
    is_off = beyond(observed, low, high)
    if is_off and abs(observed - LEVEL) > SMALL_GAP:
        return "narrow" if observed < low else "wide"
    if n < FEWEST_ROWS:
        return "few"
    gap = np.abs(np.array(calibration["coverage"]) - calibration["levels"]).max()
    if not calibration["inside_band"] and gap > SMALL_CURVE_GAP:
        return "shape"
    if is_biased:
        return "biased"
    return "slight" if is_off else "calibrated"


def read(finding: str, n: int, observed: float, is_off: bool, factor: float | None, calibration: dict[str, Any]) -> str:
    """The middle of the sentence, but for a bias."""
    if finding in ("narrow", "wide"):
        failing = "too narrow" if finding == "narrow" else "wider than needed"
        if n < FEWEST_ROWS:
            return f"{failing}, too few rows to tell by how much"
        if factor is None:
            return f"{failing}: by far"
        times = f"{number(factor)} times"
        return f"{failing}: " + (
            f"they must be {times} as wide" if finding == "narrow" else f"{times} their width is enough"
        )
    if finding == "few":
        return "too few rows to tell good from bad"
    if finding == "shape":
        levels, coverage = np.array(calibration["levels"]), np.array(calibration["coverage"])
        worst = int(np.argmax(np.maximum(calibration["lower"] - coverage, coverage - calibration["upper"])))
        failing = "too narrow" if coverage[worst] < levels[worst] else "wider than needed"
        observed_there = f"{percent(levels[worst], 0)} intervals covered {percent(coverage[worst])}"
        return f"{'near enough' if is_off else 'within sampling noise'}, but {observed_there}, {failing}"
    if is_off:
        failing = "narrow" if observed < LEVEL else "wide"
        points = f"too {failing} by {100 * abs(observed - LEVEL):.2g} points only"
        return points if finding == "biased" else f"more than sampling noise, but {points}"
    return "within sampling noise"


def read_bias(above: float) -> str:
    side, share, failing = ("above", above, "low") if above > 0.5 else ("below", 1 - above, "high")
    return f"truths lie {side} the prediction in {percent(share)} of rows: predictions are too {failing}"


def width_factor(z: Floats, prediction: Any, width: Floats) -> float | None:
    """How many times as wide the intervals must be to hold 90 % of these rows; None for far too narrow or wide."""
    needed = float(np.quantile(np.abs(z), LEVEL, method="inverted_cdf"))
    factor = needed / float(prediction.family.quantile((1 + LEVEL) / 2))
    if not isinstance(prediction, Prediction) and np.isfinite(needed):
        # In the units of y: the width of the level whose intervals hold as many.
        level = np.clip(2 * prediction.family.cdf(needed) - 1, 1e-12, 1 - 1e-12)
        lower, upper = prediction.interval(float(level)).T
        factor = float(np.median(upper - lower) / np.median(width))
    return factor if 1 / MOST_TIMES < factor < MOST_TIMES else None


def describe_figures(truth: Floats, width: Floats, scores: dict[str, Any], target: str) -> list[dict[str, Any]]:
    """A handful of figures: name, label, value and what it means."""
    n, typical = len(truth), float(np.median(width))
    low, high = np.quantile(truth, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf").tolist()
    spread = finite(high - low)
    limit = ce_quantile(n, 1 - FALSE_ALARMS)
    text = f"Half of the {percent(LEVEL, 0)} intervals are narrower."
    if n >= FEWEST_ROWS and spread:
        text += f" Without a model {number(spread)} would do, the middle {percent(LEVEL, 0)} of {target}."
    return [
        {"name": "width", "label": "Typical width", "value": typical, "text": text},
        {
            "name": "rmse",
            "label": "RMSE",
            "value": scores["rmse"],
            "text": f"Typical distance of the prediction from the truth, in the units of {target}; "
            "large misses count more.",
        },
        {
            "name": "crps",
            "label": "CRPS",
            "value": scores["crps"],
            "text": "Distance of the truth from the whole predicted distribution, in the same units: "
            "exact and honest at once. Smaller is better; compare on the same rows.",
        },
        {
            "name": "ce",
            "label": "Calibration error",
            "value": scores["ce"],
            "noise_floor": scores["ce_noise_floor"],
            "noise_limit": limit,
            "text": f"Promised minus observed coverage, summed over six levels. By chance alone a perfect "
            f"model has {number(scores['ce_noise_floor'])} on {count(n, 'row')}, seldom over {number(limit)}.",
        },
    ]

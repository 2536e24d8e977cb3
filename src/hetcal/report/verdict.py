"""The verdict in one sentence, with its mark, and the few figures beside it, each in plain words.

Three tests decide: the number of rows inside their 90 % interval, exactly (binomial); the whole calibration curve
against its noise band; and all places together (`hetcal.report.places`). Each is wrong about a calibrated model in at
most 5 % of samples; together they deny it the green mark in about 10 %.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from hetcal.metrics import calibration_error_quantile
from hetcal.prediction import Prediction
from hetcal.report.places import SMALL_GAP
from hetcal.report.wording import count, finite, number, percent

Floats = NDArray[np.float64]

LEVEL = 0.9
FALSE_ALARMS = 0.05
# With fewer rows even 100 % coverage says little.
FEWEST_ROWS = 30
# Anywhere on the curve, a gap up to the first troubles nobody. Coverage too small by more than the second is worse than
# a reason to look closer; in some place alone it is such a reason.
SMALL_CURVE_GAP, LARGE_GAP = 0.02, 0.05
MOST_TIMES = 1000.0
LABELS = {"good": "Reliable", "caution": "Look closer", "bad": "Not reliable"}


def describe_verdict(
    z: Floats, prediction: Any, width: Floats, calibration: dict[str, Any], places: dict[str, Any] | None
) -> dict[str, Any]:
    """Status ("good", "caution", "bad"), the sentence, and the numbers in it."""
    n = len(z)
    hits = int((np.abs(z) <= prediction.family.quantile((1 + LEVEL) / 2)).sum())
    observed = hits / n
    low, high = (float(binom.ppf(q, n, LEVEL)) / n for q in (FALSE_ALARMS / 2, 1 - FALSE_ALARMS / 2))
    finding = find(n, observed, low, high, calibration)
    factor = width_factor(z, prediction, width) if finding in ("narrow", "wide") else None
    weak = (
        [one for one in places["worst"] if one["stands_out"] and one["coverage"] < LEVEL - LARGE_GAP] if places else []
    )
    status = "good" if finding in ("calibrated", "slight") and not weak else "caution"
    if finding == "narrow" and observed < LEVEL - LARGE_GAP:
        status = "bad"
    typical = float(np.median(width))
    return {
        "status": status,
        "label": LABELS[status],
        "finding": finding,
        "text": f"{percent(LEVEL, 0)} intervals covered {percent(observed)} of {count(n, 'test row')}; "
        f"{read(finding, observed, factor, calibration)}. Typical width {number(typical)}.",
        "coverage": observed,
        "noise_low": low,
        "noise_high": high,
        "factor": factor,
        "width": typical,
    }


def find(n: int, observed: float, low: float, high: float, calibration: dict[str, Any]) -> str:
    """ "calibrated", "few", "slight", "narrow", "wide", or "shape" where other levels than 90 % fail."""
    if not low <= observed <= high:
        if abs(observed - LEVEL) <= SMALL_GAP:
            return "slight"
        return "narrow" if observed < low else "wide"
    if n < FEWEST_ROWS:
        return "few"
    gap = np.abs(np.array(calibration["coverage"]) - calibration["levels"]).max()
    return "calibrated" if calibration["inside_band"] or gap <= SMALL_CURVE_GAP else "shape"


def read(finding: str, observed: float, factor: float | None, calibration: dict[str, Any]) -> str:
    """The middle of the sentence."""
    if finding == "slight":
        points = 100 * abs(observed - LEVEL)
        failing = "narrow" if observed < LEVEL else "wide"
        return f"more than sampling noise, but too {failing} by {points:.2g} points only"
    if finding == "narrow":
        return "too narrow: " + (f"they must be {number(factor)} times as wide" if factor else "by far")
    if finding == "wide":
        return "wider than needed: " + (f"{number(factor)} times their width is enough" if factor else "by far")
    if finding == "shape":
        levels, coverage = np.array(calibration["levels"]), np.array(calibration["coverage"])
        worst = int(np.argmax(np.maximum(calibration["lower"] - coverage, coverage - calibration["upper"])))
        failing = "too narrow" if coverage[worst] < levels[worst] else "wider than needed"
        observed_there = f"{percent(levels[worst], 0)} intervals covered {percent(coverage[worst])}"
        return f"within sampling noise, but {observed_there}, {failing}"
    return "within sampling noise" if finding == "calibrated" else "too few rows to tell good from bad"


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
    limit = calibration_error_quantile(n, 1 - FALSE_ALARMS)
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

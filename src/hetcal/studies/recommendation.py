"""The recommendation of a method, with its reason: the rule and the sentence of `hetcal.studies.compare`."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from hetcal.estimators import ESTIMATORS
from hetcal.methods import METHODS
from hetcal.metrics.wording import number, percent
from hetcal.studies.peers import BASELINES, PEERS
from hetcal.studies.statistics import estimate
from hetcal.training.parts import number_of_parts

# A difference of at most this many of its standard errors is noise. A cheaper method may have a CRPS higher by this
# fraction. With fewer rows than this, the sentence adds a caution.
NOISE_ERRORS, PRICE, FEW_ROWS = 2.0, 0.02, 300
# Groups of networks of a cross ensemble.
CROSS_GROUPS = 2


def recommend(methods: Sequence[dict[str, Any]], rows: int) -> dict[str, str]:
    """Return the recommended `method`, and a `text` that gives the reason and the verdict on its intervals.

    The CRPS decides. It is a proper score, which measures calibration and sharpness together, in the units of y. The
    method with the lowest mean is recommended, unless one with fewer passes through a network per prediction is as
    good: at most 2 % higher, and by at most two standard errors of the difference over the folds. Both conditions are
    needed, because the standard error over few folds can be far off, and many folds reveal differences of no practical
    importance. The cost is the number of passes, not a measured time, so that the same seed always leads to the same
    recommendation. Baselines and peers are recommended only if nothing else was compared, because `hetcal fit` has no
    such methods; the text says if one of them has a lower CRPS.

    Args:
        methods: The `methods` of a comparison, not all of which failed.
        rows: Number of rows of the comparison.
    """
    evaluated = sorted((method for method in methods if not method["failed"]), key=mean_crps)
    lowest, *others = [method for method in evaluated if method["name"] not in PEERS] or evaluated
    best = min(
        [lowest, *(m for m in others if excess(m, lowest) <= PRICE and is_noise(m, lowest))],
        key=lambda method: (passes_per_prediction(method["name"], rows), mean_crps(method)),
    )
    score = f"{number(mean_crps(best))} ± {number(best['metrics']['crps']['standard_error'], 2)}"
    if best is not lowest:
        above = f"{percent(excess(best, lowest))} above the lowest ({lowest['title']}), within fold noise"
        passes = " instead of ".join(str(passes_per_prediction(method["name"], rows)) for method in (best, lowest))
        reason = f"CRPS {score}, {above}, but cheaper: a prediction takes {passes} passes through a network"
    elif others:
        noise = "within fold noise" if is_noise(others[0], lowest) else "more than fold noise"
        below = percent(abs(excess(lowest, others[0])))
        reason = f"lowest CRPS, {score}, {below} below {others[0]['title']}, {noise}"
    else:
        reason = f"CRPS {score}, with no other method to compare"
    verdict = f'the verdict on its held-out rows is "{best["verdict"]["label"]}": {best["verdict"]["text"]}'
    text = f"{best['title']}: {reason}; {verdict}."
    better = [method for method in evaluated if mean_crps(method) < mean_crps(best) and method["name"] in PEERS]
    if better and best["name"] not in PEERS:
        noise = "within fold noise" if is_noise(best, better[0]) else "more than fold noise"
        gap = f"{number(mean_crps(better[0]))}, {percent(abs(excess(better[0], best)))} below, {noise}"
        text += f" {better[0]['title']}, which is not a method of hetcal, has a lower CRPS: {gap}."
    baseline = next((method for method in evaluated if method["name"] in BASELINES), None)
    if baseline is not None and baseline not in better[:1] and best["name"] not in PEERS:
        text += describe_baseline(best, baseline)
    failed = [method["title"] for method in methods if method["failed"]]
    if failed:
        text += f" Not evaluated, because of an error: {', '.join(failed)}."
    if rows < FEW_ROWS:
        text += f" With only {rows} rows, another seed may well rank the methods differently."
    return {"method": best["name"], "text": text}


def describe_baseline(best: dict[str, Any], baseline: dict[str, Any]) -> str:
    """How the CRPS of the recommended method compares with the nearest baseline, and whether that is noise."""
    low, high = sorted([best, baseline], key=mean_crps)
    noise = "within fold noise" if is_noise(high, low) else "more than fold noise"
    ratio = number(mean_crps(best) / (mean_crps(baseline) or 1.0))
    return f" Its CRPS is {ratio} times that of the nearest baseline, {baseline['title']}; the difference is {noise}."


def mean_crps(method: dict[str, Any]) -> float:
    return float(method["metrics"]["crps"]["mean"])


def excess(method: dict[str, Any], other: dict[str, Any]) -> float:
    """How much higher the CRPS is than that of the other method, as a share of the latter."""
    return (mean_crps(method) - mean_crps(other)) / (mean_crps(other) or 1.0)


def is_noise(method: dict[str, Any], lowest: dict[str, Any]) -> bool:
    """Whether the difference, taken fold by fold, is within two of its standard errors."""
    values, lowest_values = (np.array(m["metrics"]["crps"]["values"]) for m in (method, lowest))
    difference = estimate(values - lowest_values)
    return difference.mean <= NOISE_ERRORS * difference.error


def passes_per_prediction(method: str, rows: int) -> int:
    """Passes through a network for one prediction, by default: samples of a spread, members of an ensemble, or one.

    >>> [passes_per_prediction(name, rows=500) for name in ("dropout_hc", "cross_hc", "ensemble_hc", "hnn")]
    [100, 16, 8, 1]
    """
    if method in PEERS:
        return 1
    estimator = METHODS[method].estimator
    if estimator == "cross_ensemble":
        return CROSS_GROUPS * number_of_parts(rows, None)
    options = inspect.signature(ESTIMATORS[estimator] if isinstance(estimator, str) else estimator).parameters
    return next((options[name].default for name in ("prediction_samples", "members") if name in options), 1)

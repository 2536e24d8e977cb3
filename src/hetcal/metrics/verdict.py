"""The verdict: the only rule that decides whether prediction intervals can be trusted on the given rows.

`evaluate`, reports, commands and comparisons all use it.

Three tests decide, each with a false-positive rate of at most 5 %: the number of rows inside their 90 % interval
(exact, binomial); the whole calibration curve against its noise band; and the number of true values above the predicted
median (binomial), because the first two see only the size of the errors, not their sign. A report adds a fourth, on
subgroups. The simulated probability of every outcome is in docs/metrics.md (`benchmarks/verdict/run.py`).

A model is called reliable only if the rows could have shown that it is not: with this number of rows, the first test
must reject a model whose intervals cover 80 % instead of 90 % at least nine times in ten. Otherwise there are too few
rows.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from hetcal._checks import Floats
from hetcal.metrics.inputs import Mean, Std, per_target, read_prediction
from hetcal.metrics.noise import CURVE_LEVELS, calibration_band, share_confidence_interval, share_noise_bounds
from hetcal.metrics.regression import coverages
from hetcal.metrics.wording import count, number, percent
from hetcal.prediction import Prediction

LEVEL = 0.9
FALSE_POSITIVE_RATE = 0.05
# A gap between observed and nominal coverage up to the first is of no practical importance at the level of 90 %, up to
# the second at any other level. Intervals whose coverage is too low by more than the third are not reliable.
SMALL_GAP, SMALL_CURVE_GAP, LARGE_GAP = 0.01, 0.02, 0.05
# A model is unreliable if the share of true values on one side of the median exceeds one half by this much, provided
# that the p-value is below the second number.
LARGE_BIAS, RARE = 0.1, 0.001
# The alternative that the rows must be able to reject, and how often.
LOW_COVERAGE, POWER = 0.8, 0.9
# With fewer rows, the shape of the curve, a width factor and the size of a bias are too uncertain.
FEWEST_ROWS = 30
MOST_TIMES = 1000.0
# Differences below this fraction of the largest value are rounding errors.
RELATIVE_ROUNDING = 1e-12
LABELS = {
    "good": "Reliable",
    "caution": "Look closer",
    "bad": "Not reliable",
    "unknown": "Too few rows to tell",
}


@dataclass(frozen=True)
class Verdict:
    """Whether prediction intervals can be trusted, and the numbers behind it; `str(verdict)` is a sentence.

    Attributes:
        status: "good", "caution", "bad", or "unknown" if there are too few rows to tell.
        finding: What matters most: the intervals are too "narrow" or "wide"; the coverage at other levels ("shape") or
            the median ("bias") is off; some "subgroup" is not covered; the gap is significant but "slight"; there are
            too "few" rows; or the model is "calibrated".
        text: The sentence without the label.
        rows: Number of rows.
        coverage: Observed coverage of the 90 % intervals.
        coverage_low, coverage_high: Its exact 95 % confidence interval.
        share_above: Share of true values above the predicted median; 0.5 is expected.
        width_factor: How many times as wide the intervals would have to be to cover 90 % of these rows; None unless
            they are too narrow or too wide, or if it cannot be estimated.
    """

    status: str
    finding: str
    text: str
    rows: int
    coverage: float
    coverage_low: float
    coverage_high: float
    share_above: float
    width_factor: float | None

    @property
    def label(self) -> str:
        return LABELS[self.status]

    def __str__(self) -> str:
        return f"{self.label}: {self.text}."

    def as_dict(self) -> dict[str, Any]:
        """All attributes and the label, as JSON values."""
        return {"label": self.label, **asdict(self)}


@per_target
def judge(y: ArrayLike, mean: Mean, std: Std = None, weak_subgroups: int = 0) -> Verdict:
    """Judge the prediction intervals of rows that were not used in training; for several targets, return a list.

    Args:
        y: (n,) true values.
        mean, std: (n,) each, or a prediction in place of both, as for every metric.
        weak_subgroups: Number of subgroups whose intervals are significantly too narrow (see `hetcal.report`).

    >>> print(judge(y=np.linspace(-2, 2, 400), mean=np.zeros(400), std=np.full(400, 0.5)))
    Not reliable: 90 % intervals cover 41.0 % of 400 rows (95 % confidence interval 36.1 to 46.0 %); they are too narrow
    and must be 2.19 times as wide.
    """
    truth, prediction = read_prediction(y, mean, std)
    coverage = coverages(truth, prediction, CURVE_LEVELS)
    with np.errstate(over="ignore"):
        above = share_above(truth, np.asarray(prediction.quantile(0.5)))
    factor = width_factor(truth, prediction) if len(truth) >= FEWEST_ROWS else None
    return judge_curve(len(truth), coverage, above, factor, weak_subgroups)


def judge_curve(
    rows: int, coverage: Floats, above: float, factor: float | None = None, weak_subgroups: int = 0
) -> Verdict:
    """The rule itself, from the coverage at `CURVE_LEVELS` and the share of true values above the predicted median."""
    observed = float(coverage[round(100 * LEVEL) - 1])
    low, high = share_confidence_interval(round(observed * rows), rows)
    finding = find(rows, coverage, above, weak_subgroups)
    return Verdict(
        status=status_of(finding, rows, observed, above),
        finding=finding,
        text=describe_finding(finding, rows, coverage, above, factor, weak_subgroups),
        rows=rows,
        coverage=observed,
        coverage_low=low,
        coverage_high=high,
        share_above=above,
        width_factor=factor if finding in ("narrow", "wide") else None,
    )


def find(rows: int, coverage: Floats, above: float, weak_subgroups: int) -> str:
    """What matters most, see `Verdict.finding`."""
    observed = coverage[round(100 * LEVEL) - 1]
    if is_off(observed, rows) and abs(observed - LEVEL) > SMALL_GAP:
        return "narrow" if observed < LEVEL else "wide"
    if rows >= FEWEST_ROWS and worst_level(rows, coverage) is not None:
        return "shape"
    if is_biased(above, rows):
        return "bias"
    if weak_subgroups:
        return "subgroup"
    if not can_detect_low_coverage(rows):
        return "few"
    return "slight" if is_off(observed, rows) else "calibrated"


def status_of(finding: str, rows: int, observed: float, above: float) -> str:
    is_far = not between(above, *share_noise_bounds(rows, 0.5, RARE)) and abs(above - 0.5) > LARGE_BIAS
    if (finding == "narrow" and observed < LEVEL - LARGE_GAP) or (is_far and rows >= FEWEST_ROWS):
        return "bad"
    return {"calibrated": "good", "slight": "good", "few": "unknown"}.get(finding, "caution")


# The tests.


def is_off(observed: float, rows: int) -> bool:
    """Whether the coverage of the 90 % intervals differs significantly from 90 %."""
    return not between(observed, *share_noise_bounds(rows, LEVEL, FALSE_POSITIVE_RATE))


def is_biased(above: float, rows: int) -> bool:
    return not between(above, *share_noise_bounds(rows, 0.5, FALSE_POSITIVE_RATE)) and abs(above - 0.5) > SMALL_GAP


def worst_level(rows: int, coverage: Floats) -> int | None:
    """Index of the level at which the curve leaves its noise band furthest; None if it stays inside, or nearly so."""
    if np.abs(coverage - CURVE_LEVELS).max() <= SMALL_CURVE_GAP:
        return None
    lower, upper = calibration_band(rows, CURVE_LEVELS, 1 - FALSE_POSITIVE_RATE)
    excess = np.maximum(lower - coverage, coverage - upper)
    return int(np.argmax(excess)) if excess.max() > 1e-9 else None


def between(share: float, low: float, high: float) -> bool:
    return bool(low - 1e-9 <= share <= high + 1e-9)


@lru_cache(maxsize=4096)
def can_detect_low_coverage(rows: int) -> bool:
    """Whether the test of the coverage rejects a model that covers 80 % with a probability of at least 90 %."""
    low, _ = share_noise_bounds(rows, LEVEL, FALSE_POSITIVE_RATE)
    return bool(binom.cdf(round(low * rows) - 1, rows, LOW_COVERAGE) >= POWER)


@lru_cache(maxsize=1)
def rows_needed() -> int:
    """The smallest number of rows from which on the test can detect low coverage."""
    return 1 + max(rows for rows in range(1, 1000) if not can_detect_low_coverage(rows))


# The figures.


def share_above(truth: Floats, center: Floats) -> float:
    """The share of true values above the predicted median.

    A target that comes in steps, such as a whole number, represents all values that round to it. It counts with the
    part of its step that lies above the median: half of it if it equals the median, all of it a step above. Otherwise,
    with a median of 5.4, every 5 would be below and every 6 above, and the share would depend on the steps, not on the
    model.
    """
    with np.errstate(over="ignore", under="ignore"):
        values = np.unique(truth)
        rounding = max(RELATIVE_ROUNDING * float(np.abs(truth).max()), float(np.finfo(float).tiny))
        gaps = np.diff(values)
        gaps = gaps[gaps > rounding]
        step = gaps.min() if len(gaps) and len(values) < len(truth) else rounding  # values that recur indicate steps
        return float(np.clip((truth - center) / step + 0.5, 0, 1).mean())


def width_factor(truth: Floats, prediction: Any) -> float | None:
    """How many times as wide the intervals must be to cover 90 % of these rows; None if it cannot be estimated."""
    with np.errstate(over="ignore"):
        needed = float(np.quantile(np.abs(prediction.z(truth)), LEVEL, method="inverted_cdf"))
        factor = needed / float(prediction.family.quantile((1 + LEVEL) / 2))
        if not isinstance(prediction, Prediction) and np.isfinite(needed):
            # In the units of y: the width of the level whose intervals cover as many rows.
            level = np.clip(2 * prediction.family.cdf(needed) - 1, 1e-12, 1 - 1e-12)
            widths = [np.median(np.diff(prediction.interval(p), axis=1)) for p in (float(level), LEVEL)]
            factor = float(widths[0] / widths[1])
    return factor if 1 / MOST_TIMES < factor < MOST_TIMES else None


# The words.


def describe_finding(
    finding: str, rows: int, coverage: Floats, above: float, factor: float | None, weak_subgroups: int
) -> str:
    """The sentence: what was observed, how well it is known, and what it means."""
    observed = float(coverage[round(100 * LEVEL) - 1])
    low, high = share_confidence_interval(round(observed * rows), rows)
    text = f"{percent(LEVEL, 0)} intervals cover {percent(observed)} of {count(rows, 'row')} "
    text += (
        f"(95 % confidence interval {percent(low)[:-2]} to {percent(high)}){describe_coverage(finding, rows, observed)}"
    )
    if finding == "narrow":
        text += " and must be " + (f"{number(factor)} times as wide" if factor else "wider")
    elif finding == "wide" and factor:
        text += f": {number(factor)} times their width is enough"
    elif finding == "few":
        text += f", but a coverage of {percent(LOW_COVERAGE, 0)} could look the same on so few rows; "
        text += f"evaluate the model on {rows_needed()} rows or more"
    elif finding == "shape" and (worst := worst_level(rows, coverage)) is not None:
        side = "too narrow" if coverage[worst] < CURVE_LEVELS[worst] else "wider than needed"
        text += f", but {percent(CURVE_LEVELS[worst], 0)} intervals cover {percent(coverage[worst])}: they are {side}"
    if is_biased(above, rows):
        side, share = ("above", above) if above > 0.5 else ("below", 1 - above)
        text += f"; {percent(share)} of the true values lie {side} the predicted median, where 50 % are expected"
    if weak_subgroups:
        subgroups = "one subgroup" if weak_subgroups == 1 else f"{weak_subgroups} subgroups"
        text += f"; in {subgroups} the intervals are too narrow"
    return text


def describe_coverage(finding: str, rows: int, observed: float) -> str:
    """Describe how the coverage of the 90 % intervals compares with sampling noise."""
    if finding == "narrow":
        return "; they are too narrow"
    if finding == "wide":
        return "; they are wider than needed"
    if is_off(observed, rows):
        return f", which is more than sampling noise, but only {100 * abs(observed - LEVEL):.2g} points off"
    return ", within sampling noise"

"""The verdict: the only rule that decides whether prediction intervals can be trusted on the given rows.

`evaluate`, reports, commands and comparisons all use it.

Four tests decide, each with a false-positive rate of at most 5 %: the number of rows inside their 90 % interval (exact,
binomial), or inside that of the level nearest to 90 % that a table of a few quantiles has; the whole calibration curve
against its noise band; the number of true values above the predicted median (binomial), because the first two see only
the size of the errors, not their sign; and the coverage in subgroups by the predicted median and by the width of the
interval. A report adds a fifth test, of subgroups by the columns that it is given; verdict and report read the same
tests of subgroups (`hetcal.metrics.subgroups`). The simulated probability of every outcome is in docs/metrics.md
(`benchmarks/verdict/run.py`).

A model is called reliable only if the rows could have shown that it is not: with this number of rows, the first test
must reject a model whose intervals cover 80 % instead of 90 %, 10 points less, at least nine times in ten. Otherwise
there are too few rows.

If rows come in groups, every test is that of the number of independent rows that they count as
(`hetcal.metrics.grouping`).
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from hetcal.metrics.evidence import LEVEL, Evidence
from hetcal.metrics.grouping import GroupLabels
from hetcal.metrics.inputs import Mean, Std, per_target, read_prediction
from hetcal.metrics.noise import CURVE_LEVELS, calibration_band, share_confidence_interval, share_noise_bounds
from hetcal.metrics.subgroups import (
    FALSE_POSITIVE_RATE,
    LARGE_GAP,
    SMALL_GAP,
    CoverageTests,
    check_coverage,
    split_by_prediction,
)
from hetcal.metrics.wording import count, nominal, number, percent

# A gap up to this is of no practical importance anywhere on the calibration curve.
SMALL_CURVE_GAP = 0.02
# A model is unreliable if the share of true values on one side of the median exceeds one half by this much, provided
# that the p-value is below the second number.
LARGE_BIAS, RARE = 0.1, 0.001
# How much lower the coverage of the alternative is that the rows must be able to reject, and how often.
LOWER_BY, POWER = 0.1, 0.9
# With fewer rows, the shape of the curve, a width factor and the size of a bias are too uncertain.
FEWEST_ROWS = 30
MOST_TIMES = 1000.0
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
            the median ("bias") is off; the intervals of a "subgroup" are too narrow; the gap is significant but
            "slight"; there are too "few" rows; or the model is "calibrated".
        text: The sentence without the label.
        rows: Number of rows.
        groups: Number of groups of rows that belong together; None if every row stands for itself.
        effective_rows: Number of independent rows that they count as in the test of the coverage.
        level: Level of the intervals, 0.9 unless a table of a few quantiles does not give it.
        coverage: Observed coverage of these intervals.
        coverage_low, coverage_high: Its exact 95 % confidence interval.
        share_above: Share of true values above the predicted median; 0.5 is expected.
        width_factor: How many times as wide the intervals would have to be to cover their share of these rows; None
            unless they are too narrow or too wide, or if it cannot be estimated.
    """

    status: str
    finding: str
    text: str
    rows: int
    groups: int | None
    effective_rows: int
    level: float
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
def judge(y: ArrayLike, mean: Mean, std: Std = None, groups: GroupLabels | None = None) -> Verdict:
    """Judge the prediction intervals of rows that were not used in training; for several targets, return a list.

    Args:
        y: (n,) true values.
        mean, std: (n,) each, or a prediction in place of both, as for every metric.
        groups: (n,) labels of rows that belong together (a patient, a day); such rows count as fewer.

    >>> print(judge(y=np.linspace(-2, 2, 400), mean=np.zeros(400), std=np.full(400, 0.5)))
    Not reliable: 90 % intervals cover 41.0 % of 400 rows (95 % confidence interval 36.1 to 46.0 %); they are too narrow
    and must be 2.19 times as wide.
    """
    return judge_evidence(Evidence.of(*read_prediction(y, mean, std), groups))


def judge_evidence(evidence: Evidence, subgroups: CoverageTests | None = None) -> Verdict:
    """The rule itself; by default, the subgroups are those by the prediction."""
    rows = evidence.rows_of_coverage
    subgroups = check_predicted_ranges(evidence) if subgroups is None else subgroups
    finding = find(evidence, bool(subgroups.is_weak.any()))
    low, high = share_confidence_interval(evidence.inside.sum() / evidence.rows * rows, rows)
    return Verdict(
        status=status_of(finding, evidence),
        finding=finding,
        text="".join([describe_coverage(evidence, low, high), *describe_rest(finding, evidence, subgroups)]),
        rows=evidence.rows,
        groups=None if evidence.grouping is None else evidence.grouping.count,
        effective_rows=rows,
        level=evidence.level,
        coverage=evidence.observed,
        coverage_low=low,
        coverage_high=high,
        share_above=evidence.share_above,
        width_factor=width_factor(evidence) if is_far_off(evidence) else None,
    )


def find(evidence: Evidence, has_weak_subgroups: bool) -> str:
    """What matters most, see `Verdict.finding`; what makes a model unreliable comes first."""
    if is_large_bias(evidence) and not is_far_too_narrow(evidence):
        return "bias"
    if is_far_off(evidence):
        return "narrow" if evidence.observed < evidence.level else "wide"
    if worst_level(evidence) is not None:
        return "shape"
    if is_biased(evidence):
        return "bias"
    if has_weak_subgroups:
        return "subgroup"
    if evidence.rows_of_curve < rows_needed(
        evidence.level
    ):  # all levels know the correlation within groups better than one
        return "few"
    return "slight" if is_off(evidence) else "calibrated"


def status_of(finding: str, evidence: Evidence) -> str:
    if is_far_too_narrow(evidence) or is_large_bias(evidence):
        return "bad"
    return {"calibrated": "good", "slight": "good", "few": "unknown"}.get(finding, "caution")


# The tests.


def is_off(evidence: Evidence) -> bool:
    """Whether the coverage of the intervals differs significantly from their level."""
    bounds = share_noise_bounds(evidence.rows_of_coverage, evidence.level, FALSE_POSITIVE_RATE)
    return not between(evidence.observed, *bounds)


def is_far_off(evidence: Evidence) -> bool:
    """Whether the coverage is off by more than a gap of no practical importance."""
    return is_off(evidence) and abs(evidence.observed - evidence.level) > SMALL_GAP


def is_far_too_narrow(evidence: Evidence) -> bool:
    return is_far_off(evidence) and evidence.observed < evidence.level - LARGE_GAP


def is_biased(evidence: Evidence) -> bool:
    above, bounds = evidence.share_above, share_noise_bounds(evidence.rows_of_median, 0.5, FALSE_POSITIVE_RATE)
    return not between(above, *bounds) and abs(above - 0.5) > SMALL_GAP


def is_large_bias(evidence: Evidence) -> bool:
    above, rows = evidence.share_above, evidence.rows_of_median
    is_rare = not between(above, *share_noise_bounds(rows, 0.5, RARE))
    return is_rare and abs(above - 0.5) > LARGE_BIAS and rows >= FEWEST_ROWS


def worst_level(evidence: Evidence) -> int | None:
    """Index of the level at which the curve leaves its noise band furthest; None if it stays inside, or nearly so."""
    coverage, rows = np.where(evidence.is_given, evidence.coverage, CURVE_LEVELS), evidence.rows_of_curve
    if rows < FEWEST_ROWS or np.abs(coverage - CURVE_LEVELS).max() <= SMALL_CURVE_GAP:
        return None
    lower, upper = calibration_band(rows, CURVE_LEVELS, 1 - FALSE_POSITIVE_RATE)
    excess = np.maximum(lower - coverage, coverage - upper)
    return int(np.argmax(excess)) if excess.max() > 1e-9 else None


def check_predicted_ranges(evidence: Evidence) -> CoverageTests:
    """Test the coverage in ranges of the predicted median and of the width."""
    with np.errstate(over="ignore"):
        width = np.nan_to_num(evidence.upper - evidence.lower)
        ranges = split_by_prediction(np.nan_to_num(evidence.median), width)
    return check_coverage(ranges, evidence.inside, evidence.level, evidence.grouping)


def between(share: float, low: float, high: float) -> bool:
    return bool(low - 1e-9 <= share <= high + 1e-9)


@lru_cache(maxsize=16)
def rows_needed(level: float = LEVEL) -> int:
    """The number of rows that reject a coverage of 10 points less than the level nine times in ten, as all more do."""
    return 1 + max(rows for rows in range(1, 1000) if power_against_low_coverage(rows, level) < POWER)


def sufficient_test_size(rows: float) -> float | None:
    """The smallest share (in percent steps) of a table of so many rows that a verdict needs; None if over half."""
    size = float(np.ceil(round(100 * rows_needed() / rows, 6)) / 100)
    return size if size <= 0.5 else None


def power_against_low_coverage(rows: int, level: float = LEVEL) -> float:
    """Probability that a model with the lower coverage is rejected."""
    low, _ = share_noise_bounds(rows, level, FALSE_POSITIVE_RATE)
    return float(binom.cdf(round(low * rows) - 1, rows, low_coverage(level)))


def low_coverage(level: float) -> float:
    """
    >>> low_coverage(0.9), low_coverage(0.1)
    (0.8, 0.05)
    """
    return round(max(level - LOWER_BY, level / 2), 10)


# The figures.


def width_factor(evidence: Evidence) -> float | None:
    """How many times as wide the intervals must be, stretched around the median, to cover their share of these rows.

    None if there are few rows, if it is extreme, or if it rounds to 1.
    """
    if evidence.rows < FEWEST_ROWS:
        return None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        distance = evidence.truth - evidence.median
        half_width = np.where(distance > 0, evidence.upper - evidence.median, evidence.median - evidence.lower)
        times = np.where(distance == 0, 0.0, np.abs(distance) / half_width)
    factor = float(np.quantile(np.where(np.isnan(times), np.inf, times), evidence.level, method="inverted_cdf"))
    return factor if 1 / MOST_TIMES < factor < MOST_TIMES and abs(factor - 1) >= 0.005 else None


# The words.


def describe_coverage(evidence: Evidence, low: float, high: float) -> str:
    """What was observed, how well it is known, and how it compares with sampling noise."""
    observed, level, grouping = evidence.observed, evidence.level, evidence.grouping
    rows = count(evidence.rows, "row") + (f" in {count(grouping.count, 'group')}" if grouping else "")
    text = f"{nominal(level)} intervals cover {percent(observed)} of {rows} "
    text += f"(95 % confidence interval {percent(low)[:-2]} to {percent(high)})"
    if not is_off(evidence):
        return f"{text}, within sampling noise"
    if not is_far_off(evidence):
        return f"{text}, only {100 * abs(observed - level):.2g} points off"
    factor = width_factor(evidence)
    if observed < level:
        return f"{text}; they are too narrow" + (f" and must be {number(factor)} times as wide" if factor else "")
    return f"{text}; they are wider than needed" + (f": {number(factor)} times their width is enough" if factor else "")


def describe_rest(finding: str, evidence: Evidence, subgroups: CoverageTests) -> list[str]:
    """Everything else that was found, one clause each."""
    clauses = []
    worst, above = worst_level(evidence), evidence.share_above
    if worst is not None and not is_far_off(evidence):
        level, coverage = CURVE_LEVELS[worst], evidence.coverage[worst]
        side = "too narrow" if coverage < level else "wider than needed"
        clauses.append(f", but {percent(level, 0)} intervals cover {percent(coverage)}: they are {side}")
    if is_biased(evidence):
        side, share = ("above", above) if above > 0.5 else ("below", 1 - above)
        ties = ", counting ties in part" if evidence.step else ""
        clauses.append(f"; {percent(share)} of the true values lie {side} the predicted median{ties}")
        clauses.append(", where 50 % are expected")
    if not (is_far_off(evidence) and evidence.observed < evidence.level):  # said of all rows already
        clauses += describe_weak(subgroups)
    if finding == "few":
        clauses.append(f", but a coverage of {nominal(low_coverage(evidence.level))} could look the same on so few ")
        clauses.append(describe_lack(evidence))
    return clauses


def describe_weak(subgroups: CoverageTests) -> list[str]:
    """Name the subgroup with the lowest coverage among those in which the intervals are too narrow."""
    if not subgroups.is_weak.any():
        return []
    worst, others = subgroups.order[0], int(subgroups.is_weak.sum()) - 1
    covered = f"{percent(subgroups.coverage[worst])} of {count(int(subgroups.sizes[worst]), 'row')}"
    where = f"{subgroups.subgroups[worst]}, where they cover {covered}"
    clause = f"; {nominal(subgroups.level)} intervals are too narrow for rows with {where}"
    return [clause, f", and for {count(others, 'other subgroup')}" if others else ""]


def describe_lack(evidence: Evidence) -> str:
    if evidence.grouping is None:
        return f"rows; evaluate the model on {rows_needed(evidence.level)} rows or more"
    counted = f"{count(evidence.rows_of_curve, 'independent row')}, where {rows_needed(evidence.level)} are needed"
    return f"groups, whose rows count as {counted}; evaluate the model on more groups"

"""Columns of predictions by any model: mean and std, the ends of intervals, or quantiles; given by options or by name.

The names are those that `hetcal predict` writes: mean, std, lower_90, upper_90, quantile_0.05; and short ones of other
tools: q05, q0.05, p05, 0.05. Such columns, and those that options name, are never features. Nothing here imports torch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from hetcal._checks import check_choice, check_levels, must
from hetcal.cli.columns import check_numbers, name_rows
from hetcal.cli.options import EvaluateOptions
from hetcal.cli.tables import NumberedTable
from hetcal.distributions import TabulatedPrediction
from hetcal.metrics.grouping import Grouping
from hetcal.metrics.noise import share_confidence_interval
from hetcal.metrics.wording import nominal, number, percent
from hetcal.prediction import Prediction

NAMES = re.compile(r"mean|std|(?P<end>lower|upper)_(?P<level>\d+(\.\d+)?)|quantile_(?P<q>0?\.\d+)")
# Two digits are percent, three are thousandths; q1 to q4 could be quarters, and are not read.
SHORT_NAMES = re.compile(r"(?i:[qp]_?)?(?P<q>0?\.\d+)|(?i:[qp]_?)((?P<percent>\d\d(\.\d+)?)|(?P<thousandths>\d{3}))")
BASES = {"q": 1, "percent": 100, "thousandths": 1000}
DIGITS = 10  # of a probability; 1 - 0.95 is not 0.05 in floating point


@dataclass(frozen=True, eq=False)
class Given:
    """Predictions of a table: the columns that hold them, the distribution, and what it is made from, in words."""

    columns: frozenset[str]
    prediction: Any
    form: str
    levels: tuple[float, ...] = ()  # of the intervals that the table itself has
    mean: str | None = None  # the column of the mean beside quantiles


def read_predictions(data: NumberedTable, options: EvaluateOptions) -> Given:
    """Read what the options name; otherwise all quantiles and intervals that are there by name, or mean and std."""
    columns = data.table.columns
    named = {name for name in columns if NAMES.fullmatch(name)} | set(quantiles_by_short_name(columns).values())
    quantiles = quantiles_of_options(options)
    if not quantiles and options.std is None:
        quantiles = quantiles_by_name(columns)
    for column in quantiles.values():
        check_choice("quantile", column, columns)
    used = {column for column in (options.mean, options.std) if column is not None}
    if not quantiles:
        mean, std = options.mean or "mean", options.std or "std"
        if not used and mean not in columns:
            rule = f"be one of {sorted(columns)}, or there must be columns such as lower_90 and upper_90"
            advice = "name the columns by --mean and --std, --lower and --upper, or --quantile 0.05=COLUMN"
            raise must("mean", rule, mean, advice)
        for option, name in (("mean", mean), ("std", std)):
            check_choice(option, name, columns)
        normal = Prediction(check_numbers(data, "mean", mean), check_numbers(data, "std", std, positive=True))
        return Given(frozenset(named | used | {mean, std}), normal, "mean and std of a normal distribution")
    levels = sorted(quantiles)
    values = np.column_stack([check_numbers(data, f"quantile {q:g}", quantiles[q]) for q in levels])
    check_order(data, values, [quantiles[q] for q in levels])
    moments = [
        options.mean or ("mean" if "mean" in columns else None),
        options.std or ("std" if "std" in columns else None),
    ]
    known = [None if name is None else check_numbers(data, "mean or std", name) for name in moments]
    form = f"the quantiles {', '.join(f'{q:g}' for q in levels)}"
    form += "; between and beyond them a normal distribution" if len(levels) == 2 else "; between them interpolated"
    prediction = TabulatedPrediction(levels, values, *known)
    taken = frozenset(named | used | set(quantiles.values()))
    return Given(taken, prediction, form, prediction.central_levels, moments[0])


def quantiles_of_options(options: EvaluateOptions) -> dict[float, str]:
    """Probability -> column, from --quantile, and from --lower and --upper."""
    pairs = [read_pair(pair) for pair in options.quantile]
    if (options.lower is None) != (options.upper is None):
        raise must("--lower and --upper", "be given together", options.lower or options.upper, "name both columns")
    if options.lower is not None and options.upper is not None:
        level = float(check_levels("level", options.level))
        pairs += [(lower_probability(level), options.lower), (upper_probability(level), options.upper)]
    found = dict(pairs)
    if len(found) < len(pairs) or len(set(found.values())) < len(pairs):
        shown = ", ".join(f"{q:g}={column}" for q, column in pairs)
        raise must("quantiles", "have a probability and a column of their own", shown, "name each of them once")
    if len(found) == 1:
        raise must("--quantile", "be given at least twice", options.quantile, "one quantile is no interval")
    return found


def read_pair(pair: str) -> tuple[float, str]:
    """Read `0.05=low`; a percentage is refused with the probability that it means."""
    q, separator, column = pair.partition("=")
    if separator and re.fullmatch(r"\s*\d{1,2}(\.\d+)?\s*", q) and 1 <= float(q) < 100:
        advice = f"the probability of the {float(q):g} % quantile is {float(q) / 100:g}"
        raise must("--quantile", "name a probability", pair, f"{advice}: write --quantile {float(q) / 100:g}={column}")
    if not separator or not re.fullmatch(r"\s*0?\.\d*[1-9]\d*\s*", q):
        raise must("--quantile", "have the form q=column", pair, "write for example --quantile 0.05=low")
    return float(q), column.strip()


def quantiles_by_name(columns: Mapping[str, Any]) -> dict[float, str]:
    """Probability -> column, for columns such as lower_90 and quantile_0.05; at least two, or none."""
    found: dict[float, str] = {}
    for name in columns:
        parts = NAMES.fullmatch(name)
        if parts and parts["q"]:
            found.setdefault(float(parts["q"]), name)
        elif parts and parts["end"] and 0 < float(parts["level"]) < 100:
            side = lower_probability if parts["end"] == "lower" else upper_probability
            found.setdefault(side(float(parts["level"]) / 100), name)
    found = {q: name for q, name in found.items() if 0 < q < 1}
    return found if len(found) > 1 else quantiles_by_short_name(columns)


def quantiles_by_short_name(columns: Mapping[str, Any]) -> dict[float, str]:
    """Probability -> column, for columns such as q05 and p95, if each has its counterpart; otherwise none.

    Features may have such names, too, but hardly q05 together with q95.

    >>> [quantiles_by_short_name(dict.fromkeys(names)) for names in (["q05", "q50", "q95"], ["q01", "q02"])]
    [{0.05: 'q05', 0.5: 'q50', 0.95: 'q95'}, {}]
    """
    found: dict[float, str] = {}
    for name in columns:
        parts = SHORT_NAMES.fullmatch(name.strip())
        if parts:
            digits, base = next((parts[key], base) for key, base in BASES.items() if parts[key])
            found.setdefault(round(float(digits) / base, DIGITS), name)
    has_counterparts = all(0 < q < 1 and round(1 - q, DIGITS) in found for q in found)
    return found if len(found) > 1 and has_counterparts else {}


def lower_probability(level: float) -> float:
    return round((1 - level) / 2, DIGITS)


def upper_probability(level: float) -> float:
    return round((1 + level) / 2, DIGITS)


def check_order(data: NumberedTable, values: Any, names: list[str]) -> None:
    """Refuse an upper end below the lower one; quantiles in between may cross, and are sorted."""
    wrong = values[:, 0] > values[:, -1]
    if wrong.any():
        advice = f"see {name_rows(data, wrong)}; exchange or repair the columns"
        raise must(f"{names[0]!r}", f"be at most {names[-1]!r}", float(values[wrong][0, 0]), advice)


def describe_intervals(given: Given, y: Any) -> list[dict[str, Any]]:
    """Coverage of the intervals that the table itself has, with its 95 % confidence interval, and in words."""
    described = []
    for level in given.levels:
        lower, upper = given.prediction.interval(level).T
        inside = int(((lower <= y) & (y <= upper)).sum())
        low, high = share_confidence_interval(inside, len(y))
        text = f"The given {nominal(level)} intervals cover "
        text += f"{percent(inside / len(y))} of {len(y)} rows "
        text += f"(95 % confidence interval {percent(low)[:-2]} to {percent(high)})."
        described.append({"level": level, "coverage": inside / len(y), "low": low, "high": high, "text": text})
    return described


def describe_mean(given: Given, y: Any, groups: Any = None) -> dict[str, Any] | None:
    """The bias of the mean that the table gives beside quantiles, with its 95 % confidence interval, and in words."""
    if given.mean is None or len(y) < 2:
        return None
    error = given.prediction.mean - y
    grouping = Grouping.of(groups, len(y))
    rows = len(y) if grouping is None else grouping.effective_rows(grouping.correlation(error))
    bias = float(error.mean())
    noise = 1.96 * float(error.std(ddof=1)) / sqrt(rows)
    low, high = bias - noise, bias + noise
    side = "above" if bias > 0 else "below"
    reading = "unbiased within sampling noise" if low <= 0 <= high else "biased"
    text = f"The given mean ({given.mean}) is {reading}: {number(abs(bias))} {side} the true values on average "
    text += f"(95 % confidence interval {number(low)} to {number(high)})."
    return {"column": given.mean, "bias": bias, "low": low, "high": high, "text": text}

"""Columns of predictions by any model: mean and std, the ends of intervals, or quantiles; given by options or by name.

The names are those that `hetcal predict` writes: mean, std, lower_90, upper_90, quantile_0.05. Such columns, and those
that options name, are never features. Nothing here imports torch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetcal._checks import check_choice, check_levels, must
from hetcal.cli.columns import check_numbers, name_rows
from hetcal.cli.options import EvaluateOptions
from hetcal.cli.tables import NumberedTable
from hetcal.distributions import TabulatedPrediction
from hetcal.metrics.noise import share_confidence_interval
from hetcal.metrics.wording import percent
from hetcal.prediction import Prediction

NAMES = re.compile(r"mean|std|(?P<end>lower|upper)_(?P<level>\d+(\.\d+)?)|quantile_(?P<q>0?\.\d+)")
DIGITS = 10  # of a probability; 1 - 0.95 is not 0.05 in floating point


@dataclass(frozen=True, eq=False)
class Given:
    """Predictions of a table: the columns that hold them, the distribution, and what it is made from, in words."""

    columns: frozenset[str]
    prediction: Any
    form: str
    levels: tuple[float, ...] = ()  # of the intervals that the table itself has


def read_predictions(data: NumberedTable, options: EvaluateOptions) -> Given:
    """Read what the options name; otherwise all quantiles and intervals that are there by name, or mean and std."""
    columns = data.table.columns
    named = {name for name in columns if NAMES.fullmatch(name)}
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
        prediction = Prediction(check_numbers(data, "mean", mean), check_numbers(data, "std", std, positive=True))
        return Given(frozenset(named | used | {mean, std}), prediction, "mean and std of a normal distribution")
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
    central = tuple(round(1 - 2 * q, DIGITS) for q in levels if q < 0.5 and round(1 - q, DIGITS) in quantiles)
    return Given(
        frozenset(named | used | set(quantiles.values())), TabulatedPrediction(levels, values, *known), form, central
    )


def quantiles_of_options(options: EvaluateOptions) -> dict[float, str]:
    """Probability -> column, from --quantile, and from --lower and --upper."""
    found = {}
    for pair in options.quantile:
        q, separator, column = pair.partition("=")
        if not separator or not re.fullmatch(r"\s*0?\.\d+\s*", q):
            raise must("--quantile", "have the form q=column", pair, "write for example --quantile 0.05=low")
        found[float(q)] = column.strip()
    if (options.lower is None) != (options.upper is None):
        raise must("--lower and --upper", "be given together", options.lower or options.upper, "name both columns")
    if options.lower is not None and options.upper is not None:
        level = float(check_levels("level", options.level))
        found |= {lower_probability(level): options.lower, upper_probability(level): options.upper}
    if len(found) == 1:
        raise must("--quantile", "be given at least twice", options.quantile, "one quantile is no interval")
    return found


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
    return {q: name for q, name in found.items() if 0 < q < 1} if len(found) > 1 else {}


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
        text = f"The given {percent(level, 0 if round(100 * level, 6) % 1 == 0 else 1)} intervals cover "
        text += f"{percent(inside / len(y))} of {len(y)} rows "
        text += f"(95 % confidence interval {percent(low)[:-2]} to {percent(high)})."
        described.append({"level": level, "coverage": inside / len(y), "low": low, "high": high, "text": text})
    return described

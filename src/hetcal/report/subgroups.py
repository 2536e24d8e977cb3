"""The subgroups with the worst coverage: ranges of every feature, every label, and rows with missing values.

The tests, and why no subgroup is named by chance, are in `hetcal.metrics.subgroups`; the verdict reads the same ones.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import numpy as np

from hetcal._checks import Floats, must
from hetcal.metrics.grouping import GroupLabels
from hetcal.metrics.noise import share_confidence_interval
from hetcal.metrics.subgroups import (
    FALSE_POSITIVE_RATE,
    LARGE_GAP,
    MINIMUM_ROWS,
    SMALL_GAP,
    CoverageTests,
    Subgroup,
    is_testable,
    split_by_prediction,
    split_by_value,
)
from hetcal.metrics.wording import count, join_ranges, nominal, percent, range_labels
from hetcal.report.text import LONGEST_NAME, clean
from hetcal.splitting import RowNumbers
from hetcal.tabular.columns import Table

try:
    import pandas as pd
except ImportError as error:
    raise ImportError("hetcal.report needs pandas; install it with: pip install 'hetcal[report]'") from error

MOST_SHOWN = 10


def describe_subgroups(tests: CoverageTests, width: Floats, group_name: str | None = None) -> dict[str, Any] | None:
    """The worst subgroups with their figures and a conclusion; None if no subgroup has enough rows.

    `group_name` is given if rows come in groups.
    """
    if not tests.subgroups:
        return None
    worst = []
    for i in tests.order[:MOST_SHOWN]:
        subgroup, counted, coverage = tests.subgroups[i], int(tests.counted[i]), float(tests.coverage[i])
        low, high = share_confidence_interval(coverage * counted, counted)
        worst.append(
            {
                "kind": subgroup.kind,
                "name": subgroup.name,
                "where": subgroup.where,
                "rows": int(tests.sizes[i]),
                "coverage": coverage,
                "coverage_low": low,
                "coverage_high": high,
                "width": float(np.median(width[subgroup.rows])),
                "p": float(tests.p[i]),
                "p_corrected": float(tests.p_corrected[i]),
                "stands_out": bool(tests.stands_out[i]),
                "reading": read_subgroup(coverage, tests.level, float(tests.p_corrected[i])),
            }
        )
    return {
        "level": tests.level,
        "tested": len(tests.subgroups),
        "minimum_rows": MINIMUM_ROWS,
        "correction": "Holm",
        "false_positive_rate": FALSE_POSITIVE_RATE,
        "standing_out": int(tests.stands_out.sum()),
        "weak": int(tests.is_weak.sum()),
        "text": conclude(tests, worst[0]),
        "worst": worst,
        "groups": group_name,
    }


def conclude(tests: CoverageTests, first: dict[str, Any]) -> str:
    tested, standing_out = len(tests.subgroups), int(tests.stands_out.sum())
    if not standing_out and tests.is_significant.any():
        return f"No subgroup is off by more than {100 * SMALL_GAP:g} point ({count(tested, 'subgroup')} tested)."
    if not standing_out:
        return f"No subgroup stands out beyond chance ({count(tested, 'subgroup')} tested)."
    stand = f"subgroup{'' if tested == 1 else 's'} {'stands' if standing_out == 1 else 'stand'}"
    # What the verdict counts is said in its words: only coverages that are too low by more than the large gap.
    far = "" if tests.is_weak.any() else f", none with a coverage that is more than {100 * LARGE_GAP:g} points too low"
    observed = f"{nominal(tests.level)} intervals cover {percent(first['coverage'])} of {count(first['rows'], 'row')}"
    return (
        f"{standing_out:,} of {tested:,} {stand} out beyond chance{far}. "
        f"The worst is {first['name']} {first['where']}: {observed} there, {first['reading']}."
    )


def read_subgroup(coverage: float, level: float, corrected: float) -> str:
    if corrected > FALSE_POSITIVE_RATE:
        return "within chance"
    if abs(coverage - level) <= SMALL_GAP:
        return "slightly off"
    return "too narrow" if coverage < level else "wider than needed"


# Finding subgroups


def find_subgroups(
    center: Floats,
    width: Floats,
    features: pd.DataFrame | Table | None,
    groups: GroupLabels | None,
    group_name: str | None,
) -> Iterator[Subgroup]:
    """Find subgroups with enough rows, but not all rows: by the prediction, by group, by every column."""
    yield from split_by_prediction(center, width)
    columns: list[tuple[str, str, pd.Series]] = []
    if groups is not None:
        columns.append(
            ("group", clean(group_name or "group"), pd.Series([group_label(group) for group in groups], dtype=object))
        )
    if features is not None:
        if isinstance(features, Table):
            features = frame_of(features)
        if not isinstance(features, pd.DataFrame):
            raise must(
                "features", "be a pandas DataFrame", type(features).__name__, "wrap it: pd.DataFrame(X)", TypeError
            )
        columns += [("feature", clean(features.columns[i]), features.iloc[:, i]) for i in range(features.shape[1])]
    for kind, name, column in columns:
        for where, rows in split_column(column):
            if is_testable(rows, len(center)):
                yield Subgroup(kind, name, where, rows)


def date_columns(features: "pd.DataFrame | Table | None") -> list[str]:
    """Names of the columns of dates."""
    if features is None:
        return []
    if isinstance(features, Table):
        return [name for name, kind in features.kinds.items() if kind == "dates"]
    if not isinstance(features, pd.DataFrame):
        return []  # refused elsewhere
    return [clean(features.columns[i]) for i in range(features.shape[1]) if numbers_or_dates(features.iloc[:, i])[1]]


def group_label(group: Any) -> str:
    """A label as a person writes it: a number without a fraction, a date without the time if there is none.

    >>> group_label(np.float64(100000.0)), group_label(np.datetime64("2024-01-02T00:00:00.000000")), group_label("a")
    ('100000', '2024-01-02', 'a')
    """
    if isinstance(group, float) and group.is_integer():
        return str(int(group))
    if isinstance(group, np.datetime64 | date) and not pd.isna(group):
        return re.sub(r"\.0+$", "", str(group).replace("T", " ")).removesuffix(" 00:00:00")
    return str(group)


def frame_of(table: Table) -> pd.DataFrame:
    """Convert a table to a data frame; its label for missing text becomes a missing value again."""
    return pd.DataFrame(
        {name: pd.Series(values).mask(table.missing(name), None) for name, values in table.columns.items()}
    )


def split_column(column: pd.Series) -> Iterator[tuple[str, RowNumbers]]:
    """The rows of each range or label of a column, and those with a missing value."""
    values, is_date = numbers_or_dates(column)
    missing = column.isna().to_numpy(dtype=bool) if values is None else np.isnan(values)
    present = np.flatnonzero(~missing)
    yield "missing", np.flatnonzero(missing)
    if not len(present):
        return
    if values is None:
        yield from labels_of(column, present)
    else:
        yield from ranges_of(values, present, is_date)


def labels_of(column: pd.Series, present: RowNumbers) -> Iterator[tuple[str, RowNumbers]]:
    """Rows by label, for labels with enough rows: a label with few rows, such as an id, is never shown."""
    texts = np.array([group_label(value) for value in column.iloc[present]], dtype=object)
    codes, labels = pd.factorize(texts)
    counts = np.bincount(codes)
    order = present[np.argsort(codes, kind="stable")]
    for code, rows in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        if counts[code] >= MINIMUM_ROWS:
            yield f"= {clean(labels[code], LONGEST_NAME // 2)}", rows


def ranges_of(values: Floats, present: RowNumbers, is_date: bool) -> Iterator[tuple[str, RowNumbers]]:
    """Ranges of about equal count; if there are few distinct values, each has its own subgroup."""
    shown = values[present]
    parts = split_by_value(shown)
    lows, highs = [float(shown[part].min()) for part in parts], [float(shown[part].max()) for part in parts]
    labels = date_labels(lows, highs) if is_date else range_labels(lows, highs)
    yield from zip(labels, (present[part] for part in parts), strict=True)


def date_labels(lows: Sequence[float], highs: Sequence[float]) -> list[str]:
    """Format ranges of days, with the time of day if two ranges begin on the same day."""
    stamps = np.array([lows, highs], dtype=np.int64).astype("datetime64[us]")  # (2, ranges)
    days = stamps.astype("datetime64[D]").astype(str)
    if len(set(days[0])) == len(set(lows)):
        return join_ranges(*days.tolist())
    seconds = stamps.astype("datetime64[s]").astype(str)
    return join_ranges(*[[text.replace("T", " ") for text in row] for row in seconds.tolist()])


def numbers_or_dates(column: pd.Series) -> tuple[Floats | None, bool]:
    """Numbers or dates as float64 (missing and infinite = NaN), and whether they are dates; None for labels."""
    types = pd.api.types
    inferred = types.infer_dtype(column, skipna=True) if column.dtype == object else ""
    if types.is_datetime64_any_dtype(column.dtype) or inferred in ("datetime", "datetime64", "date"):
        return dates_as_numbers(column), True
    if types.is_bool_dtype(column.dtype) or isinstance(column.dtype, pd.CategoricalDtype):
        return None, False
    if types.is_timedelta64_dtype(column.dtype):
        return column.dt.total_seconds().to_numpy(dtype=np.float64), False
    if types.is_numeric_dtype(column.dtype) or inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        if types.is_complex_dtype(column.dtype):
            return None, False
        column = pd.to_numeric(column, errors="coerce") if inferred else column
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.where(np.isfinite(values), values, np.nan), False
    return None, False


def dates_as_numbers(column: pd.Series) -> Floats:
    """Microseconds since 1970, in the clock of the column's time zone."""
    dates = pd.to_datetime(column, errors="coerce")
    if getattr(dates.dtype, "tz", None) is not None:
        dates = dates.dt.tz_localize(None)
    values = dates.astype("datetime64[us]").to_numpy()
    return np.where(np.isnat(values), np.nan, values.astype(np.int64))

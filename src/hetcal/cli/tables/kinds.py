"""From cells to numbers, text and dates: the kind of a column is detected from all of its cells, or given.

Whole columns are converted at once. Only a column that cannot be converted is examined cell by cell, to name the wrong
one.
"""

import re
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hetcal.cli.tables.patterns import (
    BOOLEANS,
    DASHES,
    DRESSED_NUMBER,
    ISO_DATE,
    MISSING_WORDS,
    OTHER_DATE,
    ZONED_DATE,
    number_pattern,
)
from hetcal.tabular.columns import MISSING_LABEL, Kind

# A column with this share of numbers (and this many) is meant to hold numbers; its other cells are errors, not labels.
NEARLY_ALL = 0.9
ENOUGH = 10


@dataclass(frozen=True)
class CellRange:
    """The position of the cells of a column in a file, for messages."""

    file: str
    column: str
    rows: NDArray[np.int64]
    decimal: str

    def refuse(self, rule: str, cells: Any, is_wrong: NDArray[np.bool_], advice: str) -> ValueError:
        """Return the error that names the first wrong cell and counts the others."""
        first, count = int(np.argmax(is_wrong)), int(is_wrong.sum())
        more = f" and {count - 1} more such" if count > 1 else ""
        shown = shorten(cells[first].as_py())
        return ValueError(
            f"column {self.column!r} of {self.file} must {rule}, got {shown} in row {self.rows[first]}{more}; {advice}"
        )


def shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def check_type(file: str, column: str, type: pa.DataType) -> None:
    """Refuse a column of a type that a table cannot have, before anything is read."""
    inner = type.value_type if pa.types.is_dictionary(type) else type
    known = (
        pa.types.is_null(inner) or is_numeric(inner) or is_date(inner) or is_text(inner) or pa.types.is_boolean(inner)
    )
    if not known:
        advice = "convert it to numbers, text or dates, or remove it from the file"
        raise ValueError(f"column {column!r} of {file} must hold numbers, text or dates, got {inner}; {advice}")


def is_numeric(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def is_date(type: pa.DataType) -> bool:
    return bool(pa.types.is_date(type) or pa.types.is_timestamp(type))


def is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def read_column(cells: pa.ChunkedArray, place: CellRange, kind: Kind | None = None) -> NDArray[Any]:
    """Convert the cells to a column of a `Table`, of the given kind or of the detected one."""
    if pa.types.is_dictionary(cells.type):
        cells = decoded(cells)
        kind = kind or "text"  # categories are labels, even if they look like numbers
    if kind == "text":
        return to_text(words_of(cells))
    if is_text(cells.type):
        return read_words(cells, place, kind)
    if pc.all(pc.is_null(cells, nan_is_null=True)).as_py():
        return all_missing(len(cells), kind)
    natural: Kind = "dates" if is_date(cells.type) else "numbers"
    if kind not in (None, natural):
        advice = "give it the type it had in fit"
        raise ValueError(f"column {place.column!r} of {place.file} must hold {kind}, got {cells.type}; {advice}")
    if natural == "dates":
        options = pc.CastOptions(target_type=pa.timestamp("us"), allow_time_truncate=True)
        return pc.cast(cells, options=options).to_numpy()
    return refuse_infinite(pc.cast(cells, pa.float64(), safe=False).to_numpy(), cells, place)


def all_missing(length: int, kind: Kind | None) -> NDArray[Any]:
    """Return a column without any value. It fits every kind, and holds numbers if none is given."""
    return np.full(length, "NaT", "datetime64[us]") if kind == "dates" else np.full(length, np.nan)


def decoded(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories as plain values."""
    if not pa.types.is_dictionary(cells.type):
        return cells
    return pa.chunked_array([chunk.dictionary_decode() for chunk in cells.chunks], cells.type.value_type)


def words_of(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """The cells as text without surrounding spaces; missing ones are null."""
    words = pc.utf8_trim_whitespace(pc.cast(cells, pa.large_string()))
    return pc.if_else(pc.is_in(words, value_set=pa.array(MISSING_WORDS, pa.large_string())), None, words)


def read_words(cells: pa.ChunkedArray, place: CellRange, kind: Kind | None) -> NDArray[Any]:
    words = words_of(cells)
    if words.null_count == len(words):
        return all_missing(len(words), kind)
    if kind != "dates":
        numbers = to_numbers(words, place.decimal)
        if numbers is not None:
            return refuse_infinite(numbers, words, place)
        if kind == "numbers":
            raise refuse_number(words, place, is_new=False)
    dates = to_dates(words)
    if not (np.isnat(dates) & is_present(words)).any():
        refuse_mixed_zones(words, place)
        return dates
    if kind == "dates":
        raise refuse_date(words, dates, place, is_new=False)
    refuse_slips(words, dates, place)
    return to_text(words)


def to_numbers(words: pa.ChunkedArray, decimal: str) -> NDArray[np.float64] | None:
    """Convert to numbers, or to 0 and 1 for false and true; None if some word is neither. Missing values are NaN."""
    plain = words
    if decimal == ",":  # a point is then not a decimal mark and must not be read as one
        plain = pc.replace_substring(pc.replace_substring(words, ".", "_"), ",", ".")
    try:
        return pc.cast(plain, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        truths = pc.utf8_lower(words)
        known = pa.array([*BOOLEANS, None], pa.large_string())
        is_boolean = pc.all(pc.is_in(truths, value_set=known)).as_py()
        return pc.cast(pc.equal(truths, "true"), pa.float64()).to_numpy() if is_boolean else None


def to_dates(words: pa.ChunkedArray) -> NDArray[np.datetime64]:
    """Convert to dates in microseconds, those with a time zone to UTC; anything else becomes NaT."""
    is_iso = pc.match_substring_regex(words, ISO_DATE)
    if not pc.any(is_iso).as_py():
        return np.full(len(words), "NaT", "datetime64[us]")
    micros = pc.replace_substring_regex(pc.if_else(is_iso, words, None), r"(\.\d{6})\d+", r"\1")
    dates = pd.to_datetime(pd.Series(micros.to_numpy(), dtype=object), format="ISO8601", utc=True, errors="coerce")
    return dates.dt.tz_localize(None).to_numpy().astype("datetime64[us]")


def refuse_mixed_zones(words: pa.ChunkedArray, place: CellRange) -> None:
    """Refuse dates of which only some have a time zone: the zone of the others is unknown."""
    present = is_present(words)
    has_zone = matches(words, ZONED_DATE)
    first = int(np.argmax(present))
    differs = present & (has_zone != has_zone[first])
    if differs.any():
        rule = "hold dates that all have a time zone or all have none"
        other = f"row {place.rows[first]} {'has one' if has_zone[first] else 'has none'}"
        raise place.refuse(rule, words, differs, f"{other}: write all of them in the same way")


def to_text(words: pa.ChunkedArray) -> NDArray[Any]:
    """Convert to labels; each label is stored once, even if many rows share it."""
    encoded = words.combine_chunks().dictionary_encode()
    labels = np.array([*encoded.dictionary.to_pylist(), MISSING_LABEL], dtype=object)
    column: NDArray[Any] = labels[encoded.indices.fill_null(-1).to_numpy()]
    return column


def refuse_infinite(numbers: NDArray[np.float64], cells: pa.ChunkedArray, place: CellRange) -> NDArray[np.float64]:
    wrong = np.isinf(numbers)
    if wrong.any():
        advice = "repair it, or leave the cell empty if the value is unknown"
        raise place.refuse("hold finite numbers", cells, wrong, advice)
    return numbers


def is_present(words: pa.ChunkedArray) -> NDArray[np.bool_]:
    return words.is_valid().to_numpy()


def matches(words: pa.ChunkedArray, pattern: str) -> NDArray[np.bool_]:
    return pc.fill_null(pc.match_substring_regex(words, pattern), False).to_numpy()


def refuse_slips(words: pa.ChunkedArray, dates: NDArray[np.datetime64], place: CellRange) -> None:
    """Refuse a column in which almost all cells are numbers or dates: treated as labels it would be useless."""
    present = is_present(words)
    is_number = matches(words, number_pattern(place.decimal)) | matches(words, DRESSED_NUMBER)
    # A dash may mean missing or zero; either way the column holds numbers.
    decided = present & ~pc.is_in(words, value_set=pa.array(DASHES, pa.large_string())).to_numpy()
    if is_meant(is_number.sum(), decided.sum()):
        raise refuse_number(words, place, is_new=True)
    if is_meant(matches(words, ISO_DATE).sum(), present.sum()):
        raise refuse_date(words, dates, place, is_new=True)
    if matches(words, OTHER_DATE).sum() >= NEARLY_ALL * present.sum():
        drop = f"--drop {shlex.quote(place.column)}"
        advice = f"write them in this form, omit the column with {drop}, or {as_labels(place)}"
        raise place.refuse("hold dates as YYYY-MM-DD", words, present & np.isnat(dates), advice)


def is_meant(count: int, total: int) -> bool:
    return count > 0 and (count == total or (count >= ENOUGH and count >= NEARLY_ALL * total))


def refuse_number(words: pa.ChunkedArray, place: CellRange, is_new: bool) -> ValueError:
    wrong = is_present(words) & ~matches(words, number_pattern(place.decimal))
    value = words[int(np.argmax(wrong))].as_py()
    other = "," if place.decimal == "." else "."
    if value in DASHES:
        advice = "leave the cell empty if the value is missing"
    elif re.search(DRESSED_NUMBER, value):
        advice = "write plain numbers, without thousands separators or signs such as % and $"
        if re.fullmatch(rf"[+-]?\d+[{other}]\d+", value):
            advice += f", or give --decimal {other} if that is the decimal mark"
    else:
        advice = "repair it, or leave the cell empty if the value is unknown"
    return place.refuse("hold numbers", words, wrong, f"{advice}, or {as_labels(place)}" if is_new else advice)


def refuse_date(words: pa.ChunkedArray, dates: NDArray[np.datetime64], place: CellRange, is_new: bool) -> ValueError:
    advice = "repair it, or leave the cell empty if the date is unknown"
    wrong = is_present(words) & np.isnat(dates)
    return place.refuse(
        "hold dates as YYYY-MM-DD", words, wrong, f"{advice}, or {as_labels(place)}" if is_new else advice
    )


def as_labels(place: CellRange) -> str:
    return f"give --text {shlex.quote(place.column)} to treat the column as labels"

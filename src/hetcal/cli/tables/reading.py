"""Reading tables: as a whole (`read_frame`), or in chunks of bounded size (`read_chunks`)."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hetcal._checks import check_choice, check_number
from hetcal.cli.tables.arrow import FeatherTable, ParquetTable
from hetcal.cli.tables.dialect import Format
from hetcal.cli.tables.kinds import KINDS, Kinds, Place, check_type, decoded, read_column
from hetcal.cli.tables.records import Batch, TextTable
from hetcal.cli.tables.sources import open_source

AnyTable = TextTable | ParquetTable | FeatherTable

# A chunk of long texts has fewer rows, so that its size stays bounded too.
CHUNK_BYTES = 1 << 26
FRAME_ROWS = 50_000  # read at once for a frame
FIND_OUT = Format()
SHOWN = 10  # columns named in a message


@dataclass
class Block:
    """Batches joined, and the numbers of their rows as messages show them."""

    data: pa.Table
    rows: NDArray[np.int64]

    @property
    def index(self) -> pd.Index:
        first, last = int(self.rows[0]), int(self.rows[-1])
        return pd.RangeIndex(first, last + 1) if last - first + 1 == len(self.rows) else pd.Index(self.rows)


@dataclass
class Chunk:
    """Some rows of a table.

    `frame` holds the columns asked for, converted; `kept` holds others as they are in the file: text for CSV, their own
    types for Parquet and Feather. The index of both are the numbers of the rows as messages show them; `first_row` is
    the first of them. `share` is about how much of the file was read by then, None for a pipe.
    """

    frame: pd.DataFrame
    kept: pd.DataFrame
    first_row: int
    share: float | None


def read_frame(
    path: str | Path,
    format: Format = FIND_OUT,
    *,
    texts: Collection[str] = (),
    kinds: Kinds | None = None,
    drop: Collection[str] = (),
) -> pd.DataFrame:
    """Read a whole table: float64 for numbers, objects for text, datetime64 for dates; missing is NaN, None, NaT.

    Args:
        path: A CSV (also gzip), Parquet or Feather file, or "-" for standard input.
        format: What is known of a CSV file; the rest is found out.
        texts: Columns that hold labels, whatever they look like.
        kinds: The columns wanted and their kinds. None takes all columns and finds the kinds out over all rows.
        drop: Columns that are not read.

    Returns:
        The frame; its index are the numbers of the rows as messages show them. A text column of labels that all read as
        numbers is categorical, so that it stays one.
    """
    with open_table(path, format) as table:
        for option, columns in (("--text", texts), ("--drop", drop)):
            for column in columns:
                check_choice(option, column, table.columns)
        known = dict.fromkeys(texts, "text") if kinds is None else kinds
        wanted = without(table.columns, drop) if kinds is None else list(kinds)
        check_columns(table, wanted)
        block = join(table.batches(wanted, FRAME_ROWS), table.name)
        return convert(table, block, {column: known.get(column) for column in wanted})


def read_chunks(
    path: str | Path,
    kinds: Kinds | None,
    format: Format = FIND_OUT,
    *,
    keep: Sequence[str] = (),
    rows: int = 50_000,
) -> Iterator[Chunk]:
    """Read a table in chunks of at most `rows` rows, in bounded memory however long it is.

    Args:
        path: A CSV (also gzip), Parquet or Feather file, or "-" for standard input.
        kinds: The columns wanted and their kinds: "numbers", "text" or "dates". None gives all columns as they are.
        format: What is known of a CSV file; the rest is found out.
        keep: Columns to hand on as they are.
        rows: The most rows of a chunk.
    """
    check_number("rows", rows, 1, integer=True)
    with open_table(path, format) as table:
        wanted = table.columns if kinds is None else list(kinds)
        check_columns(table, [*wanted, *keep])
        for batches in group(table.batches(list(dict.fromkeys([*wanted, *keep])), rows), rows):
            block = join(batches, table.name)
            frame = as_it_is(block, wanted, table.decimal) if kinds is None else convert(table, block, dict(kinds))
            yield Chunk(
                frame, as_it_is(block, list(dict.fromkeys(keep)), table.decimal), int(block.rows[0]), table.share
            )


@contextlib.contextmanager
def open_table(path: str | Path, format: Format) -> Iterator[AnyTable]:
    """The table of a file, by what the file holds and not by its name."""
    with open_source(path) as source:
        table: AnyTable
        if source.form == "parquet":
            table = ParquetTable(source.name, Path(path))
        elif source.form == "arrow":
            table = FeatherTable(source.name, Path(path))
        else:
            table = TextTable(source, format)
        with contextlib.closing(table):
            yield table


def check_columns(table: AnyTable, wanted: Collection[str]) -> None:
    """All columns wanted are there and hold cells; the others are named too, so that a new spelling is seen."""
    missing = without(dict.fromkeys(wanted), table.columns)
    if missing:
        others = without(table.columns, wanted)
        instead = f"it has {listed(others)} instead" if others else "it has no other columns"
        plural = "s" if len(missing) > 1 else ""
        raise ValueError(
            f"{table.name} must have the column{plural} {listed(missing)}, but lacks {'them' if plural else 'it'}; "
            f"{instead}: rename or add what is missing"
        )
    for column in wanted:
        check_type(table.name, column, table.schema.field(column).type)


def without(columns: Iterable[str], others: Iterable[str]) -> list[str]:
    left_out = set(others)
    return [column for column in columns if column not in left_out]


def listed(columns: Sequence[str]) -> str:
    shown = ", ".join(map(repr, columns[:SHOWN]))
    return shown if len(columns) <= SHOWN else f"{shown} and {len(columns) - SHOWN} more"


def group(batches: Iterable[Batch], rows: int) -> Iterator[list[Batch]]:
    """Batches that make one chunk: no more than `rows` rows, and no further batch once they are large."""
    together: list[Batch] = []
    count = size = 0
    for batch in batches:
        if together and (count + len(batch.rows) > rows or size > CHUNK_BYTES):
            yield together
            together, count, size = [], 0, 0
        together.append(batch)
        count += len(batch.rows)
        size += batch.size
    yield together


def join(batches: Iterable[Batch], name: str) -> Block:
    parts = list(batches)
    if not parts:
        raise ValueError(f"{name} has columns but no rows; give a file with rows")
    return Block(pa.Table.from_batches([part.data for part in parts]), np.concatenate([part.rows for part in parts]))


def convert(table: AnyTable, block: Block, kinds: Mapping[str, str | None]) -> pd.DataFrame:
    """The columns as numbers, text and dates; None is found out."""
    columns = {}
    for column, kind in kinds.items():
        if kind is not None:
            check_choice("kind", kind, KINDS)
        place = Place(table.name, column, block.rows, table.decimal)
        try:
            values = read_column(block.data[column], place, kind)
        except pa.ArrowException as error:  # such as a date beyond all years
            raise ValueError(f"column {column!r} of {table.name} cannot be read: {str(error)[:200]}") from None
        # With the type said, text is of one type whether there are missing values or not.
        columns[column] = pd.Series(values, block.index, dtype=values.dtype)
    return pd.DataFrame(columns, index=block.index)


def as_it_is(block: Block, wanted: Sequence[str], decimal: str) -> pd.DataFrame:
    """The columns in Arrow's own types, so that long whole numbers with gaps, decimals and dates stay what they are.

    Numbers with a decimal comma get a point, since files are written with points.
    """
    columns = {}
    for column in wanted:
        cells = decoded(block.data[column])
        if decimal == ",":
            cells = pc.replace_substring_regex(cells, r"^(\s*[+-]?\d+),(\d+\s*)$", r"\1.\2")
        columns[column] = pd.array(cells, dtype=pd.ArrowDtype(cells.type))
    return pd.DataFrame(columns, index=block.index)

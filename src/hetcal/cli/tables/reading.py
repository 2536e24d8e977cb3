"""Reading files of tables: as a whole (`read_file`), or in chunks of bounded size (`read_chunks`)."""

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
from hetcal.cli.tables.dialect import CsvFormat
from hetcal.cli.tables.kinds import CellRange, check_type, decoded, read_column
from hetcal.cli.tables.records import Batch, TextTable
from hetcal.cli.tables.sources import open_source
from hetcal.tabular.columns import COLUMN_KINDS, Kind, Table

AnyTable = TextTable | ParquetTable | FeatherTable

# A chunk of long texts has fewer rows, so that its size is bounded too.
CHUNK_BYTES = 1 << 26
ROWS_AT_ONCE = 50_000
DETECTED = CsvFormat()
MOST_COLUMNS_SHOWN = 10  # in a message


@dataclass
class NumberedTable:
    """A table, and the numbers of its rows as messages show them."""

    table: Table
    rows: NDArray[np.int64]


@dataclass
class Chunk(NumberedTable):
    """Some rows of a file.

    `table` holds the requested columns, converted. `kept` holds further columns as they are in the file: text for CSV,
    their own types for Parquet and Feather. `share` is the approximate share of the file read so far, None for a pipe.
    """

    kept: pd.DataFrame
    share: float | None


@dataclass
class Block:
    """Joined batches, and the numbers of their rows as messages show them."""

    data: pa.Table
    rows: NDArray[np.int64]


def read_file(
    path: str | Path,
    format: CsvFormat = DETECTED,
    *,
    texts: Collection[str] = (),
    kinds: Mapping[str, Kind] | None = None,
    drop: Collection[str] = (),
) -> NumberedTable:
    """Read a whole table.

    Args:
        path: A CSV (also gzip), Parquet or Feather file, or "-" for standard input.
        format: What is known about a CSV file; the rest is detected.
        texts: Columns that hold labels, even if these look like numbers.
        kinds: The columns to read and their kinds. With None all columns are read, and their kinds are detected from
            all rows.
        drop: Columns that are not read.
    """
    with open_table(path, format) as table:
        for option, columns in (("--text", texts), ("--drop", drop)):
            for column in columns:
                check_choice(option, column, table.columns)
        known: Mapping[str, Kind] = dict.fromkeys(texts, "text") if kinds is None else kinds
        wanted = without(table.columns, drop) if kinds is None else list(kinds)
        check_columns(table, wanted)
        block = join_batches(table.batches(wanted, ROWS_AT_ONCE), table.name)
        return NumberedTable(convert(table, block, {column: known.get(column) for column in wanted}), block.rows)


def read_chunks(
    path: str | Path,
    kinds: Mapping[str, Kind],
    format: CsvFormat = DETECTED,
    *,
    keep: Sequence[str] = (),
    rows: int = ROWS_AT_ONCE,
) -> Iterator[Chunk]:
    """Read a table in chunks of at most `rows` rows; memory is bounded for files of any length.

    Args:
        path: A CSV (also gzip), Parquet or Feather file, or "-" for standard input.
        kinds: The columns to read and their kinds.
        format: What is known about a CSV file; the rest is detected.
        keep: Columns to pass on unchanged.
        rows: Maximum number of rows of a chunk.
    """
    check_number("rows", rows, 1, integer=True)
    kept = list(dict.fromkeys(keep))
    wanted = list(dict.fromkeys([*kinds, *kept]))
    with open_table(path, format) as table:
        check_columns(table, wanted)
        for batches in group_batches(table.batches(wanted, rows), rows):
            block = join_batches(batches, table.name)
            converted = convert(table, block, kinds)
            yield Chunk(converted, block.rows, as_in_the_file(block, kept, table.decimal), table.share)


@contextlib.contextmanager
def open_table(path: str | Path, format: CsvFormat) -> Iterator[AnyTable]:
    """Open the table in a file. The format is detected from the content of the file, not from its name."""
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
    """Check that all wanted columns exist and have readable types; the error lists the others: one may be renamed."""
    missing = without(dict.fromkeys(wanted), table.columns)
    if missing:
        others = without(table.columns, wanted)
        instead = f"it has {listed(others)} instead: rename or add" if others else "add"
        plural = "s" if len(missing) > 1 else ""
        raise ValueError(
            f"{table.name} must have the column{plural} {listed(missing)}, but lacks {'them' if plural else 'it'}; "
            f"{instead} what is missing"
        )
    for column in wanted:
        check_type(table.name, column, table.schema.field(column).type)


def without(columns: Iterable[str], others: Iterable[str]) -> list[str]:
    omitted = set(others)
    return [column for column in columns if column not in omitted]


def listed(columns: Sequence[str]) -> str:
    shown = ", ".join(map(repr, columns[:MOST_COLUMNS_SHOWN]))
    more = len(columns) - MOST_COLUMNS_SHOWN
    return shown if more <= 0 else f"{shown} and {more} more"


def group_batches(batches: Iterable[Batch], rows: int) -> Iterator[list[Batch]]:
    """Group batches into chunks of at most `rows` rows; a chunk ends once it is large."""
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


def join_batches(batches: Iterable[Batch], name: str) -> Block:
    parts = list(batches)
    if not parts:
        raise ValueError(f"{name} has columns but no rows; give a file with rows")
    return Block(pa.Table.from_batches([part.data for part in parts]), np.concatenate([part.rows for part in parts]))


def convert(table: AnyTable, block: Block, kinds: Mapping[str, Kind | None]) -> Table:
    """The columns as numbers, text and dates; a kind of None is detected."""
    columns = {}
    for column, kind in kinds.items():
        if kind is not None:
            check_choice("kind", kind, COLUMN_KINDS)
        place = CellRange(table.name, column, block.rows, table.decimal)
        try:
            columns[column] = read_column(block.data[column], place, kind)
        except pa.ArrowException as error:  # such as a date that is out of range
            raise ValueError(f"column {column!r} of {table.name} cannot be read: {str(error)[:200]}") from None
    return Table(columns)


def as_in_the_file(block: Block, wanted: Sequence[str], decimal: str) -> pd.DataFrame:
    """The columns in Arrow's own types, so that long integers with missing values, decimals and dates are preserved.

    Numbers with a decimal comma get a decimal point, since files are written with points.
    """
    columns = {}
    for column in wanted:
        cells = decoded(block.data[column])
        if decimal == ",":
            cells = pc.replace_substring_regex(cells, r"^(\s*[+-]?\d+),(\d+\s*)$", r"\1.\2")
        columns[column] = pd.array(cells, dtype=pd.ArrowDtype(cells.type))
    return pd.DataFrame(columns)

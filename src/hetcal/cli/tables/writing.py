"""Writing tables chunk by chunk: the complete file appears once the last chunk is written.

In CSV, text that a spreadsheet would run as a formula is escaped. Numbers are written so that they are read back bit
for bit.
"""

import contextlib
import gzip
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hetcal._checks import must
from hetcal._files import atomic_open, check_may_write

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".arrow")
# Text that spreadsheets interpret as a formula, also with full-width signs or after spaces and zero-width marks.
FORMULA = re.compile(r"[\s\x00-\x1f\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
PLAIN_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?", re.ASCII)
# All common separators, so that every reader detects the right one; many readers treat a single CR as a line end.
NEEDS_QUOTES = re.compile(r"""[,;\t|"\r\n]|^\s|\s$""")


class Sink(Protocol):
    """A file format that accepts tables of one schema, one after the other."""

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class Writer:
    """Writes a table chunk by chunk; the first chunk determines the types of the columns."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        self.file = file
        self.schema: pa.Schema | None = None
        self.sink: Sink

    def write(self, frame: pd.DataFrame) -> None:
        """Write the next chunk, which must have the columns of the first one."""
        if self.schema is None:
            schema = schema_of(frame)
            with writing_errors(self.name):
                self.sink = open_sink(self.name, self.file, schema)
            self.schema = schema
        columns = [str(column) for column in frame.columns]
        if columns != self.schema.names:
            raise must("frame", f"have the columns {self.schema.names}", columns, "give every chunk the same columns")
        table = pa.Table.from_pandas(frame, schema=self.schema, preserve_index=False)
        with writing_errors(self.name):
            self.sink.write(table)

    def close(self) -> None:
        if self.schema is None:
            raise ValueError(f"{self.name} was not written: there are no rows")
        with writing_errors(self.name):
            self.sink.close()
            self.file.flush()

    def abandon(self) -> None:
        """Close the incomplete file, which will be deleted."""
        if self.schema is not None:
            with contextlib.suppress(Exception):
                self.sink.close()


@contextlib.contextmanager
def open_writer(path: str | Path, *, force: bool = False) -> Iterator[Writer]:
    """Open a table for writing. The ending of the name chooses the format; "-" writes CSV to standard output.

    The file appears when the block ends without an exception; otherwise an existing file remains as it was.

    Raises:
        OSError: The file exists and `force` is not given, or it cannot be written.
    """
    if str(path) == "-":
        sys.stdout.flush()
        writer = Writer("standard output", sys.stdout.buffer)
        yield writer
        writer.close()
        return
    if not str(path).lower().endswith(SUFFIXES):
        raise must(
            "the output file", f"end in one of {', '.join(SUFFIXES)}", str(path), "the ending determines the format"
        )
    check_may_write(path, force)
    with atomic_open(path) as file:
        writer = Writer(str(path), file)
        try:
            yield writer
            writer.close()
        except BaseException:
            writer.abandon()
            raise


@contextlib.contextmanager
def writing_errors(name: str) -> Iterator[None]:
    """Report errors such as a full disk in one sentence; a broken pipe is left to the caller."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(f"{name} cannot be written: {error.strerror or error}") from None


def schema_of(frame: pd.DataFrame) -> pa.Schema:
    """The types of the first chunk; categories, which may differ in later chunks, become plain values."""
    schema = pa.Schema.from_pandas(frame, preserve_index=False)
    return pa.schema((field.name, plain_type(field.type)) for field in schema)


def plain_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type):
        return plain_type(type.value_type)
    return pa.string() if pa.types.is_null(type) else type  # a column without values has no type yet


def open_sink(name: str, file: BinaryIO, schema: pa.Schema) -> Sink:
    """Open the format of the ending; CSV if there is none."""
    ending = name.lower()
    if ending.endswith(".parquet"):
        return pq.ParquetWriter(file, schema, write_page_checksum=True)
    if ending.endswith((".feather", ".arrow")):
        return pa.ipc.new_file(file, schema)
    return CsvSink(file, schema, "\t" if ".tsv" in ending[-7:] else ",", ending.endswith(".gz"))


class CsvSink:
    """CSV in UTF-8, with a header, compressed if `is_gzip`."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, separator: str, is_gzip: bool) -> None:
        self.separator = separator
        # Without time and name, the same table gives the same bytes.
        self.gzip = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if is_gzip else None
        self.file = self.gzip or file
        self._write_lines([separator.join(map(csv_cell, schema.names))])

    def write(self, table: pa.Table) -> None:
        columns = [cells_of(column) for column in table.columns]
        separator = pa.scalar(self.separator, pa.large_string())
        self._write_lines(pc.binary_join_element_wise(*columns, separator).to_pylist())

    def _write_lines(self, lines: list[str]) -> None:
        # Only a table of one column has empty lines, which would not count as rows.
        self.file.write("".join([f"{line}\n" if line else '""\n' for line in lines]).encode())

    def close(self) -> None:
        if self.gzip:
            self.gzip.close()


def cells_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write the cells as in CSV: the shortest numbers that are read back exactly, escaped text, "" if missing."""
    cells = pc.fill_null(pc.cast(column, pa.large_string()), "")
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.equal(cells, "nan"), "", cells)
    if pa.types.is_primitive(column.type) or pa.types.is_decimal(column.type):  # integers, booleans, dates
        return cells
    return pa.chunked_array([[csv_cell(cell) for cell in cells.to_pylist()]], pa.large_string())


def csv_cell(text: str) -> str:
    r"""Write a text cell that no spreadsheet runs as a formula, in quotation marks if necessary.

    >>> csv_cell("=1+1"), csv_cell("-5"), csv_cell("oak, ash")
    ('"\'=1+1"', '-5', '"oak, ash"')
    """
    if FORMULA.match(text) and not PLAIN_NUMBER.fullmatch(text):
        text, needs_quotes = f"'{text}", True
    else:
        needs_quotes = NEEDS_QUOTES.search(text) is not None
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text

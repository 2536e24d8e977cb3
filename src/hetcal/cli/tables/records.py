"""The records of a CSV file as columns of text, batch by batch.

They are parsed by Python's csv module and not by the faster pyarrow.csv, whose error messages are worse: it skips blank
lines without counting them, so that its row numbers are not those of the file, and it accepts NUL bytes and text after
a closing quotation mark. Memory is bounded by limits on the rows, cells and characters of a batch.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hetcal.cli.tables.dialect import BLANKS, CsvFormat, find_dialect, join_blanks
from hetcal.cli.tables.sources import TableSource, reading_errors

# More rows at once are slower, because Python's garbage collector visits all of them repeatedly.
BATCH_ROWS = 10_000
BATCH_CELLS = 1_000_000
MAX_COLUMNS = 100_000
MAX_CHARACTERS = 1 << 26  # of a row, and of a batch
QUOTED = re.compile('"[^"]*"')
UNDECODED = re.compile("[\udc80-\udcff]")


@dataclass
class Batch:
    """Some rows of some columns, and their numbers as messages show them."""

    data: pa.RecordBatch
    rows: NDArray[np.int64]
    size: int  # approximate bytes in memory, every label written out


def check_count(name: str, count: int) -> None:
    if count > MAX_COLUMNS:
        raise ValueError(f"{name} has {count} columns; at most {MAX_COLUMNS} are read")


def check_names(name: str, columns: Sequence[str], or_else: str = "") -> None:
    """Check that columns have different names, and that there are not too many."""
    check_count(name, len(columns))
    places: dict[str, int] = {}
    for place, column in enumerate(columns, start=1):
        if not column:
            raise ValueError(f"column {place} of {name} has no name; name it or delete it{or_else}")
        if column in places:
            where = f"columns {places[column]} and {place}"
            raise ValueError(f"{name} has two columns named {column!r} ({where}); rename one of them{or_else}")
        places[column] = place


class TextTable:
    """A CSV file: its columns, then its rows. A blank line is not a row, but is counted, as in a spreadsheet."""

    def __init__(self, source: TableSource, format: CsvFormat) -> None:
        self.source = source
        self.name = source.name
        self.dialect = find_dialect(source.name, source.head, source.is_whole, format)
        self.text = io.TextIOWrapper(source.stream, self.dialect.encoding, errors="surrogateescape", newline="")
        self.reader = csv.reader(self._lines(), delimiter=self.dialect.separator, strict=True, skipinitialspace=True)
        self.row = 1  # of the record that is read next
        self.size = 0  # characters read for this batch
        first = next(filter(None, self._records()), None)
        if first is None:
            raise ValueError(f"{self.name} is empty; give a file with a header and rows")
        self.first_row = self.row - 1
        self.pending = [] if self.dialect.has_header else [first]
        numbered = (f"column_{place}" for place in range(1, len(first) + 1))
        self.columns = [cell.strip() for cell in first] if self.dialect.has_header else list(numbered)
        self.schema = pa.schema([(column, pa.string()) for column in self.columns])
        check_names(self.name, self.columns, f", or give --no-header if row {self.first_row} holds data")

    def close(self) -> None:
        self.text.close()

    @property
    def decimal(self) -> str:
        return self.dialect.decimal

    @property
    def share(self) -> float | None:
        """The approximate share of the file that was read; None if that cannot be known."""
        return self.source.share

    def batches(self, wanted: Sequence[str], rows: int) -> Iterator[Batch]:
        """The wanted columns, at most `rows` rows at once."""
        limit = max(1, min(rows, BATCH_ROWS, BATCH_CELLS // len(self.columns)))
        block, self.pending = self.pending, []
        for record in self._records():
            block.append(record)
            if len(block) >= limit or self.size > MAX_CHARACTERS:
                yield from self._batch(block, wanted)
                block, self.size = [], 0
        yield from self._batch(block, wanted)

    def _batch(self, block: list[list[str]], wanted: Sequence[str]) -> Iterator[Batch]:
        """Convert a block to columns, unless it is empty. Every record must have one cell per column."""
        width = len(self.columns)
        numbers = np.arange(self.row - len(block), self.row)
        if set(map(len, block)) != {width}:
            for number, record in zip(numbers, block, strict=True):
                if len(record) not in (0, width):
                    raise ValueError(
                        f"row {number} of {self.name} has {len(record)} cells, but row {self.first_row} has {width}; "
                        "repair it, put cells that hold the separator in quotation marks, or give --separator"
                    )
            numbers = numbers[[len(record) > 0 for record in block]]
            block = list(filter(None, block))
        if block:
            cells = dict(zip(self.columns, zip(*block, strict=True), strict=True))
            arrays = [pa.array(cells[column], pa.string()) for column in wanted]
            data = pa.RecordBatch.from_arrays(arrays, list(wanted))
            yield Batch(data, numbers, data.nbytes)

    def _records(self) -> Iterator[list[str]]:
        try:
            for record in self.reader:
                self.row += 1
                yield record
        except csv.Error as error:
            if "limit" in str(error):
                limit = csv.field_size_limit()
                fault = f"has a cell of more than {limit} characters; check that every quotation mark is closed"
            elif "end of data" in str(error):
                fault = "opens a quotation mark that is never closed; close it"
            else:
                fault = "has text after a closing quotation mark; double the quotation marks inside a cell"
            raise ValueError(f"row {self.row} of {self.name} {fault}") from None

    def _lines(self) -> Iterator[str]:
        """Yield the lines; content that no table has is refused."""
        with reading_errors(self.name):
            while line := self._line():
                self.size += len(line)
                # A batch ends once it exceeds the limit, so anything beyond belongs to a single row.
                if len(line) == MAX_CHARACTERS or self.size > 2 * MAX_CHARACTERS:
                    fault = f"has over {MAX_CHARACTERS} characters; check that the file is a table"
                    raise ValueError(f"row {self.row} of {self.name} {fault}")
                if "\0" in line:
                    raise ValueError(f"row {self.row} of {self.name} holds NUL bytes; export the table as CSV again")
                if len(line) > MAX_COLUMNS:
                    # Counted before the line is divided, since cells take far more memory than their separators.
                    cells = 1 + QUOTED.sub("", line).count(self.dialect.separator)
                    check_count(self.name if self.row == 1 else f"row {self.row} of {self.name}", cells)
                if not line.isascii() and UNDECODED.search(line):
                    raise self._undecoded()
                yield line

    def _line(self) -> str:
        try:
            line = self.text.readline(MAX_CHARACTERS)
        except UnicodeError:
            raise self._undecoded() from None
        line = line.removeprefix("\ufeff") if self.row == 1 else line
        return join_blanks(line) if line and self.dialect.separator == BLANKS else line

    def _undecoded(self) -> ValueError:
        return ValueError(
            f"row {self.row} of {self.name} holds bytes that are not {self.dialect.encoding} text; "
            "give the encoding of the file, for example --encoding cp1252, or repair it"
        )

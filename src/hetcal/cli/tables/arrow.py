"""Parquet and Feather (Arrow IPC) files as columns, batch by batch.

Memory is bounded before it is allocated: row groups and record batches are refused if they are huge according to their
metadata, and a label that is stored once but repeated in many rows makes batches shorter. A row group is read page by
page, a record batch as a whole, as it was written. Checksums are verified if a file has them, and errors of pyarrow for
a damaged file are reported in one sentence.
"""

import contextlib
import csv
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hetcal.cli.tables.kinds import is_text
from hetcal.cli.tables.messages import largest_batch
from hetcal.cli.tables.records import BATCH_CELLS, BATCH_ROWS, Batch, check_count, check_names

MAX_GROUP_BYTES = 4 << 30
BATCH_BYTES = 1 << 26  # of the text in a batch
BUFFER_BYTES = 1 << 20
PROBE_ROWS = 100
# The name that pandas gives to an index without a name: it holds row numbers and is not a column of the table.
INDEX = "__index_level_"


@contextlib.contextmanager
def damage(name: str) -> Iterator[None]:
    """Report the error of pyarrow for a file that it cannot read in one sentence."""
    try:
        yield
    except MemoryError:
        raise ValueError(f"{name} needs more memory than is available; write it in smaller row groups") from None
    except (pa.ArrowException, OSError, UnicodeError) as error:
        said = str(error).strip().split("\n")[0].rstrip(". ")[:200]
        raise ValueError(f"{name} is damaged or truncated ({said}); copy or write it again") from None


def check_size(name: str, part: str, size: int) -> None:
    if size > MAX_GROUP_BYTES:
        advice = f"write it in {part}s of at most {MAX_GROUP_BYTES >> 30} GiB"
        raise ValueError(f"{name} has a {part} that decompresses to {size / 2**30:.1f} GiB; {advice}")


def holds_text(type: pa.DataType) -> bool:
    return is_text(type.value_type if pa.types.is_dictionary(type) else type)


def text_lengths(cells: pa.Array) -> NDArray[np.int64]:
    """The bytes of every cell of a text column; a repeated label counts every time."""
    if pa.types.is_dictionary(cells.type):
        labels = np.append(text_lengths(cells.dictionary), 0)
        lengths: NDArray[np.int64] = labels[cells.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return lengths
    if pa.types.is_string_view(cells.type):  # pyarrow cannot measure these; each view begins with its length
        views = np.frombuffer(cells.buffers()[1], np.int32)[::4]
        return np.where(cells.is_valid(), views[cells.offset : cells.offset + len(cells)], 0).astype(np.int64)
    return pc.fill_null(pc.binary_length(cells), 0).to_numpy(zero_copy_only=False).astype(np.int64)


class ArrowTable:
    """What the two formats share: column names, and batches with row numbers."""

    decimal = "."
    file: Any
    share: float | None = 0.0  # of the file, read so far

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.schema = schema
        with damage(name):  # names that are not text
            self.columns = [column for column in schema.names if not column.startswith(INDEX)]
        check_names(name, self.columns)

    def close(self) -> None:
        self.file.close()

    def batches(self, wanted: Sequence[str], rows: int) -> Iterator[Batch]:
        """The wanted columns, at most `rows` rows at once."""
        limit = max(1, min(rows, BATCH_CELLS // max(len(wanted), 1)))
        start = 1
        with damage(self.name):
            for data in self._read(list(wanted), limit):
                data.validate(full=True)
                rest = data.select(list(wanted))
                while rest.num_rows:
                    sizes = self._text_sizes(rest.slice(0, limit), start)
                    count = max(1, int(np.searchsorted(sizes, BATCH_BYTES, side="right")))
                    numbers = np.arange(start, start + count)
                    part = rest.slice(0, count)
                    yield Batch(part, numbers, part.nbytes + int(sizes[count - 1]))
                    rest = rest.slice(count)
                    start += count

    def _text_sizes(self, data: pa.RecordBatch, start: int) -> NDArray[np.int64]:
        """The bytes of text up to every row. A cell that would be too long in CSV is refused here too."""
        total = np.zeros(data.num_rows, np.int64)
        for column, cells in zip(data.schema.names, data.columns, strict=True):
            if holds_text(cells.type):
                lengths = text_lengths(cells)
                if lengths.max() > csv.field_size_limit():
                    row = start + int(np.argmax(lengths > csv.field_size_limit()))
                    fault = f"has a cell of more than {csv.field_size_limit()} bytes in column {column!r}"
                    raise ValueError(f"row {row} of {self.name} {fault}; shorten it or remove the column")
                total += lengths
        return np.cumsum(total)

    def _read(self, wanted: list[str], limit: int) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class ParquetTable(ArrowTable):
    """A Parquet file, read page by page: no row group is ever in memory as a whole."""

    def __init__(self, name: str, path: Path) -> None:
        self.path = path
        with damage(name):
            self.file = self._open()
            metadata = self.file.metadata
            check_count(name, metadata.num_columns)
            self.groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
            schema = self.file.schema_arrow
        check_size(name, "row group", max((group.total_byte_size for group in self.groups), default=0))
        super().__init__(name, schema)

    def _open(self, **options: Any) -> pq.ParquetFile:
        # Without a buffer size, a column of a row group is read as a whole.
        safe = {"pre_buffer": False, "buffer_size": BUFFER_BYTES, "page_checksum_verification": True}
        return pq.ParquetFile(self.path, **safe, **options)

    def _read(self, wanted: list[str], limit: int) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in self.file.iter_batches(self._safe_rows(wanted, limit), columns=wanted):
            done += batch.num_rows
            self.share = done / max(self.file.metadata.num_rows, 1)
            yield batch

    def _safe_rows(self, wanted: list[str], limit: int) -> int:
        """The number of rows that can be read at once, even if all of them repeat the longest labels.

        The metadata give the size of text as it is stored: a label only once even if many rows have it, or only the
        difference from the previous cell.
        """
        texts = {column for column in wanted if holds_text(self.schema.field(column).type)}
        if not texts:
            return limit
        rows = limit
        with self._open(metadata=self.file.metadata, read_dictionary=list(texts)) as file:
            for place, group in enumerate(self.groups):
                chunks = [group.column(number) for number in range(group.num_columns)]
                chunks = [chunk for chunk in chunks if chunk.path_in_schema in texts]
                stored = sum(chunk.total_uncompressed_size for chunk in chunks)
                if stored * min(rows, group.num_rows) <= BATCH_BYTES:
                    continue
                deltas = [chunk for chunk in chunks if "DELTA_BYTE_ARRAY" in chunk.encodings]
                worst = sum(chunk.total_uncompressed_size for chunk in deltas)
                rows = min(rows, max(1, MAX_GROUP_BYTES // max(worst, 1)))
                others = [chunk.path_in_schema for chunk in chunks if chunk not in deltas]
                widest = longest_labels(file, place, others) + stored // max(group.num_rows, 1)
                rows = min(rows, max(1, BATCH_BYTES // max(widest, 1)))
        return rows


def longest_labels(file: pq.ParquetFile, group: int, columns: list[str]) -> int:
    """The bytes of a row with the longest label of every column, from the dictionaries of a row group."""
    longest = dict.fromkeys(columns, 0)
    # A dictionary is known at the first cell that is not missing; columns that start with missing cells are read on.
    for rows, most in ((PROBE_ROWS, 1), (BATCH_ROWS, None)):
        unseen = [column for column, length in longest.items() if not length]
        batches = file.iter_batches(rows, row_groups=[group], columns=unseen) if unseen else iter(())
        for batch in islice(batches, most):
            for column in unseen:
                longest[column] = max(longest[column], int(text_lengths(batch[column].dictionary).max(initial=0)))
            if all(longest.values()):
                break
    return sum(longest.values())


class FeatherTable(ArrowTable):
    """A Feather or Arrow file, read in the record batches in which it was written."""

    def __init__(self, name: str, path: Path) -> None:
        with damage(name):
            self.file = pa.OSFile(str(path))
            schema = pa.ipc.open_file(self.file).schema
        try:
            largest = largest_batch(path)
        except struct.error:
            said = "its metadata point outside the file"
            raise ValueError(f"{name} is damaged or truncated ({said}); copy or write it again") from None
        check_size(name, "record batch", largest)
        super().__init__(name, schema)

    def _read(self, wanted: list[str], limit: int) -> Iterator[pa.RecordBatch]:
        fields = [self.schema.get_field_index(column) for column in wanted]
        reader = pa.ipc.open_file(self.file, options=pa.ipc.IpcReadOptions(included_fields=fields))
        for place in range(reader.num_record_batches):
            self.share = (place + 1) / reader.num_record_batches
            yield reader.get_batch(place)

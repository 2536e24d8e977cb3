"""Parquet and Feather (Arrow IPC) files as columns, batch by batch.

Sizes are read from the metadata before memory is taken, checksums are verified where a file has them, and whatever
pyarrow says of a damaged file becomes one sentence.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hetcal.tables.records import BATCH_CELLS, Batch, check_count, check_names

MAX_GROUP_BYTES = 4 << 30
BUFFER_BYTES = 1 << 20
# pandas' name for an index without a name: row numbers of another table, and no column of this one.
INDEX = "__index_level_"


@contextlib.contextmanager
def damage(name: str) -> Iterator[None]:
    """What pyarrow says of a file it cannot read, in one sentence."""
    try:
        yield
    except MemoryError:
        raise ValueError(f"{name} needs more memory than there is; write it in smaller row groups") from None
    except (pa.ArrowException, OSError, UnicodeError) as error:
        said = str(error).strip().split("\n")[0].rstrip(". ")[:200]
        raise ValueError(f"{name} is damaged or cut short ({said}); copy or write it again") from None


class ArrowTable:
    """What the two formats share: names of columns, and batches with row numbers."""

    decimal = "."
    file: Any
    share: float | None = 0.0  # how much of it was read

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.schema = schema
        with damage(name):  # names that are not text
            self.columns = [column for column in schema.names if not column.startswith(INDEX)]
        check_names(name, self.columns)

    def close(self) -> None:
        self.file.close()

    def batches(self, wanted: Sequence[str], rows: int) -> Iterator[Batch]:
        """The rows, of the wanted columns, at most `rows` at once."""
        limit = max(1, min(rows, BATCH_CELLS // max(len(wanted), 1)))
        start = 1
        with damage(self.name):
            for data in self._read(list(wanted), limit):
                data.validate(full=True)
                for offset in range(0, data.num_rows, limit):
                    part = data.select(list(wanted)).slice(offset, limit)
                    yield Batch(part, np.arange(start, start + part.num_rows))
                    start += part.num_rows

    def _read(self, wanted: list[str], limit: int) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class ParquetTable(ArrowTable):
    """A Parquet file, read page by page: a row group is never in memory as a whole."""

    def __init__(self, name: str, path: Path) -> None:
        with damage(name):
            # Without the buffer size a column of a row group is read as a whole.
            options = {"pre_buffer": False, "buffer_size": BUFFER_BYTES, "page_checksum_verification": True}
            self.file = pq.ParquetFile(path, **options)
            metadata = self.file.metadata
            check_count(name, metadata.num_columns)
            groups = [metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups)]
            schema = self.file.schema_arrow
        if max(groups, default=0) > MAX_GROUP_BYTES:
            largest = f"{max(groups) / 2**30:.1f} GiB"
            advice = f"write it in row groups of at most {MAX_GROUP_BYTES >> 30} GiB"
            raise ValueError(f"{name} has a row group that unpacks to {largest}; {advice}")
        super().__init__(name, schema)

    def _read(self, wanted: list[str], limit: int) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in self.file.iter_batches(limit, columns=wanted):
            done += batch.num_rows
            self.share = done / max(self.file.metadata.num_rows, 1)
            yield batch


class FeatherTable(ArrowTable):
    """A Feather or Arrow file, read record batch by record batch, as its writer cut it."""

    def __init__(self, name: str, path: Path) -> None:
        with damage(name):
            self.file = pa.OSFile(str(path))
            schema = pa.ipc.open_file(self.file).schema
        super().__init__(name, schema)

    def _read(self, wanted: list[str], limit: int) -> Iterator[pa.RecordBatch]:
        fields = [self.schema.get_field_index(column) for column in wanted]
        reader = pa.ipc.open_file(self.file, options=pa.ipc.IpcReadOptions(included_fields=fields))
        for place in range(reader.num_record_batches):
            self.share = (place + 1) / reader.num_record_batches
            yield reader.get_batch(place)

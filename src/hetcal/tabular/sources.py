"""Rows of tables that need not fit into memory: Parquet files, data sets and batches of Arrow or of any data frame."""

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats, must
from hetcal.tabular.columns import Table, match_kinds, read_table

ROWS_OF_A_BATCH = 32_768
PAGE_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class SourceRows:
    """Some rows of a source."""

    table: Table  # the features
    y: Floats  # (n,) or (n, k)
    groups: NDArray[Any] | None  # (n,) labels


def is_stream(X: Any) -> bool:
    """Whether X is a file, a folder, a data set or batches, instead of a table in memory."""
    if isinstance(X, str | os.PathLike) or callable(X) or is_dataset(X) or isinstance(X, Iterator):
        return True
    return (
        isinstance(X, list | tuple)
        and len(X) > 0
        and all(nw.dependencies.is_into_dataframe(as_frame(one)) for one in X)
    )


def is_dataset(X: Any) -> bool:
    return type(X).__module__.startswith("pyarrow") and hasattr(X, "to_batches") and hasattr(X, "get_fragments")


class RowSource:
    """Rows of a table, batch by batch, as often as they are asked for.

    Args:
        X: A Parquet file or a folder of them, a `pyarrow.dataset.Dataset`, a list of batches, a function that returns
            batches, or an iterator over them, which is written to a temporary file first. A batch is a data frame: of
            Arrow, pandas, polars, ...
        target: The column or columns of y.
        group: The column of the groups, or None.
        read_target: Checks the values of y, and returns them as an array.
        drop: Columns that are not features.
        omits_missing: Whether rows without a target are omitted; `omitted` is their number in the last pass.
    """

    def __init__(
        self,
        X: Any,
        target: str | Sequence[str],
        group: str | None,
        read_target: Callable[[NDArray[Any]], Floats],
        *,
        drop: Sequence[str] = (),
        omits_missing: bool = False,
    ) -> None:
        self.targets = check_column_names("y", target)
        self.group = None if group is None else check_column_names("groups", group)[0]
        self.read_target, self.drop, self.omits_missing, self.omitted = read_target, tuple(drop), omits_missing, 0
        if isinstance(X, Iterator):
            X = self.keep(X)
        self.frames: Callable[[], Iterable[Any]] = frames_of(X)

    def __iter__(self) -> Iterator[SourceRows]:
        kinds, self.omitted = None, 0
        for number, frame in enumerate(map(as_frame, self.frames())):
            if isinstance(frame, SourceRows):
                yield frame
                continue
            if not nw.dependencies.is_into_dataframe(frame):
                advice = "give Arrow record batches or data frames"
                raise must("X", "have batches of rows", type(frame).__name__, advice, TypeError)
            native = nw.from_native(frame, eager_only=True)
            if not len(native):
                continue
            rows = self.split(native, number, kinds)
            kinds = rows.table.kinds if kinds is None else kinds
            yield rows

    def split(self, frame: Any, number: int, kinds: dict[str, Any] | None) -> SourceRows:
        """Features, target and groups of a batch; the features must be those of the first batch, in any order."""
        for name in [*self.targets, *([] if self.group is None else [self.group]), *self.drop]:
            if name not in frame.columns:
                argument = "y" if name in self.targets else "groups" if name == self.group else "drop"
                raise must(argument, f"be one of {list(frame.columns)}", name, "name a column of X")
        if self.omits_missing:
            rows = len(frame)
            frame = frame.drop_nulls(subset=self.targets)
            self.omitted += rows - len(frame)
        columns = [numbers_of(frame[name]) for name in self.targets]
        y = self.read_target(columns[0] if len(columns) == 1 else np.column_stack(columns))
        groups = None if self.group is None else np.asarray(frame[self.group].to_list(), dtype=object)
        others = [name for name in frame.columns if name not in (*self.targets, self.group, *self.drop)]
        if kinds is None:
            if not others:
                raise must("X", "have columns besides y and groups", list(frame.columns), "add features")
            return SourceRows(read_table(frame.select(others).to_native()), y, groups)
        check_same_columns(f"batch {number} of X", others, list(kinds))
        texts = {place for place, kind in enumerate(kinds.values()) if kind == "text"}
        table = read_table(frame.select(list(kinds)).to_native(), texts)
        match_kinds(table, kinds, f"in the first batch (batch {number} of X differs)")
        return SourceRows(table, y, groups)

    def keep(self, batches: Iterator[Any]) -> Path:
        """Write batches that can be read only once to a temporary Parquet file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        scratch = tempfile.TemporaryDirectory(prefix="hetcal-")
        weakref.finalize(self, scratch.cleanup)
        path = Path(scratch.name) / "rows.parquet"
        writer = None
        try:
            for batch in batches:
                rows = nw.from_native(as_frame(batch), eager_only=True).to_arrow()
                if writer is None:
                    writer = pq.ParquetWriter(path, rows.schema)
                if rows.schema != writer.schema:
                    rule = f"have the same columns and types in all batches: {writer.schema.names}"
                    try:
                        rows = rows.select(writer.schema.names).cast(writer.schema)
                    except (pa.ArrowException, KeyError):
                        raise must("X", rule, rows.schema.names, "write them alike") from None
                writer.write_table(rows, row_group_size=ROWS_OF_A_BATCH)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise must("X", "have rows", "no batches", "give at least one batch")
        return path


def numbers_of(series: Any) -> NDArray[Any]:
    """The values of a target; missing ones are NaN, whatever the frame calls them."""
    is_numeric = series.dtype.is_numeric() or bool(series.is_null().all())
    return np.asarray((series.cast(nw.Float64) if is_numeric else series).to_numpy())


def as_frame(batch: Any) -> Any:
    """A record batch as a table; anything else unchanged."""
    if type(batch).__name__ != "RecordBatch":
        return batch
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def check_column_names(argument: str, names: Any) -> list[str]:
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        advice = f"for files and batches {argument} is part of X"
        raise must(argument, "be the name of a column of X", type(names).__name__, advice, TypeError)
    return list(names)


def frames_of(X: Any) -> Callable[[], Iterable[Any]]:
    """A function that reads X from its beginning."""
    if callable(X):
        return X
    if isinstance(X, list | tuple):
        return lambda: X
    try:
        import pyarrow.dataset as ds
    except ImportError:
        raise ImportError("Parquet files are read by pyarrow; install it with: pip install 'hetcal[cli]'") from None
    dataset = X if is_dataset(X) else open_parquet(Path(X))
    options = {}
    if isinstance(dataset, ds.FileSystemDataset):
        check_parts(dataset)
        # Only the pages of a row group that are needed: memory stays bounded.
        safe = {"use_buffered_stream": True, "buffer_size": PAGE_BYTES, "pre_buffer": False}
        options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(**safe)
    return partial(
        dataset.to_batches,
        batch_size=ROWS_OF_A_BATCH,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
        **options,
    )


def open_parquet(path: Path) -> Any:
    """The data set in a Parquet file, or in a folder of them."""
    import pyarrow.dataset as ds

    rule = "be a Parquet file or a folder of them"
    if not path.exists():
        raise must("X", rule, str(path), "there is no such file", FileNotFoundError)
    try:
        dataset = ds.dataset(path, format="parquet")
    except (OSError, ValueError) as error:
        said = str(error).splitlines()[0][:200]
        raise must("X", f"{rule} ({said})", str(path), "write it as Parquet; hetcal fit reads other formats") from None
    if not dataset.files:
        raise must("X", rule, str(path), "the folder has no files")
    return dataset


def check_parts(dataset: Any) -> None:
    """Refuse files with other columns: Arrow would fill in missing values silently."""
    names = None
    for part in dataset.get_fragments():
        now = [name for name in part.physical_schema.names if not name.startswith("__index_level_")]
        names = names or now
        check_same_columns(f"the file {part.path}", now, names)


def check_same_columns(part: str, now: Sequence[str], names: Sequence[str]) -> None:
    if set(now) != set(names):
        missing, new = [name for name in names if name not in now], [name for name in now if name not in names]
        rule = f"have the columns of the first one; it lacks {missing} and adds {new}"
        raise must(part, rule, list(now), "write all parts with the same columns")

"""Encoded rows in a scratch file, for tables that do not fit into memory.

A table is read and encoded once; training then reads the numbers back in random order. The file is on the disk of the
temporary folder (TMPDIR) and disappears with the object, or with the process.
"""

import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.splitting import Keys
from hetcal.training.streams import StreamBlock
from hetcal.training.workers import ALONE, Workers

# Rows that are next to each other in the file are read together, and many such runs are shuffled together.
RUN_ROWS = 1024
MOST_RUNS, BLOCK_BYTES = 64, 1 << 26


class Spool:
    """The rows: inputs (float32), targets (float64) and keys."""

    def __init__(self, n_inputs: int, n_targets: int) -> None:
        self.file = tempfile.TemporaryFile(prefix="hetcal-")  # noqa: SIM115 - it lives as long as the object
        weakref.finalize(self, self.file.close)
        self.dtype = np.dtype([("x", "<f4", (n_inputs,)), ("y", "<f8", (n_targets,)), ("key", "<u8")])
        self.rows = 0

    def __len__(self) -> int:
        return self.rows

    def append(self, x: NDArray[np.float32], y: Floats, keys: Keys) -> None:
        records = np.empty(len(x), self.dtype)
        records["x"], records["y"], records["key"] = x, y.reshape(len(x), -1), keys
        try:
            self.file.seek(0, os.SEEK_END)
            self.file.write(records.tobytes())
            self.file.flush()
        except OSError as error:
            raise OSError(
                error.errno,
                f"the encoded rows cannot be written to {tempfile.gettempdir()} ({error.strerror}); set TMPDIR to a "
                f"folder with {self.dtype.itemsize} bytes for each row",
            ) from None
        self.rows += len(x)

    def read(self, start: int, stop: int) -> NDArray[np.void]:
        size = self.dtype.itemsize
        self.file.seek(size * start)
        return np.frombuffer(self.file.read(size * (stop - start)), self.dtype)

    def blocks(self, generator: torch.Generator) -> Iterator[NDArray[np.void]]:
        """All rows once, in blocks of runs that are chosen at random; the rows of a block are shuffled."""
        starts = torch.arange(0, self.rows, RUN_ROWS)
        starts = starts[torch.randperm(len(starts), generator=generator)]
        runs = max(1, min(MOST_RUNS, BLOCK_BYTES // (RUN_ROWS * self.dtype.itemsize)))
        for chosen in starts.split(runs):
            block = np.concatenate([self.read(start, min(start + RUN_ROWS, self.rows)) for start in chosen.tolist()])
            yield block[torch.randperm(len(block), generator=generator).numpy()]


@dataclass(frozen=True, eq=False)
class SpooledRows:
    """A spool as training reads it (`hetcal.training.streams.RowStream`)."""

    spool: Spool
    sample_keys: Keys
    name: str  # of the training
    standardize: Callable[[Floats], NDArray[np.float32]]  # from y to the numbers that are trained on
    workers: Workers = ALONE  # each has a spool of its own
    total: int | None = None  # rows of all workers

    def __len__(self) -> int:
        return len(self.spool) if self.total is None else self.total

    def blocks(self, generator: torch.Generator) -> Iterator[StreamBlock]:
        while True:
            for records in self.spool.blocks(generator):
                y = records["y"][:, 0] if records["y"].shape[1] == 1 else records["y"]
                x = torch.from_numpy(np.ascontiguousarray(records["x"]))
                yield StreamBlock(x, torch.from_numpy(self.standardize(y)), records["key"].copy())

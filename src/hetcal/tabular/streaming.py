"""Preparing tables that do not fit into memory, in two passes: statistics and a sample, then the encoded rows.

Everything that needs many rows at once (the encoder, the scale of the target, trees, linear members, held-out rows
that choose and calibrate) is learned from a random sample; the networks are trained on all rows. A table that fits
into the sample is fitted exactly as if it were given as a table.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hetcal._checks import Floats, must
from hetcal.splitting import Keys, hash_keys
from hetcal.tabular.columns import Table
from hetcal.tabular.encoding import TableEncoder, range_of
from hetcal.tabular.keys import keys_of_labels, keys_of_rows
from hetcal.tabular.preparing import ReadTarget, TrainingRows, prepare_table, warn_of_no_information
from hetcal.tabular.rows import number_equal_rows, numbers_repeat
from hetcal.tabular.sources import RowSource, SourceRows
from hetcal.tabular.spool import Spool
from hetcal.training.workers import ALONE, Workers

SAMPLE_ROWS = 100_000
# With fewer, chance might leave all groups to one member.
FEWEST_GROUPS = 20

Range = tuple[float, float] | None


def prepare_stream(
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    read_target: ReadTarget,
    seed: int,
    remember: Callable[[Table], Any],
) -> TrainingRows:
    """Prepare files or batches for training; `remember` gets the table of the sample, for the names of the columns."""
    if sample_weight is not None:
        advice = "repeat rows, or give a table in memory"
        raise must("sample_weight", "be None for files and batches", type(sample_weight).__name__, advice)
    if isinstance(X, Shard):
        source, sample, workers = RowSource(X.frames, y, groups, read_target), X.sample, X.workers
    else:
        source, workers = RowSource(X, y, groups, read_target), ALONE
        sample = Sample(SAMPLE_ROWS, np.random.default_rng(seed))
        for rows in source:
            sample.add(rows)
    if not sample.seen:
        raise must("X", "have rows", "none", "give a file with rows")
    table, target, labels, numbers = sample.rows()
    remember(table)
    if sample.seen == len(target):
        return prepare_table(table, target, None, labels, lambda values: values, seed)
    if labels is not None and (count := len(np.unique(labels.astype(str)))) < FEWEST_GROUPS:
        rule = f"have at least {FEWEST_GROUPS} different labels for files and batches, because a hash divides them"
        raise must("groups", rule, count, "omit it, or give a table in memory")
    encoder = TableEncoder().fit(table, np.ones(len(table)))
    encoder.ranges |= sample.ranges
    warn_of_no_information(encoder)
    # Many equal rows: to hold out all of them would leave nothing to learn them from.
    are_repeated = labels is None and numbers_repeat(number_equal_rows(table, target))
    spool, first = Spool(encoder.transform(table.take([0])).shape[1], target.reshape(len(target), -1).shape[1]), 0
    for rows in source:
        keys = keys_of(rows, np.arange(first, first + len(rows.y)) if are_repeated else None)
        spool.append(encoder.transform(rows.table), rows.y, keys)
        first += len(rows.y)
    keys = keys_of(SourceRows(table, target, labels), numbers if are_repeated else None)
    ones = np.ones(len(target))
    x = torch.from_numpy(encoder.transform(table))
    return TrainingRows(target, ones, ones, float(sample.seen), None, encoder, x, seed, spool, keys, workers)


@dataclass
class Sample:
    """A random sample of at most `size` rows of a stream, and the ranges of its columns."""

    size: int
    generator: np.random.Generator
    seen: int = 0
    ranges: dict[str, Range] = field(default_factory=dict)
    parts: list[tuple[Floats, NDArray[np.int64], SourceRows]] = field(default_factory=list)
    kept: int = 0
    limit: float = 1.0  # rows whose random number is above it cannot be in the sample

    def add(self, rows: SourceRows) -> None:
        """Keep the rows with the smallest random numbers; those that are surely not among them are dropped at once."""
        draws = self.generator.random(len(rows.y))
        chosen = np.flatnonzero(draws < self.limit)
        numbers = self.seen + chosen
        self.parts.append((draws[chosen], numbers, take(rows, chosen)))
        self.seen, self.kept = self.seen + len(rows.y), self.kept + len(chosen)
        for name, values in rows.table.columns.items():
            if rows.table.kind(name) != "text":
                self.ranges[name] = wider(self.ranges.get(name), range_of(values))
        if self.kept > 2 * self.size:
            self.cut()

    def cut(self) -> None:
        draws = np.concatenate([draws for draws, _, _ in self.parts])
        if len(draws) <= self.size:
            return
        self.limit = float(np.partition(draws, self.size)[self.size])
        kept = [(draws < self.limit, draws, numbers, rows) for draws, numbers, rows in self.parts]
        self.parts = [(draws[keep], numbers[keep], take(rows, keep)) for keep, draws, numbers, rows in kept]
        self.kept = self.size

    def rows(self) -> tuple[Table, Floats, NDArray[Any] | None, NDArray[np.int64]]:
        """The sample in the order of the stream: features, targets, labels of groups and numbers of the rows."""
        self.cut()
        tables = [rows.table for _, _, rows in self.parts]
        table = Table({name: np.concatenate([one.columns[name] for one in tables]) for name in tables[0].columns})
        groups = [rows.groups for _, _, rows in self.parts if rows.groups is not None]
        target = np.concatenate([rows.y for _, _, rows in self.parts])
        numbers = np.concatenate([numbers for _, numbers, _ in self.parts])
        return table, target, np.concatenate(groups) if groups else None, numbers

    def merge(self, other: "Sample") -> None:
        """Add the sample of other rows of the same stream; both must have been drawn with the same `limit`."""
        self.parts += [(draws, self.seen + numbers, rows) for draws, numbers, rows in other.parts]
        self.seen, self.kept = self.seen + other.seen, self.kept + other.kept
        for name, seen in other.ranges.items():
            self.ranges[name] = wider(self.ranges.get(name), seen)


def wider(first: Range, second: Range) -> Range:
    """The range that covers both; None covers nothing."""
    known = [one for one in (first, second) if one is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


@dataclass(frozen=True, eq=False)
class Shard:
    """The rows of one of several processes that fit a model together, and the sample that all of them have."""

    frames: Callable[[], Iterable[Any]]  # its batches
    sample: Sample  # of the rows of all processes
    workers: Workers


def take(rows: SourceRows, index: NDArray[Any]) -> SourceRows:
    groups = None if rows.groups is None else rows.groups[index]
    return SourceRows(rows.table.take(index), rows.y[index], groups)


def keys_of(rows: SourceRows, numbers: NDArray[np.int64] | None = None) -> Keys:
    """Keys of rows: of their group, or of all their values; with `numbers`, equal rows have different keys."""
    keys = keys_of_rows(rows.table, rows.y) if rows.groups is None else keys_of_labels(rows.groups)
    return keys if numbers is None else hash_keys(keys ^ numbers.astype(np.uint64))

"""`hetcal fit` on tables that do not fit into memory: training rows stay in their files, test rows are a sample."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import check_choice, must
from hetcal.cli.columns import Observations
from hetcal.cli.options import SPLITS, FitOptions
from hetcal.cli.splits import SplitTable
from hetcal.splitting import Use, uniform_of
from hetcal.tabular.rows import number_equal_rows, numbers_repeat
from hetcal.tabular.sources import RowSource, SourceRows, open_parquet
from hetcal.tabular.streaming import Sample, keys_of, take
from hetcal.tabular.targets import check_regression_target

# Rows that are inspected, and test rows that the model is evaluated on.
INSPECTED_ROWS, EVALUATED_ROWS = 100_000, 100_000


def is_large(options: FitOptions) -> bool:
    return options.stream or Path(options.table).is_dir()


def check_large(options: FitOptions) -> None:
    """Refuse what needs all rows at once, before the table is read."""
    needed = {
        "--time": options.time,
        "--test": options.test,
        "--recalibrate": options.recalibrate,
        "--split": None if options.split == SPLITS[0] else options.split,
        "--method": options.method if options.method == "auto" else None,
    }
    for option, value in needed.items():
        if value is not None:
            advice = "omit it, or give a file that fits into memory, without --stream"
            raise must(option, "not be given for a table that is streamed", value, advice)


@dataclass(frozen=True, eq=False)
class LargeTable:
    """The rows of a table, and which of them are test rows; equal rows and rows of a group are on one side."""

    source: RowSource
    test_size: float
    seed: int
    is_by_number: bool = False  # a table of repeated rows: copies may be on both sides

    def split(self) -> Iterator[tuple[SourceRows, NDArray[np.bool_]]]:
        first = 0
        for rows in self.source:
            numbers = np.arange(first, first + len(rows.y)) if self.is_by_number else None
            yield rows, uniform_of(keys_of(rows, numbers), self.seed, Use.TEST) < self.test_size
            first += len(rows.y)

    def training_rows(self) -> Iterator[SourceRows]:
        for rows, is_test in self.split():
            if not is_test.all():
                yield take(rows, np.flatnonzero(~is_test))


@dataclass(frozen=True, eq=False)
class LargeRows:
    """Training rows that stay in their files: what `HCRegressor.fit` takes, and a sample of them."""

    table: LargeTable
    count: int
    sample: Observations
    y: str  # the names of the columns
    groups: str | None

    def __len__(self) -> int:
        return self.count

    @property
    def X(self) -> object:  # noqa: N802 - scikit-learn's name, as in `Observations`
        return self.table.training_rows

    @property
    def n_groups(self) -> int:
        return self.sample.n_groups


def read_large_split(options: FitOptions) -> SplitTable:
    """One pass over the table: a sample of all rows, a sample of the test rows, and their numbers."""
    columns = open_parquet(Path(options.table)).schema.names
    for option, name in [
        ("target", options.target),
        ("group", options.group),
        *(("drop", one) for one in options.drop),
    ]:
        if name is not None:
            check_choice(option, name, columns)
    source = RowSource(
        options.table,
        options.target,
        options.group,
        check_regression_target,
        drop=options.drop,
        omits_missing=options.drop_missing_target,
    )
    table = LargeTable(source, options.test_size, options.seed)
    rows, train, test = draw_samples(table)
    if options.group is None and numbers_repeat(number_equal_rows(*rows.rows()[:2])):
        table = LargeTable(source, options.test_size, options.seed, is_by_number=True)
        rows, train, test = draw_samples(table)
    if not train.seen:
        raise must("the table", "have training rows", "none", "give more rows, or a smaller --test-size")
    large = LargeRows(table, train.seen, observations(train), options.target, options.group)
    how = "at random" if table.is_by_number else "at random, equal rows on one side"
    how = how if options.group is None else f"at random, every {options.group} on one side"
    if not test.seen:
        return SplitTable(observations(rows), large, None, "no test rows", source.omitted, rows.seen)
    tested = observations(test)
    if test.seen > len(tested):
        how += f"; {len(tested):,} of {test.seen:,} test rows are evaluated"
    return SplitTable(observations(rows), large, tested, how, source.omitted, rows.seen)


def draw_samples(table: LargeTable) -> tuple[Sample, Sample, Sample]:
    """Samples of all rows, of the training rows and of the test rows."""
    sizes = INSPECTED_ROWS, INSPECTED_ROWS, EVALUATED_ROWS
    rows, train, test = (Sample(size, np.random.default_rng([table.seed, place])) for place, size in enumerate(sizes))
    for batch, is_test in table.split():
        rows.add(batch)
        train.add(take(batch, np.flatnonzero(~is_test)))
        test.add(take(batch, np.flatnonzero(is_test)))
    if not rows.seen:
        raise must("the table", "have rows", "none", "give a file with rows")
    return rows, train, test


def observations(sample: Sample) -> Observations:
    X, y, groups, _ = sample.rows()
    return Observations(X, y, groups)

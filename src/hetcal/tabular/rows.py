"""The rows of a table as training uses them: weights, groups, the seed, equal rows merged, mixed rows split."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _check_sample_weight

from hetcal._checks import Floats, check_number, must
from hetcal.splitting import check_two_groups
from hetcal.tabular.columns import Table

# Rows of equal X but different class are split into pieces of about a thousandth of the total weight.
PIECES = 1000
# A table consists of repeated rows if it has at least this many times as many rows as different rows.
REPEATS = 5


def check_weights(sample_weight: Any, table: Table) -> tuple[Floats, float]:
    """Return one weight per row, at least 0, and the unit by which the given weights were divided.

    The largest weight is about 1, so that no sum overflows.
    """
    if sample_weight is None:
        return np.ones(len(table)), 1.0
    weights = _check_sample_weight(sample_weight, np.empty((len(table), 1)), dtype=np.float64, ensure_non_negative=True)
    if not (weights > 0).any():
        raise must("sample_weight", "be greater than zero for some row", 0.0, "give at least two rows a weight")
    unit = 2.0 ** np.floor(np.log2(weights.max()))  # a power of two: exact
    return weights / unit, float(unit)


def check_groups(groups: Any, n: int) -> NDArray[np.int64] | None:
    """Return the number of the group of each row, in the order of the sorted labels."""
    if groups is None:
        return None
    labels = column_or_1d(groups)
    if len(labels) != n:
        raise must("groups", f"have one label per row of X ({n})", f"{len(labels)} labels", "give both the same length")
    known, codes = np.unique(labels.astype(str) if labels.dtype.kind == "O" else labels, return_inverse=True)
    check_two_groups(known)
    return codes.astype(np.int64)


def draw_seed(random_state: Any) -> int:
    """Draw an integer seed from None (the system's entropy), an integer, or a NumPy generator, new or legacy."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_number("random_state", random_state, 0, 2**32 - 1, integer=True))


def merge_equal_rows(
    table: Table, y: NDArray[Any], weights: Floats, groups: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Return the rows to keep, their weights and their copies, the number of given rows that each stands for.

    Rows of weight 0 are dropped, equal rows are merged, and their weights summed.

    A weight of 2 is then a row given twice, the order of the rows does not matter, and no row is both a training and a
    validation row. The order of the result depends on ranks only, so that other units do not change it.
    Equal rows of different `groups` are not merged. y is (n,) or (n, k): numbers, or the labels of classes.
    """
    weighted = np.flatnonzero(weights > 0)
    order, is_new = sort_equal_rows(table.take(weighted), y[weighted], None if groups is None else groups[weighted])
    starts = np.flatnonzero(is_new)
    merged_weights = np.add.reduceat(weights[weighted[order]], starts)
    return weighted[order[is_new]], merged_weights, np.diff(np.append(starts, len(order))).astype(np.float64)


def sort_equal_rows(
    table: Table, y: NDArray[Any], groups: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return an order of the rows in which equal ones are adjacent, and which of them differ from the one before."""
    x_ranks = np.column_stack([ranks(values) for values in table.columns.values()])  # (n, columns)
    # Odd multipliers and wrap-around sums: a hash per row, so that one sort is enough instead of one per column.
    multipliers = np.random.default_rng(0).integers(2**63, size=x_ranks.shape[1], dtype=np.uint64) * np.uint64(2) + 1
    x_hashes = (x_ranks * multipliers).sum(axis=1, dtype=np.uint64)
    y_ranks = np.column_stack([np.unique(column, return_inverse=True)[1] for column in y.reshape(len(y), -1).T])
    group_ranks = np.zeros(len(y), dtype=np.uint64) if groups is None else ranks(groups.astype(np.float64))
    order = np.lexsort((group_ranks, *y_ranks.T[::-1], x_hashes))
    keys = np.column_stack([x_ranks, y_ranks.astype(np.uint64), group_ranks])[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    return order, is_new


def number_equal_rows(table: Table, y: NDArray[Any], groups: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Number the different rows; equal rows, in X, y and group, have the same number: (n,)."""
    order, is_new = sort_equal_rows(table, y, groups)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return numbers


def numbers_repeat(numbers: NDArray[np.int64]) -> bool:
    """Whether `number_equal_rows` gave the same numbers so often that the table consists of repeated rows."""
    return consist_of_repeats(np.bincount(numbers).astype(np.float64))


def consist_of_repeats(copies: Floats) -> bool:
    """Whether a table consists of repeated rows, such as thousands of ratings of a few products.

    To hold out a merged row would hold out all of its copies, so that a combination of X and y that makes up much of
    the table would never be learned, or never judged. Then a share of the weight of every row is held out instead.
    """
    return bool(copies.sum() >= REPEATS * len(copies))


def cut_mixed_rows(table: Table, weights: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return merged rows, some repeatedly, and the number of pieces of each: rows of equal X, other class, are split.

    After `merge_equal_rows`, all rows of class "yes" with the same X, such as one town without further columns, are a
    single row, and all rows of class "no" another. If either were held out entirely for validation, training would see
    only the other class. Rows whose X has a single class are not split: their pieces would be training and validation
    rows at once.
    """
    x_ranks = np.column_stack([ranks(values) for values in table.columns.values()])  # (n, columns), equal rows adjacent
    equals_next = (x_ranks[1:] == x_ranks[:-1]).all(axis=1)
    is_mixed = np.append(equals_next, False) | np.append(False, equals_next)
    share = weights / weights.sum()
    counts = np.where(is_mixed, np.maximum(np.round(PIECES * share), 1), 1).astype(np.int64)
    return np.arange(len(weights)).repeat(counts), counts.repeat(counts).astype(np.float64)


def ranks(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Map equal values to equal integers, in the order of the values (missing ones last)."""
    _, codes = np.unique(values if values.dtype == np.float64 else values.astype(str), return_inverse=True)
    return codes.astype(np.uint64)

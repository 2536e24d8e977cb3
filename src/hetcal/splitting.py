"""Splits into training and held-out rows, at random, by groups or in time, for validation, tests and folds.

Rows of one group (a patient, a day) always stay on the same side, so that held-out rows are new to the model in the
same way as the rows that it will predict later.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats, must

RowNumbers = NDArray[np.intp]
Split = tuple[RowNumbers, RowNumbers]  # training rows, held-out rows
Keys = NDArray[np.uint64]  # hashes of rows, which decide what they are used for


class Use(IntEnum):
    """What a key decides; each use hashes it anew, so that uses do not depend on each other."""

    VALIDATION = 1
    PART = 2
    SHARED = 3
    TEST = 4


def split_rows(n: int, test_fraction: float, seed: int, groups: NDArray[np.int64] | None = None) -> Split:
    """Split into training and test rows, in random order; with `groups`, about that fraction of the groups is tested.

    >>> train, test = split_rows(10, test_fraction=0.2, seed=0)
    >>> len(train), len(test)
    (8, 2)
    """
    generator = np.random.default_rng(seed)
    if groups is None:
        order = generator.permutation(n)
        n_train = int((1 - test_fraction) * n)
        return order[:n_train], order[n_train:]
    from sklearn.model_selection import GroupShuffleSplit  # slow to import, and training does not need it

    check_two_groups(groups)
    splitter = GroupShuffleSplit(n_splits=1, test_size=test_fraction, random_state=seed)
    train, test = next(splitter.split(np.empty(n), groups=groups))
    return generator.permutation(train), test


def split_by_time(times: NDArray[Any], test_fraction: float) -> Split:
    """Train on the earlier rows, test on about that fraction of the rows, the latest; equal times stay on one side.

    >>> split_by_time(np.array([2021, 2019, 2021, 2020, 2020]), test_fraction=0.4)
    (array([1, 3, 4]), array([0, 2]))
    """
    known, ranks = np.unique(times, return_inverse=True)
    if len(known) < 2:
        raise must("time", "have at least 2 different values", str(known[0]), "rows of one time cannot be split by it")
    rows_from = np.cumsum(np.bincount(ranks)[::-1])[::-1]  # number of rows at each time or later
    first = 1 + int(np.argmin(np.abs(rows_from[1:] - test_fraction * len(ranks))))
    return np.flatnonzero(ranks < first), np.flatnonzero(ranks >= first)


def split_folds(n: int, folds: int, seed: int, groups: NDArray[np.int64] | None = None) -> list[Split]:
    """Return the training and held-out rows of every fold of a cross-validation; each row is held out once."""
    from sklearn.model_selection import GroupKFold, KFold

    if n < 2 * folds:
        raise must("folds", f"be at most half the number of rows ({n})", folds, "give more rows, or fewer folds")
    if groups is None:
        return list(KFold(folds, shuffle=True, random_state=seed).split(np.empty(n)))
    n_groups = len(np.unique(groups))
    if n_groups < folds:
        raise must("folds", f"be at most the number of groups ({n_groups})", folds, "choose fewer folds")
    return list(GroupKFold(folds, shuffle=True, random_state=seed).split(np.empty(n), groups=groups))


def split_forward(times: NDArray[Any], folds: int) -> list[Split]:
    """Hold out consecutive blocks of rows, each later than its training rows; equal times stay in one block.

    Of folds + 1 blocks with about equally many rows, the first is only trained on.

    >>> split_forward(np.array([2021, 2019, 2022, 2020]), folds=2)
    [(array([1]), array([0, 3])), (array([0, 1, 3]), array([2]))]
    """
    known, ranks, sizes = np.unique(times, return_inverse=True, return_counts=True)
    middle = np.cumsum(sizes) - sizes / 2  # number of rows up to each time
    blocks = np.unique((middle / len(ranks) * (folds + 1)).astype(np.int64), return_inverse=True)[1][ranks]
    if blocks.max() < folds:
        rule = f"divide the rows into {folds + 1} blocks"
        raise must("time", rule, f"{len(known)} different values", "choose fewer folds, or another column")
    return [(np.flatnonzero(blocks < k), np.flatnonzero(blocks == k)) for k in range(1, folds + 1)]


def hold_out(order: RowNumbers, count: int, groups: NDArray[np.int64] | None = None) -> Split:
    """Hold out the first `count` rows of an order; with `groups`, whole groups with about that many rows in total.

    Groups are taken in the order of their first rows, and each one only if it brings the total nearer to `count`. A
    group of most rows is therefore not held out if there are smaller ones. At least one group is held out, and at least
    one remains for training.

    >>> hold_out(np.array([3, 1, 0, 2]), count=1)
    (array([1, 0, 2]), array([3]))
    >>> hold_out(np.array([3, 1, 0, 2]), count=1, groups=np.array([0, 1, 1, 0]))
    (array([1, 2]), array([3, 0]))
    """
    if groups is None or count == 0:
        return order[count:], order[:count]
    drawn = list(dict.fromkeys(groups[order].tolist()))  # in random order
    sizes = np.bincount(groups)
    taken: list[int] = []
    for group in drawn:
        missing = count - int(sizes[taken].sum())
        if sizes[group] < 2 * missing and len(taken) < len(drawn) - 1:
            taken.append(group)
    is_held_out = np.isin(groups[order], taken or [min(drawn, key=lambda group: sizes[group])])
    return order[~is_held_out], order[is_held_out]


def check_two_groups(groups: NDArray[np.int64]) -> None:
    """Refuse a single group, which cannot be split."""
    known = np.unique(groups)
    if len(known) < 2:
        raise must("groups", "name at least 2 groups", known.tolist(), "omit groups if all rows belong together")


def hash_keys(keys: Keys, *salt: int) -> Keys:
    """Hash keys anew (SplitMix64), for a use that the `salt` tells from others.

    >>> hash_keys(np.array([1, 2], dtype=np.uint64), 7).tolist()
    [4555703879086989499, 4086292742513199618]
    """
    golden = 0x9E3779B97F4A7C15
    with np.errstate(over="ignore"):
        for value in (0, *salt):
            keys = keys + np.uint64((golden * (value + 1)) % 2**64)
            keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            keys = keys ^ (keys >> np.uint64(31))
    return keys


def uniform_of(keys: Keys, *salt: int) -> Floats:
    """A number in [0, 1) for each key: equal keys have equal numbers, different ones independent numbers."""
    return (hash_keys(keys, *salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53

"""Which rows each member of an ensemble holds out: its own part, and some rows of the next member's part."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetcal.splitting import Keys, Use, hash_keys, uniform_of
from hetcal.training.rows import GroupNumbers

PARTS = 4
# With few rows a member should see most of them, and training is cheap.
FEWER_ROWS, PARTS_OF_FEWER_ROWS = 600, 8
# A member also holds out this fraction of the next member's part: rows that two members of a group have not seen.
SHARED_FRACTION = 1 / 8

RowIndex = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Division:
    """Row numbers by member, group after group."""

    own: Sequence[RowIndex]  # its part, in random order
    shared: Sequence[RowIndex]  # rows of the next member's part that it holds out too
    seen: Sequence[Tensor]  # the rows that it trains on


def divide(n: int, groups: GroupNumbers, shape: tuple[int, int], seed: int, *, are_repeated: bool = False) -> Division:
    """Divide n rows among the members of each group at random; `shape` is the number of groups and of parts.

    If rows are `are_repeated`, members train on all of them.
    """
    generator = np.random.default_rng(seed)
    n_groups, parts = shape
    own: list[RowIndex] = []
    shared: list[RowIndex] = []
    for _ in range(n_groups):
        part = draw_parts(n, groups, parts, generator)
        order = generator.permutation(n)
        members = [order[part[order] == number] for number in range(parts)]
        own += members
        shared += [share_with_next(members[(number + 1) % parts], groups) for number in range(parts)]
    everything = np.arange(n)
    seen = []
    for own_rows, shared_rows in zip(own, shared, strict=True):
        others = np.setdiff1d(everything, np.concatenate([own_rows, shared_rows]))
        seen.append(torch.from_numpy(everything if are_repeated or not len(others) else others))
    return Division(own, shared, seen)


def share_with_next(rows: RowIndex, groups: GroupNumbers) -> RowIndex:
    """The rows of the next member's part that a member holds out too: whole groups, if there are groups."""
    count = int(SHARED_FRACTION * len(rows))
    if groups is None or not count:
        return rows[:count]
    groups = groups[rows]
    sizes = np.bincount(groups)
    known = list(dict.fromkeys(groups.tolist()))
    taken = [group for group, end in zip(known, sizes[known].cumsum(), strict=True) if end <= 2 * count]
    return rows[np.isin(groups, taken)]


def draw_parts(n: int, groups: GroupNumbers, parts: int, generator: np.random.Generator) -> RowIndex:
    """Number of the part of each row: parts of equal size at random, or of whole groups, the largest ones first."""
    if groups is None:
        numbers = np.arange(n) % parts
        return generator.permutation(numbers)
    sizes = np.bincount(groups)
    order = generator.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    totals, part_of = np.zeros(parts), np.zeros(len(sizes), dtype=np.intp)
    for group in order:
        part_of[group] = totals.argmin()
        totals[part_of[group]] += sizes[group]
    return part_of[groups]


def number_of_parts(n: int, groups: GroupNumbers, is_trial: bool = False) -> int:
    """Four, or eight for few rows, except in a trial; less only for very few rows or groups."""
    units = n if groups is None else len(np.unique(groups))
    return int(np.clip(units // 2, 2, PARTS_OF_FEWER_ROWS if n <= FEWER_ROWS and not is_trial else PARTS))


@dataclass(frozen=True)
class KeyedParts:
    """The parts of the rows of a stream, by their keys."""

    n_groups: int
    n_parts: int
    seed: int

    @property
    def share_seen(self) -> float:
        """The share of the rows that a member trains on."""
        return 1 - (1 + SHARED_FRACTION) / self.n_parts

    def holds_out(self, keys: Keys) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which rows are of each member's part, and which it holds out besides, both (members, n)."""
        own, shared = [], []
        for group in range(self.n_groups):
            part = hash_keys(keys, self.seed, Use.PART, group) % np.uint64(self.n_parts)
            is_shared = uniform_of(keys, self.seed, Use.SHARED, group) < SHARED_FRACTION
            for number in range(self.n_parts):
                own.append(part == number)
                shared.append(is_shared & (part == (number + 1) % self.n_parts))
        return np.stack(own), np.stack(shared)

    def seen(self, keys: Keys, generator: torch.Generator) -> list[Tensor]:
        """Numbers of the rows that each member trains on, in random order."""
        own, shared = self.holds_out(keys)
        numbers = [torch.from_numpy(np.flatnonzero(row)) for row in ~(own | shared)]
        return [rows[torch.randperm(len(rows), generator=generator)] for rows in numbers]

    def divide(self, keys: Keys) -> Division:
        """The division of the rows with these keys."""
        own, shared = self.holds_out(keys)
        seen = [torch.from_numpy(np.flatnonzero(row)) for row in ~(own | shared)]
        return Division([np.flatnonzero(row) for row in own], [np.flatnonzero(row) for row in shared], seen)

"""Regression trees as tables of plain numbers, which a model file can hold and torch can look up.

scikit-learn grows the trees (`forest_members`, `boosted_members`); here they are only stored and read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hetcal._checks import Floats

MOST_DEPTH = 48
# No input is lower, so that at a leaf, which is its own right child, every row stays.
LEAF_THRESHOLD = -1e9


@dataclass(frozen=True, eq=False)
class GrownTree:
    """One tree of scikit-learn as arrays over its nodes, a left child right after its parent.

    Attributes:
        feature, right, threshold: The split of each node; a leaf is its own right child.
        values: What is looked up, (nodes, columns).
    """

    feature: NDArray[np.intp]
    right: NDArray[np.intp]
    threshold: Floats
    values: Floats


def read_tree(tree: Any, values: Floats) -> GrownTree:
    """The structure of a fitted `sklearn.tree` (its attribute `tree_`), with values of its nodes, (nodes, columns)."""
    is_leaf = tree.children_left < 0
    return GrownTree(
        np.where(is_leaf, 0, tree.feature),
        np.where(is_leaf, np.arange(tree.node_count), tree.children_right),
        np.where(is_leaf, LEAF_THRESHOLD, tree.threshold),
        values,
    )


class Trees(nn.Module):
    """Trees of several members: each row finds its leaf in every tree.

    Trees that a member has less than `most_trees` consist of a single leaf of zeros, which is node 0.

    Args:
        n_parts: Number of members.
        most_trees: Trees of each member.
        n_columns: Values of each leaf.
        n_nodes: Nodes of all trees; given to load a model file, otherwise `put` knows.
    """

    roots: Tensor
    feature: Tensor
    right: Tensor
    threshold: Tensor
    values: Tensor

    def __init__(self, n_parts: int, most_trees: int, n_columns: int, n_nodes: int = 1) -> None:
        super().__init__()
        self.register_buffer("roots", torch.zeros(n_parts, most_trees, dtype=torch.int32))
        self.register_buffer("feature", torch.zeros(n_nodes, dtype=torch.int32))
        self.register_buffer("right", torch.zeros(n_nodes, dtype=torch.int32))  # the right child; the left one is next
        self.register_buffer("threshold", torch.full((n_nodes,), LEAF_THRESHOLD, dtype=torch.float32))
        self.register_buffer("values", torch.zeros(n_nodes, n_columns, dtype=torch.float32))
        # Lookups from a root to a leaf, and trees of each member; more than needed do no harm.
        self.depth, self.used = MOST_DEPTH, most_trees

    @property
    def n_nodes(self) -> int:
        return len(self.threshold)

    def put(self, members: Sequence[Sequence[GrownTree]]) -> None:
        """Store the trees of each member, at most as many as there is room for."""
        n_columns = self.values.shape[1]
        empty = GrownTree(
            np.zeros(1, np.intp), np.zeros(1, np.intp), np.array([LEAF_THRESHOLD]), np.zeros((1, n_columns))
        )
        grown = [empty, *(tree for trees in members for tree in trees)]
        starts = np.cumsum([0, *(len(tree.right) for tree in grown[:-1])])
        roots = np.zeros(self.roots.shape, dtype=np.int32)
        first = 1
        for row, trees in zip(roots, members, strict=True):
            row[: len(trees)] = starts[first : first + len(trees)]
            first += len(trees)
        joined = {
            "roots": roots,
            "feature": np.concatenate([tree.feature for tree in grown]),
            "right": np.concatenate([tree.right + start for tree, start in zip(grown, starts, strict=True)]),
            "threshold": np.concatenate([tree.threshold for tree in grown]),
            "values": np.concatenate([tree.values for tree in grown]),
        }
        for name, array in joined.items():
            before = getattr(self, name)
            setattr(self, name, torch.from_numpy(array).to(before.device, before.dtype))
        self.measure()

    def measure(self) -> None:
        """Count the lookups and trees that are needed; after `put`, and when a model file was read."""
        self.used = int((self.roots != 0).sum(1).max())
        nodes, self.depth = self.roots.unique().long(), 0
        while self.depth < MOST_DEPTH and len(nodes := nodes[self.right[nodes] != nodes]):
            nodes, self.depth = torch.cat([nodes + 1, self.right[nodes].long()]).unique(), self.depth + 1

    def are_tables_right(self, n_inputs: int) -> Tensor:
        """Whether every lookup stays inside the tables, for those of a model file; as a tensor of one element."""
        number = torch.arange(self.n_nodes)
        is_leaf = self.right == number
        is_inside = (self.right >= number) & (self.right < self.n_nodes) & (is_leaf | (number + 1 < self.n_nodes))
        is_column = (self.feature >= 0) & (self.feature < n_inputs)
        is_root = (self.roots >= 0) & (self.roots < self.n_nodes)
        stays = ~is_leaf | (self.threshold <= LEAF_THRESHOLD)
        return is_inside.all() & is_column.all() & is_root.all() & stays.all()

    def forward(self, x: Tensor) -> Tensor:
        """The values of the leaves of rows (n, inputs): (n, parts, trees, columns), in double precision."""
        n, inputs = x.shape
        roots = self.roots[:, : self.used]
        # One axis and short integers, because `index_select` is then several times as fast as any other lookup.
        node = roots.flatten().repeat(n)
        start = inputs * torch.arange(n, device=x.device).view(-1, 1).expand(-1, roots.numel()).flatten()
        flat = x.flatten()
        for _ in range(self.depth):
            value = flat.index_select(0, start + self.feature.index_select(0, node))
            goes_left = value <= self.threshold.index_select(0, node)
            node = torch.where(goes_left, node + 1, self.right.index_select(0, node))
        return self.values.index_select(0, node).double().view(n, *roots.shape, self.values.shape[1])

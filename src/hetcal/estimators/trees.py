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
# Rows that are looked up at once, since the lookups of more would not stay in the cache, and levels of a stage.
ROWS_AT_A_TIME, STAGE = 256, 8


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


def grow_tree(tree: Any, x: Floats, y: Floats, weights: Floats | None) -> Any:
    """Fit a tree of scikit-learn without its checks, which take as long as a small tree; return its `tree_`."""
    from sklearn import config_context  # slow to import, and only training needs it

    with config_context(assume_finite=True, skip_parameter_validation=True):
        return tree.fit(x, y, sample_weight=weights, check_input=False).tree_


def read_tree(tree: Any, values: Floats) -> GrownTree:
    """The structure of a grown tree of scikit-learn, with values of its nodes, (nodes, columns)."""
    is_leaf = tree.children_left < 0
    return GrownTree(
        np.where(is_leaf, 0, tree.feature),
        np.where(is_leaf, np.arange(tree.node_count), tree.children_right),
        np.where(is_leaf, LEAF_THRESHOLD, tree.threshold),
        values,
    )


class Trees(nn.Module):
    """Trees of several members: each row finds its leaf in every tree.

    If a member has fewer than `most_trees` trees, each missing one is a single leaf of zeros, node 0.

    Args:
        n_parts: Number of members.
        most_trees: The largest number of trees of a member.
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
        self.used = max(1, int((self.roots != 0).sum(1).max()))  # a graph cannot have an axis of length 0
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

    def forward(self, x: Tensor, parts: slice = slice(None)) -> Tensor:
        """The values of the leaves of rows (n, inputs): (parts, trees, n, columns), in double precision.

        `parts` limits the lookups to the trees of some members.
        """
        roots = self.roots[parts, : self.used]
        if torch.compiler.is_exporting():
            leaves = self.find_leaves_in_graph(roots, x)
        else:
            blocks = [self.find_leaves(roots, block) for block in x.split(ROWS_AT_A_TIME)]
            leaves = torch.cat(blocks, dim=2)
        values = self.values.index_select(0, leaves.flatten())
        return values.double().view(*leaves.shape, self.values.shape[1])

    def find_leaves_in_graph(self, roots: Tensor, x: Tensor) -> Tensor:
        """`find_leaves` for a graph that is exported: few operations, and sizes that do not depend on values."""
        n, n_inputs = x.shape
        feature, right = self.feature.long(), self.right.long()
        node = roots.long().flatten()[:, None].expand(-1, n).flatten()
        first = (n_inputs * torch.arange(n)).expand(roots.numel(), -1).flatten()
        values = x.flatten()
        for _ in range(self.depth):
            place = first + feature.index_select(0, node)
            goes_left = values.index_select(0, place) <= self.threshold.index_select(0, node)
            node = torch.where(goes_left, node + 1, right.index_select(0, node))
        return node.view(*roots.shape, n)

    def find_leaves(self, roots: Tensor, x: Tensor) -> Tensor:
        """The leaf of each row of x (n, inputs) in each tree, (parts, trees, n).

        Levels are looked up in stages: after a stage only those lookups go on that have not reached their leaf. The
        order is tree by tree, so that neighboring lookups read the same small part of the tables. There is one axis,
        and integers are short, because `index_select` is then several times as fast as any other lookup.
        """
        n = x.shape[0]
        node = roots.flatten()[:, None].expand(-1, n).flatten()
        row = torch.arange(n, dtype=torch.int32, device=x.device).expand(roots.numel(), -1).flatten()
        columns = x.T.flatten()
        leaves, going = node, torch.empty(0)
        for number, levels in enumerate(stage_lengths(self.depth)):
            if number:
                is_inside = self.right.index_select(0, node) != node
                going = going[is_inside] if number > 1 else is_inside.nonzero()[:, 0]
                node, row = node[is_inside], row[is_inside]
            for _ in range(levels):
                place = torch.add(row, self.feature.index_select(0, node), alpha=n)
                goes_left = columns.index_select(0, place) <= self.threshold.index_select(0, node)
                right = self.right.index_select(0, node)
                # The left child is the next node. Arithmetic, because `where` takes a branch that nobody can predict.
                node = torch.addcmul(right, goes_left.int(), node + 1 - right)
            leaves = leaves.index_copy(0, going, node) if number else node
        return leaves.view(*roots.shape, n)


def stage_lengths(depth: int) -> list[int]:
    """Levels of each stage of lookups in trees of this depth: most leaves are reached long before the deepest one."""
    return [min(STAGE, depth - start) for start in range(0, depth, STAGE)]

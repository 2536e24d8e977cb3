"""Forests as members of a `CrossEnsemble`: what rows in the neighborhood of a row would predict.

Where rows nearly repeat (neighboring times, the same patient or product), or where the target has steps, the nearest
training rows know more than a smooth function. A tree finds them without keeping the rows: a model file holds
thresholds and means. scikit-learn grows the trees; prediction is a few lookups in tables of plain numbers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hetcal._checks import Floats

# Trees of each member, and the most rows that a tree grows from, which bounds the size of a model.
TREES, MOST_ROWS = 24, 20_000
# The trees, in the order of what they predict, that stand for the quantiles of 13 %, 50 % (two of them) and 87 %.
LOW, MIDDLE, HIGH = 3, (11, 12), 20
MOST_DEPTH = 48
# A variance of zero would make one row decide the weights of all groups.
LEAST_VARIANCE = 1e-10
# No input is lower, so that at a leaf, which is its own right child, every row stays.
LEAF_THRESHOLD = -1e9


class ForestMembers(nn.Module):
    r"""One forest of extremely randomized trees for each part of the rows (Geurts et al., 2006).

    It is read in two ways, which are two groups of members: by mean and variance of its trees, and by quantiles,

    .. math:: \mu = \frac1T \sum_t \mu_t(x), \qquad
              \sigma^2 = \frac1T \sum_t \left( \sigma_t^2(x) + (\mu_t(x) - \mu)^2 \right), \\
              \mu = \mathrm{median}_t \, \mu_t(x), \qquad
              \sigma^2 = \frac1T \sum_t \sigma_t^2(x) + \left( \frac{q_{87} - q_{13}}{2} \right)^2

    with :math:`\mu_t, \sigma_t^2` the mean and variance of the training rows in the leaf of x. Where rows nearly
    repeat, most trees find the right neighbor, and the median forgets the others.

    Args:
        n_parts: Number of members.
        n_targets: Number of targets.
        n_nodes: Nodes of all trees; given to load a model file, otherwise `fit` knows.
    """

    n_groups = 2
    roots: Tensor
    feature: Tensor
    right: Tensor
    threshold: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, n_parts: int, n_targets: int, n_nodes: int = 1) -> None:
        super().__init__()
        self.n_parts = n_parts
        self.depth = MOST_DEPTH  # lookups from a root to a leaf; more than needed do no harm
        self.register_buffer("roots", torch.zeros(n_parts, TREES, dtype=torch.int32))
        self.register_buffer("feature", torch.zeros(n_nodes, dtype=torch.int32))
        self.register_buffer("right", torch.zeros(n_nodes, dtype=torch.int32))  # the right child; the left one is next
        self.register_buffer("threshold", torch.full((n_nodes,), LEAF_THRESHOLD, dtype=torch.float32))
        self.register_buffer("mean", torch.zeros(n_nodes, n_targets, dtype=torch.float32))
        self.register_buffer("variance", torch.zeros(n_nodes, n_targets, dtype=torch.float32))

    @property
    def n_nodes(self) -> int:
        return len(self.threshold)

    def deepest(self) -> int:
        """Number of lookups from the roots to the deepest leaf."""
        nodes, depth = self.roots.unique().long(), 0
        while depth < MOST_DEPTH and len(nodes := nodes[self.right[nodes] != nodes]):
            nodes, depth = torch.cat([nodes + 1, self.right[nodes].long()]).unique(), depth + 1
        return depth

    def are_tables_right(self, n_inputs: int) -> Tensor:
        """Whether every lookup stays inside the tables, for those of a model file; as a tensor of one element."""
        number = torch.arange(self.n_nodes)
        is_leaf = self.right == number
        is_inside = (self.right >= number) & (self.right < self.n_nodes) & (is_leaf | (number + 1 < self.n_nodes))
        is_column = (self.feature >= 0) & (self.feature < n_inputs)
        is_root = (self.roots >= 0) & (self.roots < self.n_nodes)
        stays = ~is_leaf | (self.threshold <= LEAF_THRESHOLD)
        return is_inside.all() & is_column.all() & is_root.all() & stays.all() & (self.variance >= 0).all()

    def fit(self, x: Tensor, y: Tensor, weight: Tensor, seen: Sequence[Tensor], seed: int) -> None:
        """Grow each forest from the rows that it may see; x (n, inputs), y (n, targets)."""
        inputs, targets, weights = x.cpu().numpy(), y.cpu().numpy(), weight.cpu().double().numpy()
        trees = [
            tree
            # As arrays, because a tensor of a single row number would index like a plain number.
            for part, rows in enumerate(index.cpu().numpy() for index in seen)
            for tree in grow_forest(inputs[rows], targets[rows], weights[rows], (seed + part) % 2**32)
        ]
        sizes = [len(tree["right"]) for tree in trees]
        starts = np.cumsum([0, *sizes[:-1]])
        self.roots = torch.from_numpy(starts.reshape(self.n_parts, TREES).astype(np.int32)).to(x.device)
        for tree, start in zip(trees, starts, strict=True):
            tree["right"] += start
        for name in ("feature", "right", "threshold", "mean", "variance"):
            joined = np.concatenate([tree[name] for tree in trees])
            setattr(self, name, torch.from_numpy(joined).to(getattr(self, name).dtype).to(x.device))
        self.depth = self.deepest()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and std, (2, parts, n, targets) each: by the mean of the trees, and by their median."""
        n, inputs = x.shape
        # One axis and short integers, because `index_select` is then several times as fast as any other lookup.
        node = self.roots.flatten().repeat(n)
        start = inputs * torch.arange(n, device=x.device).view(-1, 1).expand(-1, self.roots.numel()).flatten()
        values = x.flatten()
        for _ in range(self.depth):
            value = values.index_select(0, start + self.feature.index_select(0, node))
            goes_left = value <= self.threshold.index_select(0, node)
            node = torch.where(goes_left, node + 1, self.right.index_select(0, node))
        shape = n, self.n_parts, TREES, -1
        means = self.mean.index_select(0, node).double().view(shape)  # (n, parts, trees, targets)
        within = self.variance.index_select(0, node).double().view(shape).mean(2)
        between, mean = torch.var_mean(means, dim=2, correction=0)
        ordered = means.sort(dim=2).values
        median = (ordered[:, :, MIDDLE[0]] + ordered[:, :, MIDDLE[1]]) / 2
        spread = ((ordered[:, :, HIGH] - ordered[:, :, LOW]) / 2).square()
        variance = within + torch.stack([between, spread])
        std = variance.clamp_min(LEAST_VARIANCE).sqrt()
        return torch.stack([mean, median]).transpose(1, 2), std.transpose(1, 2)


def grow_forest(x: Floats, y: Floats, weights: Floats, seed: int) -> list[dict[str, Any]]:
    """Grow the trees of one member, and return each as arrays over its nodes, children after their parents."""
    from sklearn.ensemble import ExtraTreesRegressor  # slow to import, and only training needs it

    forest = ExtraTreesRegressor(
        TREES,
        max_depth=MOST_DEPTH,
        bootstrap=len(x) > MOST_ROWS,
        max_samples=MOST_ROWS if len(x) > MOST_ROWS else None,
        random_state=seed,
        n_jobs=1,
    )
    forest.fit(x, y if y.shape[1] > 1 else y[:, 0], sample_weight=weights)
    leaves = forest.apply(x)
    trees = []
    for number, fitted in enumerate(forest.estimators_):
        tree = fitted.tree_
        numbers = np.arange(tree.node_count)
        is_leaf = tree.children_left < 0
        mean = tree.value[:, :, 0]
        leaf = leaves[:, number]
        total = np.maximum(np.bincount(leaf, weights, tree.node_count), 1e-300)
        squares = [
            np.bincount(leaf, weights * (column - mean[leaf, j]) ** 2, tree.node_count) for j, column in enumerate(y.T)
        ]
        trees.append(
            {
                "feature": np.where(is_leaf, 0, tree.feature),
                "right": np.where(is_leaf, numbers, tree.children_right),  # a leaf is its own child
                "threshold": np.where(is_leaf, LEAF_THRESHOLD, tree.threshold),
                "mean": mean,
                "variance": np.stack(squares, axis=1) / total[:, None],
            }
        )
    return trees

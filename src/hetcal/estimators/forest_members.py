"""Forests as members of a `CrossEnsemble`: what rows in the neighborhood of a row would predict.

Where rows nearly repeat (neighboring times, the same patient or product), or where the target has steps, the nearest
training rows know more than a smooth function. A tree finds them without keeping the rows: a model file holds
thresholds and means.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hetcal._checks import Floats
from hetcal.estimators.trees import MOST_DEPTH, GrownTree, Trees, grow_tree, read_tree

# Trees of each member, and the most rows that a tree grows from, which bounds the size of a model.
TREES, MOST_ROWS = 24, 20_000
# The trees, in the order of what they predict, that stand for the quantiles of 13 %, 50 % (two of them) and 87 %.
LOW, MIDDLE, HIGH = 3, (11, 12), 20
# A variance of zero would make one row decide the weights of all groups.
LEAST_VARIANCE = 1e-10


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

    def __init__(self, n_parts: int, n_targets: int, n_nodes: int = 1) -> None:
        super().__init__()
        self.trees = Trees(n_parts, TREES, 2 * n_targets, n_nodes)  # leaves have means, then variances

    def are_tables_right(self, n_inputs: int) -> Tensor:
        """Whether the tables of a model file are those of a forest; as a tensor of one element."""
        variances = self.trees.values.chunk(2, dim=1)[1]
        return self.trees.are_tables_right(n_inputs) & (self.trees.roots > 0).all() & (variances >= 0).all()

    def fit(self, x: Tensor, y: Tensor, weight: Tensor, seen: Sequence[Tensor], seed: int) -> None:
        """Grow each forest from the rows that it may see; x (n, inputs), y (n, targets)."""
        inputs, targets, weights = x.cpu().numpy(), y.cpu().numpy(), weight.cpu().double().numpy()
        # As arrays, because a tensor of a single row number would index like a plain number.
        parts = enumerate(index.cpu().numpy() for index in seen)
        self.trees.put(
            [grow_forest(inputs[rows], targets[rows], weights[rows], (seed + part) % 2**32) for part, rows in parts]
        )

    def forward(self, x: Tensor, parts: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Mean and std of some members, (2, parts, n, targets) each: by the mean of the trees, and by their median."""
        means, variances = self.trees(x, parts).chunk(2, dim=3)  # (parts, trees, n, targets)
        between, mean = torch.var_mean(means, dim=1, correction=0)
        ordered = means.sort(dim=1).values
        median = (ordered[:, MIDDLE[0]] + ordered[:, MIDDLE[1]]) / 2
        spread = ((ordered[:, HIGH] - ordered[:, LOW]) / 2).square()
        variance = variances.mean(1) + torch.stack([between, spread])
        return torch.stack([mean, median]), variance.clamp_min(LEAST_VARIANCE).sqrt()


def grow_forest(x: Floats, y: Floats, weights: Floats, seed: int) -> list[GrownTree]:
    """Grow the trees of one member, with means and variances of their leaves."""
    from sklearn.tree import ExtraTreeRegressor  # slow to import, and only training needs it

    # The trees of `ExtraTreesRegressor`, without its checks, which take longer than to grow small trees.
    generator = np.random.RandomState(seed)
    is_weighted = bool((weights != 1).any())  # weights of 1 give the same tree, but are checked, which takes as long
    trees = []
    for _ in range(TREES):
        sample = generator.choice(len(x), MOST_ROWS, replace=False) if len(x) > MOST_ROWS else slice(None)
        model = ExtraTreeRegressor(max_depth=MOST_DEPTH, random_state=generator.randint(2**31 - 1))
        tree = grow_tree(model, x[sample], y[sample], weights[sample] if is_weighted else None)
        leaf, mean = tree.apply(x), tree.value[:, :, 0]
        total = np.maximum(np.bincount(leaf, weights, tree.node_count), 1e-300)
        squares = [
            np.bincount(leaf, weights * (column - mean[leaf, j]) ** 2, tree.node_count) for j, column in enumerate(y.T)
        ]
        trees.append(read_tree(tree, np.hstack([mean, np.stack(squares, axis=1) / total[:, None]])))
    return trees

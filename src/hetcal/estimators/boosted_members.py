"""Boosted trees as members of a `CrossEnsemble`: many small corrections of a first guess.

Boosting is hard to beat where few of many columns matter and where y has steps. It costs a second or so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hetcal._checks import Floats
from hetcal.estimators.trees import GrownTree, Trees, grow_tree, read_tree

# Trees of each member, for the mean and for sigma, at most; growing ends after so many trees without an improvement.
MEAN_TREES, STD_TREES, PATIENCE = 60, 25, 20
RATE = 0.15
MEAN_DEPTH, STD_DEPTH = 7, 3
# A tree grows from this share of the rows, at most so many; each split considers half of the columns, at most so many,
# and fewer where there are many rows: what a split costs is the product.
ROW_SHARE, MOST_ROWS, MOST_COLUMNS, MOST_CELLS = 0.7, 2000, 16, 20_000
# The mean of |z| for a standard normal z.
MEAN_ABSOLUTE = (2 / np.pi) ** 0.5
# Limits of sigma, in units of the standardized target; they hardly ever bind.
LEAST_STD, MOST_STD = 1e-5, 1e9
# A single error must not decide a leaf of sigma: more than so many times the usual size counts as that.
MOST_RATIO = 10.0


class BoostedMembers(nn.Module):
    r"""Gradient boosting for each part of the rows: one sequence of trees for the mean, one for sigma.

    .. math:: \mu(x) = \bar y + \eta \sum_{t=1}^{T} a_t(x), \qquad
              \sigma(x) = \sqrt{\pi / 2} \; \exp\left( \log \overline{|r|} + \eta \sum_{t=1}^{U} b_t(x) \right)

    with :math:`a_t` the mean of the residuals in a leaf, r the residuals of held-out rows, and :math:`b_t` the mean of
    :math:`|r| / \hat r - 1` in a leaf, the gradient of the gamma deviance; :math:`\hat r` is what the trees so far
    predict for :math:`|r|`. T and U are common to all members and have the least held-out loss.

    Args:
        n_parts: Number of members.
        n_targets: Number of targets.
        n_nodes: Nodes of the trees of mean and sigma; given to load a model file, otherwise `fit` knows.
    """

    n_groups = 1
    mean_start: Tensor
    std_start: Tensor

    def __init__(self, n_parts: int, n_targets: int, n_nodes: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.mean_trees = Trees(n_parts, MEAN_TREES, n_targets, n_nodes[0])
        self.std_trees = Trees(n_parts, STD_TREES, n_targets, n_nodes[1])
        self.register_buffer("mean_start", torch.zeros(n_parts, n_targets, dtype=torch.float64))
        self.register_buffer("std_start", torch.zeros(n_parts, n_targets, dtype=torch.float64))  # log of the mean |r|

    @property
    def n_nodes(self) -> tuple[int, int]:
        return self.mean_trees.n_nodes, self.std_trees.n_nodes

    def are_tables_right(self, n_inputs: int) -> Tensor:
        """Whether every lookup stays inside the tables of a model file; as a tensor of one element."""
        return self.mean_trees.are_tables_right(n_inputs) & self.std_trees.are_tables_right(n_inputs)

    def fit(self, x: Tensor, y: Tensor, weight: Tensor, seen: Sequence[Tensor], seed: int) -> None:
        """Grow the trees of each member from the rows that it may see; x (n, inputs), y (n, targets)."""
        inputs, targets = np.ascontiguousarray(x.cpu().numpy()), y.cpu().double().numpy()
        rows = BoostingRows(inputs, weight.cpu().double().numpy(), [index.cpu().numpy() for index in seen], seed)
        start = rows.start(targets)
        trees, mean = boost(rows, start, SquaredError(targets), MEAN_DEPTH, MEAN_TREES)
        self.mean_start.copy_(torch.from_numpy(start))
        self.mean_trees.put(trees)
        errors = rows.held_out_mean(np.abs(targets - mean))
        start = np.log(np.maximum(rows.start(errors), LEAST_STD * MEAN_ABSOLUTE))
        trees, _ = boost(rows, start, GammaDeviance(errors), STD_DEPTH, STD_TREES)
        self.std_start.copy_(torch.from_numpy(start))
        self.std_trees.put(trees)

    def forward(self, x: Tensor, parts: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Mean and std of some members, (1, parts, n, targets) each."""
        mean = self.mean_start[parts, None] + RATE * self.mean_trees(x, parts).sum(1)
        log_std = self.std_start[parts, None] + RATE * self.std_trees(x, parts).sum(1)
        return mean[None], (log_std.exp() / MEAN_ABSOLUTE).clamp(LEAST_STD, MOST_STD)[None]


class BoostingRows:
    """The rows of a fit, and who may see which: inputs (n, d), weights (n,), row numbers of each member."""

    def __init__(self, x: Floats, weights: Floats, seen: Sequence[NDArray[np.intp]], seed: int) -> None:
        self.x, self.weights, self.seen = x, weights, seen
        # One generator for all trees: to seed one takes as long as to grow a small tree.
        self.generator, self.tree_generator = np.random.default_rng(seed), np.random.RandomState(seed % 2**32)
        held_out = np.ones((len(seen), len(x)), dtype=bool)
        for row, numbers in zip(held_out, seen, strict=True):
            row[numbers] = False
        # Members that have seen all rows (of a table of repeated rows) are judged by them.
        held_out[:, ~held_out.any(0)] = True
        self.shares = held_out * weights / held_out.sum(0)  # (members, n), of the weight of each row
        self.are_equal = bool((weights == weights[0]).all())
        self.least_leaf = int(np.clip(min(map(len, seen)) // 100, 2, 10))

    def held_out_mean(self, values: Floats) -> Floats:
        """Mean over the members that hold out a row: (members, n, targets) to (n, targets)."""
        return np.asarray((self.shares[:, :, None] * values).sum(0) / self.weights[:, None])

    def mean_loss(self, values: Floats) -> float:
        """Mean over the held-out rows of all members and over targets, of losses (members, n, targets)."""
        return float((self.shares * values.mean(2)).sum() / self.weights.sum())

    def start(self, values: Floats) -> Floats:
        """Mean of values (n, targets) over the rows that each member sees: (members, targets)."""
        return np.stack([np.average(values[numbers], axis=0, weights=self.weights[numbers]) for numbers in self.seen])

    def grow(self, gradients: Floats, depth: int) -> tuple[list[GrownTree], Floats]:
        """One tree for each member on its gradients (members, n, targets), and what the trees predict for all rows."""
        grown, steps = [], np.empty_like(gradients)
        for member, numbers in enumerate(self.seen):
            count = max(1, min(round(ROW_SHARE * len(numbers)), MOST_ROWS))
            chosen = self.generator.choice(numbers, count, replace=False)
            weights = None if self.are_equal else self.weights[chosen]
            tree = grow_tree(self.new_tree(depth, count), self.x[chosen], gradients[member, chosen], weights)
            grown.append(read_tree(tree, tree.value[:, :, 0]))
            steps[member] = tree.predict(self.x).reshape(steps[member].shape)
        return grown, steps

    def new_tree(self, depth: int, n: int) -> Any:
        """A tree of scikit-learn that will grow from n rows."""
        from sklearn.tree import DecisionTreeRegressor  # slow to import, and only training needs it

        return DecisionTreeRegressor(
            max_depth=depth,
            min_samples_leaf=self.least_leaf,
            max_features=min(-(-self.x.shape[1] // 2), MOST_COLUMNS, MOST_CELLS // n),
            random_state=self.tree_generator,
        )


@dataclass(frozen=True, eq=False)
class SquaredError:
    """What the trees of the mean follow. They are judged by the absolute error, which no outlier decides."""

    y: Floats

    def gradient(self, predicted: Floats) -> Floats:
        return self.y - predicted

    def loss(self, predicted: Floats) -> Floats:
        return np.abs(self.y - predicted)


@dataclass(frozen=True, eq=False)
class GammaDeviance:
    """What the trees of sigma follow: the likelihood of the size of the errors, predicted by its logarithm."""

    errors: Floats

    def gradient(self, predicted: Floats) -> Floats:
        return np.minimum(self.errors * np.exp(-predicted), MOST_RATIO) - 1

    def loss(self, predicted: Floats) -> Floats:
        return self.errors * np.exp(-predicted) + predicted


def boost(
    rows: BoostingRows, start: Floats, target: SquaredError | GammaDeviance, depth: int, most_trees: int
) -> tuple[list[list[GrownTree]], Floats]:
    """Trees of each member, in as many rounds as have the least held-out loss, and what they predict for all rows.

    `start` is (members, targets), and predictions are (members, n, targets).
    """
    predicted = np.repeat(start[:, None], len(rows.x), axis=1)
    rounds: list[list[GrownTree]] = []
    kept, best, least = 0, predicted, rows.mean_loss(target.loss(predicted))
    while len(rounds) < min(most_trees, kept + PATIENCE):
        grown, steps = rows.grow(target.gradient(predicted), depth)
        rounds.append(grown)
        predicted = predicted + RATE * steps
        loss = rows.mean_loss(target.loss(predicted))
        if loss < least:
            kept, best, least = len(rounds), predicted, loss
    return [[grown[member] for grown in rounds[:kept]] for member in range(len(start))], best

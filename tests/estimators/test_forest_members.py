"""Forests as members: the lookups against scikit-learn's own prediction, and the variance of the leaves."""

import numpy as np
import torch
from numpy.testing import assert_allclose
from sklearn.ensemble import ExtraTreesRegressor

from hetcal.estimators import forest_members
from hetcal.estimators.forest_members import LEAST_VARIANCE, TREES, ForestMembers


def table(n=60, n_targets=2, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.normal(size=(n, 3)).round(1), dtype=torch.float32)  # with ties
    y = x[:, :1] + torch.tensor(rng.normal(size=(n, n_targets)), dtype=torch.float32)
    return x, y, torch.tensor(rng.integers(1, 4, n), dtype=torch.float32)


def fitted(n_targets=2, **settings):
    x, y, weight = table(n_targets=n_targets, **settings)
    members = ForestMembers(2, n_targets)
    seen = [torch.arange(40), torch.arange(20, 60)]
    members.fit(x, y, weight, seen, seed=5)
    return members, x, y, weight, seen


def test_means_are_scikit_learns():
    """Of each part's own rows, for one target and for several; also on rows that were not seen."""
    for n_targets in (1, 2):
        members, x, y, weight, seen = fitted(n_targets)
        mean, std = members(x)
        assert mean.shape == std.shape == (2, 2, 60, n_targets)
        for part, rows in enumerate(seen):
            forest = ExtraTreesRegressor(TREES, max_depth=forest_members.MOST_DEPTH, random_state=5 + part)
            target = y[rows].numpy()
            forest.fit(x[rows].numpy(), target if n_targets > 1 else target[:, 0], sample_weight=weight[rows].numpy())
            assert_allclose(mean[0, part], forest.predict(x.numpy()).reshape(60, -1), rtol=1e-5, atol=1e-5)


def test_std_is_that_of_the_mixture_of_leaves(monkeypatch):
    """The rows of the leaf of every tree, one by one, in shallow trees whose leaves have many rows."""
    monkeypatch.setattr(forest_members, "MOST_DEPTH", 2)
    members, x, y, weight, seen = fitted()
    rows = seen[0].numpy()
    forest = ExtraTreesRegressor(TREES, max_depth=2, random_state=5)
    forest.fit(x[rows].numpy(), y[rows].numpy(), sample_weight=weight[rows].numpy())
    leaves, w, target = forest.apply(x.numpy()), weight.double().numpy(), y.double().numpy()
    _, std = members(x)
    for i in (0, 13, 59):
        means, variances = [], []
        for tree in range(TREES):
            mates = rows[leaves[rows, tree] == leaves[i, tree]]
            mean = np.average(target[mates], axis=0, weights=w[mates])
            means.append(mean)
            variances.append(np.average((target[mates] - mean) ** 2, axis=0, weights=w[mates]))
        expected = np.sqrt(np.mean(variances, axis=0) + np.var(means, axis=0))
        assert_allclose(std[0, 0, i], expected, rtol=1e-4)


def test_variance_has_a_floor():
    """A constant target, or a leaf of one row in all trees: sigma is small but positive."""
    x, y, weight = table()
    members = ForestMembers(1, 2)
    members.fit(x, torch.zeros_like(y), weight, [torch.arange(60)], seed=0)
    assert_allclose(members(x)[1], LEAST_VARIANCE**0.5)


def test_same_seed_same_forest():
    first, again = fitted()[0], fitted()[0]
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_forest_of_a_model_file():
    """The state of a fitted forest loads into a new one of as many nodes and predicts the same."""
    members, x, *_ = fitted()
    other = ForestMembers(2, 2, members.trees.n_nodes)
    other.load_state_dict(members.state_dict())
    assert torch.equal(other(x)[0], members(x)[0])
    assert torch.equal(other(x)[1], members(x)[1])


def test_very_few_rows():
    """One row per part: its value, with the smallest sigma."""
    x, y, weight = table(2, 1)
    members = ForestMembers(2, 1)
    members.fit(x, y, weight, [torch.tensor([0]), torch.tensor([1])], seed=0)
    mean, _ = members(x)
    assert_allclose(mean[..., 0], y.expand(2, 2, 2))


def test_second_group_has_the_median_and_the_central_range_of_the_trees():
    """Against NumPy's quantiles of scikit-learn's own trees, whose leaves have one row each: no variance within."""
    x, y, weight = table(n_targets=1)
    x = x + torch.linspace(0, 1e-3, 60)[:, None]  # no two rows are equal
    members = ForestMembers(1, 1)
    members.fit(x, y, weight, [torch.arange(60)], seed=5)
    forest = ExtraTreesRegressor(TREES, max_depth=forest_members.MOST_DEPTH, random_state=5)
    forest.fit(x.numpy(), y[:, 0].numpy(), sample_weight=weight.numpy())
    new = x[:20] + 0.3
    trees = np.sort([tree.predict(new.numpy()) for tree in forest.estimators_], axis=0)
    mean, std = members(new)
    assert_allclose(mean[1, 0, :, 0], np.median(trees, axis=0), rtol=1e-5)
    assert_allclose(std[1, 0, :, 0], np.maximum((trees[20] - trees[3]) / 2, LEAST_VARIANCE**0.5), rtol=1e-4)


def test_forest_that_was_not_fitted_has_one_leaf():
    mean, _ = ForestMembers(2, 1)(torch.zeros(3, 4))
    assert_allclose(mean, np.zeros((2, 2, 3, 1)))


def test_many_rows_are_sampled(monkeypatch):
    """A tree grows from a sample, which bounds its size; the leaves still describe all rows."""
    monkeypatch.setattr(forest_members, "MOST_ROWS", 10)
    members, x, *_ = fitted()
    assert members.trees.n_nodes <= 1 + 2 * TREES * 19
    assert torch.isfinite(members(x)[1]).all()

"""Boosted trees as members: the equations of the docstring, who sees what, and when growing ends."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from hetcal.estimators import boosted_members
from hetcal.estimators.boosted_members import (
    LEAST_STD,
    MEAN_TREES,
    PATIENCE,
    RATE,
    STD_TREES,
    BoostedMembers,
    BoostingRows,
    GammaDeviance,
    SquaredError,
    boost,
)


def table(n=300, seed=0, noise=0.3, n_targets=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, 3)).astype(np.float32)
    signal = np.sin(2 * x[:, :1]) + (x[:, 1:2] > 0)
    y = np.tile(signal, n_targets) + noise * np.exp(x[:, 2:3]) * rng.normal(size=(n, n_targets))
    return torch.from_numpy(x), torch.from_numpy(y).float()


def parts_of(n, parts=3):
    """The rows that each member sees: all but its own part."""
    return [torch.arange(n)[torch.arange(n) % parts != part] for part in range(parts)]


def fitted(parts=3, **settings):
    x, y = table(**settings)
    members = BoostedMembers(parts, y.shape[1])
    members.fit(x, y, torch.ones(len(x)), parts_of(len(x), parts), seed=0)
    return members, x, y


def own_rows(values, parts=3):
    """Of predictions (1, parts, n, targets), those by the member that holds out the row."""
    n = values.shape[2]
    return values[0, torch.arange(n) % parts, torch.arange(n)]


@pytest.mark.parametrize("n_targets", [1, 2])
def test_learns_mean_and_sigma_of_rows_that_it_has_not_seen(n_targets):
    """The error of the mean is far below the spread of y, and log sigma goes up with the third column as it should."""
    members, x, y = fitted(n=1500, n_targets=n_targets)
    mean, std = (own_rows(values) for values in members(x))
    assert (y - mean).abs().mean() < 0.6 * (y - y.mean(0)).abs().mean()
    for j in range(n_targets):
        slope = np.polyfit(x[:, 2], std[:, j].log(), 1)[0]
        assert 0.5 < slope < 1.1
        ratio = float(((y - mean)[:, j] / std[:, j]).abs().mean())
        assert_allclose(ratio, np.sqrt(2 / np.pi), rtol=0.1)  # sigma is that of a Gaussian with as large errors


def test_forward_is_its_equations():
    """Start and steps of all trees, one tree of scikit-learn's structure at a time."""
    members, x, _ = fitted()
    mean, std = members(x[:20])
    steps = members.mean_trees(x[:20]).numpy()  # (parts, trees, n, 1)
    for part in range(3):
        expected = float(members.mean_start[part, 0])
        for tree in range(members.mean_trees.used):
            expected = expected + RATE * steps[part, tree, :, 0]
        assert_allclose(mean[0, part, :, 0], expected, rtol=1e-9)
        log_errors = float(members.std_start[part, 0]) + RATE * members.std_trees(x[:20])[part, :, :, 0].sum(0).numpy()
        assert_allclose(std[0, part, :, 0], np.sqrt(np.pi / 2) * np.exp(log_errors), rtol=1e-9)


def test_losses_have_the_right_gradients():
    """The gradient of the gamma deviance by differences; the residual for the squared error."""
    rng = np.random.default_rng(0)
    y, predicted, step = rng.exponential(size=(5, 1)), rng.normal(size=(2, 5, 1)), 1e-6
    target = GammaDeviance(y)
    change = (target.loss(predicted - step) - target.loss(predicted + step)) / (2 * step)
    assert_allclose(target.gradient(predicted), change, rtol=1e-6)
    assert_allclose(SquaredError(y).gradient(predicted), y - predicted)
    assert GammaDeviance(np.full((1, 1), 1e6)).gradient(np.zeros((1, 1, 1))) == boosted_members.MOST_RATIO - 1


def test_growing_ends_at_the_least_held_out_loss(monkeypatch):
    """The number of rounds is the one with the least loss over the rows that members have not seen, of all rounds."""
    x, y = (values.numpy() for values in table())
    losses = []

    rows = BoostingRows(x, np.ones(300), [index.numpy() for index in parts_of(300)], seed=0)
    mean_loss = rows.mean_loss
    monkeypatch.setattr(rows, "mean_loss", lambda values: losses.append(mean_loss(values)) or losses[-1])
    trees, mean = boost(rows, rows.start(y), SquaredError(y), depth=3, most_trees=60)
    kept = len(trees[0])
    assert kept == int(np.argmin(losses)) > 5
    assert len(losses) - 1 == min(60, kept + PATIENCE)
    held_out = np.mean([np.abs(y - mean[part])[part::3].mean() for part in range(3)])
    assert_allclose(held_out, min(losses), rtol=1e-9)


def test_members_do_not_see_their_part():
    """Other targets in the part of a member change nothing in its next tree."""
    x, y = (values.numpy() for values in table())
    rows = [BoostingRows(x, np.ones(300), [index.numpy() for index in parts_of(300)], seed=0) for _ in range(2)]
    changed = y.copy()
    changed[0::3] += 5
    gradients = [np.repeat(target[None], 3, axis=0) for target in (y, changed)]
    grown = [some.grow(gradient, 3)[0] for some, gradient in zip(rows, gradients, strict=True)]
    assert_allclose(grown[0][0].values, grown[1][0].values)
    assert np.abs(grown[0][1].values.mean() - grown[1][1].values.mean()) > 0.1


def test_noise_alone_leaves_hardly_any_trees():
    """No column matters: the mean of y remains, within what 400 rows tell; a false positive would need many trees."""
    rng = np.random.default_rng(3)
    x, y = torch.from_numpy(rng.normal(size=(400, 2)).astype(np.float32)), torch.from_numpy(rng.normal(size=(400, 1)))
    members = BoostedMembers(3, 1)
    members.fit(x, y.float(), torch.ones(400), parts_of(400), seed=0)
    assert members.mean_trees.used < MEAN_TREES / 5
    mean, std = members(x)
    assert mean.std() < 0.3
    assert_allclose(std.mean(), 1.0, rtol=0.15)


def test_a_table_of_repeated_rows_has_no_held_out_rows():
    """Members that have seen all rows are judged by them: exact values are learned to the last round."""
    x = torch.arange(8.0).repeat(25)[:, None]
    y = x.sin()
    members = BoostedMembers(2, 1)
    members.fit(x, y, torch.ones(200), [torch.arange(200)] * 2, seed=0)
    mean, std = members(x)
    assert members.mean_trees.used == MEAN_TREES
    assert_allclose(mean[0, 0], y, atol=1e-3)
    assert (std < 1e-2).all()


def test_very_few_rows_and_a_constant_target():
    for n in (2, 3, 5):
        x, y = table(n)
        members = BoostedMembers(2, 1)
        members.fit(x, y, torch.ones(n), parts_of(n, 2), seed=0)
        mean, std = members(x)
        assert torch.isfinite(mean).all()
        assert torch.isfinite(std).all()
    x, y = table(50)
    members.fit(x, torch.full_like(y, 2.0), torch.ones(50), parts_of(50, 2), seed=0)
    mean, std = members(x)
    assert_allclose(mean, 2.0)
    assert_allclose(std, LEAST_STD, rtol=1e-6)


def test_weights_count_rows():
    """A row of weight 0 has no influence: neither on the start nor on what is judged."""
    x, y = table(200)
    weight = (torch.arange(200) < 150).float()
    wrong = torch.where(weight[:, None] > 0, y, y + 100)
    starts = []
    for target in (y, wrong):
        rows = BoostingRows(x.numpy(), weight.double().numpy() + 1e-300, [np.arange(200)], seed=0)
        starts.append(rows.start(target.numpy()))
    assert_allclose(*starts)
    assert_allclose(starts[0][0], y[:150].mean(0))


def test_same_seed_same_trees():
    first, again = fitted()[0], fitted()[0]
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_members_of_a_model_file():
    members, x, _ = fitted()
    other = BoostedMembers(3, 1, members.n_nodes)
    other.load_state_dict(members.state_dict())
    for trees in (other.mean_trees, other.std_trees):
        trees.measure()
    assert torch.equal(other(x)[0], members(x)[0])
    assert torch.equal(other(x)[1], members(x)[1])
    assert other.are_tables_right(3)
    assert not other.are_tables_right(1)


def test_not_more_trees_than_fit(monkeypatch):
    """Growing ends at the room in the tables, even if more trees would help."""
    monkeypatch.setattr(boosted_members, "MEAN_TREES", 20)
    members, *_ = fitted(noise=0.0)
    assert members.mean_trees.used == 20
    assert members.std_trees.used <= STD_TREES

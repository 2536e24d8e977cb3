"""Ridge regressions as members: against scikit-learn, and on tables on which a linear model must not fail."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge, RidgeCV

from hetcal.estimators import linear_members
from hetcal.estimators.linear_members import LinearInputs, LinearMembers, eigenbasis, fit_ridge
from hetcal.networks import SQUASH_LIMIT


def linear_table(n=80, d=5, noise=1.0, seed=0, n_targets=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3
    slopes = rng.normal(size=(d, n_targets))
    return x, x @ slopes + 7 + noise * rng.normal(size=(n, n_targets)), rng.uniform(0.5, 2, n)


@pytest.mark.parametrize(("n", "d"), [(80, 5), (20, 40), (12, 12)])
def test_ridge_is_scikit_learns_at_the_same_penalty(monkeypatch, n, d):
    """Slopes and intercept with weights; penalties are relative to the number of rows."""
    x, y, weight = linear_table(n, d)
    for penalty in (30.0, 300.0):
        monkeypatch.setattr(linear_members, "PENALTIES", np.array([penalty]))
        slopes, biases, _ = fit_ridge(x, y, weight)
        reference = Ridge(alpha=penalty * weight.sum()).fit(x, y[:, 0], sample_weight=weight)
        assert_allclose(slopes[0], reference.coef_, rtol=1e-6, atol=1e-9)
        assert_allclose(biases[0], reference.intercept_, rtol=1e-6)


@pytest.mark.parametrize("noise", [0.1, 2.0, 10.0])
def test_penalty_is_that_of_cross_validation(noise):
    """Predictions are nearly those of scikit-learn's leave-one-out choice among the same penalties."""
    x, y, _ = linear_table(150, 10, noise)
    slopes, biases, stds = fit_ridge(x, y, np.ones(150))
    reference = RidgeCV(alphas=150 * linear_members.PENALTIES).fit(x, y[:, 0])
    own, other = x @ slopes[0] + biases[0], reference.predict(x)
    assert np.sqrt(np.mean((own - other) ** 2)) < 0.1 * noise
    assert_allclose(stds[0], noise, rtol=0.25)


def test_residual_std_is_that_of_new_rows():
    """The square root of the GCV estimates the error on new rows, which is larger than the error of the fit."""
    ratios, naive = [], []
    for seed in range(20):
        x, y, _ = linear_table(440, 20, 1.0, seed)
        slopes, biases, stds = fit_ridge(x[:40], y[:40], np.ones(40))
        errors = y[:, 0] - x @ slopes[0] - biases[0]
        ratios.append(stds[0] / np.sqrt(np.mean(errors[40:] ** 2)))
        naive.append(np.sqrt(np.mean(errors[:40] ** 2)) / np.sqrt(np.mean(errors[40:] ** 2)))
    assert_allclose(np.mean(ratios), 1, atol=0.15)  # the standard error of the mean is about 0.04
    assert np.mean(naive) < 0.7


def test_weights_are_repeated_rows(monkeypatch):
    """At the same penalty a weight of 3 is a row given three times; a weight of 0 is no row."""
    monkeypatch.setattr(linear_members, "PENALTIES", np.array([0.3]))
    x, y, _ = linear_table(30, 4)
    counts = np.arange(30) % 4
    weighted = fit_ridge(x, y, counts.astype(float))
    repeated = fit_ridge(np.repeat(x, counts, 0), np.repeat(y, counts, 0), np.ones(counts.sum()))
    for a, b in zip(weighted[:2], repeated[:2], strict=True):
        assert_allclose(a, b)
    assert_allclose(weighted[2], repeated[2], rtol=0.2)  # the effective number of rows is smaller


def test_scale_of_the_weights_does_not_matter():
    x, y, weight = linear_table()
    for a, b in zip(fit_ridge(x, y, weight), fit_ridge(x, y, 1e6 * weight), strict=True):
        assert_allclose(a, b)


def test_several_targets_are_fitted_one_by_one():
    """Each has its own penalty: an almost exact function and pure noise together.

    With less noise, sigma would be the difference of two numbers that agree in all but their last digits.
    """
    x, y, weight = linear_table(n_targets=2, noise=1e-3)
    y[:, 1] = np.random.default_rng(1).normal(size=len(y))
    slopes, biases, stds = fit_ridge(x, y, weight)
    for j in range(2):
        alone = fit_ridge(x, y[:, [j]], weight)
        assert_allclose(slopes[j], alone[0][0])
        assert_allclose([biases[j], stds[j]], [alone[1][0], alone[2][0]])
    assert np.abs(x @ slopes[0] + biases[0] - y[:, 0]).max() < 1e-2 * y[:, 0].std()


def test_noise_is_predicted_as_nearly_the_mean():
    """Also with more columns than rows: on new rows at most 10 % worse than the mean of y, over 20 tables."""
    for n, d in ((200, 5), (40, 100)):
        excess = []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            x, y = rng.normal(size=(n + 400, d)), rng.normal(size=(n + 400, 1))
            slopes, biases, _ = fit_ridge(x[:n], y[:n], np.ones(n))
            error = np.mean((y[n:, 0] - x[n:] @ slopes[0] - biases[0]) ** 2)
            excess.append(error / np.mean((y[n:, 0] - y[:n].mean()) ** 2))
        assert np.mean(excess) < 1.1


def test_constant_columns_get_no_slope():
    x, y, weight = linear_table()
    with_constant = np.column_stack([x, np.full(len(x), 5.0)])
    slopes, biases, stds = fit_ridge(with_constant, y, weight)
    assert_allclose(slopes[0, -1], 0, atol=1e-9)
    plain = fit_ridge(x, y, weight)
    assert_allclose(with_constant @ slopes[0] + biases[0], x @ plain[0][0] + plain[1][0], rtol=1e-6)
    slopes, biases, stds = fit_ridge(np.full((10, 2), 3.0), y[:10], weight[:10])
    assert_allclose(slopes, 0)
    assert_allclose(biases[0], np.average(y[:10, 0], weights=weight[:10]))
    assert stds[0] > 0


@pytest.mark.parametrize("reason", ["too many columns", "two rows", "constant target"])
def test_mean_of_y_if_nothing_can_be_learned(monkeypatch, reason):
    x, y, weight = linear_table()
    if reason == "too many columns":
        monkeypatch.setattr(linear_members, "MOST_COLUMNS", 4)
    elif reason == "two rows":
        x, y, weight = x[:2], y[:2], weight[:2]
    else:
        y = np.full_like(y, 4.0)
    slopes, biases, stds = fit_ridge(x, y, weight)
    assert_allclose(slopes, 0, atol=1e-9)
    assert_allclose(biases, np.average(y, axis=0, weights=weight))
    assert np.isfinite(stds).all()
    assert (stds > 0).all()


@pytest.mark.parametrize("shape", [(30, 6), (6, 30), (8, 8)])
def test_eigenbasis(shape):
    """Orthonormal vectors and positive eigenvalues that give a'a back, from either side; dependent columns are lost."""
    a = np.random.default_rng(0).normal(size=shape)
    a[:, 1] = 2 * a[:, 0]
    values, basis = eigenbasis(a)
    assert (values > 0).all()
    assert len(values) == np.linalg.matrix_rank(a)
    assert_allclose(basis.T @ basis, np.eye(len(values)), atol=1e-9)
    assert_allclose(basis * values @ basis.T, a.T @ a, atol=1e-8)


def test_members_are_fitted_to_the_rows_they_have_seen():
    """Each part to its own rows, in the inputs of the linear path, so that the members predict what was fitted."""
    x, y, weight = (torch.tensor(values, dtype=torch.float32) for values in linear_table(40, 3, n_targets=2))
    members = LinearMembers(n_parts=2, n_inputs=3, n_numbers=2, n_targets=2)
    seen = [torch.arange(25), torch.arange(15, 40)]
    members.fit(x, y, weight, seen, seed=0)
    mean, std = (values[0] for values in members(x))
    assert mean.shape == std.shape == (2, 40, 2)
    inputs = members.inputs(x.T.double()).T.numpy()
    assert_allclose(weight.double().numpy() @ inputs / weight.sum().item(), 0, atol=1e-5)
    for part, rows in enumerate(seen):
        at = rows.numpy()
        slopes, biases, stds = fit_ridge(inputs[at], y.double().numpy()[at], weight.double().numpy()[at])
        assert_allclose(mean[part], inputs @ slopes.T + biases, rtol=1e-4, atol=1e-4)
        assert_allclose(std[part], np.tile(stds, (40, 1)), rtol=1e-6)
    assert not torch.equal(mean[0], mean[1])


def test_members_follow_a_trend_beyond_the_training_rows():
    """By at most one more width of the range; then they stay where they are."""
    x = torch.linspace(-1, 1, 50)[:, None]
    members = LinearMembers(n_parts=1, n_inputs=1, n_numbers=0, n_targets=1)
    members.fit(x, 5 * x, torch.ones(50), [torch.arange(50)], seed=0)
    mean = members(torch.tensor([[0.5], [2.0], [3.0], [100.0]]))[0][0, 0, :, 0]
    assert_allclose(mean, [2.5, 10, 15, 15], rtol=1e-3)


def squashed(plain):
    return SQUASH_LIMIT * torch.asinh(plain / SQUASH_LIMIT)


def test_linear_inputs_undo_the_squash_and_standardize():
    """Mean 0 and variance 1 under the weights; a heavy-tailed input keeps its scale; labels are not unsquashed."""
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(200, 3, generator=generator, dtype=torch.float64).pow(3)
    weight = torch.rand(200, generator=generator, dtype=torch.float64)
    x = plain.clone()
    x[:, :2] = squashed(plain[:, :2])
    layer = LinearInputs(3, 2).double()
    layer.fit(x, weight)
    result = layer(x.T)
    share = weight / weight.sum()
    mean = share @ plain
    std = (share @ (plain - mean).square()).sqrt()
    assert_allclose(result.T, (plain - mean) / std, rtol=1e-9, atol=1e-9)
    assert_allclose(layer(x.T.expand(4, 3, 200))[2], result)


def test_linear_inputs_go_on_by_one_width_of_the_range():
    """Exactly so far, and no further, on either side."""
    plain = torch.tensor([[2.0], [3.0], [6.0]], dtype=torch.float64)
    layer = LinearInputs(1, 1).double()
    layer.fit(squashed(plain), torch.ones(3))
    center, scale = plain.mean(), plain.std(correction=0)

    def at(value):
        return float(layer(squashed(torch.tensor([[value]], dtype=torch.float64)))[0, 0] * scale + center)

    for value in (-2.0, -1.5, 0.0, 9.5, 10.0):
        assert_allclose(at(value), value, atol=1e-9)
    assert_allclose([at(-2.5), at(-1e6)], -2.0)
    assert_allclose([at(10.5), at(1e6)], 10.0)


def test_linear_inputs_of_a_constant_column_stay_constant():
    """A column that did not vary in training moves nothing when it varies in prediction."""
    layer = LinearInputs(2, 1)
    layer.fit(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.ones(2))
    values = layer(torch.tensor([[1.0, 5.0, -3.0], [0.0, 1.0, 1.0]]))
    assert_allclose(values, torch.zeros(2, 3), atol=1e-6)

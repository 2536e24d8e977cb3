"""Synthetic data are what they say they are. Each Kolmogorov test is at 1e-4, for its seed and therefore always."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import gamma, kstest, t

from hetcal.datasets import gap, heavy_tailed, heteroscedastic, skewed

SETS = [heteroscedastic, heavy_tailed, skewed, gap]


def residuals(data):
    return (data.y - data.mean) / data.std


def test_residuals_are_standard_normal():
    assert kstest(residuals(heteroscedastic(20_000, seed=1)), "norm").pvalue > 1e-4
    assert kstest(residuals(gap(20_000, seed=1)), "norm").pvalue > 1e-4
    assert kstest(residuals(gap(20_000, inside=True, seed=1)), "norm").pvalue > 1e-4


@pytest.mark.parametrize("nu", [2.5, 5.0, 8.0])
def test_heavy_tails(nu):
    """SciPy's t of standard deviation 1, at few and many degrees of freedom."""
    noise = t(nu, scale=1 / t(nu).std())
    assert_allclose(noise.std(), 1)
    data = heavy_tailed(20_000, degrees_of_freedom=nu, seed=1)
    assert kstest(residuals(data), noise.cdf).pvalue > 1e-4
    assert kstest(residuals(data), "norm").pvalue < 1e-4


@pytest.mark.parametrize("shape", [0.5, 2.0, 50.0])
def test_skew(shape):
    """SciPy's gamma, moved and scaled to mean 0 and standard deviation 1."""
    noise = gamma(shape, loc=-np.sqrt(shape), scale=1 / np.sqrt(shape))
    assert_allclose(noise.stats("mvs"), [0, 1, 2 / np.sqrt(shape)], atol=1e-12)
    data = skewed(20_000, shape=shape, seed=1)
    assert kstest(residuals(data), noise.cdf).pvalue > 1e-4
    assert kstest(residuals(data), "norm").pvalue < 1e-4


@pytest.mark.parametrize("make", [heteroscedastic, heavy_tailed, skewed])
def test_shared_mean_and_std(make):
    """The sets differ in the shape of their noise alone."""
    data = make(100, seed=2)
    x1, x2 = data.X.T
    assert_allclose(data.mean, 4 * np.sin(x1) * np.cos(x1) + x2, atol=1e-12)  # the double angle
    assert_allclose(data.std, np.interp(x1, [-1, 1], [0.05, 1]))


def test_gap():
    """Outside the gap and inside it, inputs are uniform, and mean and noise are the same functions."""
    outside, inside = gap(20_000, seed=1), gap(20_000, inside=True, seed=1)
    x = outside.X[:, 0]
    assert kstest(np.abs(x), "uniform", (0.3, 0.7)).pvalue > 1e-4
    assert abs(np.mean(x > 0) - 0.5) < 4 * 0.5 / np.sqrt(20_000)
    assert kstest(inside.X[:, 0], "uniform", (-0.3, 0.6)).pvalue > 1e-4
    for data in (outside, inside):
        x1, x2 = data.X.T
        assert_allclose(data.mean, 4 * np.sin(3 * x1) * np.cos(3 * x1) + x2, atol=1e-12)
        assert_array_equal(data.std, 0.1)


@pytest.mark.parametrize("make", SETS)
def test_seed_decides(make):
    assert_array_equal(make(50, seed=3).y, make(50, seed=3).y)
    assert not np.array_equal(make(50, seed=3).y, make(50, seed=4).y)


def test_heteroscedastic_stays_as_it_was():
    """Published examples depend on these very rows."""
    random = np.random.default_rng(7)
    X = random.uniform(-1, 1, size=(20, 2))
    data = heteroscedastic(20, seed=7)
    assert_array_equal(data.X, X)
    assert_array_equal(data.y, random.normal(2 * np.sin(2 * X[:, 0]) + X[:, 1], 0.05 + 0.475 * (X[:, 0] + 1)))


@pytest.mark.parametrize("make", SETS)
@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (2.5, TypeError), ("5", TypeError)])
def test_wrong_sizes(make, n, error):
    with pytest.raises(error, match="n must be"):
        make(n)


def test_wrong_shapes():
    with pytest.raises(ValueError, match="degrees_of_freedom must be greater than 2, got degrees_of_freedom=2;"):
        heavy_tailed(10, degrees_of_freedom=2)
    with pytest.raises(ValueError, match="shape must be greater than 0, got shape=0;"):
        skewed(10, shape=0)
    with pytest.raises(TypeError, match="inside must be True or False, got inside='yes'; True gives"):
        gap(10, inside="yes")

"""Synthetic data are what they say they are."""

import numpy as np
from scipy.stats import kstest

from hetcal.datasets import heteroscedastic


def test_residuals_are_standard_normal():
    """Standardised residuals pass Kolmogorov's test at 1e-4, for this seed and therefore always."""
    data = heteroscedastic(20_000, seed=1)
    assert kstest((data.y - data.mean) / data.std, "norm").pvalue > 1e-4


def test_seed_decides():
    assert np.array_equal(heteroscedastic(50, seed=3).y, heteroscedastic(50, seed=3).y)
    assert not np.array_equal(heteroscedastic(50, seed=3).y, heteroscedastic(50, seed=4).y)

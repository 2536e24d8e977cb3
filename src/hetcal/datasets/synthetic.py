"""Synthetic data with known mean and standard deviation: the one place where sigma itself can be checked."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import check_number

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SyntheticData:
    """Rows with the truth behind them: `X` (n, d), `y`, `mean` and `std` (n,)."""

    X: Floats
    y: Floats
    mean: Floats
    std: Floats


def heteroscedastic(n: int = 1000, *, seed: int = 0) -> SyntheticData:
    r"""A smooth mean with noise that grows twentyfold along the first of two inputs.

    .. math:: y \sim N(\mu, \sigma^2), \qquad \mu = 2 \sin(2 x_1) + x_2, \qquad \sigma = 0.05 + 0.475 (x_1 + 1)

    with :math:`x_1, x_2` uniform on [-1, 1].

    >>> data = heteroscedastic(500)
    >>> float(data.std.min().round(2)), float(data.std.max().round(2))
    (0.05, 1.0)
    """
    check_number("n", n, 1, integer=True)
    check_number("seed", seed, 0, integer=True)
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, size=(n, 2))
    mean = 2 * np.sin(2 * X[:, 0]) + X[:, 1]
    std = 0.05 + 0.475 * (X[:, 0] + 1)
    return SyntheticData(X, random.normal(mean, std), mean, std)

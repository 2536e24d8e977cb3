"""Synthetic data with known mean and standard deviation, on which a predicted sigma can be compared with the true one.

The noise is normal, heavy-tailed or skewed and always has the stated standard deviation. `gap` omits a range of inputs.
"""

from dataclasses import dataclass

import numpy as np

from hetcal._checks import Floats, check_number, must


@dataclass(frozen=True, eq=False)
class SyntheticData:
    """Features `X` (n, d), target `y` (n,), and the true `mean` and `std` (n,) of each row."""

    X: Floats
    y: Floats
    mean: Floats
    std: Floats


def heteroscedastic(n: int = 1000, *, seed: int = 0) -> SyntheticData:
    r"""Generate rows with a smooth mean and normal noise whose sigma grows twentyfold along the first of two inputs.

    .. math:: y \sim N(\mu, \sigma^2), \qquad \mu = 2 \sin(2 x_1) + x_2, \qquad \sigma = 0.05 + 0.475 (x_1 + 1)

    with :math:`x_1, x_2` uniform on [-1, 1].

    >>> data = heteroscedastic(500)
    >>> float(data.std.min().round(2)), float(data.std.max().round(2))
    (0.05, 1.0)
    """
    random, X, mean, std = _smooth(n, seed)
    return SyntheticData(X, random.normal(mean, std), mean, std)


def heavy_tailed(n: int = 1000, *, degrees_of_freedom: float = 5.0, seed: int = 0) -> SyntheticData:
    r"""Generate rows with the mean and sigma of `heteroscedastic` and noise from Student's t distribution.

    .. math:: y = \mu + \sigma \, t \sqrt{\frac{\nu - 2}{\nu}}, \qquad t \sim t_\nu

    with :math:`\nu` = `degrees_of_freedom`, greater than 2, so that :math:`\sigma` is the standard deviation.

    >>> data = heavy_tailed(10_000)
    >>> bool((abs(data.y - data.mean) > 6 * data.std).any())  # one row in 500 million under normal noise
    True
    """
    check_number("degrees_of_freedom", degrees_of_freedom, 2, open_low=True)
    random, X, mean, std = _smooth(n, seed)
    nu = degrees_of_freedom
    noise = random.standard_t(nu, size=n) * np.sqrt((nu - 2) / nu)
    return SyntheticData(X, mean + std * noise, mean, std)


def skewed(n: int = 1000, *, shape: float = 2.0, seed: int = 0) -> SyntheticData:
    r"""Generate rows with the mean and sigma of `heteroscedastic` and right-skewed noise, a shifted gamma variable.

    .. math:: y = \mu + \sigma \, \frac{g - k}{\sqrt k}, \qquad g \sim \Gamma(k, 1)

    with k = `shape`; the skewness is :math:`2 / \sqrt k`, and no y lies below :math:`\mu - \sqrt k \, \sigma`.

    >>> data = skewed(1000)
    >>> float(((data.y - data.mean) / data.std).min()) > -(2**0.5)
    True
    """
    check_number("shape", shape, 0, open_low=True)
    random, X, mean, std = _smooth(n, seed)
    noise = (random.gamma(shape, size=n) - shape) / np.sqrt(shape)
    return SyntheticData(X, mean + std * noise, mean, std)


def gap(n: int = 1000, *, inside: bool = False, seed: int = 0) -> SyntheticData:
    r"""Generate rows with :math:`|x_1| \ge 0.3` only or, if `inside` is True, with :math:`|x_1| < 0.3` only.

    .. math:: y \sim N(\mu, \sigma^2), \qquad \mu = 2 \sin(6 x_1) + x_2, \qquad \sigma = 0.1

    with :math:`x_1` uniform on [-1, -0.3] and [0.3, 1] (`inside`: on [-0.3, 0.3]), :math:`x_2` on [-1, 1]. Train on
    the rows outside the gap and predict the rows inside: the noise is the same there, so a larger predicted sigma is
    epistemic.

    >>> outside, inside = gap(500), gap(500, inside=True)
    >>> bool(abs(outside.X[:, 0]).min() >= 0.3), bool(abs(inside.X[:, 0]).max() <= 0.3)
    (True, True)
    """
    if not isinstance(inside, bool | np.bool_):
        raise must("inside", "be True or False", inside, "True gives the rows in the gap", TypeError)
    random, X, _, _ = _smooth(n, seed)
    x = X[:, 0]
    X[:, 0] = 0.3 * x if inside else x * 0.7 + np.copysign(0.3, x)
    mean = 2 * np.sin(6 * X[:, 0]) + X[:, 1]
    std = np.full(n, 0.1)
    return SyntheticData(X, random.normal(mean, std), mean, std)


# The ones that a study can name like a real data set.
SYNTHETIC = {"heteroscedastic": heteroscedastic, "heavy-tailed": heavy_tailed, "skewed": skewed}


def _smooth(n: int, seed: int) -> tuple[np.random.Generator, Floats, Floats, Floats]:
    """Check the arguments; return the generator, two uniform inputs, a smooth mean and a growing standard deviation."""
    check_number("n", n, 1, integer=True)
    check_number("seed", seed, 0, integer=True)
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, size=(n, 2))
    mean = 2 * np.sin(2 * X[:, 0]) + X[:, 1]
    std = 0.05 + 0.475 * (X[:, 0] + 1)
    return random, X, mean, std

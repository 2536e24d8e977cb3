"""The expected calibration error of class probabilities, and its noise floor."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

from hetcal.metrics import expected_calibration_error, expected_calibration_error_noise_floor


def test_expected_calibration_error_is_its_equation():
    """Recomputed bin by bin, rows at the ends of bins included: a bin has its upper end."""
    random = np.random.default_rng(0)
    p = random.dirichlet([1, 1, 1], 500)
    p[:3] = [[0.6, 0.4, 0.0], [0.2, 0.8, 0.0], [1.0, 0.0, 0.0]]
    y = random.integers(3, size=500)
    for bins in (1, 5, 15):
        expected = 0.0
        for b in range(bins):
            inside = (p.max(1) > b / bins) & (p.max(1) <= (b + 1) / bins)
            if inside.any():
                gap = np.mean(p[inside].argmax(1) == y[inside]) - p[inside].max(1).mean()
                expected += inside.mean() * abs(gap)
        assert_allclose(expected_calibration_error(y, p, bins=bins), expected, rtol=1e-12)


def test_expected_calibration_error_with_labels():
    p = [[0.8, 0.2], [0.3, 0.7]]
    assert_allclose(expected_calibration_error([0, 1], p), 0.25)
    assert_allclose(expected_calibration_error(["no", "yes"], p, classes=["no", "yes"]), 0.25)
    assert_allclose(expected_calibration_error(["no", "yes"], p, classes=["yes", "no"]), 0.75)
    assert_allclose(expected_calibration_error([False, True], p), 0.25)


def test_noise_floor():
    """That of a coin in closed form; falls as 1 / sqrt(n); labels drawn by other means have it on average."""
    n = 400
    coin = np.full((n, 2), 0.5)
    exact = np.sum(binom.pmf(np.arange(n + 1), n, 0.5) * np.abs(np.arange(n + 1) / n - 0.5))
    floor = expected_calibration_error_noise_floor
    assert_allclose(floor(coin), exact, rtol=0.1)  # 1,000 draws: a standard error of 2.4 %
    assert floor(coin) == floor(coin)
    random = np.random.default_rng(1)
    p = random.dirichlet([1, 1, 1], 1000)
    assert_allclose(floor(p) * 2, floor(p[:250]), rtol=0.15)
    labels = (random.random((300, 1000, 1)) > p.cumsum(axis=1)).sum(axis=2)
    assert_allclose(np.mean([expected_calibration_error(y, p) for y in labels]), floor(p), rtol=0.08)
    certain = np.tile([0.0, 1.0], (5, 1))
    assert floor(certain) == 0


@pytest.mark.parametrize(
    ("y", "probabilities", "settings", "message"),
    [
        ([0, 1], [0.2, 0.8], {}, r"probabilities must be \(n, K\) for K >= 2 classes, got .*shape \(2,\)"),
        (
            [0],
            [[2.0, -1.0]],
            {},
            r"probabilities must be at least 0 and add up to 1 in each row, got .*not logits.*row 0",
        ),
        ([0], [[np.nan, 1.0]], {}, r"probabilities must be at least 0 and add up to 1"),
        ([0, 1], [[0.5, 0.5]], {}, r"y must be \(1,\), got y='array of shape \(2,\)'; give one class per row"),
        ([2], [[0.5, 0.5]], {}, r"y must hold classes among \[0, 1\], got y=2; give classes=model.classes_"),
        (["a"], [[0.5, 0.5]], {}, r"y must hold classes among \[0, 1\], got y='a'; give classes=model.classes_"),
        (
            ["a"],
            [[0.5, 0.5]],
            {"classes": ["a"]},
            r"classes must name the 2 columns of probabilities, got classes=\['a'",
        ),
        ([0], [[0.5, 0.5]], {"bins": 0}, r"bins must be at least 1, got bins=0"),
    ],
)
def test_expected_calibration_error_refuses(y, probabilities, settings, message):
    with pytest.raises(ValueError, match=message):
        expected_calibration_error(y, probabilities, **settings)

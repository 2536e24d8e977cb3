"""What a perfect model shows on finitely many rows: noise floor, quantile, band and binomial bounds."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.stats import binom

from hetcal import metrics
from hetcal.metrics.noise import _error_quantile, share_noise_bounds


@pytest.fixture(scope="module")
def triple():
    """Rows with a little of everything: narrow and wide, inside and far outside, no two std alike."""
    generator = np.random.default_rng(0)
    mean, std = generator.normal(5, 3, 300), np.exp(generator.normal(0, 1, 300))
    return mean + 1.4 * std * generator.standard_t(4, 300), mean, std


class TestNoise:
    """What a perfect model gets on finitely many rows: floor, quantile, band."""

    @pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 50, 100])
    @pytest.mark.parametrize("level", [0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
    def test_floor_is_the_exact_expectation(self, n, level):
        """In exact fractions, also where n * level is whole and its float is not (10 * 0.3, 100 * 0.7)."""
        p = Fraction(str(level))
        terms = (abs(k - n * p) * math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1))
        assert_allclose(metrics.ce_noise_floor(n, level), float(sum(terms) / n), rtol=1e-10)

    @pytest.mark.parametrize("n", [20, 101])
    def test_floor_is_the_mean_error_of_the_oracle(self, n):
        """y drawn from the stated Gaussian, 3,000 times; beyond 5 standard errors: one false alarm in 1.7 million."""
        generator = np.random.default_rng(n)
        mean, std = generator.normal(size=n), generator.uniform(0.1, 10, n)
        errors = [metrics.ce(generator.normal(mean, std), mean, std) for _ in range(3_000)]
        assert abs(np.mean(errors) - metrics.ce_noise_floor(n)) < 5 * np.std(errors) / math.sqrt(3_000)

    @pytest.mark.parametrize("n", [1_000, 10_000, 1_000_000])
    def test_floor_falls_with_the_root_of_n(self, n):
        """The figure printed in documentation and paper notes: 1.688 / sqrt(n)."""
        assert_allclose(metrics.ce_noise_floor(n), 1.688 / math.sqrt(n), rtol=0.01)

    def test_quantile_of_one_level_is_the_binomial_one(self):
        """With one level the distribution of the error is known; the probabilities lie well off its steps."""
        n, p = 40, 0.5
        counts = np.arange(n + 1)
        errors, weights = np.abs(p - counts / n), stats.binom.pmf(counts, n, p)
        for probability in (0.5, 0.9, 0.97):
            order = np.argsort(errors, kind="stable")
            exact = errors[order][np.searchsorted(np.cumsum(weights[order]), probability)]
            assert_allclose(metrics.ce_quantile(n, probability, levels=p), exact, rtol=1e-12)

    def test_quantile_is_repeatable_and_ordered(self):
        """The same question has the same answer, in any form and order of the levels; more certainty, more room."""
        first = metrics.ce_quantile(100)
        _error_quantile.cache_clear()
        assert metrics.ce_quantile(np.int64(100), levels=list(metrics.LEVELS)) == first
        assert_allclose(metrics.ce_quantile(100, levels=metrics.LEVELS[::-1]), first, rtol=1e-12)
        assert metrics.ce_quantile(100, 0.5) < first < metrics.ce_quantile(100, 0.99)
        assert metrics.ce_quantile(400) < first

    @pytest.mark.parametrize(("n", "bound"), [(100, 0.269), (1_000, 0.0852), (10_000, 0.0269), (100_000, 0.0085)])
    def test_oracle_stays_below_the_dkw_bound(self, n, bound):
        """y drawn from the stated Gaussian: sup |coverage - level| beyond the bound is a false alarm in a million."""
        assert_allclose(bound, math.sqrt(math.log(2 / 1e-6) / (2 * n)), rtol=0.01)
        generator = np.random.default_rng(7)
        mean, std = generator.normal(0, 100, n), np.exp(generator.normal(0, 2, n))
        curve = metrics.calibration_curve(generator.normal(mean, std), mean, std)
        assert np.abs(curve.coverage - curve.levels).max() < bound

    @pytest.mark.parametrize("n", [8, 100, 2_000])
    def test_band_holds_a_calibrated_curve_at_all_levels_at_once(self, n):
        """4,000 oracle samples: below 93.2 % or, from 100 rows, above 97 %, is a false alarm in 100,000 or rarer."""
        generator = np.random.default_rng(1)
        curve = metrics.calibration_curve(np.zeros(n), np.zeros(n), np.ones(n))
        held = 0
        for _ in range(4_000):
            uniform = np.sort(generator.random(n))  # 2 Phi(|z|) - 1 of a calibrated model
            observed = np.searchsorted(uniform, curve.levels, side="right") / n
            held += bool(((observed >= curve.lower) & (observed <= curve.upper)).all())
        assert 0.932 <= held / 4_000 <= (0.97 if n >= 100 else 1.0)

    def test_band_is_narrow_where_overconfidence_shows(self):
        """A third of the Kolmogorov band at level 0.99, little more in the middle; in [0, 1], round the diagonal."""
        n = 1_000
        curve = metrics.calibration_curve(np.zeros(n), np.zeros(n), np.ones(n))
        kolmogorov = stats.kstwo.ppf(0.95, n)
        assert curve.levels[-1] - curve.lower[-1] < kolmogorov / 3
        assert (curve.levels - curve.lower).max() < 1.25 * kolmogorov
        assert (curve.lower >= 0).all()
        assert (curve.upper <= 1).all()
        assert ((curve.lower <= curve.levels) & (curve.levels <= curve.upper)).all()

    def test_band_widens_with_confidence_and_follows_the_levels(self, triple):
        """Levels in any order keep their own limits."""
        forward = metrics.calibration_curve(*triple, levels=[0.2, 0.5, 0.95])
        backward = metrics.calibration_curve(*triple, levels=[0.95, 0.5, 0.2])
        for field in ("levels", "coverage", "lower", "upper"):
            assert_array_equal(getattr(forward, field), getattr(backward, field)[::-1])
        wider = metrics.calibration_curve(*triple, levels=[0.2, 0.5, 0.95], confidence=0.999)
        assert (wider.lower < forward.lower).all()
        assert (wider.upper >= forward.upper).all()


@pytest.mark.parametrize("n", [1, 50, 400])
def test_noise_bounds_are_the_exact_binomial_ones(n):
    """They leave out at most 2.5 % on either side, and one row more would be too much."""
    low, high = (round(bound * n) for bound in share_noise_bounds(n, 0.9))
    assert binom.cdf(low - 1, n, 0.9) <= 0.025 < binom.cdf(low, n, 0.9)
    assert binom.sf(high, n, 0.9) <= 0.025 < binom.sf(high - 1, n, 0.9)

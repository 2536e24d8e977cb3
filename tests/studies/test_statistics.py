"""Means and standard errors, by another route and for numbers of any size, and the list of figures."""

import math
import statistics

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hetcal.metrics import METRICS
from hetcal.studies.statistics import COMPARED, FIGURES, Estimate, estimate


@pytest.mark.parametrize("n", [2, 5, 30])
def test_mean_and_standard_error(n):
    values = np.random.default_rng(n).normal(size=n).tolist()
    found = estimate(values)
    assert found.n == n
    assert_allclose(found.mean, statistics.fmean(values), rtol=1e-14)
    assert_allclose(found.error, statistics.stdev(values) / math.sqrt(n), rtol=1e-14)


def test_a_single_value_has_no_error():
    assert estimate([0.5]) == Estimate(0.5, 0.0, 1)


@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1.0, 1e300, 5e307])
def test_numbers_of_any_size(scale):
    """Squares of the largest and the smallest floats stay within their range."""
    found = estimate([1.0 * scale, 3.0 * scale])
    assert found.mean == pytest.approx(2 * scale, rel=1e-12)
    assert found.error == pytest.approx(1.0 * scale, rel=1e-12)


def test_zeros():
    assert estimate([0.0, 0.0]) == Estimate(0.0, 0.0, 2)


@pytest.mark.parametrize(("value", "mean"), [(math.inf, math.inf), (-math.inf, -math.inf), (math.nan, math.nan)])
def test_values_that_are_not_finite(value, mean):
    """The mean says so, quietly, and has no error."""
    found = estimate([1.0, value])
    assert found.mean == pytest.approx(mean, nan_ok=True)
    assert math.isnan(found.error)
    assert math.isnan(estimate([math.inf, -math.inf]).mean)


def test_figures():
    """The metrics and the time; what a comparison shows is among them, the decisive figure first."""
    assert set(FIGURES) == {*METRICS, "seconds"}
    assert set(COMPARED) < set(FIGURES)
    assert COMPARED[0] == "crps"
    with pytest.raises(TypeError, match="seconds are measured"):
        FIGURES["seconds"].function([1.0], None)

"""Prediction: the Gaussian per row, on tensors and on arrays."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import norm

from hetcal.prediction import Prediction

MEAN, STD = np.array([0.0, -3.0, 100.0]), np.array([1.0, 0.5, 20.0])
levels = st.floats(0.001, 0.999)


def test_against_scipy():
    """Interval, quantile and log density agree with scipy's normal distribution (eq. 2 and eq. 1)."""
    prediction = Prediction(MEAN, STD)
    assert_allclose(prediction.interval(0.9).T, norm.interval(0.9, MEAN, STD))
    assert_allclose(prediction.quantile(0.2), norm.ppf(0.2, MEAN, STD))
    y = np.array([1.0, -2.0, 90.0])
    assert_allclose(prediction.log_prob(y), norm.logpdf(y, MEAN, STD))


def test_shapes():
    """One level gives (n, 2), a list (n, 2, k); one quantile (n,), a list (n, k)."""
    prediction = Prediction(MEAN, STD)
    assert prediction.interval(0.9).shape == (3, 2)
    assert prediction.interval([0.5, 0.9, 0.95]).shape == (3, 2, 3)
    assert prediction.quantile(0.5).shape == (3,)
    assert prediction.quantile([0.1, 0.9]).shape == (3, 2)
    assert_allclose(prediction.interval([0.5, 0.9])[:, :, 1], prediction.interval(0.9))


def test_tensors_agree_with_arrays_and_keep_the_graph():
    """The same numbers on tensors, differentiable in mean and std."""
    mean = torch.tensor(MEAN, requires_grad=True)
    std = torch.tensor(STD, requires_grad=True)
    tensors, arrays = Prediction(mean, std), Prediction(MEAN, STD)
    assert_allclose(tensors.interval([0.5, 0.9]).detach(), arrays.interval([0.5, 0.9]))
    assert_allclose(tensors.log_prob(mean + std).detach(), arrays.log_prob(MEAN + STD))
    tensors.interval(0.9).sum().backward()
    assert_allclose(mean.grad, np.full(3, 2.0))
    assert_allclose(tensors.numpy().std, STD)
    assert isinstance(tensors.numpy().mean, np.ndarray)


@given(st.lists(levels, min_size=2, max_size=5).map(sorted))
def test_intervals_nest_and_quantiles_rise(several):
    """A higher level contains a lower one; quantiles never cross."""
    prediction = Prediction(MEAN, STD)
    lower, upper = prediction.interval(several)[:, 0], prediction.interval(several)[:, 1]
    assert (np.diff(lower, axis=1) <= 0).all()
    assert (np.diff(upper, axis=1) >= 0).all()
    assert (np.diff(prediction.quantile(several), axis=1) >= 0).all()


@pytest.mark.parametrize("wrong", [95, 0, 1, -0.1, np.nan, [0.5, 2.0], []])
def test_levels_are_fractions(wrong):
    """A level outside (0, 1) is refused with advice."""
    with pytest.raises(ValueError, match="level must"):
        Prediction(MEAN, STD).interval(wrong)

"""What metrics and plots may be given, and the words for what they may not."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from hetcal import metrics
from hetcal.distributions import RecalibratedPrediction, TransformedPrediction
from hetcal.families import Laplace, StudentT
from hetcal.metrics.inputs import read_prediction
from hetcal.prediction import Prediction
from hetcal.transforms import Log

Y, MEAN, STD = np.array([1.0, 2.0]), np.array([1.5, 1.5]), np.array([1.0, 2.0])
TWO = np.ones((2, 2))
NEEDS_STD = [
    metrics.ce,
    metrics.calibration_curve,
    metrics.coverage,
    metrics.pit,
    metrics.ence,
    metrics.conditional_coverage_error,
    metrics.sharpness,
    metrics.interval_width,
    metrics.nll,
    metrics.crps,
    metrics.interval_score,
    metrics.pinball_loss,
    metrics.judge,
    metrics.evaluate,
]


def transformed(mean, std):
    return TransformedPrediction(Prediction(mean, std), Log())


@pytest.mark.parametrize("metric", NEEDS_STD)
def test_mean_without_std_is_refused(metric):
    """Also for several targets, where a column is taken before it is looked at."""
    message = (
        r"std must be given, got std=None; give both mean and std, or one prediction, such as model.predict_dist\(X\)"
    )
    with pytest.raises(TypeError, match=message):
        metric(Y, MEAN)
    if metric is not metrics.calibration_curve:
        with pytest.raises(TypeError, match=message):
            metric(TWO, TWO)


@pytest.mark.parametrize("metric", NEEDS_STD)
@pytest.mark.parametrize("make", [Prediction, transformed])
def test_prediction_beside_std_is_refused(metric, make):
    """Which of the two would count?"""
    message = r"std must be omitted if a prediction is given, got std=array\(\[1., 2.\]\); the prediction has its own"
    with pytest.raises(TypeError, match=message):
        metric(Y, make(MEAN, STD), STD)


@pytest.mark.parametrize("make", [Prediction, transformed])
@pytest.mark.parametrize(
    ("y", "mean", "std", "message"),
    [
        ([1.0, np.nan], MEAN, STD, r"y must be finite, got y=nan; .* first in row 1"),
        (Y, np.array([np.inf, 1.0]), STD, r"mean must be finite, got mean=inf"),
        (Y, MEAN, np.array([1.0, 0.0]), r"std must be greater than 0, got std=0.0; .* see row 1"),
        (Y, MEAN[:1], STD[:1], r"mean must have as many values as y \(2\), got mean='1 values'"),
        (Y[:, None], MEAN, STD, r"y must be one-dimensional, got y='array of shape \(2, 1\)'; use its column"),
        (Y, TWO, TWO, r"mean must be one-dimensional, got mean='array of shape \(2, 2\)'; pass one target at a time: "),
        (TWO, MEAN, STD, r"y must be one-dimensional, got y='array of shape \(2, 2\)'; pass one target at a time: y"),
        (TWO, TWO[:, :1], TWO[:, :1], r"mean must have the shape of y \(2, 2\), got mean='array of shape \(2, 1\)'; "),
        (TWO, TWO[:1], TWO[:1], r"mean must have the shape of y \(2, 2\), got mean='array of shape \(1, 2\)'; give "),
        (TWO * [1, np.nan], TWO, TWO, r"y must be finite, got y=nan"),
        (TWO, TWO, TWO * [1, 0], r"std must be greater than 0, got std=0.0"),
        (np.ones((2, 0)), np.ones((2, 0)), np.ones((2, 0)), r"y must have at least one column, got y='array of shape"),
    ],
)
def test_bad_predictions_are_named(make, y, mean, std, message):
    """The checks of mean and std hold for predictions too, with or without a transform, and for every target."""
    with pytest.raises(ValueError, match=message):
        metrics.crps(y, make(mean, std))
    if make is Prediction:
        with pytest.raises(ValueError, match=message):
            metrics.crps(y, mean, std)


def test_std_of_other_shape_is_named():
    """One std for several targets is not spread over them by broadcasting."""
    message = (
        r"std must have the shape of y \(2, 2\), got std='array of shape \(2,\)'; "
        r"give one row per row of y and one column per target"
    )
    with pytest.raises(ValueError, match=message):
        metrics.crps(TWO, TWO, STD)


def test_tensors_and_float32():
    """A prediction straight from an estimator, its graph and learned degrees of freedom included."""
    mean, std, df = (torch.tensor(values, dtype=torch.float32, requires_grad=True) for values in (MEAN, STD, 5.0))
    expected = metrics.evaluate(Y, Prediction(MEAN, STD, family=StudentT(5.0)))
    assert metrics.evaluate(Y, Prediction(mean, std, family=StudentT(df))) == expected
    truth, prediction = read_prediction(Y.astype(np.float32), Prediction(mean, std, family=Laplace()))
    assert {truth.dtype, prediction.mean.dtype, prediction.std.dtype} == {np.dtype(np.float64)}
    assert prediction.family == Laplace()


def test_frames_are_no_predictions():
    """A column that is called like a method of predictions does not make one."""
    frame = pd.DataFrame({"interval": [1.5, 1.5], "z": [1.0, 2.0]})
    assert_allclose(metrics.mae(TWO, frame), [0.5, 0.5])
    assert_array_equal(metrics.crps(TWO, frame, frame), metrics.crps(TWO, frame.to_numpy(), frame.to_numpy()))


def test_checks_reach_the_innermost_prediction():
    """A recalibration of a transform of a prediction: two layers deep, a std of 0 is still found."""
    straight = np.array([0.0, 1.0])
    inner = transformed(MEAN, np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"std must be greater than 0, got std=0.0; .* see row 1"):
        metrics.coverage(Y, RecalibratedPrediction(inner, straight, straight))


def test_any_prediction_will_do():
    """No inheritance needed: what has the members of a prediction is one."""

    class Mine:
        mean, std, family = MEAN, STD, Laplace()

        def __getattr__(self, name):
            return getattr(Prediction(MEAN, STD, family=Laplace()), name)

    assert metrics.evaluate(Y, Mine()) == metrics.evaluate(Y, Prediction(MEAN, STD, family=Laplace()))


def test_signatures_stay_readable():
    """What `help` and editors show is the metric's own, not the wrapper's."""
    assert metrics.coverage.__name__ == "coverage"
    assert metrics.coverage.__doc__.startswith("Share of rows inside")
    with pytest.raises(TypeError, match="unexpected keyword argument 'levl'"):
        metrics.coverage(Y, MEAN, STD, levl=0.9)

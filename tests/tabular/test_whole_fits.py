"""A fit that fails leaves no trace: an unfitted model stays unfitted, a fitted one predicts as before."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from hetcal import HCClassifier, HCRegressor
from hetcal.exceptions import TrainingInterrupted
from hetcal.objectives import nll_loss

X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0]


def interrupting(call):
    """The likelihood, which presses Ctrl-C when it is called for the given time."""
    calls = iter(range(1, 1000))

    def objective(prediction, y):
        if next(calls) == call:
            raise KeyboardInterrupt
        return nll_loss(prediction, y)

    return objective


def small(**settings):
    return HCRegressor("variance_head", max_epochs=3, width=4, depth=1, random_state=0, **settings)


@pytest.mark.parametrize("model", [small(objective=interrupting(1)), HCRegressor(objective=interrupting(1))])
def test_unfitted_model_stays_unfitted(model):
    with pytest.raises(KeyboardInterrupt) as end:
        model.fit(X, Y)
    assert not isinstance(end.value, TrainingInterrupted)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    assert vars(model) == model.get_params()


def test_earlier_fit_stays_intact():
    """Even if the table of the second fit has other columns."""
    model = small().fit(X, Y)
    before = model.predict(X)
    model.set_params(objective=interrupting(1))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], Y)
    assert_array_equal(model.predict(X), before)
    assert model.n_features_in_ == 3
    model.set_params(objective="nll", batch_size=0)
    with pytest.raises(ValueError, match="batch_size must"):
        model.fit(X[:, :2], Y)
    assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("transform", [None, "auto"])
def test_interrupted_fit_is_a_fit(transform):
    """After the first finished epoch the model is complete, and no further transform is tried."""
    model = small(objective=interrupting(6), target_transform=transform)
    with pytest.raises(TrainingInterrupted) as end:
        model.fit(X, Y)
    assert end.value.history is model.history_
    assert model.history_.stopped == "interrupted"
    assert model.target_transform_ is None
    assert np.isfinite(model.predict_interval(X)).all()


def test_interrupted_transform_is_compared_with_the_finished_ones():
    """Ctrl-C while the second transform is trained: the first is complete, and the better of the two is kept."""
    model = small(objective=interrupting(13), target_transform="auto")
    with pytest.raises(TrainingInterrupted) as end:
        model.fit(X, Y)
    assert end.value.history.stopped == "interrupted"
    assert np.isfinite(model.predict_interval(X)).all()


def test_interrupted_classifier():
    class Impatient:
        calls = 0

        def __call__(self, prediction):
            self.calls += 1
            if self.calls == 5:
                raise KeyboardInterrupt
            return prediction.mean.log_softmax(1)

    model = HCClassifier(likelihood=Impatient(), max_epochs=3, width=4, depth=1, random_state=0)
    with pytest.raises(TrainingInterrupted):
        model.fit(X, Y > 0)
    assert model.history_.stopped == "interrupted"
    assert model.predict(X).shape == (40,)


def test_signature_is_that_of_fit():
    """scikit-learn looks for `sample_weight` and `groups` in it."""
    assert list(inspect.signature(HCRegressor.fit).parameters) == ["self", "X", "y", "sample_weight", "groups"]
    assert has_fit_parameter(HCClassifier(), "sample_weight")

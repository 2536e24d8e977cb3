"""The scorers inside scikit-learn's own tools, with scikit-learn's own regressors."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from hetcal.families import Laplace
from hetcal.metrics import ce, crps, nll
from hetcal.metrics.scorers import SCORERS, ce_scorer, crps_scorer, nll_scorer
from hetcal.prediction import Prediction


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(120, 3))
    return X, X @ [1.0, -2.0, 0.5] + generator.normal(0, 0.3, 120)


class Stated:
    """A regressor that predicts the same Gaussian for every row."""

    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def predict(self, X, return_std=False):
        mean = np.full(len(X), self.mean)
        return (mean, np.full(len(X), self.std)) if return_std else mean


class Peaked(RegressorMixin, BaseEstimator):
    """A regressor with a family: Laplace noise around the sum of the columns."""

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict(self, X, return_std=False):
        prediction = self.predict_dist(X)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    def predict_dist(self, X):
        return Prediction(X.sum(axis=1), np.full(len(X), 2.0), family=Laplace())


@pytest.mark.parametrize(
    "regressor",
    [
        BayesianRidge(),
        GaussianProcessRegressor(RBF() + WhiteKernel(0.1), optimizer=None),
        make_pipeline(StandardScaler(), BayesianRidge()),
    ],
    ids=["BayesianRidge", "GaussianProcessRegressor", "Pipeline"],
)
def test_scores_are_the_negated_metrics(data, regressor):
    """The values, on any regressor that knows `return_std`, are the negated metric."""
    X, y = data
    mean, std = regressor.fit(X, y).predict(X, return_std=True)
    assert_allclose(crps_scorer(regressor, X, y), -crps(y, mean, std))
    assert_allclose(nll_scorer(regressor, X, y), stats.norm.logpdf(y, mean, std).mean())
    assert_allclose(ce_scorer(regressor, X, y), -ce(y, mean, std))


@pytest.mark.parametrize(
    "wrap",
    [lambda last: last, make_pipeline, lambda last: make_pipeline(FunctionTransformer(np.negative), last)],
    ids=["alone", "pipeline of one", "pipeline"],
)
def test_family_counts(data, wrap):
    """A regressor with `predict_dist` is scored by its own distribution, at the end of a pipeline too."""
    X, y = data
    regressor = wrap(Peaked()).fit(X, y)
    mean = regressor.predict(X)
    assert_allclose(nll_scorer(regressor, X, y), stats.laplace.logpdf(y, mean, 2 / np.sqrt(2)).mean())
    prediction = Prediction(mean, np.full(len(y), 2.0), family=Laplace())
    assert_allclose(crps_scorer(regressor, X, y), -crps(y, prediction))
    assert_allclose(ce_scorer(regressor, X, y), -ce(y, prediction))


def test_several_targets_count_alike(data):
    """The mean over the targets, one number as scikit-learn requires."""
    X, y = data
    both = np.column_stack([y, 3 * y**2])
    regressor = GaussianProcessRegressor(RBF() + WhiteKernel(0.1), optimizer=None).fit(X, both)
    mean, std = regressor.predict(X, return_std=True)
    assert_allclose(nll_scorer(regressor, X, both), -np.mean(nll(both, mean, std)))
    expected = -np.mean([crps(both[:, j], mean[:, j], std[:, j]) for j in range(2)])
    assert_allclose(crps_scorer(regressor, X, both), expected)
    assert cross_val_score(regressor, X, both, cv=2, scoring=ce_scorer).shape == (2,)


@pytest.mark.parametrize("name", SCORERS)
def test_greater_is_better(data, name):
    """scikit-learn maximizes: the true spread must beat one ten times too small or too large."""
    X, y = data
    honest = SCORERS[name](Stated(y.mean(), y.std()), X, y)
    assert honest > SCORERS[name](Stated(y.mean(), y.std() / 10), X, y)
    assert honest > SCORERS[name](Stated(y.mean(), y.std() * 10), X, y)


def test_model_selection(data):
    """One scorer, or all at once with a choice by one of them."""
    X, y = data
    assert cross_val_score(BayesianRidge(), X, y, cv=3, scoring=crps_scorer).shape == (3,)
    folds = cross_validate(BayesianRidge(), X, y, cv=3, scoring=SCORERS)
    assert {"test_crps", "test_nll", "test_ce"} <= set(folds)
    # a prior that insists on noise far too small must lose
    grid = {"alpha_1": [1e-6, 1e6], "alpha_2": [1e-6]}
    search = GridSearchCV(BayesianRidge(), grid, scoring=SCORERS, refit="crps", cv=3).fit(X, y)
    assert search.best_params_["alpha_1"] == 1e-6


@pytest.mark.parametrize("name", SCORERS)
def test_scorers_can_be_pickled(name):
    """Parallel searches send them to other processes."""
    assert pickle.loads(pickle.dumps(SCORERS[name])) is SCORERS[name]


@pytest.mark.parametrize(
    "regressor", [Ridge(), make_pipeline(StandardScaler(), Ridge())], ids=["alone", "in a pipeline"]
)
def test_regressor_without_std_is_named(data, regressor):
    """Instead of "unexpected keyword argument" from somewhere inside scikit-learn."""
    message = (
        r"regressor must support predict\(X, return_std=True\), got regressor='(Ridge|Pipeline)'; "
        r"use one that does, such as HCRegressor, GaussianProcessRegressor or BayesianRidge"
    )
    with pytest.raises(TypeError, match=message):
        crps_scorer(regressor.fit(*data), *data)


def test_other_type_errors_pass_through(data):
    """A fault of the regressor itself is not blamed on a missing std."""

    class Broken:
        def predict(self, X, return_std=False):
            raise TypeError("my own fault")

    with pytest.raises(TypeError, match="my own fault"):
        crps_scorer(Broken(), *data)


def test_std_of_zero_is_an_error_not_a_score(data):
    """A noiseless Gaussian process predicts std = 0 at its training rows: no finite score is fair to that."""
    with pytest.raises(ValueError, match=r"std must be greater than 0, got std=0.0"):
        crps_scorer(Stated(0.0, 0.0), *data)

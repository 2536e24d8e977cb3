"""The baselines of scikit-learn against what they are by definition."""

import numpy as np
from numpy.testing import assert_allclose
from sklearn.linear_model import LinearRegression

from hetcal.studies.peers.scikit_learn import BOOSTED_LEVELS, HistGradientBoosting, NoModel, RidgeConstant

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 3))
Y = X @ [2.0, -1.0, 0.0] + RANDOM.normal(size=300) * (1 + (X[:, 0] > 0))


def test_no_model_has_the_quantiles_of_y():
    """The same for every row: the k-th of n values is the quantile k / (n + 1)."""
    prediction = NoModel().fit(X[:99], Y[:99]).predict_dist(X[:2])
    assert_allclose(prediction.quantile([0.05, 0.5, 0.9]), [np.sort(Y[:99])[[4, 49, 89]]] * 2)
    assert_allclose(prediction.mean, Y[:99].mean())
    assert_allclose(prediction.std, Y[:99].std())


def test_ridge_has_the_errors_of_rows_left_out():
    """Sigma against leave-one-out errors by hand; hardly any shrinkage on this table."""
    prediction = RidgeConstant().fit(X, Y).predict_dist(X[:5])
    line = LinearRegression().fit(X, Y)
    design = np.column_stack([np.ones(300), X])
    leverage = np.einsum("ij,ji->i", design, np.linalg.pinv(design))
    errors = (Y - line.predict(X)) / (1 - leverage)
    assert_allclose(prediction.mean, line.predict(X[:5]), atol=0.05)
    assert_allclose(prediction.std, np.sqrt(np.mean(errors**2)), rtol=1e-3)


def test_boosting_sees_where_the_noise_is():
    """One model for each quantile; noise is twice as large where the first feature is positive."""
    prediction = HistGradientBoosting().fit(X, Y).predict_dist(X)
    assert_allclose(prediction.levels, BOOSTED_LEVELS)
    width = np.diff(prediction.interval(0.9))[:, 0]
    assert np.median(width[X[:, 0] > 0]) > np.median(width[X[:, 0] < 0])

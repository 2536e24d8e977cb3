"""Scorers for scikit-learn's model selection: choose a regressor by its whole distribution, not only by its mean.

A regressor with `predict_dist(X)`, such as `HCRegressor`, is scored with its family and its transform of the target.
Any other regressor with `predict(X, return_std=True)`, such as `GaussianProcessRegressor` or `BayesianRidge`, is scored
as Gaussian. The same holds for the last step of a pipeline. With several targets the score is the mean over them.
Greater is better, as scikit-learn expects, so each score is a negated metric. The scorers are plain functions and can
be pickled.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hetcal.metrics.inputs import predict_distribution
from hetcal.metrics.regression import ce, crps, nll


def crps_scorer(regressor: Any, X: Any, y: ArrayLike) -> float:
    """Negated CRPS: the safe choice, in the units of y and robust to a few outliers.

    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.model_selection import GridSearchCV
    >>> search = GridSearchCV(BayesianRidge(), {"alpha_1": [1e-6, 1.0]}, scoring=crps_scorer)
    """
    return -float(np.mean(crps(y, predict_distribution(regressor, X))))


def nll_scorer(regressor: Any, X: Any, y: ArrayLike) -> float:
    """Negated negative log likelihood, which is the mean log density of y: it penalizes overconfidence severely."""
    return -float(np.mean(nll(y, predict_distribution(regressor, X))))


def ce_scorer(regressor: Any, X: Any, y: ArrayLike) -> float:
    """Negated calibration error, eq. 3 of the paper: for monitoring, because a constant std can have the best score."""
    return -float(np.mean(ce(y, predict_distribution(regressor, X))))


SCORERS: dict[str, Callable[[Any, Any, ArrayLike], float]] = {
    "crps": crps_scorer,
    "nll": nll_scorer,
    "ce": ce_scorer,
}

"""Scorers for scikit-learn's model selection: choose a regressor by its whole distribution, not by its mean alone.

They score any regressor with `predict_dist(X)`, ours, by the family and the transform it predicts, and any other with
`predict(X, return_std=True)`, such as `GaussianProcessRegressor` or `BayesianRidge`, as Gaussian; so too the last step
of a pipeline. Several targets count alike: the score is the mean over them. Greater is better, as scikit-learn expects,
so each is the negated metric. They are plain functions: picklable, and no instance of anything.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hetcal.metrics import ce, crps, nll
from hetcal.metrics.inputs import predict_distribution


def crps_scorer(regressor: Any, X: Any, y: ArrayLike) -> float:
    """Negated CRPS: the safe choice, in the units of y and robust to a few far rows.

    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.model_selection import GridSearchCV
    >>> search = GridSearchCV(BayesianRidge(), {"alpha_1": [1e-6, 1.0]}, scoring=crps_scorer)
    """
    return -float(np.mean(crps(y, predict_distribution(regressor, X))))


def nll_scorer(regressor: Any, X: Any, y: ArrayLike) -> float:
    """Negated negative log likelihood, that is the mean log density of y: severe with overconfidence."""
    return -float(np.mean(nll(y, predict_distribution(regressor, X))))


def ce_scorer(regressor: Any, X: Any, y: ArrayLike) -> float:
    """Negated calibration error, eq. 3 of the paper: a constant std can win it, so watch it, and choose by another."""
    return -float(np.mean(ce(y, predict_distribution(regressor, X))))


SCORERS: dict[str, Callable[[Any, Any, ArrayLike], float]] = {
    "crps": crps_scorer,
    "nll": nll_scorer,
    "ce": ce_scorer,
}

"""Scorers for scikit-learn's model selection: choose a regressor by its whole distribution, not by its mean alone.

They score any regressor with `predict(X, return_std=True)`: ours, `GaussianProcessRegressor`, `BayesianRidge`, or a
pipeline that ends in one. Greater is better, as scikit-learn expects, so each is the negated metric. They are plain
functions: picklable, and no instance of anything.
"""

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from hetcal._checks import must
from hetcal.metrics import calibration_error, crps, nll


def crps_scorer(regressor: Any, X: Any, y: ArrayLike) -> float:
    """Negated CRPS: the safe choice, in the units of y and robust to a few far rows.

    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.model_selection import GridSearchCV
    >>> search = GridSearchCV(BayesianRidge(), {"alpha_1": [1e-6, 1.0]}, scoring=crps_scorer)
    """
    return -crps(y, *_mean_and_std(regressor, X))


def nll_scorer(regressor: Any, X: Any, y: ArrayLike) -> float:
    """Negated negative log likelihood, that is the mean log density of y: severe with overconfidence."""
    return -nll(y, *_mean_and_std(regressor, X))


def calibration_error_scorer(regressor: Any, X: Any, y: ArrayLike) -> float:
    """Negated calibration error, eq. 3 of the paper: a constant std can win it, so watch it, and choose by another."""
    return -calibration_error(y, *_mean_and_std(regressor, X))


SCORERS: dict[str, Callable[[Any, Any, ArrayLike], float]] = {
    "crps": crps_scorer,
    "nll": nll_scorer,
    "calibration_error": calibration_error_scorer,
}


def _mean_and_std(regressor: Any, X: Any) -> tuple[ArrayLike, ArrayLike]:
    try:
        mean, std = regressor.predict(X, return_std=True)
    except TypeError as error:
        if "return_std" not in str(error):
            raise
        advice = "use one that does, such as HCRegressor, GaussianProcessRegressor or BayesianRidge"
        rule = "answer predict(X, return_std=True)"
        raise must("regressor", rule, type(regressor).__name__, advice, TypeError) from error
    return mean, std

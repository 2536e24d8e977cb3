"""scikit-learn's own checks, all of them, for every estimator with every objective that makes sense for it.

No expected failure, no skip of ours, no weakening tag. The networks are small so that the suite stays fast; one
instance has the default settings.
"""

import os

os.environ["SCIPY_ARRAY_API"] = "1"

from sklearn.utils.estimator_checks import parametrize_with_checks

from hetcal import HCRegressor

COMBINATIONS = [
    ("mc_dropout", "gaussian_nll"),
    ("mc_dropout", "squared_error"),
    ("quantile_range", "gaussian_nll"),
    ("quantile_range", "squared_error"),
    ("variance_head", "gaussian_nll"),
]


def small(estimator: str, objective: str, **settings) -> HCRegressor:
    return HCRegressor(estimator, objective, width=32, depth=2, max_epochs=200, dropout=0.1, **settings)


@parametrize_with_checks([HCRegressor(), *(small(*combination) for combination in COMBINATIONS)])
def test_scikit_learn_check(estimator, check):
    """Every check that scikit-learn runs on its own regressors."""
    check(estimator)

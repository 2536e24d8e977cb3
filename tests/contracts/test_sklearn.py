"""scikit-learn's own checks, all of them, for every estimator with every objective that makes sense for it.

No expected failure, no skip of ours, no weakening tag. The networks of the combinations are small so that the suite
stays fast; the first instance has the default settings. One check is not in the list, by scikit-learn's own rule:
`check_estimators_nan_inf` wants missing values refused, and they are supported (`allow_nan`); infinity is tested in
`test_hostile_inputs`.
"""

from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, parametrize_with_checks

from hetcal import HCRegressor

COMBINATIONS = [
    ("mc_dropout", "gaussian_nll"),
    ("mc_dropout", "squared_error"),
    ("quantile_range", "gaussian_nll"),
    ("quantile_range", "squared_error"),
    ("variance_head", "gaussian_nll"),  # squared error leaves its sigma untrained
]


def small(estimator: str, objective: str) -> HCRegressor:
    return HCRegressor(estimator, objective, width=32, depth=2, dropout=0.1, max_epochs=200)


@parametrize_with_checks([HCRegressor(), *(small(*combination) for combination in COMBINATIONS)])
def test_scikit_learn_check(estimator, check):
    """Every check that scikit-learn runs on its own regressors."""
    check(estimator)


def test_column_names():
    """The check of column names that scikit-learn does not run by itself.

    It wants columns in another order refused. By default we match them by name, which serves users better;
    `column_order="as_fitted"` is scikit-learn's rule to the letter.
    """
    check_dataframe_column_names_consistency(
        "HCRegressor", HCRegressor(column_order="as_fitted", width=8, depth=1, max_epochs=5)
    )

"""scikit-learn's own checks, all of them, for every estimator with every objective that makes sense for it.

No expected failure, no skip of ours, no weakening tag. The networks of the combinations are small so that the suite
stays fast; the first instance has the default settings. One check is not in the list, by scikit-learn's own rule:
`check_estimators_nan_inf` wants missing values refused, and they are supported (`allow_nan`); infinity is tested in
`test_hostile_inputs`.
"""

from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, parametrize_with_checks

from hetcal import HCRegressor
from hetcal.estimators import ESTIMATORS

SMALL = {"width": 32, "depth": 2, "dropout": 0.1, "max_epochs": 200}
# Fewer and larger steps, which is enough for scikit-learn's check of the score (R2 > 0.5).
TINY = {"width": 32, "depth": 1, "dropout": 0.2, "max_epochs": 30, "learning_rate": 0.02, "batch_size": 64}
FEW_PASSES = {"estimator_options": {"samples": 10, "prediction_samples": 20}}
FEW_MEMBERS = {"estimator_options": {"members": 4}}
COMBINATIONS = [
    HCRegressor("mc_dropout", "gaussian_nll", **SMALL),
    HCRegressor("mc_dropout", "squared_error", **SMALL),
    HCRegressor("quantile_range", "gaussian_nll", **SMALL),
    HCRegressor("quantile_range", "squared_error", **SMALL),
    HCRegressor("variance_head", "gaussian_nll", **SMALL),  # squared error leaves its sigma untrained
    HCRegressor("variance_head", target_transform="yeo-johnson", **TINY),
    HCRegressor("simultaneous_quantiles", **TINY),
    HCRegressor("concrete_dropout", **TINY, **FEW_PASSES),
    HCRegressor("bayes_by_backprop", **TINY, **FEW_PASSES),
    HCRegressor("ensemble_spread", **TINY, **FEW_MEMBERS),
    HCRegressor("ensemble", family="student_t", **TINY, **FEW_MEMBERS),
]


@parametrize_with_checks([HCRegressor(), *COMBINATIONS])
def test_scikit_learn_check(estimator, check):
    """Every check that scikit-learn runs on its own regressors."""
    check(estimator)


def test_no_estimator_is_forgotten():
    assert {model.estimator for model in COMBINATIONS} == set(ESTIMATORS)


def test_column_names():
    """The check of column names that scikit-learn does not run by itself.

    It wants columns in another order refused. By default we match them by name, which serves users better;
    `column_order="as_fitted"` is scikit-learn's rule to the letter.
    """
    check_dataframe_column_names_consistency(
        "HCRegressor", HCRegressor(column_order="as_fitted", width=8, depth=1, max_epochs=5)
    )

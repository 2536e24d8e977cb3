"""scikit-learn's own checks, all of them: for the default, for one network, and for one that transforms the target.

There is no expected failure, no skip of our own, and no tag that weakens a check. The networks are small and the steps
few, so that the suite stays fast. Checks of inputs, parameters and frames concern the class, not the estimator; the
other estimators pass those that train or predict something (`OF_ESTIMATORS`). One check is not in the list, by
scikit-learn's own rule: `check_estimators_nan_inf` requires that missing values are refused, but they are supported
(`allow_nan`); infinity is tested in `test_hostile_inputs`.
"""

import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    estimator_checks_generator,
    parametrize_with_checks,
)

from hetcal import HCRegressor
from hetcal.datasets import heteroscedastic
from hetcal.estimators import ESTIMATORS

pytestmark = pytest.mark.usefixtures("few_members")
# Fewer and larger steps, which is enough for scikit-learn's check of the score (R2 > 0.5).
DEFAULT = HCRegressor(width=16, max_steps=10)
TINY = {"width": 32, "depth": 1, "dropout": 0.2, "max_epochs": 30, "learning_rate": 0.02, "batch_size": 64}
FEW_PASSES = {"estimator_options": {"samples": 10, "prediction_samples": 20}}
OTHERS = [
    HCRegressor("mc_dropout", "gaussian_nll", **TINY, **FEW_PASSES),
    HCRegressor("mc_dropout", "squared_error", **TINY, **FEW_PASSES),
    HCRegressor("quantile_range", "gaussian_nll", **TINY),
    HCRegressor("simultaneous_quantiles", **TINY),
    HCRegressor("concrete_dropout", **TINY, **FEW_PASSES),
    HCRegressor("bayes_by_backprop", **TINY, **FEW_PASSES),
    HCRegressor("ensemble_spread", **TINY),
    HCRegressor("ensemble", family="student_t", **TINY, estimator_options={"members": 4}),
]
ONE_NETWORK = HCRegressor("variance_head", target_transform="yeo-johnson", **TINY)
OF_ESTIMATORS = {
    "check_estimators_pickle",
    "check_sample_weight_equivalence_on_dense_data",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_fit_idempotent",
    "check_dict_unchanged",
    "check_regressors_train",
    "check_regressor_multioutput",
}


@parametrize_with_checks([DEFAULT, ONE_NETWORK])
def test_scikit_learn_check(estimator, check):
    """Every check that scikit-learn runs on its own regressors."""
    check(estimator)


@pytest.mark.parametrize("model", OTHERS, ids=lambda model: f"{model.estimator}-{model.objective}")
def test_checks_of_what_is_trained(model):
    done = set()
    for _, check in estimator_checks_generator(model, legacy=True):
        name = check.func.__name__
        if name in OF_ESTIMATORS - done:  # once; some occur with several arguments
            # All but one do not ask how good the model is.
            check(clone(model) if name == "check_regressors_train" else clone(model).set_params(max_epochs=3))
            done.add(name)
    assert done == OF_ESTIMATORS


def test_no_estimator_is_forgotten():
    assert {model.estimator for model in (DEFAULT, ONE_NETWORK, *OTHERS)} == {"cross_ensemble", *ESTIMATORS}


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_units(estimator):
    """Other units of X and y change nothing but the units: to the bit for powers of two, nearly so with a new zero."""
    data = heteroscedastic(60)
    model = HCRegressor(estimator, **{**TINY, "max_epochs": 3}, random_state=0)
    mean, std = model.fit(data.X, data.y).predict(data.X, return_std=True)
    for x_scale, y_scale, y_zero in ((0.5, 1024, 0), (8, 3.7, -250)):
        model.fit(data.X * x_scale, data.y * y_scale + y_zero)
        got_mean, got_std = model.predict(data.X * x_scale, return_std=True)
        assert_allclose(got_mean, mean * y_scale + y_zero, rtol=0 if y_zero == 0 else 1e-8)
        assert_allclose(got_std, std * y_scale, rtol=0 if y_zero == 0 else 1e-8)


def test_column_names():
    """The check of column names, which `parametrize_with_checks` does not include.

    It requires that columns in another order are refused. By default they are matched by name, which serves users
    better; `column_order="as_fitted"` is scikit-learn's rule to the letter.
    """
    check_dataframe_column_names_consistency(
        "HCRegressor", HCRegressor(column_order="as_fitted", width=8, depth=1, max_epochs=5)
    )

"""scikit-learn's own checks for the classifier: all of them for one, those that train something for the others.

See `test_sklearn`. With classes that can be separated without error, which most checks use, training never stops early;
a few epochs of small networks are enough.
"""

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    estimator_checks_generator,
    parametrize_with_checks,
)

from hetcal import HCClassifier
from hetcal.classifier import CLASS_ESTIMATORS

OF_ESTIMATORS = {
    "check_estimators_pickle",
    "check_sample_weight_equivalence_on_dense_data",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_fit_idempotent",
    "check_dict_unchanged",
    "check_classifiers_train",
    "check_classifiers_classes",
    "check_classifiers_one_label_sample_weights",
}


def small(estimator: str, likelihood: str = "probit") -> HCClassifier:
    few_passes = {} if estimator == "variance_head" else {"samples": 10, "prediction_samples": 20}
    sizes = {"width": 32, "depth": 1, "dropout": 0.1, "learning_rate": 2e-2, "max_epochs": 20}
    return HCClassifier(estimator, likelihood, estimator_options=few_passes, **sizes)


@parametrize_with_checks([small("mc_dropout")])
def test_scikit_learn_check(estimator, check):
    """Every check that scikit-learn runs on its own classifiers."""
    check(estimator)


OTHERS = [small("mc_dropout", "sampling"), *(small(name) for name in CLASS_ESTIMATORS if name != "mc_dropout")]


@pytest.mark.parametrize("model", OTHERS, ids=lambda model: f"{model.estimator}-{model.likelihood}")
def test_checks_of_what_is_trained(model):
    done = set()
    for _, check in estimator_checks_generator(model, legacy=True):
        name = check.func.__name__
        if name in OF_ESTIMATORS - done:  # once; some occur with several arguments
            judges = name in ("check_classifiers_train", "check_classifiers_classes")
            check(clone(model) if judges else clone(model).set_params(max_epochs=3))
            done.add(name)
    assert done == OF_ESTIMATORS


def test_column_names():
    """The check of column names, which `parametrize_with_checks` does not include."""
    check_dataframe_column_names_consistency(
        "HCClassifier", HCClassifier(column_order="as_fitted", width=8, depth=1, max_epochs=5)
    )

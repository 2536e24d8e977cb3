"""scikit-learn's own checks, all of them, for the classifier with each estimator and likelihood; see `test_sklearn`.

The first instance has the default settings except for the number of epochs: with classes that can be separated without
error, which most checks use, training never stops early. Without this limit all checks pass too, in three minutes.
"""

from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, parametrize_with_checks

from hetcal import HCClassifier
from hetcal.classifier import CLASS_ESTIMATORS


def small(estimator: str, likelihood: str = "probit") -> HCClassifier:
    return HCClassifier(estimator, likelihood, width=32, depth=1, dropout=0.1, learning_rate=2e-2, max_epochs=20)


@parametrize_with_checks([HCClassifier(max_epochs=40), *map(small, CLASS_ESTIMATORS), small("mc_dropout", "sampling")])
def test_scikit_learn_check(estimator, check):
    """Every check that scikit-learn runs on its own classifiers."""
    check(estimator)


def test_column_names():
    """The check of column names, which `parametrize_with_checks` does not include."""
    check_dataframe_column_names_consistency(
        "HCClassifier", HCClassifier(column_order="as_fitted", width=8, depth=1, max_epochs=5)
    )

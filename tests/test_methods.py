"""METHODS and make: the paper's table as rows, each estimator with and without its sigma in the likelihood."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import hetcal
from hetcal.estimators import ESTIMATORS
from hetcal.methods import PAPER, method_name

X, Y = (values[:150] for values in load_diabetes(return_X_y=True))


@pytest.mark.parametrize("method", sorted(hetcal.METHODS))
def test_make(method):
    """Every row of METHODS fits and predicts; overrides win."""
    model = hetcal.make(method, width=8, depth=2, max_epochs=3, random_state=1)
    mean, std = model.fit(X, Y).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert hetcal.make(method, objective_weight=0.5).objective_weight == 0.5


def test_methods_are_the_papers():
    """The paper's table as rows: MC Dropout and Dropout-HC take sigma from the same place."""
    rows = {name: (hetcal.METHODS[name].estimator, hetcal.METHODS[name].objective) for name in PAPER}
    assert rows == {
        "mc_dropout": ("mc_dropout", "squared_error"),
        "hnn": ("variance_head", "nll"),
        "dropout_hc": ("mc_dropout", "nll"),
        "quantile_hc": ("quantile_range", "nll"),
    }
    assert hetcal.make("quantile_hc").objective_weight == 0.75


@pytest.mark.parametrize("name", sorted(hetcal.METHODS))
def test_names_with_hyphens(name):
    """Both spellings name the same method."""
    assert method_name(name) == method_name(name.replace("_", "-")) == name
    assert str(hetcal.make(name.replace("_", "-"))) == str(hetcal.make(name))


@pytest.mark.parametrize("wrong", ["dropout_hx", "dropout-hx", "Dropout-HC"])
def test_unknown_methods(wrong):
    """As the user wrote it, with the nearest name that is known."""
    message = rf"method must be one of .*got method='{wrong}'; did you mean 'dropout_hc'\?"
    with pytest.raises(ValueError, match=message):
        method_name(wrong)
    with pytest.raises(ValueError, match=message):
        hetcal.make(wrong)
    with pytest.raises(ValueError, match=r"method must be one of .*got method=None"):
        method_name(None)


def test_every_estimator_comes_with_and_without_hc():
    """Of each registered estimator there is a row trained by the likelihood; all but the variance head have another."""
    for name in ESTIMATORS:
        rows = [row for row in hetcal.METHODS.values() if row.estimator == name]
        calibrated = [row for row in rows if row.objective == "nll" and row.settings.get("objective_weight") != 0]
        assert len(calibrated) == 1
        assert name == "variance_head" or len(rows) == 2
    titles = [row.title for row in hetcal.METHODS.values()]
    assert len(set(titles)) == len(titles)


def test_make_adds_estimator_options():
    """Options of the caller join those of the method; None leaves the method's."""
    model = hetcal.make("mc_dropout", estimator_options={"prediction_samples": 7})
    assert model.estimator_options == {"samples": 1, "masks": "per_row", "prediction_samples": 7}
    assert hetcal.make("mc_dropout", estimator_options=None).estimator_options == {"samples": 1, "masks": "per_row"}
    assert hetcal.make("hnn").estimator_options is None

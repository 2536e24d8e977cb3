"""What regressor and classifier share: settings, the preparation of rows, and tables that were read before."""

import inspect

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from torch import nn

from hetcal import HCClassifier, HCRegressor
from hetcal.exceptions import DegenerateDataWarning
from hetcal.tabular.columns import read_table
from hetcal.tabular.model import TabularModel

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.normal(size=60), "t": RNG.choice(["x", "y"], 60)})
Y = FRAME["a"].to_numpy() + RNG.normal(size=60)
QUICK = {"estimator": "variance_head", "width": 8, "depth": 1, "max_epochs": 3, "random_state": 0}
both = pytest.mark.parametrize("model", [HCRegressor, HCClassifier])


@both
def test_shared_settings_are_declared_once(model):
    """Each class lists them with the same defaults, and all of its settings are stored under their names."""
    shared = [name for name in inspect.signature(TabularModel.__init__).parameters if name != "self"]
    settings = model().get_params()
    assert set(shared) <= set(settings)
    defaults = {name: parameter.default for name, parameter in inspect.signature(model).parameters.items()}
    assert settings == defaults
    assert {name: settings[name] for name in shared} == {name: HCRegressor().get_params()[name] for name in shared}


def test_rows_are_prepared_for_training():
    """Rows without weight are dropped, equal rows merged, groups kept; x is what the encoder makes of the rest."""
    table = pd.DataFrame({"a": [1.0, 1.0, 2.0, 3.0], "t": ["x", "x", "y", "y"]})
    model = HCRegressor(random_state=7)
    rows = model._prepare(table, [5.0, 5.0, 6.0, 7.0], [1, 1, 0, 1], ["p", "p", "q", "r"], np.asarray)
    order = np.argsort(rows.target)
    assert rows.target[order].tolist() == [5.0, 7.0]
    assert rows.weights[order].tolist() == [2.0, 1.0]
    assert rows.groups[order].tolist() == [0, 2]
    assert rows.x.shape == (2, 3)
    assert (rows.seed, rows.n_targets) == (7, 1)
    kept = read_table(table).take([0, 3])
    assert_array_equal(rows.x[order], rows.encoder.transform(kept))


@pytest.mark.parametrize("fit", [{"sample_weight": np.full(30, 33)}, {"sample_weight": None}])
def test_labels_of_repeated_or_weighted_rows_are_kept(fit):
    """Thirty towns with one value of y each: none of them is rare, given 33 times or with a weight of 33."""
    times = 1 if fit["sample_weight"] is not None else 33
    towns = pd.DataFrame({"town": [f"town {i:02}" for i in range(30)] * times})
    rows = HCRegressor(random_state=0)._prepare(
        towns, np.tile(np.arange(30.0), times), fit["sample_weight"], None, np.asarray
    )
    assert rows.x.shape == (30, 30)
    assert rows.copies.tolist() == [times] * 30
    assert rows.are_repeated is (times > 1)


def test_repeated_rows_are_held_out_by_shares_of_their_weight():
    """Ratings: every combination of label and rating trains and validates; with groups, whole groups are held out."""
    rng = np.random.default_rng(0)
    frame, y = pd.DataFrame({"t": rng.choice(list("abc"), 500)}), rng.integers(1, 4, 500).astype(float)
    model = HCRegressor(**QUICK)
    assert sorted(model.fit(frame, y).history_.validation_rows) == list(range(9))
    assert len(model.fit(frame, y, groups=np.arange(500) % 10).history_.validation_rows) < 20


@both
def test_what_both_refuse(model):
    """The checks of the shared preparation, for either class."""
    classes = Y > 0
    with pytest.raises(ValueError, match=rf"y must be given: {model.__name__} requires y to be passed"):
        model(**QUICK).fit(FRAME, None)
    with pytest.raises(ValueError, match=r"y must have one value per row of X \(60\), got y='59 values'"):
        model(**QUICK).fit(FRAME, classes[:-1])
    with pytest.raises(ValueError, match=r"X must have at least 2 different rows, got X='n_samples=1'"):
        model(**QUICK).fit(FRAME.iloc[[0, 0, 0]], classes[[0, 0, 0]])
    with pytest.warns(DegenerateDataWarning, match="no column of X varies"):
        model(**QUICK).fit(FRAME[["a"]] * 0, classes)


def test_the_warning_points_to_the_line_of_the_user():
    with pytest.warns(DegenerateDataWarning) as caught:
        HCRegressor(**QUICK).fit(np.ones((60, 1)), Y)
    assert caught[0].filename == __file__


@both
def test_a_table_that_was_read_before(model):
    """It gives the same bits as its frame; columns are matched by name, and a missing one is named."""
    expected = model(**QUICK).fit(FRAME, Y > 0)
    fitted = model(**QUICK).fit(read_table(FRAME), Y > 0)
    assert_array_equal(fitted.predict(FRAME), expected.predict(FRAME))
    assert_array_equal(fitted.predict(read_table(FRAME[["t", "a"]])), expected.predict(FRAME))
    assert fitted.feature_names_in_.tolist() == ["a", "t"]
    with pytest.raises(ValueError, match=r"X must have the columns \['t'\], got X=\['a'\]; give the columns"):
        fitted.predict(read_table(FRAME[["a"]]))


@both
def test_rows_that_are_unlike_those_of_fit(model):
    """Labels that fit has not seen, and values far outside its range, are counted by column."""
    fitted = model(**QUICK).fit(FRAME, Y > 0)
    new = pd.DataFrame({"a": [0.0, 1e6, 0.0], "t": ["x", "z", "z"]})
    assert fitted.count_unseen(new) == {"t": 2}
    assert fitted.count_outside(new) == {"a": 1}
    assert fitted.count_unseen(FRAME) == fitted.count_outside(FRAME) == {}


def test_network_of_a_wrong_width_is_reported_before_training():
    """For the default as for other estimators."""
    for estimator in ("cross_ensemble", "variance_head"):
        with pytest.raises(
            ValueError, match=r"^network must accept rows of \d+ numbers, the width of the encoded table"
        ):
            HCRegressor(estimator, network=nn.Linear(50, 2)).fit(FRAME, Y)

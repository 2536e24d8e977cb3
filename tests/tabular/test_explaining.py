"""What predictions depend on: known dependences are recovered, for every kind of table and any regressor."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.inspection import permutation_importance
from sklearn.linear_model import BayesianRidge

from hetcal import explain
from hetcal.metrics import crps
from hetcal.prediction import Prediction
from hetcal.tabular.columns import read_table


class Known:
    """The mean is `a` plus 3 for red, sigma is exp(b); `none` has no effect. It reads any table."""

    def predict_dist(self, X):
        columns = (X if hasattr(X, "kinds") else read_table(X)).columns
        mean = np.nan_to_num(columns["a"]) + 3.0 * (columns["color"] == "red")
        return Prediction(mean, np.exp(columns["b"]))


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, 400), "D")
    columns = {"none": rng.normal(size=400), "a": 2 * rng.normal(size=400), "b": rng.normal(0, 0.5, 400)}
    frame = pd.DataFrame({**columns, "color": rng.choice(["red", "green"], 400), "day": days})
    frame.loc[::9, "a"] = np.nan
    return frame


@pytest.fixture(scope="module")
def y(frame):
    prediction = Known().predict_dist(frame)
    return np.random.default_rng(1).normal(prediction.mean, prediction.std)


@pytest.fixture(scope="module")
def explanation(frame, y):
    return explain(Known(), frame, y, courses=4)


def test_importance(explanation):
    """Only b drives sigma: by E|b - b'| = 2 / sqrt(pi) of its standard deviation; `none` and `day` drive nothing."""
    first = explanation.importances[0]
    assert first.name == "b"
    assert first.sigma == pytest.approx(0.5 * 2 / np.sqrt(np.pi), abs=4 * first.sigma_error)
    by_name = {one.name: one for one in explanation.importances}
    assert [one.sigma for one in explanation.importances[1:]] == [0, 0, 0, 0]
    assert by_name["none"].crps == by_name["day"].crps == 0
    assert by_name["a"].crps > 5 * by_name["a"].crps_error > 0
    assert explanation.crps == pytest.approx(0.6, abs=0.2)


def test_agrees_with_scikit_learn():
    """The growth of the CRPS is the importance of `permutation_importance` with the CRPS as its score."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 3))
    y = 2 * X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=300)
    model = BayesianRidge().fit(X, y)
    ours = {one.name: one for one in explain(model, X, y).importances}
    scorer = lambda model, X, y: -crps(y, *model.predict(X, return_std=True))  # noqa: E731
    theirs = permutation_importance(model, X, y, scoring=scorer, n_repeats=20, random_state=0).importances_mean
    for i in range(3):
        assert ours[f"x{i}"].crps == pytest.approx(theirs[i], abs=4 * ours[f"x{i}"].crps_error + 1e-6)


@pytest.mark.parametrize("convert", [read_table, pl.from_pandas, lambda frame: frame.set_index(frame.index[::-1])])
def test_any_table(frame, y, explanation, convert):
    """The same for a table, polars, and pandas with an odd index; X itself stays as it was."""
    given = convert(frame)
    before = repr(given)
    assert explain(Known(), given, y, courses=4) == explanation
    assert repr(given) == before


def test_arrays_and_other_regressors():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    model = GaussianProcessRegressor(alpha=0.1).fit(X, X[:, 0])
    explanation = explain(model, X.tolist(), X[:, 0])
    assert {one.name for one in explanation.importances} == {"x0", "x1"}


def test_courses(explanation):
    """Mean and interval follow the known law; missing values are no points, and labels are the most frequent ones."""
    courses = {course.name: course for course in explanation.courses}
    b, a, color = courses["b"], courses["a"], courses["color"]
    np.testing.assert_allclose(np.subtract(b.upper, b.lower), 2 * 1.6448536 * np.exp(b.values), rtol=1e-6)
    np.testing.assert_allclose(np.diff(a.mean), np.diff(a.values), rtol=1e-6)
    assert (color.kind, sorted(color.values)) == ("text", ["green", "red"])
    assert color.mean[color.values.index("red")] - color.mean[color.values.index("green")] == pytest.approx(3)
    assert b.values == sorted(b.values)


def test_error_bars_hold_what_they_say(frame, y):
    """Over 30 samples of 100 rows, about 68 % lie within a standard error of the mean; fewer than 12 have p < 0.001."""
    rng = np.random.default_rng(4)
    table, found = read_table(frame[["a", "b", "color"]]), []
    for seed in range(30):
        rows = rng.integers(0, 400, 100)
        ones = explain(Known(), table.take(rows), y[rows], courses=0, random_state=seed).importances
        found.append(next((one.crps, one.crps_error) for one in ones if one.name == "a"))
    values, errors = np.array(found).T
    assert (np.abs(values - values.mean()) <= errors).sum() >= 12
    assert 0.5 < errors.mean() / values.std(ddof=1) < 2


def test_cost_is_bounded():
    """Many columns: fewer rows, one permutation each."""
    counted = []

    class Counting:
        def predict_dist(self, X):
            counted.append(len(X))
            return Prediction(X[:, 0], np.ones(len(X)))

    explanation = explain(Counting(), np.random.default_rng(0).normal(size=(5000, 200)), np.zeros(5000), courses=1)
    assert (explanation.rows, explanation.repeats) == (150, 1)
    assert sum(counted) < 40_000


def test_repeatable_and_json(frame, y, explanation):
    assert explain(Known(), frame, y, courses=4) == explanation
    assert json.loads(json.dumps(explanation.as_dict(), allow_nan=False))["rows"] == 400
    assert str(explanation).splitlines()[1].startswith("b")


def test_refusals(frame, y):
    with pytest.raises(ValueError, match=r"y must have one value per row of X \(400\)"):
        explain(Known(), frame, y[:3])
    with pytest.raises(ValueError, match="X must have rows and columns"):
        explain(Known(), np.zeros(5), np.zeros(5))
    with pytest.raises(ValueError, match="y must be one-dimensional"):
        explain(Known(), frame, np.zeros((400, 2)))

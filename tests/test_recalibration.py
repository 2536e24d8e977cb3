"""The recalibrators against simulated truth, exact ranks, MAPIE and uncertainty-toolbox; and the paper's case."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from mapie.conformity_scores import StdConformityScore
from mapie.regression import SplitConformalRegressor
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from uncertainty_toolbox.recalibration import get_quantile_recalibrator

from hetcal import HCRegressor
from hetcal.datasets import heteroscedastic, skewed
from hetcal.distributions import TabulatedPrediction, TransformedPrediction
from hetcal.exceptions import HetcalWarning
from hetcal.families import GAUSSIAN, StudentT
from hetcal.metrics import ce, ce_quantile, crps, evaluate
from hetcal.prediction import Prediction
from hetcal.recalibration import (
    RECALIBRATORS,
    CalibrationRowsWarning,
    ConformalRecalibrator,
    IsotonicRecalibrator,
    QuantileModels,
    StdRecalibrator,
)

LEVELS = [0.1, 0.5, 0.9]
FALSE_ALARM = 1e-3  # of each comparison with noise, had the seeds not been fixed


class Stated:
    """A regressor that predicts the columns of X as mean and std: the tests choose them."""

    def predict(self, X, return_std=False):
        return (X[:, 0], X[:, 1]) if return_std else X[:, 0]


class StatedDistribution(Stated):
    """The same with a distribution of its own: another family, or a transformed target."""

    def __init__(self, family=GAUSSIAN, transform=None):
        self.family, self.transform = family, transform

    def predict_dist(self, X):
        prediction = Prediction(X[:, 0], X[:, 1], 0.6 * X[:, 1], 0.8 * X[:, 1], self.family)
        return prediction if self.transform is None else TransformedPrediction(prediction, self.transform)


class Log:
    forward, inverse, log_slope = staticmethod(np.log), staticmethod(np.exp), staticmethod(lambda y: -np.log(y))


def stated(data, factor=1.0, bias=0.0):
    """The true mean and std of simulated rows, made wrong."""
    return np.column_stack([data.mean + bias * data.std, factor * data.std])


def interval_score(y, interval, level=0.9):
    """Winkler's, of any intervals."""
    below, above = interval[:, 0] - y, y - interval[:, 1]
    return np.mean(interval[:, 1] - interval[:, 0] + 2 / (1 - level) * np.maximum(np.maximum(below, above), 0))


CALIBRATION, TEST = heteroscedastic(20_000, seed=1), heteroscedastic(1000, seed=2)
NOISE = ce_quantile(1000, 1 - FALSE_ALARM)


# What each of them repairs.


@pytest.mark.parametrize("recalibrator", [IsotonicRecalibrator, StdRecalibrator])
@pytest.mark.parametrize("factor", [0.01, 0.5, 3.0])
def test_wrong_scale_is_repaired(recalibrator, factor):
    """Gaussian noise, std off by a factor: calibrated within noise afterwards, and nearly as good as the truth."""
    assert ce(TEST.y, *stated(TEST, factor).T) > 2 * NOISE
    model = recalibrator(Stated()).fit(stated(CALIBRATION, factor), CALIBRATION.y)
    prediction = model.predict_dist(stated(TEST, factor))
    assert ce(TEST.y, prediction) < NOISE
    assert_allclose(model.factor_, 1 / factor, rtol=0.02)  # four standard errors
    assert_allclose(np.mean(prediction.crps(TEST.y)), crps(TEST.y, TEST.mean, TEST.std), rtol=0.01)
    assert evaluate(TEST.y, prediction)["verdict"].startswith("Reliable: ")


@pytest.mark.parametrize("bias", [0.0, 1.0, 30.0])
def test_wrong_shape_and_bias_are_repaired_by_isotonic_alone(bias):
    """Skewed noise around a shifted mean: the map corrects both, one factor neither."""
    calibration, test = skewed(20_000, shape=1.0, seed=1), skewed(1000, shape=1.0, seed=2)
    rows = stated(calibration, 0.5, bias)
    isotonic = IsotonicRecalibrator(Stated()).fit(rows, calibration.y).predict_dist(stated(test, 0.5, bias))
    scaled = StdRecalibrator(Stated()).fit(rows, calibration.y).predict_dist(stated(test, 0.5, bias))
    assert ce(test.y, isotonic) < NOISE < ce(test.y, scaled)
    assert isotonic.crps(test.y).mean() < scaled.crps(test.y).mean()
    # the mean over 200 quantiles leaves out a quarter of a percent, here of a long tail
    assert_allclose(isotonic.mean, test.mean, atol=0.03 * test.std.max())
    assert_allclose(isotonic.std, test.std, rtol=0.03)


@pytest.mark.parametrize("recalibrator", [IsotonicRecalibrator, StdRecalibrator])
def test_calibrated_predictions_hardly_change(recalibrator):
    """Within four standard errors of a quantile of 20,000 rows, the largest of them at the outer levels."""
    model = recalibrator(Stated()).fit(stated(CALIBRATION), CALIBRATION.y)
    q = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
    moved = (model.predict_quantiles(stated(TEST), q) - TEST.mean[:, None]) / TEST.std[:, None]
    error = np.sqrt(q * (1 - q) / len(CALIBRATION.y)) / stats.norm.pdf(stats.norm.ppf(q))
    assert (np.abs(moved - stats.norm.ppf(q)) < 4 * error).all()


def test_random_std_is_calibrated_and_worthless():
    """The paper's case against recalibration (section 1, after Levi et al.): the std of another row, drawn at random.

    Its intervals come out calibrated within noise, like those of the true std; but only the true std knows where the
    noise is, so that the intervals are a tenth narrower or more at the same coverage.
    """
    random = np.random.default_rng(0)
    rows = {name: stated(data) for name, data in (("calibration", CALIBRATION), ("test", TEST))}
    shuffled = {name: np.column_stack([X[:, 0], random.permutation(X[:, 1])]) for name, X in rows.items()}
    results = {}
    for name, X in (("informative", rows), ("random", shuffled)):
        prediction = IsotonicRecalibrator(Stated()).fit(X["calibration"], CALIBRATION.y).predict_dist(X["test"])
        conformal = ConformalRecalibrator(Stated()).fit(X["calibration"], CALIBRATION.y).predict_interval(X["test"])
        assert ce(TEST.y, prediction) < NOISE
        inside = (conformal[:, 0] <= TEST.y) & (TEST.y <= conformal[:, 1])
        assert stats.binomtest(inside.sum(), 1000, 0.9).pvalue > FALSE_ALARM
        results[name] = crps(TEST.y, prediction), interval_score(TEST.y, conformal)
    assert results["random"][0] > 1.1 * results["informative"][0]
    assert results["random"][1] > 1.5 * results["informative"][1]


# StdRecalibrator.


def test_factor_maximizes_the_gaussian_likelihood():
    """The closed form, found again by a search."""
    X, y = stated(TEST, 0.3, bias=0.5), TEST.y
    best = optimize.minimize_scalar(lambda log_s: -stats.norm.logpdf(y, X[:, 0], np.exp(log_s) * X[:, 1]).sum())
    assert_allclose(StdRecalibrator(Stated()).fit(X, y).factor_, np.exp(best.x), rtol=1e-6)


def test_family_and_parts_of_the_std_are_kept():
    """A Student-t stays one, and the squares of the parts still add up to the whole."""
    X, family = stated(CALIBRATION, 0.5), StudentT(4)
    model = StdRecalibrator(StatedDistribution(family)).fit(X, CALIBRATION.y)
    prediction = model.predict_dist(X)
    assert prediction.family is family
    assert_allclose(prediction.std, model.factor_ * X[:, 1])
    assert_allclose(prediction.epistemic_std**2 + prediction.aleatoric_std**2, prediction.std**2)
    assert_allclose(model.predict_quantiles(X, 0.9), X[:, 0] + prediction.std * family.quantile(0.9))


@pytest.mark.parametrize("name", RECALIBRATORS)
def test_transformed_target_keeps_its_range(name):
    """Log-normal y with a log std three times too small: repaired on the log scale, so that no end is negative."""
    random = np.random.default_rng(0)
    X = np.column_stack([random.normal(size=2000), random.uniform(0.1, 0.3, size=2000)])
    y = np.exp(random.normal(X[:, 0], 3 * X[:, 1]))
    model = RECALIBRATORS[name](StatedDistribution(transform=Log())).fit(X[:1000], y[:1000])
    logs = RECALIBRATORS[name](StatedDistribution()).fit(X[:1000], np.log(y[:1000]))
    interval = model.predict_interval(X[1000:], level=[0.5, 0.9])
    assert_allclose(interval, np.exp(logs.predict_interval(X[1000:], level=[0.5, 0.9])), rtol=1e-10)
    inside = (interval[:, 0, 1] <= y[1000:]) & (y[1000:] <= interval[:, 1, 1])
    assert_allclose(inside.mean(), 0.9, atol=0.04)


# IsotonicRecalibrator.


def test_isotonic_by_hand():
    """Three rows: the k-th smallest becomes the quantile k / 4, and the median of the new lies at the middle row."""
    X, y = np.column_stack([np.zeros(3), np.ones(3)]), np.array([5.0, -1.0, 0.5])
    model = IsotonicRecalibrator(Stated()).fit(X, y)
    assert_allclose(model.predict_quantiles(X, [0.25, 0.5, 0.75])[0], [-1.0, 0.5, 5.0])
    prediction = model.predict_dist(X)
    assert_allclose(prediction.cdf(y), [0.75, 0.25, 0.5])
    assert_allclose(prediction.z(y), stats.norm.ppf([0.75, 0.25, 0.5]))
    assert_allclose(prediction.interval(0.5)[0], [-1.0, 5.0])


def test_isotonic_is_linear_in_the_probability_between_rows():
    """Half-way in the scaled Gaussian's probability is half-way in the new one; beyond the last row towards 1."""
    X, y = np.column_stack([np.zeros(2), np.ones(2)]), np.array([-1.0, 2.0])
    s = np.sqrt((1 + 4) / 2)
    low, high = stats.norm.cdf(y / s)
    quantiles = IsotonicRecalibrator(Stated()).fit(X, y).predict_quantiles(X[:1], [1 / 6, 0.5, 5 / 6])
    assert_allclose(quantiles[0], s * stats.norm.ppf([low / 2, (low + high) / 2, (high + 1) / 2]))


def test_isotonic_against_uncertainty_toolbox():
    """Another implementation of Kuleshov et al., on a grid of 100 probabilities: the same within its steps.

    It subtracts y from the mean, and so recalibrates skewed noise in the wrong direction; mirroring corrects that.
    """
    data = skewed(5000, seed=3)
    X = stated(data, 0.7)
    other = get_quantile_recalibrator(*X.T, data.y)
    q = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    theirs = np.column_stack([2 * X[:10, 0] - other(*X[:10].T, 1 - p) for p in q])
    ours = IsotonicRecalibrator(Stated()).fit(X, data.y).predict_quantiles(X[:10], q)
    assert_allclose((ours - theirs) / X[:10, 1:], 0, atol=0.02)


@pytest.mark.parametrize("factor", [1e-6, 1e-2, 1e2, 1e6])
def test_isotonic_ignores_a_factor_on_the_std(factor):
    """However wrong the predicted scale: no probability reaches 0 or 1, and the result is the same."""
    expected = IsotonicRecalibrator(Stated()).fit(stated(CALIBRATION), CALIBRATION.y).predict_dist(stated(TEST))
    model = IsotonicRecalibrator(Stated()).fit(stated(CALIBRATION, factor), CALIBRATION.y)
    prediction = model.predict_dist(stated(TEST, factor))
    assert_allclose(prediction.interval([0.5, 0.999]), expected.interval([0.5, 0.999]), rtol=1e-6)
    assert_allclose(prediction.log_prob(TEST.y).mean(), expected.log_prob(TEST.y).mean(), rtol=1e-2)


def test_ties():
    """Rows of equal probability share one point; nothing breaks, and the quantiles still rise."""
    X, y = np.column_stack([np.zeros(40), np.ones(40)]), np.repeat([-1.0, 1.0], 20)
    quantiles = IsotonicRecalibrator(Stated()).fit(X, y).predict_quantiles(X[:1], np.arange(1, 100) / 100)
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles) > 0).all()


# ConformalRecalibrator.


@pytest.mark.parametrize(("level", "rank"), [(0.5, 5), (0.501, 6), (0.9, 9), (0.07, 1), (0.7, 7), (0.3 + 4e-17, 3)])
def test_exact_ranks(level, rank):
    """Nine rows with scores 1 to 9: rank ceil(10 level), in spite of rounding."""
    X, y = np.column_stack([np.zeros(9), np.full(9, 2.0)]), 2.0 * np.array([3, -1, 9, 4, -2, 6, 8, -7, 5])
    model = ConformalRecalibrator(Stated()).fit(X, y)
    assert_array_equal(model.scores_, np.arange(1, 10))
    assert_allclose(model.predict_interval(X[:1], level), [[-2.0 * rank, 2.0 * rank]])


def test_rank_with_a_product_that_rounds_up():
    """100 * 0.07 is 7.000000000000001."""
    X = np.column_stack([np.zeros(99), np.ones(99)])
    model = ConformalRecalibrator(Stated()).fit(X, np.arange(1.0, 100.0))
    assert_allclose(model.predict_interval(X[:1], 0.07), [[-7.0, 7.0]])


def test_infinite_with_one_warning():
    """Too few rows for the level: one warning, with the number of rows that is enough, which is true."""
    X, y = np.column_stack([np.zeros(20), np.ones(20)]), np.arange(20.0)
    message = (
        r"^level=0.99 needs at least 99 calibration rows, got 20, so its intervals are infinite; "
        r"give more rows or a lower level$"
    )
    model = ConformalRecalibrator(Stated()).fit(X, y)
    with pytest.warns(CalibrationRowsWarning, match=message) as caught:
        interval = model.predict_interval(0 * X, level=[0.5, 0.96, 0.99])  # with a std of 0, too
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert issubclass(CalibrationRowsWarning, HetcalWarning)
    assert_array_equal(interval[:, 0, 1:], -np.inf)
    assert_array_equal(interval[:, 1, 1:], np.inf)
    assert np.isfinite(interval[:, :, 0]).all()


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_rows_needed_are_enough_and_no_fewer(level):
    n = round(level / (1 - level))
    X, y = np.column_stack([np.zeros(n), np.ones(n)]), np.arange(float(n))
    if n >= 2:
        assert np.isfinite(ConformalRecalibrator(Stated()).fit(X, y).predict_interval(X[:1], level)).all()
    if n >= 3:
        with pytest.warns(CalibrationRowsWarning, match=f"at least {n} calibration rows, got {n - 1}"):
            ConformalRecalibrator(Stated()).fit(X[1:], y[1:]).predict_interval(X[:1], level)


@pytest.mark.parametrize(("n", "level"), [(9, 0.5), (19, 0.9), (30, 0.8)])
def test_marginal_coverage(n, level):
    """One new row for each of 4,000 calibration samples, with a wrong mean and std: covered as exactly stated."""
    repetitions, random = 4000, np.random.default_rng(n)
    covered = 0
    for _ in range(repetitions):
        std = random.uniform(0.5, 2, size=n + 1)
        X, y = np.column_stack([np.full(n + 1, 0.3), std]), random.standard_t(3, size=n + 1) * std**2
        lower, upper = ConformalRecalibrator(Stated()).fit(X[1:], y[1:]).predict_interval(X[:1], level)[0]
        covered += lower <= y[0] <= upper
    exact = np.ceil((n + 1) * level - 1e-9) / (n + 1)
    assert exact >= level
    assert stats.binomtest(int(covered), repetitions, exact).pvalue > FALSE_ALARM


def test_split_is_that_of_mapie():
    """The real MAPIE with the same score, at levels of whole rank: the same intervals.

    At other levels MAPIE 1.6 takes the lower end one rank too narrow (it rounds down there); the upper end agrees.
    """
    data = heteroscedastic(300)
    kernel = RBF([0.5, 0.5]) + WhiteKernel(0.1)
    regressor = GaussianProcessRegressor(kernel, optimizer=None).fit(data.X[:100], data.y[:100])
    model = ConformalRecalibrator(regressor).fit(data.X[100:199], data.y[100:199])  # 99 rows: ranks are 100 * level

    def mapie(levels):
        other = SplitConformalRegressor(regressor, levels, conformity_score=StdConformityScore(), prefit=True)
        return other.conformalize(data.X[100:199], data.y[100:199]).predict_interval(data.X[200:])

    whole, broken = [0.25, 0.5, 0.75, 0.9], [0.255, 0.875]
    mean, interval = mapie(whole)
    assert_allclose(model.predict_interval(data.X[200:], whole), interval, rtol=1e-10)
    assert_allclose(model.predict(data.X[200:]), mean)
    assert_allclose(model.predict_interval(data.X[200:], broken)[:, 1], mapie(broken)[1][:, 1], rtol=1e-10)


def test_split_is_that_of_mapie_on_standardized_residuals():
    """MAPIE's absolute score of (y - mean) / std is our score: the same at every level, for any number of rows."""
    X, y, levels = stated(TEST, 0.5, bias=0.3), TEST.y, [0.1, 0.255, 0.5, 0.875, 0.9, 0.95]
    for n in (25, 80, 133):
        zero = DummyRegressor(strategy="constant", constant=0.0).fit(X[:n], y[:n])
        other = SplitConformalRegressor(zero, levels, conformity_score="absolute", prefit=True)
        factors = other.conformalize(X[:n], (y[:n] - X[:n, 0]) / X[:n, 1]).predict_interval(X[200:])[1]
        interval = ConformalRecalibrator(Stated()).fit(X[:n], y[:n]).predict_interval(X[200:], levels)
        assert_allclose(interval, X[200:, 0, None, None] + factors * X[200:, 1, None, None], rtol=1e-9)


def test_cross_pools_the_folds():
    """Scores of held-out rows, by hand; the model that predicts has seen all rows."""
    data = heteroscedastic(60)
    cv = KFold(4, shuffle=True, random_state=0)
    model = ConformalRecalibrator(BayesianRidge(), method="cross", cv=cv).fit(data.X, data.y)
    scores = []
    for kept, left_out in cv.split(data.X):
        mean, std = BayesianRidge().fit(data.X[kept], data.y[kept]).predict(data.X[left_out], return_std=True)
        scores.extend(np.abs(data.y[left_out] - mean) / std)
    assert_allclose(model.scores_, np.sort(scores))
    mean, std = BayesianRidge().fit(data.X, data.y).predict(data.X, return_std=True)
    assert_allclose(model.predict(data.X, return_std=True), (mean, std))
    half = np.sort(scores)[int(np.ceil(61 * 0.9)) - 1] * std
    assert_allclose(model.predict_interval(data.X), np.column_stack([mean - half, mean + half]))


def test_cross_covers_where_the_training_rows_do_not():
    """A Gaussian process that takes much noise for signal: residuals of its training rows are too small."""
    data, test = heteroscedastic(300, seed=5), heteroscedastic(2000, seed=6)
    rough = GaussianProcessRegressor(RBF(0.1) + WhiteKernel(0.05), optimizer=None)
    honest = ConformalRecalibrator(rough, method="cross", cv=20).fit(data.X, data.y).predict_interval(test.X)
    fooled = ConformalRecalibrator(clone(rough).fit(data.X, data.y)).fit(data.X, data.y).predict_interval(test.X)
    covered = [np.mean((ends[:, 0] <= test.y) & (test.y <= ends[:, 1])) for ends in (honest, fooled)]
    assert_allclose(covered[0], 0.9, atol=0.05)
    assert covered[1] < 0.8


# Inside scikit-learn.


@parametrize_with_checks(
    [ConformalRecalibrator(GaussianProcessRegressor(RBF(10.0) + WhiteKernel(0.1), optimizer=None), method="cross")]
)
def test_scikit_learn_check(estimator, check):
    """All of scikit-learn's checks; not for a fitted regressor, because the checks vary the number of columns."""
    check(estimator)


def fitted_regressors():
    data = heteroscedastic(200)
    kernel = RBF([0.5, 0.5]) + WhiteKernel(0.1)
    small = HCRegressor(width=16, depth=2, max_epochs=10, random_state=0)
    regressors = BayesianRidge(), GaussianProcessRegressor(kernel, optimizer=None), small
    regressors += (make_pipeline(StandardScaler(), BayesianRidge()),)
    return [regressor.fit(data.X[:100], data.y[:100]) for regressor in regressors]


@pytest.mark.parametrize("regressor", fitted_regressors(), ids=lambda regressor: type(regressor).__name__)
@pytest.mark.parametrize("name", RECALIBRATORS)
def test_any_regressor(name, regressor):
    """Fit, predict, clone, pickle and cross-validate, with any; the regressor stays as it is."""
    data = heteroscedastic(200)
    X, y, X_new = data.X[100:180], data.y[100:180], data.X[180:]
    before = regressor.predict(X_new, return_std=True)
    model = RECALIBRATORS[name](regressor).fit(X, y)
    interval = model.predict_interval(X_new, LEVELS)
    assert interval.shape == (20, 2, 3)
    assert np.isfinite(interval).all()
    assert (np.diff(interval[:, 0]) < 0).all()
    assert (np.diff(interval[:, 1]) > 0).all()
    mean, std = model.predict(X_new, return_std=True)
    assert_array_equal(model.predict(X_new), mean)
    assert (std > 0).all()
    assert_array_equal(model.n_features_in_, 2)
    assert np.isfinite(model.score(X_new, data.y[180:]))

    if name != "conformal":
        prediction = model.predict_dist(X_new)
        assert_array_equal(model.predict_quantiles(X_new, [0.1, 0.9]), prediction.quantile([0.1, 0.9]))
        assert np.isfinite(prediction.log_prob(data.y[180:])).all()

    twin = clone(model)
    assert twin.regressor is regressor
    assert not hasattr(twin, "regressor_")
    assert_array_equal(twin.fit(X, y).predict_interval(X_new, LEVELS), interval)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_interval(X_new, LEVELS), interval)
    frozen = RECALIBRATORS[name](FrozenEstimator(regressor)).fit(X, y)
    assert_array_equal(frozen.predict_interval(X_new, LEVELS), interval)
    assert cross_val_predict(model, X, y, cv=4).shape == (80,)
    assert_array_equal(regressor.predict(X_new, return_std=True), before)


def test_parameters_and_search():
    """A search can choose the regressor's parameters if it is fitted anew, without changing the given regressor."""
    data, regressor = heteroscedastic(80), BayesianRidge()
    model = ConformalRecalibrator(regressor, method="cross", cv=3)
    assert model.get_params()["regressor__alpha_1"] == 1e-6
    search = GridSearchCV(model, {"regressor__alpha_1": [1e-3, 1.0]}, cv=3).fit(data.X, data.y)
    assert search.best_estimator_.regressor_.alpha_1 in (1e-3, 1.0)
    assert regressor.alpha_1 == 1e-6
    assert not hasattr(regressor, "coef_")


def test_frames():
    """Rows of a frame reach the regressor as they are, also fold by fold; names are known afterwards."""
    data = heteroscedastic(80)
    frame = pd.DataFrame(data.X, columns=["left", "right"])
    for method in ("split", "cross"):
        regressor = BayesianRidge().fit(frame, data.y)
        model = ConformalRecalibrator(regressor, method).fit(frame, data.y)
        assert list(model.feature_names_in_) == ["left", "right"]
        assert model.predict_interval(frame).shape == (80, 2)


def test_column_of_y_is_taken_with_scikit_learns_warning():
    X, y = stated(TEST), TEST.y
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        model = StdRecalibrator(Stated()).fit(X, y[:, None])
    assert model.factor_ == StdRecalibrator(Stated()).fit(X, y).factor_


def test_no_warning_of_numpy_at_extreme_units():
    """y in units of 1e-200 or 1e200: the same factor, finite intervals."""
    for unit in (1e-200, 1e200):
        for recalibrator in (StdRecalibrator, IsotonicRecalibrator, ConformalRecalibrator):
            model = recalibrator(Stated()).fit(unit * stated(TEST, 0.5), unit * TEST.y)
            expected = recalibrator(Stated()).fit(stated(TEST, 0.5), TEST.y).predict_interval(stated(TEST, 0.5))
            assert_allclose(model.predict_interval(unit * stated(TEST, 0.5)) / unit, expected, rtol=1e-9)
            assert np.isfinite(model.predict(unit * stated(TEST, 0.5), return_std=True)).all()


# Messages.


@pytest.mark.parametrize("name", RECALIBRATORS)
class TestMessages:
    X, y = stated(TEST)[:20], TEST.y[:20]

    def test_not_fitted(self, name):
        message = r"^regressor must be fitted, got regressor=BayesianRidge\(\); call its fit first, with rows other"
        with pytest.raises(NotFittedError, match=message):
            RECALIBRATORS[name](BayesianRidge()).fit(self.X, self.y)
        with pytest.raises(NotFittedError, match="not fitted yet"):
            RECALIBRATORS[name](Stated()).predict(self.X)
        with pytest.raises(NotFittedError, match="not fitted yet"):
            RECALIBRATORS[name](Stated()).predict_interval(self.X)

    def test_class_instead_of_instance(self, name):
        with pytest.raises(TypeError, match=r"regressor must be a fitted regressor, got .*; give an instance, not its"):
            RECALIBRATORS[name](BayesianRidge).fit(self.X, self.y)

    def test_no_std(self, name):
        class Careless:
            """Takes any keyword and ignores it."""

            def predict(self, X, **settings):
                return X[:, 0]

        message = (
            r"^regressor must support predict\(X, return_std=True\), got regressor='(Ridge|Careless|object)'; "
            r"use one that does, such as HCRegressor, GaussianProcessRegressor or BayesianRidge$"
        )
        for regressor in (Ridge().fit(self.X, self.y), Careless(), object()):
            with pytest.raises(TypeError, match=message):
                RECALIBRATORS[name](regressor).fit(self.X, self.y)

    def test_faults_of_the_regressor_pass_through(self, name):
        class Broken:
            def predict(self, X, return_std=False):
                raise TypeError("my own fault")

        with pytest.raises(TypeError, match="my own fault"):
            RECALIBRATORS[name](Broken()).fit(self.X, self.y)

    def test_several_targets(self, name):
        message = r"^y must be one-dimensional, got y='array of shape \(20, 2\)'; recalibrate one target at a time$"
        with pytest.raises(ValueError, match=message):
            RECALIBRATORS[name](Stated()).fit(self.X, self.X)
        several = GaussianProcessRegressor(WhiteKernel(), optimizer=None).fit(self.X, self.X)
        message = r"^regressor must predict one target, got regressor='mean of shape \(20, 2\)'; recalibrate one target"
        with pytest.raises(ValueError, match=message):
            RECALIBRATORS[name](several).fit(self.X, self.y)

    def test_rows(self, name):
        with pytest.raises(ValueError, match=r"^X must have at least 2 rows, got X='n_samples=1'; give more"):
            RECALIBRATORS[name](Stated()).fit(self.X[:1], self.y[:1])
        message = r"^y must have one value per row of X \(20\), got y='19 values'; give both the same length$"
        with pytest.raises(ValueError, match=message):
            RECALIBRATORS[name](Stated()).fit(self.X, self.y[1:])

    def test_values(self, name):
        with pytest.raises(ValueError, match="y must be finite, got y=nan; remove or repair the 1 such value"):
            RECALIBRATORS[name](Stated()).fit(self.X, np.where(np.arange(20) == 3, np.nan, self.y))
        with pytest.raises(ValueError, match=r"std must be greater than 0, got std=0.0"):
            RECALIBRATORS[name](Stated()).fit(self.X * [1, 0], self.y)
        with pytest.raises(ValueError, match=r"\(y - mean\) / std must be finite, got .*=inf; remove or repair the 20"):
            RECALIBRATORS[name](Stated()).fit(self.X * [0, 1e-300] + [0, 1e-300], np.full(20, 1e100))

    def test_levels(self, name):
        model = RECALIBRATORS[name](Stated()).fit(self.X, self.y)
        with pytest.raises(ValueError, match=r"level must be between 0 and 1, got level=95.0; give a fraction"):
            model.predict_interval(self.X, 95)
        if name != "conformal":
            with pytest.raises(ValueError, match=r"q must be between 0 and 1, got q=95.0; give a fraction"):
                model.predict_quantiles(self.X, [0.5, 95])


@pytest.mark.parametrize("recalibrator", [IsotonicRecalibrator, StdRecalibrator])
def test_rows_that_the_regressor_hits_exactly(recalibrator):
    """Without residuals there is no factor: such rows were training rows."""
    X = stated(TEST)[:20]
    message = (
        r"^y must differ from the predicted mean in some row, got y='20 values equal to it'; "
        r"calibrate on rows that the regressor has not seen$"
    )
    with pytest.raises(ValueError, match=message):
        recalibrator(Stated()).fit(X, X[:, 0])
    assert_array_equal(ConformalRecalibrator(Stated()).fit(X, X[:, 0]).scores_, 0)


def test_messages_of_conformal():
    data = heteroscedastic(30)
    with pytest.raises(ValueError, match=r"method must be one of \['cross', 'split'\], got method='crss'; did you"):
        ConformalRecalibrator(BayesianRidge(), "crss").fit(data.X, data.y)
    with pytest.raises(ValueError, match="cv must hold out each row once, got cv=ShuffleSplit"):
        ConformalRecalibrator(BayesianRidge(), "cross", cv=ShuffleSplit(3)).fit(data.X, data.y)
    frozen = FrozenEstimator(BayesianRidge().fit(data.X, data.y))
    with pytest.raises(ValueError, match=r"regressor must allow another fit .*'cross', got .*Frozen"):
        ConformalRecalibrator(frozen, "cross").fit(data.X, data.y)
    with pytest.raises(ValueError, match=r"(?i)number of splits n_splits=5 greater than the number of samples"):
        ConformalRecalibrator(BayesianRidge(), "cross").fit(data.X[:3], data.y[:3])


def test_names():
    assert list(RECALIBRATORS.values()) == [IsotonicRecalibrator, StdRecalibrator, ConformalRecalibrator]
    assert list(RECALIBRATORS) == ["isotonic", "std", "conformal"]


def test_enough_rows_mean_no_warning():
    X, y = stated(TEST), TEST.y
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConformalRecalibrator(Stated()).fit(X, y).predict_interval(X, [0.5, 0.99, 0.999])


def test_a_pipeline_is_asked_for_its_distribution():
    """The last step's log transform survives the pipeline: conformal ends stay positive."""
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 2))
    y = np.exp(X[:, 0] + random.normal(size=200))
    regressor = HCRegressor("variance_head", target_transform="log", width=8, depth=1, max_epochs=5, random_state=0)
    pipeline = make_pipeline(StandardScaler(), regressor).fit(X[:100], y[:100])
    intervals = ConformalRecalibrator(pipeline).fit(X[100:], y[100:]).predict_interval(X, level=0.9)
    assert (intervals > 0).all()


# Conformal quantile regression.


@pytest.mark.parametrize(("lower", "upper"), [(0.05, 0.95), (0.01, 0.61), (0.3, 0.9)])
def test_any_two_quantiles_of_two_models(lower, upper):
    """Two quantile regressions of skewed noise, fitted to few rows: coverage within noise of 2,000 and 4,000 rows."""
    data, calibration, test = skewed(200, seed=1), skewed(2000, seed=2), skewed(4000, seed=3)
    models = {
        q: HistGradientBoostingRegressor(loss="quantile", quantile=q, max_iter=20, random_state=0).fit(data.X, data.y)
        for q in (lower, upper)
    }
    model = ConformalRecalibrator(QuantileModels(models)).fit(calibration.X, calibration.y)
    ends = model.predict_between(test.X, lower, upper)
    covered = np.mean((ends[:, 0] <= test.y) & (test.y <= ends[:, 1]))
    level = upper - lower
    error = np.sqrt(level * (1 - level) * (1 / 2000 + 1 / 4000))
    assert abs(covered - level) < stats.norm.isf(FALSE_ALARM / 2) * error + 1 / 2000


def test_central_quantiles_are_the_interval():
    """`predict_between` moves both quantiles by the same normal score, so the central ones give `predict_interval`."""
    X, y = stated(TEST, 0.5, bias=0.3), TEST.y
    model = ConformalRecalibrator(Stated()).fit(X[:300], y[:300])
    assert_allclose(model.predict_between(X, 0.05, 0.95), model.predict_interval(X, 0.9), rtol=1e-9)
    with pytest.raises(ValueError, match=r"lower must be less than upper \(0.2\), got lower=0.8; give the smaller one"):
        model.predict_between(X, 0.8, 0.2)
    few = ConformalRecalibrator(Stated()).fit(X[:5], y[:5])
    with pytest.warns(CalibrationRowsWarning, match=r"level=0.98 needs at least 49 calibration rows, got 5"):
        assert not np.isfinite(few.predict_between(X[:2], 0.01, 0.99)).any()


def test_skewed_intervals_stay_skewed():
    """The ends of a non-Gaussian distribution are its own quantiles, not mean ± a multiple of std."""
    random = np.random.default_rng(0)
    table = TabulatedPrediction([0.05, 0.5, 0.95], np.tile([-1.0, 0.0, 5.0], (400, 1)))

    class Table:
        def predict_dist(self, X):
            return table.take(slice(len(X)))

    y = table.quantile(random.uniform(size=400))[np.arange(400), np.arange(400)]
    lower, upper = ConformalRecalibrator(Table()).fit(np.zeros((400, 1)), y).predict_interval(np.zeros((1, 1)))[0]
    assert 3 < upper / -lower < 8


def test_conformal_distribution_and_interval_agree():
    """`predict_dist` is at most one rank wider, at every level."""
    X, y = stated(TEST, 0.5), TEST.y
    model = ConformalRecalibrator(Stated()).fit(X[:500], y[:500])
    exact, wide = model.predict_interval(X[:3], [0.5, 0.9]), model.predict_dist(X[:3]).interval([0.5, 0.9])
    next_rank = model.predict_interval(X[:3], [0.5 + 1 / 501, 0.9 + 1 / 501])
    assert (wide[:, 1] >= exact[:, 1] - 1e-9).all()
    assert (wide[:, 1] <= next_rank[:, 1] + 1e-9).all()


# A recalibrated model of our own.


def test_regressor_keeps_its_recalibration():
    """`recalibrate` is what the wrapper gives; a second one replaces the first, and a new fit forgets it."""
    data = heteroscedastic(300)
    model = HCRegressor("variance_head", width=8, depth=1, max_epochs=3, random_state=0).fit(data.X[:100], data.y[:100])
    plain = model.predict_interval(data.X[200:])
    X, y = data.X[100:200], data.y[100:200]
    for name in RECALIBRATORS:
        expected = RECALIBRATORS[name](clone(model).fit(data.X[:100], data.y[:100])).fit(X, y)
        assert model.recalibrate(X, y, name) is model
        quantiles = expected.predict_dist(data.X[200:]).quantile([0.05, 0.5, 0.95])
        assert_array_equal(model.predict_quantiles(data.X[200:]), quantiles)
        assert model.recalibration_.rows == 100
    with pytest.raises(ValueError, match=r"method must be one of .*, got method='isotonik'; did you mean 'isotonic'"):
        model.recalibrate(X, y, "isotonik")
    with pytest.warns(CalibrationRowsWarning, match="level 0.9 need at least 9 calibration rows, got 8; give more"):
        model.recalibrate(X[:8], y[:8])
    model.fit(data.X[:100], data.y[:100])
    assert model.recalibration_ is None
    assert_array_equal(model.predict_interval(data.X[200:]), plain)

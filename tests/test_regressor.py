"""HCRegressor among scikit-learn's tools, with real tables, and its promises on units, seeds and order."""

import pickle
import random
import warnings
from functools import cache

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mapie.conformity_scores import StdConformityScore
from mapie.regression import CrossConformalRegressor
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import t
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from torch import nn

from hetcal import HCRegressor
from hetcal.datasets import heavy_tailed, heteroscedastic
from hetcal.estimators import MCDropout, VarianceHead
from hetcal.exceptions import DegenerateDataWarning, DropoutInsertedWarning, TrainingWarning
from hetcal.families import StudentT
from hetcal.metrics import evaluate
from hetcal.objectives import gaussian_nll
from hetcal.tabular.targets import fit_target_scaler, standardize_target

pytestmark = pytest.mark.usefixtures("few_members")
X, Y = load_diabetes(return_X_y=True)
X, Y = X[:150], Y[:150]
DATA = heteroscedastic(60)


def quick(**settings):
    return HCRegressor(**{"width": 16, "depth": 2, "max_epochs": 10, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def fitted():
    """The default. No test changes it."""
    return quick().fit(X, Y)


# The public API.


def test_predictions_agree_with_each_other(fitted):
    """Mean, std, interval, quantiles and the distribution are views of the same distribution."""
    mean, std = fitted.predict(X, return_std=True)
    assert_array_equal(fitted.predict(X), mean)
    prediction = fitted.predict_dist(X)
    assert_array_equal(prediction.mean, mean)
    assert_array_equal(prediction.std, std)
    assert_allclose(fitted.predict_interval(X, level=0.9), fitted.predict_quantiles(X, [0.05, 0.95]))
    assert fitted.predict_interval(X, level=[0.5, 0.9]).shape == (150, 2, 2)
    assert_allclose(prediction.cdf(fitted.predict_quantiles(X, 0.3)), 0.3)
    assert fitted.predict_quantiles(X).shape == (150, 3)
    dist = fitted.predict_dist(X)
    assert_array_equal(dist.std, std)
    assert dist.mean.dtype == np.float64


def test_groups_are_held_out_whole():
    """A target that is pure noise between groups looks learnable by row, and does not if groups are held out whole.

    Standardized validation RMSE: near 0 if every group is seen in training, near 1 for new groups. The limits are
    about five standard errors of either away.
    """
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 10)
    X, y = random.normal(size=(60, 8))[groups], random.normal(size=60)[groups] + 0.01 * random.normal(size=600)

    def validation_rmse(**fit):
        model = HCRegressor("variance_head", "squared_error", dropout=0.0, max_epochs=60, random_state=0)
        return model.fit(X, y, **fit).history_.validation["rmse"][-1]

    assert validation_rmse() < 0.3
    assert validation_rmse(groups=groups) > 0.6


def test_groups_may_be_any_labels_in_any_order():
    """Text labels and shuffled rows give the very same model."""
    labels, order = np.arange(150) // 10, np.random.default_rng(0).permutation(150)
    model = HCRegressor("variance_head", width=8, max_epochs=3, random_state=0)
    expected = model.fit(X, Y, groups=labels).predict(X)
    names = np.array([f"patient {label:02}" for label in labels], dtype=object)
    assert_array_equal(model.fit(X[order], Y[order], groups=names[order]).predict(X), expected)
    assert (model.fit(X, Y).predict(X) != expected).any()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(150), r"groups must name at least 2 groups, got groups=\[0.0\]"),
        (np.arange(7), r"groups must have one label per row of X \(150\), got groups='7 labels'"),
    ],
    ids=["one group", "too few labels"],
)
def test_wrong_groups(groups, message):
    with pytest.raises(ValueError, match=message):
        HCRegressor().fit(X, Y, groups=groups)


def test_sigma_follows_the_known_noise():
    """On data whose noise grows twentyfold, predicted and true std correlate above 0.85 on new rows."""
    train, test = heteroscedastic(800, seed=0), heteroscedastic(500, seed=1)
    sizes = {"width": 64, "depth": 3, "dropout": 0.1, "max_epochs": 100}
    model = HCRegressor("variance_head", **sizes, random_state=0).fit(train.X, train.y)
    mean, std = model.predict(test.X, return_std=True)
    assert np.corrcoef(std, test.std)[0, 1] > 0.85
    assert evaluate(test.y, mean, std)["coverage_90"] > 0.8


def test_calibration_tells_the_same_estimator_where_the_noise_is():
    """The paper's idea in miniature: dropout's own sigma misses the noise; in the likelihood it finds the noise.

    For this seed, and therefore always; over seeds the correlation with the true sigma is about 0 against above 0.8.
    """
    train, test = heteroscedastic(800, seed=0), heteroscedastic(1000, seed=1)

    def judge(objective):
        model = HCRegressor("mc_dropout", objective, width=64, depth=3, max_epochs=100, random_state=0)
        mean, std = model.fit(train.X, train.y).predict(test.X, return_std=True)
        return np.corrcoef(std, test.std)[0, 1], evaluate(test.y, mean, std)["nll"]

    (calibrated, calibrated_nll), (plain, plain_nll) = judge("gaussian_nll"), judge("squared_error")
    assert calibrated > 0.75
    assert plain < 0.5
    assert calibrated_nll < plain_nll


# scikit-learn's tools and others'.


def test_pipeline_grid_search_and_cross_validation():
    """Pipeline, GridSearchCV over estimator and objective, cross_val_predict with std, target transformation."""
    pipeline = make_pipeline(PolynomialFeatures(2), quick())
    assert pipeline.fit(X, Y).predict(X[:5]).shape == (5,)
    grid = {"estimator": ["mc_dropout", "variance_head"], "objective": ["gaussian_nll", "squared_error"]}
    search = GridSearchCV(quick(max_epochs=2), grid, cv=2, scoring="neg_mean_squared_error").fit(X, Y)
    assert len(search.cv_results_["params"]) == 4
    one_network = quick(estimator="variance_head")
    assert cross_val_predict(one_network, X, Y, cv=2).shape == (150,)
    logarithmic = TransformedTargetRegressor(one_network, func=np.log, inverse_func=np.exp).fit(X, Y)
    assert (logarithmic.predict(X) > 0).all()


def test_clone_pickle_joblib(fitted, tmp_path):
    """A clone is unfitted with the same settings; pickled and dumped models predict the same bits."""
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params()
    assert not hasattr(twin, "estimator_")
    joblib.dump(fitted, tmp_path / "model.joblib")
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        assert_array_equal(copy.predict_interval(X), fitted.predict_interval(X))


def test_mapie():
    """The real MAPIE conformalizes our sigma: intervals keep its shape, wider where it is larger."""
    mapie = CrossConformalRegressor(quick(), confidence_level=0.9, conformity_score=StdConformityScore(), cv=3)
    _, intervals = mapie.fit_conformalize(X, Y).predict_interval(X)
    widths = intervals[:, 1, 0] - intervals[:, 0, 0]
    assert intervals.shape == (150, 2, 1)
    assert (widths > 0).all()
    assert widths.std() > 0.01 * widths.mean()


# Tables.


def mixed_frame(n=120):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(100, 20, n),
            "rooms": rng.integers(1, 6, n),
            "garden": rng.random(n) > 0.5,
            "town": rng.choice(["Aix", "Bonn", "Cork"], n),
            "grade": pd.Categorical(rng.choice(["a", "b"], n)),
            "rent": np.where(rng.random(n) < 0.2, np.nan, rng.normal(10, 2, n)),
        }
    )


def test_mixed_tables_and_column_order():
    """pandas and polars give the same model; columns in another order are matched by name."""
    frame = mixed_frame()
    y = frame["size"] + 30 * (frame["town"] == "Bonn")
    model = quick().fit(frame, y)
    expected = model.predict(frame)
    assert_array_equal(model.predict(frame[frame.columns[::-1]]), expected)
    assert_array_equal(model.feature_names_in_, list(frame.columns))
    polars = pl.from_pandas(frame.assign(grade=frame["grade"].astype(str)))
    assert_array_equal(quick().fit(polars, y.to_numpy()).predict(polars), expected)
    assert_array_equal(model.predict(polars.select(reversed(polars.columns))), expected)
    with pytest.raises(ValueError, match="must be in the same order"):
        quick(estimator="variance_head", column_order="as_fitted").fit(frame, y).predict(frame[frame.columns[::-1]])


def test_arrays_after_frames_and_frames_after_arrays(fitted):
    """Taken by position, with scikit-learn's warning."""
    frame = pd.DataFrame(X)
    frame.columns = [f"c{i}" for i in range(10)]
    by_frame, by_array = quick().fit(frame, Y), fitted
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert_array_equal(by_frame.predict(X), by_array.predict(X))
    with pytest.warns(UserWarning, match="has feature names"):
        assert_array_equal(by_array.predict(frame), by_array.predict(X))


def test_text_columns_are_used():
    """A target that depends on a text column alone is learned, missing and unseen labels included."""
    rng = np.random.default_rng(0)
    town = rng.choice(["Aix", "Bonn", None], 300)
    y = np.select([town == "Aix", town == "Bonn"], [1.0, 5.0], 9.0) + 0.1 * rng.normal(size=300)
    model = quick(estimator="variance_head", dropout=0.0, max_epochs=200).fit(pd.DataFrame({"town": town}), y)
    got = model.predict(pd.DataFrame({"town": ["Aix", "Bonn", None, "Cork"]}))
    assert_allclose(got[:3], [1, 5, 9], atol=0.5)
    assert np.isfinite(got[3])


# Seeds, order, units.


def test_random_state():
    """An integer seed gives the same bits; generators and None are taken; global generators stay untouched."""
    numpy_state = np.random.get_state
    before = random.getstate(), numpy_state()[1].copy(), torch.random.get_rng_state()
    few = X[:50], Y[:50]
    first, second, other = (quick(random_state=s, max_epochs=3).fit(*few).predict_interval(X) for s in (3, 3, 4))
    assert_array_equal(first, second)
    assert (first != other).any()
    for state in (None, np.random.RandomState(0), np.random.default_rng(0)):
        quick(random_state=state, max_epochs=1).fit(*few)
    assert before[0] == random.getstate()
    assert_array_equal(before[1], numpy_state()[1])
    assert torch.equal(before[2], torch.random.get_rng_state())


def test_fit_does_not_depend_on_row_order_and_weights_are_repetitions():
    """Bit for bit: shuffled rows, and rows given twice instead of weighted, also with mini-batches and validation."""
    order = np.random.default_rng(0).permutation(150)
    weights = np.arange(150) % 3
    plain = quick(batch_size=32).fit(X, Y).predict(X)
    assert_array_equal(quick(batch_size=32).fit(X[order], Y[order]).predict(X), plain)
    weighted = quick(batch_size=32).fit(X, Y, sample_weight=weights).predict(X)
    repeated = quick(batch_size=32).fit(X.repeat(weights, axis=0), Y.repeat(weights)).predict(X)
    assert_array_equal(weighted, repeated)


@pytest.mark.parametrize("unit", [2.0**-900, 1e-300, 1e300])
def test_only_ratios_of_weights_matter(unit):
    """Weights in any unit give the same model, to the bit where the unit is a power of two."""
    weights = 1.0 + np.arange(150) % 3
    model = quick(estimator="variance_head")
    expected = model.fit(X, Y, sample_weight=weights).predict(X)
    got = model.fit(X, Y, sample_weight=weights * unit).predict(X)
    assert_allclose(got, expected, rtol=0 if unit == 2.0**-900 else 1e-2)


@cache
def predict_plain(estimator):
    return quick(estimator=estimator).fit(X, Y).predict(X, return_std=True)


@pytest.mark.parametrize("estimator", ["mc_dropout", "quantile_range", "variance_head"])
@pytest.mark.parametrize(
    ("a", "b", "tolerance"), [(1e-12, 0, 1e-6), (1e12, 0, 1e-6), (3.7, 1e3, 1e-6), (1, 1e6, 1e-6), (1, 1e9, 1e-4)]
)
def test_affine_targets(estimator, a, b, tolerance):
    """Mean and std of a y + b, mapped back, agree within 1e-6 sigma (1e-4 where float64 itself rounds y)."""
    mean, std = predict_plain(estimator)
    other_mean, other_std = quick(estimator=estimator).fit(X, a * Y + b).predict(X, return_std=True)
    assert_allclose((other_mean - b) / a, mean, atol=tolerance * std.min(), rtol=0)
    assert_allclose(other_std / a, std, rtol=tolerance)


@pytest.fixture(scope="module")
def unscaled():
    return quick(max_epochs=2).fit(DATA.X, DATA.y).predict(DATA.X, return_std=True)


@settings(max_examples=10, deadline=None)
@given(st.integers(-40, 40))
def test_units_of_y_by_powers_of_two(unscaled, power):
    """Scaling y by c scales mean and std by c, to the bit where c is a power of two."""
    mean, std = unscaled
    scaled_mean, scaled_std = quick(max_epochs=2).fit(DATA.X, DATA.y * 2.0**power).predict(DATA.X, return_std=True)
    assert_array_equal(scaled_mean, mean * 2.0**power)
    assert_array_equal(scaled_std, std * 2.0**power)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(30)))
def test_predict_does_not_depend_on_row_order(fitted, order):
    """The prediction of a row does not depend on order or subset: always the same bits."""
    expected = fitted.predict_interval(X[:30])
    assert_array_equal(fitted.predict_interval(X[:30][order]), expected[order])
    some = list(order)[:7]
    assert_array_equal(fitted.predict_interval(X[some]), expected[some])


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(1, 99), min_size=2, max_size=6).map(lambda percents: np.array(sorted(percents)) / 100))
def test_intervals_nest_and_quantiles_rise(fitted, levels):
    """A higher level contains a lower one; quantiles never cross."""
    lower, upper = fitted.predict_interval(X[:5], level=levels).transpose(1, 0, 2)
    assert (np.diff(lower, axis=1) < 0).all()
    assert (np.diff(upper, axis=1) > 0).all()
    assert (np.diff(fitted.predict_quantiles(X[:5], levels), axis=1) > 0).all()


def test_history_is_in_the_units_of_y():
    """RMSE in the history is that of the predictions, whatever the units."""
    small = quick(estimator="variance_head").fit(X, Y).history_
    large = quick(estimator="variance_head").fit(X, 1024 * Y).history_
    assert_allclose(large.validation["rmse"], 1024 * np.array(small.validation["rmse"]))
    assert len(small) == 10
    assert min(small.train["rmse"]) < 3 * Y.std()


# Own networks, estimators and objectives.


class Wide(nn.Module):
    """A user's network with its own class: takes n_inputs and n_outputs."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_inputs, 64), nn.SiLU(), nn.Dropout(0.2), nn.Linear(64, n_outputs))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(
    "network",
    [Wide, lambda n_inputs, n_outputs: Wide(n_inputs, n_outputs), Wide(10, 2)],
    ids=["class", "f", "instance"],
)
def test_own_network(network):
    """A class, a factory or an instance; copied and initialized anew, so refitting gives the same bits."""
    model = quick(network=network, max_epochs=2)
    few = X[:50], Y[:50]
    first = model.fit(*few).predict(X)
    assert_array_equal(model.fit(*few).predict(X), first)
    if isinstance(network, nn.Module):
        assert isinstance(network.layers[2], nn.Dropout)  # the user's own stays as it was


def test_own_network_without_dropout_warns():
    network = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1))
    with pytest.warns(DropoutInsertedWarning):
        quick(estimator="mc_dropout", network=network).fit(X, Y)


def test_own_network_with_wrong_outputs():
    with pytest.raises(ValueError, match=r"network must return 2 column\(s\) per row .*end it with a layer of 2"):
        quick(estimator="variance_head", network=Wide(10, 5)).fit(X, Y)


def test_own_estimator_and_objective():
    """Classes and functions in place of names, options to the constructor."""
    by_name = quick(estimator="variance_head", objective="gaussian_nll").fit(X, Y).predict(X)
    by_class = quick(estimator=VarianceHead, objective=gaussian_nll).fit(X, Y).predict(X)
    assert_array_equal(by_class, by_name)
    model = quick(estimator=MCDropout, estimator_options={"samples": 5, "prediction_samples": 7}).fit(X, Y)
    assert model.estimator_.samples == 5
    assert model.estimator_.prediction_samples == 7


def test_large_input_in_chunks(fitted):
    """Many rows are encoded and predicted piece by piece, with the same result."""
    many = np.tile(X, (120, 1))  # 18,000 rows: more than one chunk
    assert_array_equal(fitted.predict(many), np.tile(fitted.predict(X), 120))


# Families, transforms of the target, several targets.

HEAVY = heavy_tailed(2000, degrees_of_freedom=3.0)


def test_family_shapes_intervals_quantiles_and_scores():
    """Interval ends, quantiles and densities are those of the family with the predicted mean and std."""
    model = quick(estimator="variance_head", family=StudentT(df=4)).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    truth = t(4, loc=mean, scale=std / np.sqrt(2))
    assert_allclose(model.predict_interval(X, level=0.9), np.column_stack(truth.interval(0.9)))
    assert_allclose(model.predict_quantiles(X, [0.2, 0.7]), np.column_stack([truth.ppf(0.2), truth.ppf(0.7)]))
    dist = model.predict_dist(X)
    assert_allclose(dist.log_prob(Y), truth.logpdf(Y))
    assert evaluate(Y, dist)["nll"] == pytest.approx(-truth.logpdf(Y).mean())


def test_degrees_of_freedom_are_learned():
    """On Student's t with 3 degrees of freedom few are found, and new rows are likelier than under a Gaussian.

    1,500 rows give 3.2 degrees of freedom here.
    """
    settings = {"estimator": "variance_head", "max_epochs": 60, "learning_rate": 0.01}
    models = {family: quick(family=family, **settings) for family in ("gaussian", "student_t")}
    rows, new = slice(0, 1500), slice(1500, None)
    dists = {
        family: model.fit(HEAVY.X[rows], HEAVY.y[rows]).predict_dist(HEAVY.X[new]) for family, model in models.items()
    }
    assert 2.5 < dists["student_t"].family.df < 4.5
    likelihoods = {family: dist.log_prob(HEAVY.y[new]).mean() for family, dist in dists.items()}
    assert likelihoods["student_t"] > likelihoods["gaussian"]


@pytest.mark.parametrize("objective", ["squared_error", "gaussian_nll"])
def test_degrees_of_freedom_need_a_likelihood(objective):
    """An objective that would leave the degrees of freedom where they start is refused; fixed ones are fine."""
    with pytest.raises(ValueError, match=r"family must be trained by the objective.*StudentT\(df=4\)"):
        quick(family="student_t", objective=objective).fit(X, Y)
    quick(family=StudentT(df=4), objective=objective, max_epochs=1).fit(X, Y)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("student-t", r"family must be one of .*did you mean 'student_t'\?"),
        (4, r"family must be a name or a family, got family=4; give one of"),
    ],
)
def test_unknown_family(family, message):
    with pytest.raises((ValueError, TypeError), match=message):
        quick(family=family).fit(X, Y)


def test_log_target_maps_back_exactly():
    """Interval ends and quantiles are exponentials of those for the logarithm; the mean lies above the median."""
    on_y = quick(estimator="variance_head", target_transform="log").fit(X, Y)
    on_log = quick(estimator="variance_head").fit(X, np.log(Y))
    assert_allclose(on_y.predict_interval(X, level=[0.5, 0.9]), np.exp(on_log.predict_interval(X, level=[0.5, 0.9])))
    assert_allclose(on_y.predict_quantiles(X), np.exp(on_log.predict_quantiles(X)))
    mean, std = on_log.predict(X, return_std=True)
    assert_allclose(on_y.predict(X), np.exp(mean + std**2 / 2), rtol=1e-6)
    assert_allclose(on_y.predict_dist(X).log_prob(Y), on_log.predict_dist(X).log_prob(np.log(Y)) - np.log(Y))
    assert on_y.target_transform_ == "log"
    with pytest.raises(ValueError, match=r"y must be greater than 0.*yeo-johnson"):
        quick(target_transform="log").fit(X, Y - 100)


@pytest.mark.parametrize("name", ["yeo-johnson", "quantile"])
def test_transforms_do_not_depend_on_units(name):
    """`a * y + b` gives `a * mean + b` and `a * std`, with a transform too."""
    model = quick(estimator="variance_head", target_transform=name)
    mean, std = model.fit(X, Y).predict(X, return_std=True)
    other_mean, other_std = model.fit(X, 1000 * Y + 7).predict(X, return_std=True)
    assert_allclose(other_mean, 1000 * mean + 7, rtol=1e-6)
    assert_allclose(other_std, 1000 * std, rtol=1e-6)


def test_auto_finds_the_scale_of_the_noise():
    """Noise in percent: a transform is chosen. Noise of constant size: none. In the units of y, Jacobian included."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (1200, 2))
    noise = 0.5 * random.normal(size=1200)
    model = quick(estimator="variance_head", target_transform="auto", width=32, max_epochs=20)
    assert model.fit(x, np.exp(1 + x[:, 0] + noise)).target_transform_ is not None
    assert model.fit(x, 1 + x[:, 0] + noise).target_transform_ is None
    with pytest.raises(ValueError, match=r"target_transform must be one of .*did you mean 'log'\?"):
        quick(target_transform="logg").fit(X, Y)


def test_auto_without_validation_rows():
    """There is nothing to choose by, and a warning says so."""
    settings = {"estimator": "variance_head", "validation_fraction": 0.0, "max_epochs": 2}
    with pytest.warns(DegenerateDataWarning, match="has no validation rows to choose by"):
        model = quick(target_transform="auto", **settings).fit(X, Y)
    assert model.target_transform_ is None


def test_gross_errors_in_y_do_not_set_its_scale():
    """1e5 added to one of 1,000 values: the others keep their scale and differences; a heavy tail keeps its own."""
    y = np.random.default_rng(0).normal(size=1000)
    wrong = np.append(y[1:], y[0] + 1e5)
    scaler = fit_target_scaler(wrong, np.ones(1000))
    assert_allclose([scaler.scale, scaler.center * scaler.magnitude], [1, 0], atol=0.1)
    trained = standardize_target(wrong, scaler)
    assert trained.max() == 30
    assert_allclose(np.diff(trained[:100]), np.diff(wrong[:100]) / scaler.scale, atol=2e-6)
    skewed = np.exp(1.5 * y)
    assert_allclose(fit_target_scaler(skewed, np.ones(1000)).scale, skewed.std(), rtol=1e-9)


def test_several_targets():
    """Each target has its own prediction, (n, k) before levels and quantiles; a unit affects its own target only."""
    targets = np.column_stack([Y, X[:, 2], 1000 * Y])
    model = quick(estimator="ensemble", estimator_options={"members": 4}, max_epochs=30).fit(X, targets)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (150, 3)
    assert model.n_targets_ == 3
    assert model.predict_interval(X, level=0.9).shape == (150, 3, 2)
    assert model.predict_interval(X, level=[0.5, 0.9]).shape == (150, 3, 2, 2)
    assert model.predict_quantiles(X, 0.5).shape == (150, 3)
    assert model.predict_quantiles(X, [0.1, 0.5]).shape == (150, 3, 2)
    dist = model.predict_dist(X)
    assert dist.log_prob(targets).shape == dist.epistemic_std.shape == (150, 3)
    assert_allclose(dist.epistemic_std**2 + dist.aleatoric_std**2, std**2, rtol=1e-5)
    assert evaluate(targets, dist)["rmse"].shape == (3,)
    assert isinstance(model.score(X, targets), float)
    rescaled = model.fit(X, targets * [1, 1e6, 1]).predict(X)
    assert_allclose(rescaled, mean * [1, 1e6, 1], rtol=1e-5)


def test_several_targets_with_family_and_transform():
    """Degrees of freedom are learned per target, transforms fitted per target."""
    targets = np.column_stack([Y, 1 / Y])
    model = quick(estimator="variance_head", family="student_t", target_transform="yeo-johnson").fit(X, targets)
    dist = model.predict_dist(X)
    assert dist.family.df.shape == (2,)
    assert dist.mean.shape == dist.quantile(0.9).shape == (150, 2)
    assert_allclose(dist.target(1).interval(0.9), dist.interval(0.9)[:, 1])


def test_one_column_is_one_target():
    """A target of shape (n, 1) is taken as (n,), with scikit-learn's warning."""
    model = quick(estimator="variance_head")
    expected = model.fit(X, Y).predict(X)
    with pytest.warns(DataConversionWarning):
        model.fit(X, Y[:, None])
    assert_array_equal(model.predict(X), expected)


def test_where_sigma_comes_from(fitted):
    """Ensembles separate noise from disagreement, in the units of y; other estimators return None."""
    for model in (quick(estimator="ensemble").fit(X, Y), fitted):
        dist = model.predict_dist(X)
        assert_allclose(dist.epistemic_std**2 + dist.aleatoric_std**2, dist.std**2, rtol=1e-5)
    dist = quick(estimator="variance_head").fit(X, Y).predict_dist(X)
    assert dist.epistemic_std is None
    assert dist.aleatoric_std is None


def test_model_that_is_no_better_than_the_mean_is_reported():
    """A warning where enough held-out rows tell so; not for constants, of which another warning tells."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 400))
    message = "^the predictions of held-out rows are no better than the mean of y; either X carries no information"
    with pytest.warns(TrainingWarning, match=message):
        quick(estimator="variance_head", learning_rate=1e-9).fit(x[:, None], noise)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        quick().fit(x[:60, None], x[:60])
        quick(estimator="variance_head", learning_rate=1e-9).fit(x[:200, None], noise[:200])  # 20 rows cannot tell
        quick().fit(np.ones((60, 1)), noise[:60])
        quick().fit(x[:60, None], np.ones(60))
    assert not [warning for warning in seen if "no better" in str(warning.message)]

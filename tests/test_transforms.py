"""Standardization, and transforms of the target: there and back, increasing, densities that integrate to 1."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import quad
from sklearn.preprocessing import PowerTransformer, StandardScaler

from hetcal.distributions import TransformedPrediction
from hetcal.families import GAUSSIAN, Laplace, StudentT
from hetcal.prediction import Prediction
from hetcal.transforms import (
    FEWEST_KNOTS,
    LARGEST_VALUE,
    MOST_KNOTS,
    TRANSFORMS,
    Log,
    PerTarget,
    Quantile,
    Standardizer,
    YeoJohnson,
)

RNG = np.random.default_rng(0)
SKEWED = RNG.lognormal(0.5, 0.8, size=300)
DATA = {
    "skewed": SKEWED,
    "left": 30 - np.minimum(SKEWED, 29),
    "quality": RNG.choice([3.0, 4, 5, 6, 7, 8], p=[0.01, 0.03, 0.43, 0.40, 0.12, 0.01], size=400),
    "two values": np.array([1.0, 4.0, 4.0]),
    "many zeros": np.concatenate([np.full(200, 1e-9), SKEWED]),
    "outlier": np.concatenate([SKEWED, [1e6]]),
    "large": SKEWED * 1e297,
    "small": SKEWED * 1e-297,
    "constant": np.full(5, 7.0),
}


def fitted(name, y, weights=None):
    return TRANSFORMS[name]().fit(y, np.ones(len(y)) if weights is None else weights)


FITTED = {(name, kind): fitted(name, y) for name in TRANSFORMS for kind, y in DATA.items()}
every_transform = pytest.mark.parametrize("name", TRANSFORMS)
every_data = pytest.mark.parametrize("y", DATA.values(), ids=DATA)
every_fit = pytest.mark.parametrize(("name", "kind"), FITTED)
few_examples = settings(max_examples=30, deadline=None)


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def test_standardizer_is_scikit_learns_with_weights(rng):
    """The weighted moments are those of StandardScaler, missing values included."""
    values = rng.normal(3, 5, size=(50, 4))
    values[3, 1] = np.nan
    weights = rng.uniform(size=50)
    expected = StandardScaler().fit(values, sample_weight=weights).transform(values)
    assert_allclose(Standardizer().fit(values, weights).transform(values), expected)


@given(st.sampled_from([1e-200, 1e-12, 1.0, 1e12, 1e200, 1e300]))
def test_standardizer_does_not_overflow(scale):
    """Units do not matter between 1e-200 and 1e300, and `inverse` undoes `transform`."""
    values = np.array([1.0, 2.0, 5.0, -3.0]) * scale
    scaler = Standardizer().fit(values, np.ones(4))
    standardized = scaler.transform(values)
    assert_allclose(standardized, Standardizer().fit(values / scale, np.ones(4)).transform(values / scale), rtol=1e-9)
    back = scaler.inverse(Prediction(standardized, np.full(4, 2.0)))
    assert_allclose(back.mean, values, rtol=1e-12)
    assert_allclose(back.std, np.full(4, 2.0 * scaler.scale))


def test_constant_columns_become_zero():
    """A constant column, and one constant but for rounding, carry nothing and divide by nothing."""
    values = np.column_stack([np.full(6, 3.0), 1e9 + 1e-7 * np.arange(6), np.arange(6)])
    scaler = Standardizer().fit(values, np.ones(6))
    assert_array_equal(scaler.is_constant, [True, True, False])
    assert np.abs(scaler.transform(values)[:, :2]).max() < 1e-6


@every_fit
@few_examples
@given(t=st.floats(-30, 30))
def test_there_and_back_from_t(name, kind, t):
    """Every t has a y, and g of it is t again, as far as floats of y can tell."""
    transform, y = FITTED[name, kind], DATA[kind]
    back = transform.inverse(t)
    assert np.isfinite(back)
    if abs(back) < LARGEST_VALUE:
        spacing = np.exp(transform.log_slope(back)) * np.spacing(np.abs(back) + np.abs(y).max())
        assert_allclose(transform.forward(back), t, rtol=1e-9, atol=1e-9 + 4 * spacing)


@every_transform
@every_data
def test_there_and_back_from_y(name, y):
    """The values of `fit`, and those between and beyond them."""
    transform = fitted(name, y)
    span = y.max() - y.min() or 1.0
    values = np.concatenate([y, np.linspace(y.min(), y.max(), 50), y.max() + span * np.array([0.1, 1.0])])
    assert_allclose(transform.inverse(transform.forward(values)), values, rtol=1e-9, atol=1e-12 * np.abs(y).max())


@every_fit
@few_examples
@given(several=st.lists(st.floats(-3, 3), min_size=2, max_size=20))
def test_increasing(name, kind, several):
    """Forward and inverse."""
    transform, y = FITTED[name, kind], DATA[kind]
    t = np.sort(several)
    back = transform.inverse(t)
    assert (np.diff(back) >= -1e-13 * np.abs(back).max()).all()
    apart = np.diff(back) > 1e-9 * np.abs(y).max()
    assert (np.diff(transform.forward(back))[apart] > 0).all()


@every_transform
@pytest.mark.parametrize("kind", ["skewed", "left", "quality", "two values", "outlier", "large", "small", "constant"])
def test_log_slope_is_the_derivative(name, kind):
    """By central differences, away from the knots."""
    y = DATA[kind]
    transform = fitted(name, y)
    typical = np.std(np.minimum(y, np.quantile(y, 0.99)) / y[0]) * y[0] or y[0]
    where = np.quantile(y, [0.02, 0.21, 0.5, 0.77, 0.96]) + typical * np.array([0.0, 0.013, 0.1, 0.01, 1.0])
    step = 1e-6 * typical
    low, high = where - step, where + step
    if name == "quantile":
        same = np.searchsorted(transform.knots, low) == np.searchsorted(transform.knots, high)
        assert same.sum() >= 3
        where, low, high = where[same], low[same], high[same]
    difference = np.log(transform.forward(high) - transform.forward(low)) - np.log(high - low)
    assert_allclose(transform.log_slope(where), difference, atol=1e-5)


@every_transform
def test_weights_are_repetitions(name, rng):
    """A row of weight 3 is three rows, one of weight 0 is none, and only the ratios of weights matter."""
    y, weights = rng.gamma(9, size=60).round(1) + 0.1, rng.integers(0, 4, size=60)
    repeated = fitted(name, np.repeat(y, weights))
    t = repeated.forward(y)
    assert_allclose(fitted(name, y, weights.astype(float)).forward(y), t, rtol=1e-9, atol=1e-9)
    assert_allclose(fitted(name, y, weights * 0.01).forward(y), t, rtol=1e-9, atol=1e-9)
    y[weights == 0] = -1e30  # without weight: not even looked at
    assert_allclose(fitted(name, y, weights.astype(float)).forward(y[weights > 0]), t[weights > 0], rtol=1e-9)


@pytest.mark.parametrize("name", ["yeo-johnson", "quantile"])
@pytest.mark.parametrize(("scale", "shift"), [(3.0, 0.0), (1e-6, 5.0), (1e250, 0.0), (1e-250, 0.0), (7.0, -1e4)])
@pytest.mark.parametrize("kind", ["skewed", "left", "quality", "two values", "many zeros"])
def test_units_do_not_matter(name, scale, shift, kind):
    """Other units of y, with a > 0, give the same t, and a slope in those units."""
    y = DATA[kind]
    transform, other = fitted(name, y), fitted(name, scale * y + shift)
    where = np.concatenate([y, np.quantile(y, [0.3, 0.6]) + 0.01234, [y.min() - 2, y.max() + 2]])
    rounding = 1e-14 * (1 + abs(shift) / scale) / np.exp(-transform.log_slope(y).max())
    atol = 1e-11 + 10 * rounding
    assert_allclose(other.forward(scale * where + shift), transform.forward(where), rtol=1e-9, atol=atol)
    off = where[len(y) :]  # at a knot a rounding error decides between the pieces
    assert_allclose(other.log_slope(scale * off + shift) + np.log(scale), transform.log_slope(off), atol=1e-4)


def test_log_in_other_units_is_shifted():
    assert_allclose(Log().forward(3 * SKEWED) - np.log(3), Log().forward(SKEWED), atol=1e-14)


def test_log_refuses_what_is_not_positive():
    """The smallest value, how many there are, and what to do instead."""
    y = np.array([3.0, 0.0, -1.5, 2.0, -4.0])
    with pytest.raises(
        ValueError,
        match=r"^y must be greater than 0 for target_transform='log', got y=-4\.0; "
        r"3 of 5 values are not, this is the smallest; 'yeo-johnson' accepts any values$",
    ):
        Log().fit(y, np.ones(5))
    Log().fit(y, np.array([1.0, 0, 0, 1, 0]))  # rows without weight do not count
    with pytest.raises(ValueError, match=r"^y\[:, 1\] must be greater than 0 .*, got y\[:, 1\]=-4\.0; "):
        PerTarget([Log(), Log()]).fit(np.column_stack([np.abs(y) + 1, y]), np.ones(5))


def test_log_of_later_values_that_are_not_positive():
    """Density 0, without a warning and without NaN, for every family."""
    for family in (GAUSSIAN, Laplace(), StudentT(3)):
        prediction = TransformedPrediction(Prediction(np.zeros(3), np.ones(3), family=family), Log())
        y = np.array([0.0, -1.0, -1e300])
        assert_array_equal(Log().forward(y), np.full(3, -np.inf))
        assert_array_equal(Log().log_slope(y), np.full(3, -np.inf))
        assert_array_equal(prediction.log_prob(y), np.full(3, -np.inf))
        assert_array_equal(prediction.cdf(y), np.zeros(3))
        assert_array_equal(prediction.z(y), np.full(3, -np.inf))
        assert np.isfinite(prediction.crps(y)).all()


def test_yeo_johnson_is_scikit_learns(rng):
    """Without weights: the same power, and the same t up to the standardizing scikit-learn does afterwards."""
    for y in (rng.gamma(3, size=500), 10 - rng.gamma(3, size=500), rng.normal(size=500)):
        transform = fitted("yeo-johnson", y)
        standard = (y - y.mean()) / y.std()
        reference = PowerTransformer(standardize=False).fit(standard[:, None])
        assert 0 < transform.power < 2
        assert_allclose(transform.power, reference.lambdas_[0], atol=1.1e-3)
        assert_allclose(transform.forward(y), stats.yeojohnson(standard, transform.power), atol=1e-12)
        loglik = stats.yeojohnson_llf(transform.power, standard)
        assert loglik > stats.yeojohnson_llf(reference.lambdas_[0], standard) - 1e-3


def test_yeo_johnson_reaches_every_real_number(rng):
    """A power outside 0 to 2 would be more likely here, and would leave some t without a y."""
    y = rng.lognormal(0, 2, size=1000)
    assert PowerTransformer().fit((y[:, None] - y.mean()) / y.std()).lambdas_[0] < -1
    assert fitted("yeo-johnson", y).power == 0
    assert fitted("yeo-johnson", -y).power == 2
    t = np.array([-1e5, -50.0, 0.0, 50.0])
    for transform in (fitted("yeo-johnson", y), fitted("yeo-johnson", -y)):
        assert (np.diff(transform.inverse(t)) > 0).all()


def test_yeo_johnson_makes_skewed_data_nearly_normal(rng):
    y = rng.gamma(2, size=5000)
    assert stats.skew(y) > 1
    assert abs(stats.skew(fitted("yeo-johnson", y).forward(y))) < 0.15


def test_quantile_gives_normal_scores(rng):
    """The values of `fit` are nearly standard normal whatever their distribution, the knots exactly."""
    for y in (SKEWED, rng.standard_cauchy(2000), rng.uniform(size=2000)):
        transform = fitted("quantile", y)
        expected = stats.norm.ppf((stats.rankdata(y) - 0.5) / len(y))
        assert FEWEST_KNOTS <= len(transform.knots) <= MOST_KNOTS
        assert_allclose(transform.forward(y), expected, atol=0.35)
        assert np.abs(transform.forward(y) - expected).mean() < 0.03
        at_knots = np.isin(y, transform.knots)
        assert_allclose(transform.forward(y[at_knots]), expected[at_knots], atol=1e-12)


def test_quantile_learns_the_distribution():
    """A held-out sample is nearly as likely as under the truth."""
    truth = stats.lognorm(1)
    y, new = truth.rvs(5000, random_state=1), truth.rvs(5000, random_state=2)
    transform = fitted("quantile", y)
    loglik = stats.norm.logpdf(transform.forward(new)) + transform.log_slope(new)
    assert (truth.logpdf(new) - loglik).mean() < 0.02


def test_quantile_with_few_distinct_values():
    """Integers: every value is a knot, at its mid-rank, with one slope between neighbors."""
    y = DATA["quality"]
    transform = fitted("quantile", y)
    values, counts = np.unique(y, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2) / len(y)
    assert_array_equal(transform.knots, values)
    assert_allclose(transform.scores, stats.norm.ppf(ranks))
    inside = transform.log_slope(np.array([5.1, 5.5, 5.9]))
    assert_allclose(inside, np.log(transform.scores[3] - transform.scores[2]))
    on_the_knot = transform.log_slope(values[2:5])
    assert_allclose(on_the_knot[1], (transform.log_slope(5.5) + transform.log_slope(6.5)) / 2)


def test_quantile_beyond_the_ends():
    """Linear, with the smallest of the three outer slopes; a heavy tail goes on, and new values stay within reach."""
    y = DATA["quality"]
    transform = fitted("quantile", y)
    inner = np.diff(transform.scores) / np.diff(transform.knots)
    for end, step, slope in ((3.0, -1.0, inner[:3].min()), (8.0, 1.0, inner[-3:].min())):
        t = transform.forward(end + step * np.array([0.0, 1.0, 2.0, 100.0]))
        assert_allclose((t - t[0]) / step, slope * np.array([0.0, 1.0, 2.0, 100.0]))
    heavy = stats.lognorm(2)
    largest = [
        fitted("quantile", heavy.rvs(1000, random_state=seed)).forward(heavy.ppf(1 - 1e-4)) for seed in range(10)
    ]
    assert np.median(largest) < 8  # 3.7 if the tail were known


def test_quantile_merges_values_that_are_nearly_one(rng):
    """A heap of values that differ by little has a bounded slope, and, to a knot, the t of as many equal values."""
    heap, rest = rng.normal(0, 1e-9, 600), rng.normal(0.5, 1, 400)
    transform = fitted("quantile", np.concatenate([heap, rest]))
    equal = fitted("quantile", np.concatenate([np.zeros(600), rest]))
    assert np.exp(transform.log_slope(heap)).max() < 1e4
    assert (np.diff(transform.knots) > 1e-4).all()
    assert_allclose(transform.forward(heap), np.full(600, equal.forward(0.0)), atol=0.25)
    assert_allclose(transform.forward(rest[rest > 0.1]), equal.forward(rest[rest > 0.1]), atol=0.2)


def test_quantile_with_negligible_weights():
    """Values that hardly count neither give an infinite score nor a slope of 0."""
    y = np.arange(8.0)
    for weights in (np.array([1e-30, 1, 1, 1, 1e-30, 1e-30, 1, 1e-30]), np.array([1.0, *np.full(7, 1e-40)])):
        transform = fitted("quantile", y, weights)
        assert np.isfinite(transform.forward(y)).all()
        assert np.isfinite(transform.log_slope(y)).all()
        assert (np.diff(transform.scores) > 0).all()


@every_transform
def test_constant_targets(name):
    """Nothing to learn, and nothing that breaks: a change of units at most."""
    for value in (7.0, 1e-300, 1e300) + ((0.0, -7.0) if name != "log" else ()):
        y = np.full(4, value)
        transform = fitted(name, y)
        t = transform.forward(y)
        assert np.isfinite(t).all()
        assert np.isfinite(transform.log_slope(y)).all()
        assert_allclose(transform.inverse(t), y, rtol=1e-12)
        assert np.ptp(transform.inverse(t + np.array([-0.5, 0.0, 0.5, 0.7]))) > 0
    rounding = 1e9 + 1e-7 * np.arange(6)
    t = fitted(name, rounding).forward(rounding)
    assert_allclose(t, np.full(6, t[0]), atol=1e-6)


@every_transform
@every_data
def test_extreme_values(name, y):
    """1e-300 and 1e300, on either side of 0, in y and in t: no warning (they are errors here) and no NaN."""
    transform = fitted(name, y)
    extremes = np.array([-1e300, -1.0, -1e-300, 0.0, 1e-300, 1.0, 1e300])
    t = transform.forward(extremes)
    assert not np.isnan(t).any()
    assert (np.diff(t[np.isfinite(t)]) >= 0).all()
    assert not np.isnan(transform.log_slope(extremes)).any()
    assert not np.isposinf(transform.log_slope(extremes)).any()
    back = transform.inverse(np.concatenate([[-np.inf], extremes, [np.inf]]))
    assert np.isfinite(back).all()
    assert np.abs(back).max() <= LARGEST_VALUE
    assert (np.diff(back) >= 0).all()
    for family in (GAUSSIAN, Laplace(), StudentT(2.1)):
        for std in (1e-3, 1.0, 1e5):
            prediction = TransformedPrediction(Prediction(np.zeros(7), np.full(7, std), family=family), transform)
            assert not np.isnan(prediction.log_prob(extremes)).any()
            assert np.isfinite(prediction.crps(extremes)).all()
            assert np.isfinite(prediction.interval([0.5, 0.999])).all()
            assert np.isfinite(prediction.mean).all()
            assert (prediction.std > 0).all()
            assert np.isfinite(prediction.std).all()


@every_transform
@pytest.mark.parametrize("kind", ["skewed", "left", "quality", "two values", "many zeros", "constant"])
@pytest.mark.parametrize("family", [GAUSSIAN, Laplace(), StudentT(3.0)], ids=lambda family: family.name)
def test_density_integrates_to_1(name, kind, family):
    """Over y, between quantiles of known probability; and up to each of them, to its probability."""
    transform = fitted(name, DATA[kind])
    mean, std = transform.forward(np.quantile(DATA[kind], [0.6])), np.array([0.4])
    prediction = TransformedPrediction(Prediction(mean, std, family=family), transform)
    q = np.array([1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-4])
    ends = prediction.quantile(q)[0]
    knots = transform.knots if name == "quantile" else []
    total = 0.0
    for low, high, expected in zip(ends[:-1], ends[1:], np.diff(q), strict=True):
        inside = [knot for knot in knots if low < knot < high]
        pieces = [low, *inside, high]
        mass = sum(
            quad(lambda y: np.exp(prediction.log_prob(np.array([y]))[0]), *piece, limit=100)[0]
            for piece in pairwise(pieces)
        )
        assert_allclose(mass, expected, rtol=1e-5, atol=1e-7)
        total += mass
    assert_allclose(total, 1 - 2e-4, rtol=1e-6)
    assert_allclose(prediction.cdf(ends[:, None])[:, 0], q, rtol=1e-6)


def test_per_target(rng):
    """Column by column along axis 1, with further axes behind, and one target by itself."""
    y = np.column_stack([SKEWED, 30 - SKEWED])
    both = PerTarget([Log(), YeoJohnson()]).fit(y, np.ones(300))
    parts = [fitted("log", y[:, 0]), fitted("yeo-johnson", y[:, 1])]
    t = both.forward(y)
    assert t.shape == (300, 2)
    for j, part in enumerate(parts):
        assert_allclose(t[:, j], part.forward(y[:, j]))
        assert_allclose(both.log_slope(y)[:, j], part.log_slope(y[:, j]))
        assert_allclose(both.target(j).forward(y[:, j]), t[:, j])
    behind = rng.normal(size=(5, 2, 2, 3))
    assert both.inverse(behind).shape == (5, 2, 2, 3)
    for j, part in enumerate(parts):
        assert_allclose(both.inverse(behind)[:, j], part.inverse(behind[:, j]))
    assert_allclose(both.inverse(t), y)


def test_per_target_in_a_prediction(rng):
    """Shapes (n, k, ...) throughout, and `target` gives the very same as predicting one target."""
    y = np.column_stack([SKEWED, 30 - SKEWED])
    both = PerTarget([Quantile(), Log()]).fit(y, np.ones(300))
    mean, std = rng.normal(size=(7, 2)), rng.uniform(0.5, 1, size=(7, 2))
    family = StudentT(np.array([3.0, 9.0]))
    prediction = TransformedPrediction(Prediction(mean, std, 0.6 * std, 0.8 * std, family), both)
    assert prediction.interval(0.9).shape == (7, 2, 2)
    assert prediction.interval([0.5, 0.8, 0.9]).shape == (7, 2, 2, 3)
    assert prediction.quantile([0.5, 0.8, 0.9]).shape == (7, 2, 3)
    for j, df in enumerate((3.0, 9.0)):
        one, alone = prediction.target(j), Prediction(mean[:, j], std[:, j], family=StudentT(df))
        alone = TransformedPrediction(alone, fitted(["quantile", "log"][j], y[:, j]))
        assert one.family == StudentT(df)
        assert_allclose(one.interval([0.5, 0.9]), alone.interval([0.5, 0.9]))
        assert_allclose(prediction.interval([0.5, 0.9])[:, j], alone.interval([0.5, 0.9]))
        for each in ("mean", "std"):
            assert_allclose(getattr(prediction, each)[:, j], getattr(alone, each))
        for each in ("log_prob", "crps", "cdf", "z"):
            assert_allclose(getattr(prediction, each)(y[:7])[:, j], getattr(alone, each)(y[:7, j]))
        assert_allclose(one.epistemic_std, 0.6 * alone.std)
        assert_allclose(one.aleatoric_std, prediction.aleatoric_std[:, j])


@every_transform
def test_state_is_plain_numbers(name):
    """What is learned survives JSON, and the transform made of it is the same."""
    transform = fitted(name, SKEWED)
    state = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in vars(transform).items()}
    again = TRANSFORMS[name]()
    for key, value in json.loads(json.dumps(state)).items():
        setattr(again, key, np.array(value) if isinstance(value, list) else value)
    for value in vars(transform).values():
        assert isinstance(value, float) or value.dtype == np.float64
    assert_array_equal(again.forward(SKEWED), transform.forward(SKEWED))
    assert_array_equal(again.inverse(np.linspace(-9, 9)), transform.inverse(np.linspace(-9, 9)))


@every_transform
def test_single_precision_input(name):
    """float32 and integers are taken as they are, in float64."""
    y = np.arange(1, 40)
    for kind in (np.float32, np.int64):
        transform = TRANSFORMS[name]().fit(y.astype(kind), np.ones(39, dtype=kind))
        for values in (transform.forward(y.astype(kind)), transform.inverse(y.astype(kind))):
            assert values.dtype == np.float64
        assert_allclose(transform.forward(y.astype(kind)), fitted(name, y.astype(float)).forward(y.astype(float)))

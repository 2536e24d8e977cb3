"""Distributions made from other predictions or from quantiles: transformed, recalibrated, tabulated."""

from itertools import pairwise

import numpy as np
import pytest
import scoringrules
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats
from scipy.stats import norm

from hetcal.distributions import EDGE, NODE_ROWS, RecalibratedPrediction, TabulatedPrediction, TransformedPrediction
from hetcal.families import GAUSSIAN, Laplace, StudentT
from hetcal.metrics import coverage, evaluate, nll, pit
from hetcal.prediction import Prediction
from tests.test_prediction import ALEATORIC, EPISTEMIC, MEAN, STD, every_family


class Exponent:
    """t = log y: then y is log-normal for the Gaussian."""

    def forward(self, y):
        return np.log(y)

    def inverse(self, t):
        return np.exp(t)

    def log_slope(self, y):
        return -np.log(y)


class Identity:
    def forward(self, y):
        return y

    def inverse(self, t):
        return t

    def log_slope(self, y):
        return np.zeros_like(y)


def test_log_normal():
    """Quantiles, intervals, density and distribution function of a Gaussian for log y are scipy's, exactly."""
    mean, std = np.array([0.0, 1.0, -2.0]), np.array([0.1, 0.5, 1.0])
    prediction = TransformedPrediction(Prediction(mean, std), Exponent())
    truth = stats.lognorm(std, scale=np.exp(mean))
    y = np.array([1.1, 2.0, 0.3])
    assert prediction.family == GAUSSIAN
    assert_allclose(prediction.interval(0.9).T, truth.interval(0.9))
    assert_allclose(prediction.quantile(0.99), truth.ppf(0.99))
    assert_allclose(prediction.log_prob(y), truth.logpdf(y))
    assert_allclose(prediction.cdf(y), truth.cdf(y))
    assert_allclose(prediction.cdf(y), norm.cdf(prediction.z(y)))
    assert prediction.interval([0.5, 0.9]).shape == (3, 2, 2)
    assert prediction.quantile([0.1, 0.5, 0.9]).shape == (3, 3)


def test_moments_of_the_log_normal():
    """By quadrature to six standard deviations: what lies beyond is little unless the tail is very heavy."""
    std = np.array([0.1, 0.5, 1.0, 1.5])
    truth = stats.lognorm(std)
    prediction = TransformedPrediction(Prediction(np.zeros(4), std), Exponent())
    assert_allclose(prediction.mean, truth.mean(), rtol=1e-5)
    assert_allclose(prediction.std[:3], truth.std()[:3], rtol=1e-3)
    assert_allclose(prediction.std[3], truth.std()[3], rtol=0.01)


def test_moments_of_the_log_laplace():
    """Without the outer quarter of a percent they are a little small, the more so the heavier the tail."""
    for std, mean_lost, std_lost in ((0.1, 2e-4, 0.02), (0.3, 3e-3, 0.06), (0.5, 0.02, 0.2)):
        prediction = TransformedPrediction(Prediction(np.zeros(1), np.full(1, std), family=Laplace()), Exponent())
        mean, square = 1 / (1 - std**2 / 2), 1 / (1 - (2 * std) ** 2 / 2)  # the moment generating function
        assert 0 < 1 - prediction.mean[0] / mean < mean_lost
        assert 0 < 1 - prediction.std[0] / np.sqrt(square - mean**2) < std_lost


@every_family
def test_identity_changes_nothing(family, reference):
    """Except for the quarter of a percent at either end that mean, std and CRPS omit (for the Gaussian: CRPS only)."""
    plain = Prediction(MEAN, STD, EPISTEMIC, ALEATORIC, family)
    same = TransformedPrediction(plain, Identity())
    y = np.array([1.0, -2.0, 90.0])
    for method in ("log_prob", "cdf", "z"):
        assert_allclose(getattr(same, method)(y), getattr(plain, method)(y))
    assert_allclose(same.interval([0.5, 0.9]), plain.interval([0.5, 0.9]))
    assert_allclose(same.mean, MEAN, atol=1e-9)
    assert_allclose(same.std, STD, rtol=1e-6 if family == GAUSSIAN else 0.03)
    assert (same.std < STD).all()
    assert_allclose(same.crps(y), plain.crps(y), rtol=2e-4)
    assert_allclose(same.epistemic_std / same.std, EPISTEMIC / STD)
    assert_allclose(same.epistemic_std**2 + same.aleatoric_std**2, same.std**2)


def test_crps_of_the_log_normal():
    """Against the formula of Baran and Lerch (2015) as scoringrules has it."""
    mean, std, y = np.array([0.0, 1.0, -2.0]), np.array([0.1, 0.5, 1.0]), np.array([1.1, 9.0, 0.01])
    prediction = TransformedPrediction(Prediction(mean, std), Exponent())
    assert_allclose(prediction.crps(y), scoringrules.crps_lognormal(y, mean, std), rtol=2e-4)


def test_transformed_rows_and_targets():
    """take, numpy and target go through to the base; a transform without parts serves every target."""
    mean, std = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), torch.full((3, 2), 0.5)
    tensors = TransformedPrediction(Prediction(mean, std, 0.6 * std, 0.8 * std, StudentT(4)), Exponent())
    prediction = tensors.numpy()
    assert prediction.mean.shape == prediction.std.shape == prediction.epistemic_std.shape == (3, 2)
    assert prediction.interval([0.5, 0.9]).shape == (3, 2, 2, 2)
    y = np.exp(mean.numpy())
    assert prediction.crps(y).shape == (3, 2)
    rows = prediction.take([2, 0])
    assert_allclose(rows.mean, prediction.mean[[2, 0]])
    assert_allclose(rows.aleatoric_std, prediction.aleatoric_std[[2, 0]])
    for j in range(2):
        one = prediction.target(j)
        assert one.family == StudentT(4)
        assert_allclose(one.std, prediction.std[:, j])
        assert_allclose(one.crps(y[:, j]), prediction.crps(y)[:, j])
        assert_allclose(one.interval(0.9), prediction.interval(0.9)[:, j])
    unknown = TransformedPrediction(Prediction(MEAN, STD), Identity())
    assert unknown.epistemic_std is None
    assert unknown.aleatoric_std is None


def test_transformed_moments_do_not_depend_on_the_block():
    """More rows than fit into one block of quantiles, and none at all."""
    n = NODE_ROWS + 3
    mean, std = np.linspace(-1, 1, n), np.linspace(0.1, 1, n)
    prediction = TransformedPrediction(Prediction(mean, std), Exponent())
    assert_allclose(prediction.mean, stats.lognorm(std, scale=np.exp(mean)).mean(), rtol=1e-5)
    assert_allclose(prediction.std, stats.lognorm(std, scale=np.exp(mean)).std(), rtol=1e-3)
    assert_allclose(prediction.crps(np.ones(n))[-2:], prediction.take([-2, -1]).crps(np.ones(2)))
    none = prediction.take(slice(0, 0))
    assert none.mean.shape == none.std.shape == none.crps(np.empty(0)).shape == (0,)


def test_transformed_moments_of_values_near_the_end_of_floats():
    """Squares of 1e300 would overflow; a std of 0 would divide by nothing."""
    huge = TransformedPrediction(
        Prediction(MEAN, STD), type("Huge", (Identity,), {"inverse": lambda _, t: 1e297 * t})()
    )
    plain = TransformedPrediction(Prediction(MEAN, STD), Identity())
    assert_allclose(huge.mean, 1e297 * plain.mean, atol=1e285)
    assert_allclose(huge.std, 1e297 * plain.std)
    flat = TransformedPrediction(
        Prediction(MEAN, STD), type("Flat", (Identity,), {"inverse": lambda _, t: np.zeros_like(t)})()
    )
    assert (flat.std > 0).all()


# RecalibratedPrediction.


def recalibrated(n=3):
    """Rows of different mean and std, recalibrated to fifty skewed residuals as by `IsotonicRecalibrator`."""
    rng = np.random.default_rng(4)
    base = Prediction(rng.normal(size=50), rng.uniform(0.2, 2, 50)).take(slice(n))
    pit = norm.cdf(np.sort(rng.exponential(size=50) - 1))
    return RecalibratedPrediction(base, np.concatenate([[0], pit, [1]]), np.arange(52) / 51)


def test_density_integrates_to_one_and_to_the_distribution_function():
    """`exp(log_prob)` is the derivative of `cdf`, steps and all."""
    prediction = recalibrated(1)
    knots = prediction.base.quantile(prediction.pit[1:-1])[0]
    ends = prediction.base.mean + np.array([-12, 12]) * prediction.base.std
    pieces = [ends[0], *knots, ends[1]]
    density = lambda y: float(np.exp(prediction.log_prob(np.array([y])))[0])  # noqa: E731
    masses = [integrate.quad(density, *piece)[0] for piece in pairwise(pieces)]
    assert_allclose(sum(masses), 1, rtol=1e-8)
    assert_allclose(np.cumsum(masses)[:-1], [prediction.cdf(np.array([knot]))[0] for knot in knots], rtol=1e-7)


def test_moments_and_crps_against_draws():
    """From the quantiles of a million uniform numbers: the sample's mean, std and CRPS, E|x - y| - E|x - x'| / 2.

    The 200 quantiles of equal probability round the tails off a little.
    """
    prediction = recalibrated()
    draws = np.random.default_rng(0).uniform(size=1_000_000)
    sample = prediction.quantile(np.sort(draws))  # (3, draws)
    assert_allclose(prediction.mean, sample.mean(-1), atol=0.005 * prediction.std.max())
    assert_allclose(prediction.std, sample.std(-1), rtol=0.02)
    y = prediction.mean + np.array([-1.0, 0.5, 3.0]) * prediction.std
    ranks = (np.arange(draws.size) + 0.5) / draws.size
    spread = 2 * (sample * (2 * ranks - 1)).mean(-1)  # E|x - x'| of a sorted sample
    assert_allclose(prediction.crps(y), np.abs(sample - y[:, None]).mean(-1) - spread / 2, rtol=0.02)


def test_quantile_inverts_cdf_far_into_the_tails():
    """And everything stays finite there."""
    prediction = recalibrated(1)
    for q in (1e-9, 1e-3, 0.3, 0.5, 0.99, 1 - 1e-9):
        assert_allclose(prediction.cdf(prediction.quantile(q)), q, rtol=1e-6)
    far = prediction.mean + np.array([-1e6, 1e6])
    assert np.isfinite(prediction.z(far)).all()
    assert np.isfinite(prediction.log_prob(far)).all()
    assert np.isfinite(prediction.quantile([1e-300, 1 - 1e-16])).all()


def test_recalibrated_prediction_has_the_interface():
    """Shapes, rows, and what metrics ask for."""
    prediction = recalibrated(10)
    assert isinstance(prediction, RecalibratedPrediction)
    assert prediction.interval(0.9).shape == (10, 2)
    assert prediction.interval([0.5, 0.9, 0.95]).shape == (10, 2, 3)
    assert_allclose(prediction.interval([0.5, 0.9])[:, :, 1], prediction.interval(0.9))
    assert prediction.quantile(0.5).shape == (10,)
    assert prediction.quantile([0.1, 0.9]).shape == (10, 2)
    assert_array_equal(prediction.take([2, 5]).mean, prediction.mean[[2, 5]])
    assert_array_equal(prediction.numpy().std, prediction.std)
    assert prediction.family is GAUSSIAN
    assert prediction.epistemic_std is prediction.aleatoric_std is None
    inside = np.abs(prediction.z(prediction.interval(0.9)[:, 1] - 1e-9)) <= stats.norm.ppf(0.95)
    assert inside.all()


def test_blocks_of_recalibrated_rows_do_not_show(monkeypatch):
    """Moments and CRPS are taken some rows at a time."""
    prediction = recalibrated(50)
    moments, scores = (prediction.mean, prediction.std), prediction.crps(np.zeros(50))
    monkeypatch.setattr("hetcal.distributions.NODE_ROWS", 7)
    again = prediction.numpy()
    assert_array_equal((again.mean, again.std), moments)
    assert_array_equal(again.crps(np.zeros(50)), scores)


# TabulatedPrediction.

PERCENT = np.arange(1, 100) / 100


@pytest.mark.parametrize("given", [[0.2, 0.7], [0.05, 0.5, 0.95], PERCENT])
def test_quantiles_of_a_gaussian_give_back_the_gaussian(given):
    """Between the levels and beyond them, because the quantile function is linear in the normal score."""
    plain = Prediction(MEAN, STD)
    table = TabulatedPrediction(given, plain.quantile(given))
    assert_allclose(table.mean, MEAN, atol=1e-9)
    assert_allclose(table.std, STD, rtol=1e-6)
    assert_allclose(table.quantile([1e-9, 0.3, 0.999]), plain.quantile([1e-9, 0.3, 0.999]))
    assert_allclose(table.interval([0.5, 0.99]), plain.interval([0.5, 0.99]))
    for y in (MEAN, MEAN + 0.3 * STD, MEAN - 4 * STD):
        for member in ("z", "cdf", "log_prob"):
            assert_allclose(getattr(table, member)(y), getattr(plain, member)(y), atol=1e-9)
        assert_allclose(table.crps(y), plain.crps(y), rtol=2e-3)


def test_tabulated_skewed_rows_against_quadrature():
    """Density, distribution function and quantiles of unequal steps belong together."""
    table = TabulatedPrediction([0.1, 0.4, 0.6, 0.95], [[0.0, 1.0, 1.1, 7.0]])
    density = lambda y: float(np.exp(table.log_prob(np.array([y])))[0])  # noqa: E731
    pieces = [table.quantile(1e-9)[0], 0.0, 1.0, 1.1, 7.0, 8.0]
    masses = [integrate.quad(density, *piece)[0] for piece in pairwise(pieces)]
    assert_allclose(np.cumsum(masses), [0.1, 0.4, 0.6, 0.95, table.cdf(np.array([8.0]))[0]], atol=1e-7)
    for q in (1e-6, 0.1, 0.25, 0.6, 0.9999):
        assert_allclose(table.cdf(table.quantile(q)), q)


def test_given_moments_are_kept():
    """A peer's own mean is scored, not the one of its quantiles; each of the two may be missing."""
    quantiles = Prediction(MEAN, STD).quantile([0.1, 0.9])
    table = TabulatedPrediction([0.1, 0.9], quantiles, mean=MEAN + 1)
    assert_array_equal(table.mean, MEAN + 1)
    assert_allclose(table.std, STD, rtol=1e-6)
    assert_array_equal(table.take([2, 0]).mean, (MEAN + 1)[[2, 0]])
    assert_array_equal(TabulatedPrediction([0.1, 0.9], quantiles, std=2 * STD).take([1]).std, 2 * STD[1:2])


def test_crossing_quantiles_are_sorted():
    crossed = TabulatedPrediction([0.1, 0.5, 0.9], [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    assert_array_equal(crossed.quantiles, [[1, 2, 3], [1, 2, 3]])


def test_tabulated_prediction_has_the_interface():
    """Shapes, rows, and what metrics ask for."""
    table = TabulatedPrediction([0.1, 0.5, 0.9], torch.arange(30.0).reshape(10, 3))
    assert table.interval(0.9).shape == (10, 2)
    assert table.interval([0.5, 0.9, 0.95]).shape == (10, 2, 3)
    assert table.quantile(0.5).shape == (10,)
    assert table.quantile([0.1, 0.9]).shape == (10, 2)
    assert_array_equal(table.quantile([0.1, 0.5, 0.9]), table.quantiles)
    assert_array_equal(table.take([2, 5]).mean, table.mean[[2, 5]])
    assert_array_equal(table.numpy().std, table.std)
    assert table.family is GAUSSIAN
    assert table.epistemic_std is table.aleatoric_std is None
    assert table.take(slice(0, 0)).crps(np.empty(0)).shape == (0,)


@pytest.mark.parametrize(
    ("given", "quantiles", "message"),
    [
        ([0.5], [[1.0]], r"levels must be at least two ascending numbers, got levels=\[0.5\]"),
        ([0.5, 0.1], [[1.0, 2.0]], "levels must be at least two ascending numbers"),
        (0.5, [[1.0]], "levels must be at least two"),
        ([0.1, 1.0], [[1.0, 2.0]], r"levels must be between 0 and 1, got levels=1.0"),
        (
            [0.1, 0.9],
            [1.0, 2.0],
            r"quantiles must have 2 columns, one per level, got quantiles='array of shape \(2,\)'",
        ),
        ([0.1, 0.9], [[1.0, 2.0, 3.0]], r"quantiles must have 2 columns"),
        ([0.1, 0.9], [[1.0, 2.0], [np.nan, 3.0]], r"quantiles must be finite, got .*; .* the first is 1"),
    ],
)
def test_bad_tables_are_named(given, quantiles, message):
    with pytest.raises(ValueError, match=message):
        TabulatedPrediction(given, quantiles)


def test_coinciding_quantiles_are_an_atom():
    """As those of a forest often are: a jump of the distribution function, in the middle and at the ends."""
    table = TabulatedPrediction([0.1, 0.3, 0.6, 0.9], np.tile([2.0, 5.0, 5.0, 6.0], (3, 1)))
    five = np.full(3, 5.0)
    assert_allclose((table.cdf_below(five)[0], table.cdf(five)[0]), (0.3, 0.6))
    assert_allclose(table.log_prob(five), np.log(0.3))
    assert_array_equal(table.interval(0.2), np.full((3, 2), 5.0))
    assert len(set(table.z(five))) == 3  # equal rows, different places in the jump
    assert_array_equal(table.take([2, 0]).z(five[:2]), table.z(five)[[2, 0]])
    ends = TabulatedPrediction([0.1, 0.3, 0.7, 0.9], np.tile([0.0, 0.0, 1.0, 1.0], (3, 1)))
    assert_allclose(ends.cdf([-1.0, 0.0, 0.5]), [0, 0.3, 0.5])
    assert_allclose(ends.cdf([1.0, 2.0, 0.5]), [1, 1, 0.5])
    assert_allclose(ends.cdf_below([0.0, 1.0, 2.0]), [0, 0.7, 1])
    assert_allclose(ends.log_prob([-9.0, 0.0, 9.0]), np.log([EDGE, 0.3, EDGE]))
    constant = TabulatedPrediction([0.1, 0.9], np.full((3, 2), 4.0))
    assert_array_equal(constant.mean, np.full(3, 4.0))
    assert_array_equal(constant.cdf([3.0, 4.0, 5.0]), [0, 1, 1])
    assert np.isfinite(constant.z([3.0, 4.0, 5.0])).all()
    assert_allclose(constant.crps([3.0, 4.0, 5.0]), [1, 0, 1])


def test_calibration_of_tied_quantiles_is_measured_at_the_level():
    """Quantiles of a die: its closed 60 % intervals hold every number from 2 to 5, but calibration is exact.

    False-alarm rate 1e-6, were the seed not fixed.
    """
    y = np.random.default_rng(3).integers(1, 7, 20_000)
    table = TabulatedPrediction(PERCENT, np.tile(np.ceil(6 * PERCENT - 1e-9), (len(y), 1)))
    assert stats.kstest(pit(y, table), "uniform").pvalue > 1e-6
    lower, upper = table.interval(0.6).T
    assert np.mean((lower <= y) & (y <= upper)) > 0.65
    assert abs(coverage(y, table, level=0.6) - 0.6) < 4.9 * np.sqrt(0.24 / len(y))


def test_every_metric_accepts_a_table():
    """The same figures as for the Gaussian itself, verdict included."""
    rng = np.random.default_rng(0)
    plain = Prediction(rng.normal(size=500), rng.uniform(0.5, 2, 500))
    y = plain.mean + plain.std * rng.normal(size=500)
    expected, scores = evaluate(y, plain), evaluate(y, TabulatedPrediction(PERCENT, plain.quantile(PERCENT)))
    assert scores.pop("verdict") == expected.pop("verdict")
    assert_allclose(list(scores.values()), list(expected.values()), rtol=1e-3)
    assert nll(y, TabulatedPrediction([0.1, 0.9], np.zeros((500, 2)))) == pytest.approx(-np.log(EDGE))

"""Prediction: a distribution per row, on tensors and arrays, for one target and several, transformed, recalibrated."""

from itertools import pairwise

import numpy as np
import pytest
import scoringrules
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats
from scipy.stats import norm

from hetcal.families import GAUSSIAN, Laplace, StudentT
from hetcal.prediction import NODE_ROWS, Prediction, RecalibratedPrediction, TransformedPrediction, join_predictions

MEAN, STD = np.array([0.0, -3.0, 100.0]), np.array([1.0, 0.5, 20.0])
EPISTEMIC, ALEATORIC = 0.6 * STD, 0.8 * STD  # squares add up
levels = st.floats(0.001, 0.999)
REFERENCES = {
    "gaussian": (GAUSSIAN, lambda mean, std: norm(mean, std)),
    "laplace": (Laplace(), lambda mean, std: stats.laplace(mean, std / np.sqrt(2))),
    "student_t": (StudentT(5.0), lambda mean, std: stats.t(5, mean, std * np.sqrt(3 / 5))),
}
every_family = pytest.mark.parametrize(("family", "reference"), REFERENCES.values(), ids=REFERENCES)


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


def test_against_scipy():
    """Interval, quantile and log density agree with scipy's normal distribution (eq. 2 and eq. 1)."""
    prediction = Prediction(MEAN, STD)
    assert_allclose(prediction.interval(0.9).T, norm.interval(0.9, MEAN, STD))
    assert_allclose(prediction.quantile(0.2), norm.ppf(0.2, MEAN, STD))
    y = np.array([1.0, -2.0, 90.0])
    assert_allclose(prediction.log_prob(y), norm.logpdf(y, MEAN, STD))


def test_shapes():
    """One level gives (n, 2), a list (n, 2, k); one quantile (n,), a list (n, k)."""
    prediction = Prediction(MEAN, STD)
    assert prediction.interval(0.9).shape == (3, 2)
    assert prediction.interval([0.5, 0.9, 0.95]).shape == (3, 2, 3)
    assert prediction.quantile(0.5).shape == (3,)
    assert prediction.quantile([0.1, 0.9]).shape == (3, 2)
    assert_allclose(prediction.interval([0.5, 0.9])[:, :, 1], prediction.interval(0.9))


def test_tensors_agree_with_arrays_and_keep_the_graph():
    """The same numbers on tensors, differentiable in mean and std."""
    mean = torch.tensor(MEAN, requires_grad=True)
    std = torch.tensor(STD, requires_grad=True)
    tensors, arrays = Prediction(mean, std), Prediction(MEAN, STD)
    assert_allclose(tensors.interval([0.5, 0.9]).detach(), arrays.interval([0.5, 0.9]))
    assert_allclose(tensors.log_prob(mean + std).detach(), arrays.log_prob(MEAN + STD))
    tensors.interval(0.9).sum().backward()
    assert_allclose(mean.grad, np.full(3, 2.0))
    assert_allclose(tensors.numpy().std, STD)
    assert isinstance(tensors.numpy().mean, np.ndarray)


@given(st.lists(levels, min_size=2, max_size=5).map(sorted))
def test_intervals_nest_and_quantiles_rise(several):
    """A higher level contains a lower one; quantiles never cross."""
    prediction = Prediction(MEAN, STD)
    lower, upper = prediction.interval(several)[:, 0], prediction.interval(several)[:, 1]
    assert (np.diff(lower, axis=1) <= 0).all()
    assert (np.diff(upper, axis=1) >= 0).all()
    assert (np.diff(prediction.quantile(several), axis=1) >= 0).all()


@pytest.mark.parametrize("wrong", [95, 0, 1, -0.1, np.nan, [0.5, 2.0], []])
def test_levels_are_fractions(wrong):
    """A level outside (0, 1) is refused with advice."""
    with pytest.raises(ValueError, match="level must"):
        Prediction(MEAN, STD).interval(wrong)


@every_family
def test_families_against_scipy(family, reference):
    """Interval, quantile, density, distribution function, and mean and std as they were given."""
    prediction, truth = Prediction(MEAN, STD, family=family), reference(MEAN, STD)
    y = np.array([1.0, -2.0, 90.0])
    assert_allclose(truth.mean(), MEAN)
    assert_allclose(truth.std(), STD)
    assert_allclose(prediction.interval(0.9).T, truth.interval(0.9))
    assert_allclose(prediction.quantile(0.2), truth.ppf(0.2))
    assert_allclose(prediction.log_prob(y), truth.logpdf(y))
    assert_allclose(prediction.cdf(y), truth.cdf(y))
    assert_allclose(prediction.z(y), (y - MEAN) / STD)


@every_family
def test_crps_is_in_the_units_of_y(family, reference):
    """Half the expected distance of two draws less that of a draw from y, by quantiles; and it scales with y."""
    prediction, truth = Prediction(MEAN, STD, family=family), reference(MEAN[:, None], STD[:, None])
    y = np.array([1.0, -2.0, 90.0])
    q = (np.arange(20_000) + 0.5) / 20_000
    draws = truth.ppf(q)  # (3, 20000), sorted
    spread = 2 * (draws * (2 * q - 1)).mean(axis=1)  # E |Y - Y'|
    expected = np.abs(draws - y[:, None]).mean(axis=1) - spread / 2
    assert_allclose(prediction.crps(y), expected, rtol=1e-3)
    assert_allclose(prediction.scaled(7.0, -2.0).crps(7 * y - 2), 7 * prediction.crps(y))


@every_family
def test_families_on_tensors(family, reference):
    """The same numbers, differentiable; `numpy` leaves the graph."""
    arrays = Prediction(MEAN, STD, family=family)
    mean, std = (torch.tensor(values, requires_grad=True) for values in (MEAN, STD))
    tensors = Prediction(mean, std, family=family)
    y = torch.tensor([1.0, -2.0, 90.0], dtype=torch.float64)
    for method in ("log_prob", "crps", "z"):
        assert_allclose(getattr(tensors, method)(y).detach(), getattr(arrays, method)(y.numpy()), rtol=1e-8)
    assert_allclose(tensors.quantile([0.1, 0.9]).detach(), arrays.quantile([0.1, 0.9]))
    tensors.crps(y).sum().backward()
    assert torch.isfinite(mean.grad).all()
    assert torch.isfinite(std.grad).all()
    assert tensors.numpy().family == family


def test_with_family():
    """The same mean and std with another shape; tails differ."""
    prediction = Prediction(MEAN, STD, EPISTEMIC, ALEATORIC)
    heavy = prediction.with_family(StudentT(3))
    assert heavy.family == StudentT(3)
    assert prediction.family == GAUSSIAN
    assert_allclose(heavy.std, STD)
    assert_allclose(heavy.epistemic_std, EPISTEMIC)
    assert (np.ptp(heavy.interval(0.999), axis=1) > np.ptp(prediction.interval(0.999), axis=1)).all()


@every_family
def test_shapes_of_several_targets(family, reference):
    """(n, k) in, (n, k, 2), (n, k, 2, L) and (n, k, L) out, as the docstrings say."""
    mean, std = np.arange(12.0).reshape(4, 3), np.arange(1.0, 13).reshape(4, 3)
    prediction, y = Prediction(mean, std, family=family), mean + 1
    assert prediction.interval(0.9).shape == (4, 3, 2)
    assert prediction.interval([0.5, 0.8, 0.9, 0.95, 0.99]).shape == (4, 3, 2, 5)
    assert prediction.quantile(0.5).shape == (4, 3)
    assert prediction.quantile([0.1, 0.9]).shape == (4, 3, 2)
    for method in ("log_prob", "crps", "cdf", "z"):
        assert getattr(prediction, method)(y).shape == (4, 3)
    for j in range(3):
        one = prediction.target(j)
        assert one.family == family
        assert_allclose(one.mean, mean[:, j])
        assert_allclose(one.interval([0.5, 0.9]), prediction.interval([0.5, 0.9])[:, j])
        assert_allclose(one.quantile(0.1), prediction.quantile(0.1)[:, j])
        assert_allclose(one.crps(y[:, j]), prediction.crps(y)[:, j])


def test_one_df_per_target():
    """Each target keeps its own tails, on arrays and tensors, and `target` picks them."""
    mean, std = np.arange(8.0).reshape(4, 2), np.arange(1.0, 9).reshape(4, 2)
    df = np.array([2.5, 20.0])
    y, q = mean + 1, [0.01, 0.5, 0.9]
    prediction = Prediction(mean, std, family=StudentT(df))
    learned = torch.tensor(df, requires_grad=True)
    tensors = Prediction(torch.tensor(mean), torch.tensor(std), family=StudentT(learned))
    assert isinstance(tensors.numpy().family.df, np.ndarray)
    for j in range(2):
        truth = stats.t(df[j], mean[:, j], std[:, j] * np.sqrt((df[j] - 2) / df[j]))
        assert prediction.target(j).family == StudentT(df[j])
        assert tensors.numpy().target(j).family == StudentT(df[j])
        assert_allclose(prediction.quantile(q)[:, j], truth.ppf(np.array(q)[:, None]).T)
        assert_allclose(tensors.quantile(q)[:, j].detach(), truth.ppf(np.array(q)[:, None]).T)
        assert_allclose(prediction.interval([0.5, 0.9])[:, j, :, 1].T, truth.interval(0.9))
        assert_allclose(prediction.target(j).interval(0.9).T, truth.interval(0.9))
        assert_allclose(prediction.log_prob(y)[:, j], truth.logpdf(y[:, j]))
        assert_allclose(tensors.log_prob(torch.tensor(y))[:, j].detach(), truth.logpdf(y[:, j]))
        assert_allclose(prediction.cdf(y)[:, j], truth.cdf(y[:, j]))
    tensors.target(1).log_prob(torch.tensor(y[:, 1])).sum().backward()
    assert learned.grad[0] == 0  # the other target's
    assert learned.grad[1] != 0
    shared = Prediction(mean, std, family=StudentT(4))
    assert shared.target(0).family == StudentT(4)


def columns(prediction):
    return [None if values is None else np.asarray(values) for values in prediction.columns]


@pytest.mark.parametrize("known", [True, False])
def test_parts_of_the_std_go_along(known):
    """Epistemic and aleatoric part, or their absence, through take, scaled, numpy, target and join; family too."""
    parts = (EPISTEMIC, ALEATORIC) if known else (None, None)
    family = StudentT(4.0)
    prediction = Prediction(MEAN, STD, *parts, family)

    def assert_is(result, mean, factor, rows=slice(None)):
        assert result.family == family
        expected = [mean, *(None if values is None else factor * values[rows] for values in (STD, *parts))]
        for got, wanted in zip(columns(result), expected, strict=True):
            assert (got is None) == (wanted is None)
            if wanted is not None:
                assert_allclose(got, wanted)

    assert_is(prediction.take([2, 0]), MEAN[[2, 0]], 1, [2, 0])
    assert_is(prediction.take(slice(1, 3)), MEAN[1:], 1, slice(1, 3))
    assert_is(prediction.scaled(10.0, 5.0), 10 * MEAN + 5, 10)
    assert_is(join_predictions([prediction.take([0]), prediction.take([1, 2])], np.concatenate), MEAN, 1)
    tensors = Prediction(*(None if values is None else torch.tensor(values) for values in prediction.columns), family)
    assert_is(join_predictions([tensors.take(slice(0, 2)), tensors.take(slice(2, 3))], torch.cat), MEAN, 1)
    assert_is(tensors.numpy(), MEAN, 1)
    assert all(values is None or values.dtype == np.float64 for values in tensors.numpy().columns)
    several = Prediction(*(None if v is None else np.column_stack([v + 1, v]) for v in prediction.columns), family)
    assert_is(several.target(1), MEAN, 1)
    if known:
        assert_allclose(prediction.epistemic_std**2 + prediction.aleatoric_std**2, prediction.std**2)


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
    monkeypatch.setattr("hetcal.prediction.NODE_ROWS", 7)
    again = prediction.numpy()
    assert_array_equal((again.mean, again.std), moments)
    assert_array_equal(again.crps(np.zeros(50)), scores)

"""Calibration from held-out predictions: weights of groups, widening, shape and the correction for the pool's size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.optimize import check_grad
from scipy.special import ndtr

from hetcal.estimators import held_out
from hetcal.estimators.held_out import (
    HeldOut,
    SecondOpinion,
    Stack,
    between_groups,
    choose_floor,
    choose_stack,
    choose_widening,
    fit_shape,
    fit_shape_of_cells,
    local_line,
    pool_factor,
    stack_groups,
)
from hetcal.families import GAUSSIAN, SCORES
from hetcal.prediction import Prediction

Q = np.array([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98])
# Residuals whose quantile functions are known.
NOISES = {
    "normal": stats.norm(),
    "skewed": stats.expon(loc=-1),
    "heavy": stats.t(3, scale=3**-0.5),
    "uniform": stats.uniform(-(3**0.5), 2 * 3**0.5),
}
every_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)


def crps_of_pool(w, mean, std, y, weights):
    pooled = Prediction(np.tensordot(w, mean, 1), np.tensordot(w, std, 1))
    return np.average(pooled.crps(y).mean(1), weights=weights)


def groups_of(errors, n=300, seed=0, n_targets=2):
    """Targets of noise 1, and for each entry of `errors` the predictions of a group with an error of that std."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 3, (n, n_targets))
    mean = np.stack([truth + error * rng.normal(size=truth.shape) for error in errors])
    std = np.stack([np.full(truth.shape, np.hypot(1, error)) for error in errors])
    return mean, std, truth + rng.normal(size=truth.shape), rng.uniform(0.5, 2, n)


# --- weights of groups ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_stacking_has_the_right_gradient(monkeypatch, power):
    """What the optimizer gets as gradient is that of what it gets as value, by finite differences."""
    seen = []

    def catch(score, start, jac, method):
        seen.append((score, start, jac))
        return original(score, start, jac=jac, method=method)

    original = held_out.minimize
    monkeypatch.setattr(held_out, "minimize", catch)
    mean, std, y, weights = groups_of([0.2, 1.0, 3.0])
    std = std * np.random.default_rng(0).uniform(0.5, 2, std.shape)
    stack_groups(mean, std, y, weights, power)
    score, start, jac = seen[0]
    assert jac is True
    for a in (start, np.array([0.3, -1.0, 0.5]), np.array([2.0, 0.0, -3.0])):
        assert check_grad(lambda a: score(a)[0], lambda a: score(a)[1], a) < 1e-5


def test_stacking_prefers_the_better_group():
    w = stack_groups(*groups_of([0.2, 1.5, 3.0]))
    assert_allclose(w.sum(), 1)
    assert w[0] > 0.7
    assert w[0] > w[1] > w[2] > 0


def test_stacking_of_equal_groups_is_equal():
    mean, std, y, weights = groups_of([1.0])
    assert_allclose(stack_groups(np.repeat(mean, 3, 0), np.repeat(std, 3, 0), y, weights), np.full(3, 1 / 3), atol=1e-6)


def test_stacking_is_the_minimum():
    """No weights on a fine grid have a clearly lower CRPS; the pull toward equal weights costs little."""
    mean, std, y, weights = groups_of([0.8, 1.2], n=2000)
    best = min(crps_of_pool(np.array([t, 1 - t]), mean, std, y, weights) for t in np.linspace(0, 1, 101))
    assert crps_of_pool(stack_groups(mean, std, y, weights), mean, std, y, weights) < 1.002 * best


def test_stacking_is_pulled_toward_equal_weights_with_few_rows(monkeypatch):
    """The penalty counts: with a strong one the weights are nearly equal, without it they are not."""
    arguments = groups_of([0.2, 3.0], n=100)
    distances = []
    for pull in (0.0, 1.0, 1000.0):
        monkeypatch.setattr(held_out, "EQUAL_WEIGHTS_PULL", pull)
        distances.append(abs(stack_groups(*arguments)[0] - 0.5))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.02


def test_stacking_does_not_depend_on_units_or_the_scale_of_weights():
    mean, std, y, weights = groups_of([0.5, 1.0])
    w = stack_groups(mean, std, y, weights)
    assert_allclose(stack_groups(1e-3 * mean, 1e-3 * std, 1e-3 * y, weights), w, atol=1e-3)
    assert_allclose(stack_groups(mean, std, y, 1e4 * weights), w, atol=1e-3)


def test_rows_of_weight_0_do_not_count_in_stacking():
    """Rows of weight 0 would prefer the worse group; the pull depends on the number of rows, so only nearly equal."""
    mean, std, y, weights = groups_of([0.2, 2.0], n=400)
    y[200:] = mean[1, 200:]
    weights[200:] = 0.0
    only_first = stack_groups(mean[:, :200], std[:, :200], y[:200], weights[:200])
    assert_allclose(stack_groups(mean, std, y, weights), only_first, atol=0.05)


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_pool_is_its_equations(power):
    """Row by row and target by target: weights by certainty, and the widening by the first groups only."""
    rng = np.random.default_rng(2)
    mean, std, w = rng.normal(size=(3, 4, 2)), rng.uniform(0.5, 2, (3, 4, 2)), np.array([0.2, 0.5, 0.3])
    location, _, scale = Stack(w, power, widening=2.0, n_widening=2).pool(mean, std)
    for i, j in np.ndindex(4, 2):
        share = w / std[:, i, j] ** power
        share /= share.sum()
        two, center = share[:2], np.average(mean[:2, i, j], weights=share[:2])
        expected = np.sqrt((share @ std[:, i, j]) ** 2 + 2 * two @ (mean[:2, i, j] - center) ** 2)
        assert_allclose((location[i, j], scale[i, j]), (share @ mean[:, i, j], expected))


def groups_that_know_some_rows(n, knows, seed=0):
    """Two groups; each is exact where `knows` says so and errs by 1 elsewhere, and its sigma says which is which."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(n, 1))
    error = np.where(knows(rng.random((2, n, 1)) < 0.5), 0.1, 1.0)
    return y + error * rng.normal(size=(2, n, 1)), error, y, np.ones(n)


def test_certain_groups_count_more_where_their_sigma_can_be_relied_on():
    """Sigma that tells which group is right is used; sigma that says nothing about the errors is not."""
    mean, std, y, weights = groups_that_know_some_rows(1000, lambda drawn: drawn)
    assert choose_stack(mean, std, y, weights).power == 1.0
    shuffled = np.random.default_rng(1).permuted(std, axis=1)
    assert choose_stack(mean, shuffled, y, weights).power == 0.0


def test_preference_for_certainty():
    """It decides between nearly equal scores: with one constant sigma, weights by certainty are plain weights."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(200, 1))
    mean = y + rng.normal(size=(2, 200, 1))
    arguments = mean, np.ones_like(mean), y, np.ones(200)
    assert choose_stack(*arguments).power == 0.0
    assert choose_stack(*arguments, preference=0.01).power == 1.0


def test_floor_is_needed_where_sigma_is_0_and_errors_are_not():
    """Half of the rows have no spread, and yet errors of a tenth of the others'; an honest sigma has no floor."""
    rng = np.random.default_rng(0)
    std = np.where(rng.random((2000, 2)) < 0.5, 1.0, [1e-9, 0.1])
    error = np.where(std == 1, 1.0, 0.1) * rng.normal(size=std.shape)
    floors = choose_floor(np.zeros_like(error), std, error, np.ones(2000))
    assert 0.03 < floors[0] < 0.3
    assert floors[1] < 0.05


# --- widening -------------------------------------------------------------------------------------------------------


def test_between_groups_is_the_weighted_variance():
    rng = np.random.default_rng(0)
    mean, w = rng.normal(size=(3, 5, 2)), rng.uniform(0.1, 0.3, (3, 5, 2))
    for i in range(5):
        for j in range(2):
            center = np.average(mean[:, i, j], weights=w[:, i, j])
            expected = w[:, i, j] @ (mean[:, i, j] - center) ** 2
            assert_allclose(between_groups(mean, w)[i, j], expected)


def two_groups(between, scale):
    """Two groups of weight 1/2 and mean 0 whose variance between them and whose sigma are given."""
    mean = np.sqrt(between) * np.array([1.0, -1.0])[:, None, None]
    return Stack(np.array([0.5, 0.5]), power=0.0), mean, np.stack([scale, scale])


def test_widening_follows_the_errors(monkeypatch):
    """Where errors grow with the disagreement, rows are widened; where they do not, or all agree, they are not."""
    rng = np.random.default_rng(0)
    n = 3000
    scale, between, weights = np.full((n, 1), 0.5), rng.exponential(1.0, (n, 1)), np.ones(n)
    monkeypatch.setattr(held_out, "WIDENINGS", (0.0, 1.0, 5.0))
    for truth in held_out.WIDENINGS:
        y = rng.normal(size=(n, 1)) * np.sqrt(scale**2 + truth * between)
        stack = choose_widening(*two_groups(between, scale), y, weights, n_widening=2)
        assert (stack.widening, stack.n_widening) == (truth, 2)
    none = choose_widening(*two_groups(0 * between, scale), rng.normal(size=(n, 1)), weights, n_widening=2)
    assert none.widening == held_out.WIDENINGS[0]


def test_widening_does_not_depend_on_a_constant_factor_of_sigma():
    """Members whose sigma is too small by a factor are not widened for that: the shape mends it later."""
    rng = np.random.default_rng(1)
    n = 3000
    between = rng.exponential(1.0, (n, 1))
    y = rng.normal(size=(n, 1))
    stack = choose_widening(*two_groups(between, np.full((n, 1), 0.7)), y, np.ones(n), n_widening=2)
    assert stack.widening == min(held_out.WIDENINGS)


# --- shape ----------------------------------------------------------------------------------------------------------


@every_noise
def test_shape_recovers_the_quantiles_and_improves_with_rows(noise):
    """The mean error of seven quantiles over ten samples falls from 100 to 10,000 rows at least by a factor of 3.

    Without smoothing and bias it would fall by 10. The bound at 10,000 rows is three times the mean error that the
    plain sample quantiles have; measured ratios are about 1.
    """
    errors = {}
    for n in (100, 10_000):
        rng = np.random.default_rng(n)
        samples = [noise.rvs(n, random_state=rng) for _ in range(10)]
        shapes = [fit_shape(sample, np.ones(n)) for sample in samples]
        errors[n] = np.mean([np.abs(shape.quantile(Q) - noise.ppf(Q)) for shape in shapes])
        plain = np.mean([np.abs(np.quantile(sample, Q) - noise.ppf(Q)) for sample in samples])
        assert errors[n] < 3 * plain
    assert errors[10_000] < errors[100] / 3


@every_noise
def test_shape_of_few_rows_is_nearly_normal(noise):
    """With 20 rows the quantiles are on average nearer to the truth than 1.5 times the plain sample quantiles are."""
    rng = np.random.default_rng(0)
    samples = [noise.rvs(20, random_state=rng) for _ in range(40)]
    own = np.mean([np.abs(fit_shape(sample, np.ones(20)).quantile(Q) - noise.ppf(Q)) for sample in samples])
    plain = np.mean([np.abs(np.quantile(sample, Q) - noise.ppf(Q)) for sample in samples])
    assert own < 1.5 * plain


@given(
    residuals=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40),
    factor=st.floats(0.1, 10),
)
@settings(max_examples=60, deadline=None)
def test_shape_of_any_residuals_is_a_distribution(residuals, factor):
    """Strictly increasing, finite, with moments that can be standardized: also equal residuals, outliers, two rows."""
    residuals = np.array(residuals)
    weights = np.linspace(1, factor, len(residuals))
    shape = fit_shape(residuals, weights)
    assert (np.diff(shape.values) > 0).all()
    mean, std, standard = shape.standardized()
    assert np.isfinite([mean, std]).all()
    assert std > 0
    assert np.isfinite(standard.log_density(np.zeros(1))).all()


def test_shape_follows_the_units_of_the_residuals():
    r, w = np.random.default_rng(0).standard_t(4, 300), np.ones(300)
    assert_allclose(fit_shape(1000 * r + 7000, w).values, 1000 * fit_shape(r, w).values + 7000, rtol=1e-9)


def test_shape_does_not_depend_on_the_order_or_the_scale_of_weights():
    rng = np.random.default_rng(0)
    r, w = rng.normal(size=200), rng.uniform(0.2, 3, 200)
    order = rng.permutation(200)
    assert_allclose(fit_shape(r[order], w[order]).values, fit_shape(r, w).values)
    assert_allclose(fit_shape(r, 1e5 * w).values, fit_shape(r, w).values)


def test_shape_takes_a_weight_as_so_many_rows():
    """A weight of 3 is nearly a row given three times: the effective number of rows, hence the knots, may differ."""
    rng = np.random.default_rng(0)
    r = rng.normal(size=2000)
    weights = np.where(r > 0.5, 3, 1)
    weighted, repeated = fit_shape(r, weights), fit_shape(np.repeat(r, weights), np.ones(weights.sum()))
    ignored = fit_shape(r, np.ones(len(r)))
    difference = np.abs(weighted.quantile(Q) - repeated.quantile(Q)).max()
    assert difference < 0.05
    assert np.abs(ignored.quantile(Q) - repeated.quantile(Q)).max() > 5 * difference


@pytest.mark.parametrize("outlier", [30.0, 1e5, -1e9])
def test_one_gross_outlier_hardly_changes_the_shape(outlier):
    """A mistyped y among 1,000 must neither widen the intervals of all rows nor move their means."""
    r = np.random.default_rng(0).normal(size=1000)
    with_outlier = r.copy()
    with_outlier[0] = outlier
    plain, other = fit_shape(r, np.ones(1000)), fit_shape(with_outlier, np.ones(1000))
    inner = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
    assert_allclose(other.quantile(inner), plain.quantile(inner), atol=0.15)
    assert_allclose(other.standardized()[:2], plain.standardized()[:2], atol=0.15)


def test_shape_of_equal_residuals():
    """A constant target: all mass within a hair of the constant, still with an inverse."""
    for value in (0.0, -2.5, 1e5):
        shape = fit_shape(np.full(30, value), np.ones(30))
        assert_allclose(shape.quantile(Q), value, atol=1e-6 * max(1, abs(value)))
        assert (np.diff(shape.values) > 0).all()


@pytest.mark.parametrize("n", [2, 3, 5])
def test_shape_of_very_few_rows_covers_them(n):
    """Centered on the rows, about as wide as they are."""
    r = np.linspace(-1, 1, n)
    shape = fit_shape(r, np.ones(n))
    mean, std, _ = shape.standardized()
    assert_allclose(mean, 0, atol=1e-9)
    assert 0.5 * r.std() < std < 2 * r.std()


def test_local_line():
    """Exact for a straight line, also beyond its points; far from all of them it interpolates."""
    x = np.array([0.0, 0.5, 1.0, 2.0])
    w = np.array([1.0, 2.0, 1.0, 0.5])
    assert_allclose([local_line(x, 3 * x - 1, w, at, 0.4) for at in (-0.5, 0.3, 2.5)], [-2.5, -0.1, 6.5])
    assert_allclose(local_line(x, 3 * x - 1, w, 100.0, 0.4), 5.0)  # no weight at all: the nearest value
    assert_allclose(local_line(np.zeros(3), np.array([1.0, 2.0, 3.0]), np.ones(3), 0.0, 0.4), 2.0)  # no slope


def rounded_rows(kind, width, n=4000):
    """Latent residuals, and the residuals of the rounded targets."""
    rng = np.random.default_rng(0)
    latent, location = NOISES[kind].rvs(n, random_state=rng), rng.uniform(0, 100, n)
    return latent, width * np.round((location + latent) / width) - location


def distance_from_uniform(shape, latent):
    """Kolmogorov and Smirnov's distance of the latent PIT."""
    return stats.kstest(shape.cdf(latent), "uniform").statistic


@pytest.mark.parametrize("kind", ["normal", "skewed", "heavy"])
def test_shape_of_cells_recovers_the_latent_shape(kind):
    """The PIT of the latent residuals, of which the shape has seen only the cells, is uniform.

    The bound of the distance is 2.5 / sqrt(n), which for a fixed distribution has a false-alarm rate of 1e-5, plus 0.02
    for the smoothing.
    """
    latent, residuals = rounded_rows(kind, width=0.7)
    lower, upper, weights = residuals - 0.35, residuals + 0.35, np.ones(len(latent))
    shape = fit_shape_of_cells(lower, upper, residuals, weights)
    assert distance_from_uniform(shape, latent) < 2.5 / np.sqrt(len(latent)) + 0.02
    again = fit_shape_of_cells(lower, upper, residuals, weights)
    assert again.values.tolist() == shape.values.tolist()  # seeded


@pytest.mark.parametrize("kind", ["normal", "skewed", "heavy"])
def test_shape_of_wide_cells_does_not_count_the_rounding_twice(kind):
    """Cells of two standard deviations: the shape is much nearer to the latent one than that of rounded residuals."""
    latent, residuals = rounded_rows(kind, width=2.0)
    weights = np.ones(len(latent))
    shape = fit_shape_of_cells(residuals - 1, residuals + 1, residuals, weights)
    assert distance_from_uniform(shape, latent) < 0.6 * distance_from_uniform(fit_shape(residuals, weights), latent)


def test_shape_of_cells_with_open_ends_and_free_rows():
    """A cap: rows at the cap are known to lie above it; the others are known exactly."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=3000)
    location = rng.normal(0, 2, 3000)
    cap = 2.0
    is_capped = location + latent >= cap
    residuals = np.where(is_capped, cap - location, latent)
    shape = fit_shape_of_cells(residuals, np.where(is_capped, np.inf, residuals), residuals, np.ones(3000))
    assert stats.kstest(shape.cdf(latent), "uniform").statistic < 2.5 / np.sqrt(3000) + 0.02
    free = fit_shape_of_cells(latent, latent, latent, np.ones(3000))
    assert_allclose(free.values, fit_shape(latent, np.ones(3000)).values)


# --- size of the pool -----------------------------------------------------------------------------------------------


def simulated_pool(parts, n=20_000, seed=0):
    """Errors of held-out predictions (a member per group) and of the pool (all), and what `pool_factor` sees."""
    rng = np.random.default_rng(seed)
    w, spreads = np.array([0.6, 0.4]), np.array([0.8, 1.5])  # std of a member of each group about the group's mean
    members = spreads[:, None, None] * rng.normal(size=(2, parts, n))
    y = rng.normal(size=n)  # about the common mean of all members
    one, pool = np.tensordot(w, members[:, 0], 1), np.tensordot(w, members.mean(1), 1)
    rows, std = np.arange(n // 2), np.ones((n // 2, 1))
    seconds = [SecondOpinion([g], rows, members[[g], 1][:, rows, None], std[None]) for g in range(2)]
    held = HeldOut(members[:, 0, :, None], np.ones((2, n, 1)), seconds)
    arguments = held, Stack(w, power=0.0), y[:, None], np.ones(n), parts
    return (y - pool).std() / (y - one).std(), arguments


@pytest.mark.parametrize("parts", [2, 3, 4, 8])
def test_pool_factor_is_that_of_simulated_members(parts):
    """The ratio of the errors' std of the whole pool and of single members, of the first order in what is gained."""
    ratio, arguments = simulated_pool(parts)
    assert ratio < 0.93
    assert_allclose(pool_factor(*arguments), [ratio], rtol=0.04)


def test_pool_factor_of_groups_that_err_alike():
    """Two readings of the same forests: the pool gains what it would gain from one of them, not half of it.

    The groups share their parts, so that one second opinion is that of both. The ratio is simulated (20,000 rows; its
    standard error is below 0.01), and as two opinions, group by group, the factor would be larger by more than 0.05.
    """
    rng = np.random.default_rng(0)
    n, rows = 20_000, np.arange(10_000)
    members, y = np.tile(rng.normal(size=(4, n)), (2, 1, 1)), rng.normal(size=n)  # (groups, members, n)
    first, std = members[:, 0, :, None], np.ones((2, n, 1))
    both = SecondOpinion([0, 1], rows, members[:, 1, rows, None], std[:, rows])
    by_group = [SecondOpinion([g], rows, both.mean[[g]], both.std[[g]]) for g in range(2)]
    arguments = Stack(np.array([0.5, 0.5]), power=0.0), y[:, None], np.ones(n), 4
    ratio = (y - members[0].mean(0)).std() / (y - members[0, 0]).std()
    assert_allclose(pool_factor(HeldOut(first, std, [both]), *arguments), [ratio], rtol=0.02)
    assert pool_factor(HeldOut(first, std, by_group), *arguments)[0] > ratio + 0.05


def test_pool_factor_without_a_second_opinion_or_a_gain_is_1():
    """Also if the second member has the same opinion, or if both are exact."""
    _, (held, stack, y, weights, parts) = simulated_pool(4, n=200)
    assert_allclose(pool_factor(HeldOut(held.mean, held.std), stack, y, weights, parts), [1.0])
    same = [SecondOpinion(o.groups, o.rows, held.mean[o.groups][:, o.rows], o.std) for o in held.seconds]
    assert_allclose(pool_factor(HeldOut(held.mean, held.std, same), stack, y, weights, parts), [1.0])
    exact = HeldOut(
        np.zeros((2, 200, 1)), held.std, [SecondOpinion([0], np.arange(9), np.zeros((1, 9, 1)), np.ones((1, 9, 1)))]
    )
    assert_allclose(pool_factor(exact, stack, np.zeros((200, 1)), weights, parts), [1.0])


def test_pool_factor_by_hand():
    """Two targets, a second opinion on two of three rows, of weights 1 to 3; sigma of the pair counts, too."""
    y = np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    held = HeldOut(
        np.zeros((1, 3, 2)),
        np.full((1, 3, 2), 2.0),
        [
            SecondOpinion(
                [0], np.array([0, 2]), np.array([[[1.0, 0.0], [5.5, 0.0]]]), np.array([[[2.0, 2.0], [2.5, 2.0]]])
            )
        ],
    )
    weights = np.array([1.0, 2.0, 3.0])
    # |y - mean| / sigma of the first member, of the second, and of both, for rows of weights 1 and 3
    first, second, both = np.array([[1 / 2, 4 / 2], [0 / 2, 1.5 / 2.5], [0.5 / 2, 1.25 / 2.25]])
    limit = np.quantile([first, second, both], 0.98)
    one, two = (np.minimum(r, limit) @ [1, 3] for r in ((first, second), both))
    expected = np.sqrt(1 - 2 * (1 - 1 / 2) * (1 - (two / one.mean()) ** 2))
    assert expected < 0.9
    expected = max(expected, 0.5)
    assert_allclose(pool_factor(held, Stack(np.ones(1), power=0.0), y, weights, 2), [expected, 1.0])
    assert_allclose(held.mean, 0)  # nothing is changed in place


def test_normal_shape_is_nearly_that_of_the_gaussian():
    """The whole function, not only some quantiles, from exact normal scores."""
    n = 5000
    r = GAUSSIAN.quantile((np.arange(n) + 0.5) / n)
    assert_allclose(ndtr(fit_shape(r, np.ones(n)).values), ndtr(SCORES), atol=2e-3)

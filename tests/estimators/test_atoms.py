"""Targets with atoms: the law of a mapped latent variable against draws, its calibration, and how it is learned."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from hetcal.distributions import EDGE, TabulatedPrediction, TransformedPrediction
from hetcal.estimators.atoms import AtomicPrediction, Atoms, find_atoms, fit_atoms
from hetcal.families import GAUSSIAN, StudentT
from hetcal.metrics import calibration_curve, ce, ce_noise_floor, ce_quantile, coverage, evaluate, judge, pit
from hetcal.metrics.evidence import Evidence
from hetcal.prediction import Prediction
from hetcal.report.content import JudgedRows, describe_intervals
from hetcal.transforms import Log

BASE = Prediction(np.array([0.0, 2.0, 5.5]), np.array([1.0, 2.0, 0.3]), family=StudentT(5))
GRID = Atoms(np.array([0.0, 1.0, 3.0]), np.array([-np.inf, 0.5, 2.0]), np.array([0.5, 2.0, np.inf]))
ENDS = Atoms(np.array([-1.0, 5.0]), np.array([-np.inf, 4.8]), np.array([-0.5, np.inf]))
CAP = Atoms(np.array([5.0]), np.array([4.8]), np.array([np.inf]))
every_kind = pytest.mark.parametrize("atoms", [GRID, ENDS, CAP], ids=["grid", "ends", "cap"])


def drawn(atoms, base, draws=200_000):
    """Evenly spaced draws of t, mapped one by one: (n, draws), sorted."""
    t = base.quantile((np.arange(draws) + 0.5) / draws)
    y = t.copy()
    for value, low, high in zip(atoms.values, atoms.lower, atoms.upper, strict=True):
        y[(low < t) & (t <= high)] = value
    return y


def rounded(n, seed=0):
    """Rows whose true law is known: a latent Gaussian, rounded to the numbers from 3 to 8."""
    rng = np.random.default_rng(seed)
    base = Prediction(rng.normal(5.5, 0.8, n), rng.uniform(0.3, 1.2, n))
    middles = np.arange(3.5, 8)
    atoms = Atoms(np.arange(3.0, 9), np.append(-np.inf, middles), np.append(middles, np.inf))
    return np.clip(np.round(base.mean + base.std * rng.normal(size=n)), 3, 8), base, atoms.apply(base)


@every_kind
def test_against_draws(atoms):
    """Quantiles, distribution function, moments and CRPS of the draws, also at values that are no atoms."""
    prediction, draws = atoms.apply(BASE), drawn(atoms, BASE)
    exact = 1e-4 if atoms is GRID else 0.02  # 200 quantiles omit a quarter of a percent at either end
    assert_allclose(prediction.mean, draws.mean(1), atol=exact)
    assert_allclose(prediction.std**2, draws.var(1), rtol=2 * exact, atol=exact)
    q = [0.05, 0.3, 0.5, 0.77, 0.95]
    assert_allclose(prediction.quantile(q), np.quantile(draws, q, axis=1, method="inverted_cdf").T, atol=1e-3)
    for value in (-9.0, -1.0, -0.7, 0.0, 0.5, 0.7, 1.0, 3.0, 4.9, 5.0, 9.0):
        y = np.full(3, value)
        assert_allclose(prediction.cdf(y), (draws <= value).mean(1), atol=1e-5)
        assert_allclose(prediction.cdf_below(y), (draws < value).mean(1), atol=1e-5)
        ranks = (np.arange(draws.shape[1]) + 0.5) / draws.shape[1]
        spread = 2 * (draws * (2 * ranks - 1)).mean(1)  # E|x - x'| of a sorted sample
        expected = np.abs(draws - value).mean(1) - spread / 2
        assert_allclose(prediction.crps(y), expected, rtol=exact, atol=1e-3)


@every_kind
def test_atomic_prediction_has_the_interface(atoms):
    prediction = atoms.apply(BASE)
    assert prediction.family is GAUSSIAN
    assert prediction.epistemic_std is prediction.aleatoric_std is None
    assert prediction.interval(0.9).shape == (3, 2)
    assert prediction.interval([0.5, 0.9]).shape == (3, 2, 2)
    assert prediction.quantile(0.5).shape == (3,)
    y = np.array([0.0, 5.0, 5.0])
    some = prediction.take([2, 0])
    for member in ("z", "cdf", "log_prob", "crps"):
        assert_array_equal(getattr(some, member)(y[[2, 0]]), getattr(prediction, member)(y)[[2, 0]])
        assert_array_equal(getattr(prediction.numpy(), member)(y), getattr(prediction, member)(y))
    assert_array_equal(some.mean, prediction.mean[[2, 0]])
    assert prediction.take(slice(0, 0)).crps(np.empty(0)).shape == (0,)
    parts = atoms.apply(Prediction(BASE.mean, BASE.std, 0.6 * BASE.std, 0.8 * BASE.std))
    assert_allclose(parts.epistemic_std**2 + parts.aleatoric_std**2, parts.std**2)


@pytest.mark.parametrize("base", ["transformed", "tabulated"])
def test_any_base(base):
    """The base needs no distribution function at infinity."""
    if base == "transformed":
        latent = TransformedPrediction(Prediction(np.array([0.0, 1.0]), np.ones(2)), Log())
    else:
        latent = TabulatedPrediction([0.1, 0.5, 0.9], [[0.0, 1.0, 3.0], [1.0, 2.0, 2.5]])
    for atoms in (GRID, CAP):
        prediction, draws = atoms.apply(latent), drawn(atoms, latent)
        assert_allclose(prediction.mean, draws.mean(1), rtol=0.02)
        for value in (-1.0, 0.0, 1.0, 5.0):
            assert_allclose(prediction.cdf(np.full(2, value)), (draws <= value).mean(1), atol=1e-5)


def test_log_prob_is_the_mass_at_an_atom_and_a_density_elsewhere():
    grid, ends = GRID.apply(BASE), ENDS.apply(BASE)
    total = sum(np.exp(grid.log_prob(np.full(3, value))) for value in GRID.values)
    assert_allclose(total, 1, rtol=1e-9)
    assert_allclose(grid.log_prob(np.full(3, 0.7)), np.log(EDGE))  # impossible
    assert_allclose(ends.log_prob(np.full(3, -1.0)), np.log(np.maximum(BASE.cdf(np.full(3, -0.5)), EDGE)))
    assert_allclose(ends.log_prob(np.full(3, 2.0)), BASE.log_prob(np.full(3, 2.0)))
    assert_allclose(ends.log_prob(np.full(3, -0.7)), np.log(EDGE))
    assert_allclose(ends.log_prob(np.full(3, 4.9)), np.log(EDGE))


def test_extreme_values_stay_finite():
    """Nearly all mass on one atom, values never seen, and values near the end of floats."""
    certain = GRID.apply(Prediction(np.array([1.2, 1.2]), np.full(2, 1e-6)))
    assert_allclose(certain.mean, 1)
    assert (certain.std > 0).all()
    assert_array_equal(certain.interval(0.99), np.ones((2, 2)))
    assert (np.abs(certain.z(np.ones(2))) < 5).all()
    scores = evaluate(np.array([1.0, 3.0]), certain)
    assert all(np.isfinite(value) for value in scores.values() if isinstance(value, float))
    for y in ([-1e300, 1e300], [0.2, 7.0]):
        for member in ("z", "cdf", "log_prob", "crps"):
            assert np.isfinite(getattr(certain, member)(np.array(y))).all()
    huge = Atoms(np.array([0.0, 1e300]), np.array([-np.inf, 5e299]), np.array([5e299, np.inf]))
    assert_allclose(huge.apply(Prediction(np.full(1, 5e299), np.full(1, 1e299))).std, 5e299)


# Calibration.


def test_pit_of_the_true_law_is_uniform():
    """Kolmogorov's test would give a false alarm for one seed in a million."""
    y, _, prediction = rounded(20_000)
    assert stats.kstest(pit(y, prediction), "uniform").pvalue > 1e-6
    rng = np.random.default_rng(2)
    base = Prediction(rng.normal(size=20_000), rng.uniform(0.5, 2, 20_000))
    capped = np.clip(base.mean + base.std * rng.normal(size=20_000), -1, 1.5)
    ends = Atoms(np.array([-1, 1.5]), np.array([-np.inf, 1.5]), np.array([-1, np.inf])).apply(base)
    assert stats.kstest(pit(capped, ends), "uniform").pvalue > 1e-6


def test_closed_intervals_cover_more_but_the_calibration_error_is_noise():
    """A false alarm for one seed in a thousand."""
    y, base, prediction = rounded(4000)
    assert ce(y, prediction) < ce_quantile(4000, 0.999)
    assert ce(y, base) > 5 * ce_noise_floor(4000)
    lower, upper = prediction.interval(0.5).T
    assert np.isin([lower, upper], np.arange(3, 9)).all()
    assert np.mean((lower <= y) & (y <= upper)) > 0.6
    assert coverage(y, prediction, level=0.5) == calibration_curve(y, prediction, levels=[0.5]).coverage[0]
    assert prediction.crps(y).mean() < base.crps(y).mean()


def test_draws_belong_to_the_rows():
    """Equal rows get different places in the jump, but every call the same, and none depends on y or the base."""
    prediction = GRID.apply(Prediction(np.zeros(100), np.ones(100)))
    assert len(set(prediction.z(np.zeros(100)))) == 100
    assert_array_equal(prediction.z(np.zeros(100)), GRID.apply(prediction.base).z(np.zeros(100)))
    assert_array_equal(prediction.take([7, 3]).draws, prediction.draws[[7, 3]])
    assert_array_equal(GRID.apply(BASE).draws, prediction.draws[:3])


def test_verdict_of_the_true_law():
    """Also of a skewed one whose median is far inside an atom: a tie is not half above. False-alarm rate 1e-3."""
    y, _, prediction = rounded(4000)
    assert judge(y, prediction).status == "good"
    rng = np.random.default_rng(0)
    zeros = np.maximum(rng.normal(-0.2, 1, 4000), 0)
    base = Prediction(np.full(4000, -0.2), np.ones(4000))
    prediction = AtomicPrediction(base, [0.0], [-np.inf], [0.0])
    assert abs(Evidence.of(zeros, prediction).share_above - 0.5) < 3.3 * 0.5 / np.sqrt(4000)
    assert judge(zeros, prediction).status == "good"
    assert judge(zeros, prediction.take(slice(None))).as_dict() == judge(zeros, prediction).as_dict()


def test_rows_of_a_report_show_no_randomness():
    """A dot on the end of a bar is inside."""
    y, _, prediction = rounded(60)
    lower, upper = prediction.interval(0.9).T
    outside = int(((y < lower) | (y > upper)).sum())
    content = describe_intervals(JudgedRows.of(y, prediction))
    assert content["outside"] == outside
    assert "where at most about 6 are expected" in content["text"]


# Learning the atoms.


@pytest.mark.parametrize(
    ("y", "kind", "values"),
    [
        (np.tile([3.0, 4.0, 7.0], 50), "grid", [3, 4, 7]),
        (np.tile([0.0, 1.0], 4), "grid", [0, 1]),
        (np.arange(100.0), None, None),
        (np.zeros(50), None, None),
        (np.repeat(np.arange(400.0), 10), None, None),
        (np.append(np.zeros(6), np.arange(1.0, 100)), "ends", [0]),
        (np.append(np.full(6, 200.0), np.arange(1.0, 100)), "ends", [200]),
        (np.concatenate([np.zeros(6), np.arange(1.0, 100), np.full(9, 200)]), "ends", [0, 200]),
        (np.append(np.zeros(4), np.arange(1.0, 100)), None, None),
        (np.append(np.zeros(6), np.arange(1.0, 400)), None, None),
    ],
)
def test_find_atoms(y, kind, values):
    found = find_atoms(y)
    assert (found is None) == (kind is None)
    if found:
        assert found[0] == kind
        assert_array_equal(found[1], values)
    distinct, counts = np.unique(y, return_counts=True)
    again = find_atoms(distinct, counts.astype(float))  # a weight of 2 is a row given twice
    assert (again is None and found is None) or again[0] == found[0]


def test_weight_zero_is_no_row():
    assert find_atoms(np.append(np.tile([1.0, 2.0], 20), 9.0), np.append(np.ones(40), 0))[1].tolist() == [1, 2]


def test_fit_a_grid():
    """Halfway between neighbors, whatever their distance."""
    y, base, prediction = rounded(500)
    atoms = fit_atoms(base, y)
    assert_array_equal(atoms.values, prediction.values)
    assert_array_equal(atoms.lower, prediction.lower)
    assert_array_equal(atoms.upper, prediction.upper)
    assert isinstance(atoms.apply(base), AtomicPrediction)


def test_fit_ends():
    """The predictions have as much mass beyond the edges as there are rows at the ends, if the range allows it."""
    rng = np.random.default_rng(0)
    base = Prediction(rng.normal(size=3000), np.ones(3000))
    t = base.mean + rng.normal(size=3000)
    y = np.where(t < -0.5, -1.5, np.minimum(t, 2.0))  # nothing between -1.5 and -0.5
    atoms = fit_atoms(base, y)
    assert_array_equal(atoms.values, [-1.5, 2.0])
    assert_array_equal((atoms.lower[0], atoms.upper[1]), (-np.inf, np.inf))
    assert_allclose(base.cdf(np.full(3000, atoms.upper[0])).mean(), (y == -1.5).mean(), atol=1e-9)
    assert 1.9 < atoms.lower[1] <= 2
    assert_allclose(atoms.upper[0], -0.5, atol=0.1)
    wide = fit_atoms(Prediction(base.mean, np.full(3000, 1.2)), np.maximum(t, 0))
    assert wide.upper[0] >= 0


def test_weights_count_as_rows():
    rng = np.random.default_rng(0)
    base = Prediction(rng.normal(size=200), np.ones(200))
    y, weights = np.maximum(base.mean + rng.normal(size=200), 0), rng.integers(1, 4, 200)
    rows = np.repeat(np.arange(200), weights)
    once, twice = fit_atoms(base, y, weights.astype(float)), fit_atoms(base.take(rows), y[rows])
    assert_allclose(once.upper, twice.upper, rtol=1e-9)


def test_atoms_are_kept_only_if_they_help():
    """A distribution that is already narrower than the grid is not moved by it; a target without atoms has none."""
    y = np.tile([0.0, 10.0], 50)
    sharp = Prediction(np.where(y == 0, 6.0, 4.0), np.full(100, 0.5))  # on the wrong side of the middle
    assert fit_atoms(sharp, y) is None
    assert fit_atoms(Prediction(np.zeros(100), np.ones(100)), np.arange(100.0)) is None


@pytest.mark.parametrize(
    ("values", "lower", "upper"), [([], [], []), ([1, 0], [0, 1], [1, 2]), ([0, 1], [0, 1], [2, 3])]
)
def test_atoms_are_checked(values, lower, upper):
    """A model file may be damaged."""
    with pytest.raises(ValueError, match="atoms must have ascending values and disjoint ascending intervals"):
        Atoms(*(np.array(part, dtype=float) for part in (values, lower, upper)))

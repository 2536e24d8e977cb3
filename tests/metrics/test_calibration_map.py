"""What calibration rows teach, for every kind of prediction: guarantees, atoms, quantiles, and few numbers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from hetcal.distributions import TabulatedPrediction
from hetcal.estimators.atoms import AtomicPrediction
from hetcal.families import Laplace
from hetcal.metrics.calibration_map import LEARN, MOST_KNOTS, learn_conformal
from hetcal.prediction import Prediction

FALSE_ALARM = 1e-3  # of each comparison with noise, had the seeds not been fixed
LEVELS = [0.1, 0.5, 0.9]


def inside(prediction, y, level):
    lower, upper = prediction.interval(level).T
    return (lower <= y) & (y <= upper)


@pytest.mark.parametrize(("n", "level"), [(19, 0.5), (19, 0.9), (30, 0.8)])
def test_conformal_distribution_covers_its_level(n, level):
    """One new row for each of 2,000 samples with a wrong scale and shape: as stated, or at most two ranks more."""
    random, covered, repetitions = np.random.default_rng(n), 0, 2000
    for _ in range(repetitions):
        y = random.standard_t(3, size=n + 1)
        rows = Prediction(np.full(n, 0.3), np.full(n, 0.5))
        learned = learn_conformal([(rows, y[1:])])
        covered += inside(learned.apply(rows.take([0])), y[:1], level)[0]
    assert stats.binomtest(int(covered), repetitions, level, alternative="less").pvalue > FALSE_ALARM
    assert stats.binomtest(int(covered), repetitions, level + 2 / (n + 1), alternative="greater").pvalue > FALSE_ALARM


@pytest.mark.parametrize("rows", [50, 5000])
def test_conformal_distribution_is_never_narrower_than_exact_ranks(rows):
    """At every level up to n / (n + 1), also where only some of the ranks are kept."""
    scores = np.sort(np.abs(np.random.default_rng(0).normal(size=rows)))
    learned = learn_conformal([(Prediction(np.zeros(rows), np.ones(rows)), scores)])
    levels = np.linspace(0.05, rows / (rows + 1), 400)
    needed = scores[np.ceil((rows + 1) * levels * (1 - 1e-12)).astype(int) - 1]
    lower, upper = learned.apply(Prediction(np.zeros(1), np.ones(1))).interval(levels)[0]
    assert (upper >= needed * (1 - 1e-9)).all()
    assert_allclose(lower, -upper, rtol=1e-6)
    assert len(learned.pit) <= 2 * MOST_KNOTS + 3


@pytest.mark.parametrize("method", LEARN)
@pytest.mark.parametrize("name", ["laplace", "atoms", "table"])
def test_every_kind_of_prediction_is_repaired(method, name):
    """A std three times too small: coverage of 2,000 other rows within noise; atoms cover at least their level."""
    random = np.random.default_rng(3)
    latent = random.laplace(scale=3 / np.sqrt(2), size=4000)
    y = latent if name != "atoms" else np.clip(latent.round(), -8, 8)
    base = Prediction(np.zeros(4000), np.ones(4000), family=Laplace())
    if name == "table":
        base = TabulatedPrediction(np.arange(1, 200) / 200, base.quantile(np.arange(1, 200) / 200))
    elif name == "atoms":
        values = np.arange(-8.0, 9.0)
        edges = values[:-1] + 0.5
        base = AtomicPrediction(base, values, np.append(-np.inf, edges), np.append(edges, np.inf))
    train, test = np.arange(2000), np.arange(2000, 4000)
    learned = LEARN[method]([(base.take(train), y[train])])
    prediction = learned.apply(base.take(test))
    assert (learned.method, learned.rows) == (method, 2000)
    assert type(prediction.take([0])) is type(prediction)
    noise = 4 * np.sqrt(0.9 * 0.1 / 2000) * np.sqrt(2)  # of both halves
    coverage = inside(prediction, y[test], 0.9).mean()
    assert coverage > 0.9 - noise
    assert coverage < 0.9 + noise + 0.06 * (name == "atoms")
    assert np.isfinite(prediction.crps(y[test])).all()
    assert np.isfinite(prediction.mean).all()


def test_atoms_stay_atoms():
    """A coin's distribution before and after: the same values, other probabilities."""
    n = 200
    coin = AtomicPrediction(Prediction(np.zeros(n), np.ones(n)), [0.0, 1.0], [-np.inf, 0.5], [0.5, np.inf])
    y = (np.arange(n) % 4 == 0).astype(float)
    learned = LEARN["isotonic"]([(coin, y)])
    prediction = learned.apply(coin)
    assert set(prediction.quantile([0.1, 0.6, 0.9]).ravel()) == {0.0, 1.0}
    assert_allclose(prediction.mean, 0.25, atol=0.03)
    assert_array_equal(prediction.draws, coin.draws)


def test_a_table_is_stretched_around_its_median():
    table = TabulatedPrediction([0.1, 0.5, 0.9], [[-1.0, 0.0, 3.0]], mean=[0.5], std=[1.5])
    wide = LEARN["std"]([(table, np.array([6.0]))])
    result = wide.apply(table)
    assert_allclose(result.quantiles, wide.factor * table.quantiles)
    assert_allclose([result.mean, result.std], [[0.5 * wide.factor], [1.5 * wide.factor]])


def test_rows_that_are_hit_exactly():
    """No factor can be learned; the conformal map is then none."""
    exact = [(Prediction(np.zeros(5), np.ones(5)), np.zeros(5))]
    for method in ("std", "isotonic"):
        with pytest.raises(ValueError, match="y must differ from the predicted mean in some row"):
            LEARN[method](exact)
    assert_array_equal(learn_conformal(exact).pit, learn_conformal(exact).probability)

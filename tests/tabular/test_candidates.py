"""The trial of the logarithm of y, which the default makes where it may be worth its time."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hetcal import HCRegressor
from hetcal.metrics import crps, nll
from hetcal.tabular.candidates import TRIAL_ROWS, is_clearly_better, may_need_logarithm, rows_of_trial
from hetcal.tabular.targets import check_regression_target
from hetcal.training.cross_fitting import CrossFit
from hetcal.training.settings import TRIAL_STEPS, CrossFitSettings

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (260, 3))
# A law with hardly any noise that spans two orders of magnitude.
Y = np.exp(2.5 * X[:, 0] + 0.5 * X[:, 1] + 0.02 * RANDOM.normal(size=260))
SKEWED = RANDOM.gamma(1.0, size=260) + 0.1


def prepared(y, X=X, **given):
    return HCRegressor(random_state=0)._prepare(X, y, given.get("weight"), given.get("groups"), check_regression_target)


def default(**settings):
    return HCRegressor(**{"max_steps": 250, "random_state": 0, **settings})


def fit(model, y):
    return model.fit(X[:200], y[:200])


def test_default_takes_the_logarithm_of_an_exponential_law():
    """New rows are then much likelier, and the CRPS is lower; in other units everything is the same."""
    model = fit(default(), Y)
    plain = fit(default(target_transform="identity"), Y)
    assert (model.target_transform_, plain.target_transform_) == ("log", None)
    prediction, other = model.predict_dist(X[200:]), plain.predict_dist(X[200:])
    assert nll(Y[200:], prediction) < nll(Y[200:], other) - 0.3
    assert crps(Y[200:], prediction) < crps(Y[200:], other)
    scaled = fit(default(), 1024 * Y)
    assert_allclose(scaled.predict_interval(X), 1024 * model.predict_interval(X), rtol=1e-4)


@pytest.mark.usefixtures("few_members")
def test_trial_in_vain_changes_nothing():
    """Noise that is skewed, but additive: the model is that of "identity", bit for bit."""
    y = X[:, 0] + SKEWED + 1
    assert may_need_logarithm(prepared(y))
    model, plain = (fit(default(target_transform=name), y) for name in (None, "identity"))
    assert model.target_transform_ is None
    assert_array_equal(model.predict_interval(X), plain.predict_interval(X))


@pytest.mark.usefixtures("few_members")
@pytest.mark.parametrize("settings", [{"max_seconds": 100}, {"estimator": "variance_head", "max_steps": 20}])
def test_no_trial(settings, monkeypatch):
    """Neither with a limit of time, nor for other estimators."""
    monkeypatch.setattr("hetcal.regressor.rows_of_trial", lambda rows: pytest.fail("a trial was made"))
    assert fit(default(**settings), Y).target_transform_ is None


def test_targets_that_may_need_a_logarithm():
    """Positive ones with a long tail, of enough different rows."""
    assert may_need_logarithm(prepared(SKEWED))
    assert may_need_logarithm(prepared(1e-300 * SKEWED))
    assert may_need_logarithm(prepared(1e300 * SKEWED))
    for y in (SKEWED - 0.2, SKEWED.max() + 0.1 - SKEWED, np.ones(260), np.column_stack([SKEWED, SKEWED])):
        assert not may_need_logarithm(prepared(y))
    assert not may_need_logarithm(prepared(SKEWED[:20], X[:20]))
    assert not may_need_logarithm(prepared(np.tile(SKEWED[:40], 6), np.tile(X[:40], (6, 1))))


def test_weights_count_as_rows():
    """A weight of 2 is a row given twice; a long tail of rows that hardly count is none."""
    is_tail = np.quantile(SKEWED, 0.6) < SKEWED
    rows = prepared(SKEWED, weight=np.where(is_tail, 0.5, 1.0))
    assert may_need_logarithm(rows)
    assert not may_need_logarithm(prepared(SKEWED, weight=np.where(is_tail, 1e-9, 1.0)))
    doubled = np.where(is_tail, 1, 2)
    given = prepared(np.repeat(SKEWED, doubled), np.repeat(X, doubled, axis=0))
    assert_array_equal(rows.weights * 2, given.weights)
    assert may_need_logarithm(given)


def test_rows_of_trial():
    """A sample of a large table, the same for the same seed, with its groups; a small table as it is."""
    x = RANDOM.normal(size=(3000, 2))
    y = RANDOM.gamma(1.0, size=3000) + 0.1
    groups = np.arange(3000) % 7
    rows = prepared(y, x, groups=groups)
    sample, again = rows_of_trial(rows), rows_of_trial(rows)
    assert len(sample.target) == len(sample.x) == len(sample.groups) == len(sample.weights) == TRIAL_ROWS
    assert_array_equal(sample.target, again.target)
    known = dict(zip(rows.target, rows.groups, strict=True))
    assert [known[value] for value in sample.target] == list(sample.groups)
    small = prepared(SKEWED)
    assert rows_of_trial(small) is small
    one_group = prepared(y, x, groups=np.arange(3000) == np.argmin(y))
    assert np.ptp(rows_of_trial(one_group).groups) == 1


class Judged:
    def __init__(self, log_density, crps):
        self.log_density, self.crps = np.asarray(log_density), np.asarray(crps)

    def log_densities(self, rows, judging):
        return self.log_density[judging]

    def losses(self, rows, judging):
        return self.crps[judging]


def test_clearly_better_by_the_likelihood_and_by_the_crps():
    """Both are required, and a single row does not decide."""
    rows, usual = prepared(SKEWED), Judged(np.zeros(260), np.ones(260))
    assert is_clearly_better(Judged(np.full(260, 0.4), np.full(260, 0.9)), usual, rows)
    assert not is_clearly_better(Judged(np.full(260, 0.4), np.ones(260)), usual, rows)
    assert not is_clearly_better(Judged(np.full(260, 0.2), np.full(260, 0.5)), usual, rows)
    one_row = np.where(np.arange(260) == 0, 1000.0, 0.0)
    assert not is_clearly_better(Judged(one_row, np.full(260, 0.9)), usual, rows)


def test_trial_is_short_and_silent():
    """Few steps are intended, and no reason for the warning that a limit ended training; those of the user bind too."""
    trial = CrossFitSettings(progress=True).of_trial()
    assert (trial.steps_for(500), trial.limit_for(500), trial.progress) == (TRIAL_STEPS, None, False)
    assert CrossFitSettings(max_steps=10).of_trial().steps_for(500) == 10
    assert CrossFitSettings(max_steps=TRIAL_STEPS).limit_for(500) == f"max_steps={TRIAL_STEPS}"


@pytest.mark.usefixtures("few_members")
def test_interrupted_trial_leaves_the_model_as_it_was(monkeypatch):
    look = CrossFit.look

    def press(run, *arguments):
        look(run, *arguments)
        if len(run.history) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(CrossFit, "look", press)
    model = default()
    with pytest.raises(KeyboardInterrupt):
        fit(model, Y)
    assert not hasattr(model, "estimator_")

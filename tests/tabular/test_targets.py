"""The target: what is refused, the way to the scale of training and back, and atoms learned from held-out rows."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal import HCRegressor
from hetcal.estimators.cross_ensemble import Calibration, CrossEnsemble
from hetcal.estimators.held_out import fit_shape
from hetcal.exceptions import DegenerateDataWarning
from hetcal.families import Empirical
from hetcal.metrics import ce, ce_quantile
from hetcal.prediction import Prediction
from hetcal.tabular.targets import (
    TargetScale,
    check_regression_target,
    ends_of,
    fit_target_atoms,
    is_no_better_than_constant,
    warn_of_constants,
)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([1j]), r"^y must hold real numbers; Complex data not supported, got y='complex128'"),
        (
            np.array(["a"]),
            r"^y must hold numbers, got y='str32'; use HCClassifier for classes, or convert it to numbers first$",
        ),
        (np.zeros((2, 2, 2)), r"^y must be \(n,\), or \(n, k\) for k targets, got y='array of shape \(2, 2, 2\)'"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), r"^y\[:, 1\] must be finite"),
    ],
)
def test_targets_that_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        check_regression_target(y)


def test_targets_are_floats():
    assert check_regression_target(np.array([1, 2])).dtype == np.float64
    assert check_regression_target(np.array([[1, 2], [3, 4]])).shape == (2, 2)
    assert_allclose(check_regression_target(np.array([True, False])), [1, 0])


def test_constant_targets_are_reported():
    with pytest.warns(DegenerateDataWarning, match=r"^y is constant \(3\); its predictive standard deviation is mean"):
        warn_of_constants(np.column_stack([np.full(4, 3.0), np.arange(4)]))


@pytest.mark.parametrize("name", [None, "log", "yeo-johnson", "quantile"])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_scale_of_training_and_back(name, n_targets):
    """Mean 0 and variance 1 where it is trained; the median of a prediction at y itself comes back as y."""
    rng = np.random.default_rng(0)
    y = np.exp(rng.normal(size=(300, n_targets)))
    y = y[:, 0] if n_targets == 1 else y
    scale = TargetScale.fit(name, y, np.ones(300))
    z = scale.forward(y)
    assert_allclose(z.mean(0), 0, atol=1e-9)
    assert_allclose(z.std(0), 1)
    assert_allclose(scale.standardize(y), z, atol=1e-6)
    assert scale.standardize(y).dtype == np.float32
    prediction = scale.in_units_of_y(Prediction(z, np.full_like(z, 1e-9)))
    assert_allclose(prediction.quantile(0.5), y, rtol=1e-5, atol=1e-6)


def test_rows_that_judge_a_transform_do_not_shape_it():
    y = np.exp(np.random.default_rng(0).normal(size=200))
    weights = np.append(np.ones(150), np.zeros(50))
    changed = y.copy()
    changed[150:] *= 7
    first, second = (TargetScale.fit("quantile", values, np.ones(200), weights) for values in (y, changed))
    assert_allclose(first.transform.forward(y[:150]), second.transform.forward(y[:150]))


def test_infinite_ends_stay_so():
    scale = TargetScale.fit("log", np.array([1.0, 2.0, 4.0, 8.0]), np.ones(4))
    ends = ends_of(np.array([-np.inf, 2.0, np.inf]), scale)
    assert_allclose(ends, [-np.inf, float(scale.forward(np.array([2.0]))[0]), np.inf])
    assert_allclose(ends_of(np.array([-np.inf, np.inf]), scale), [-np.inf, np.inf])


# --- atoms, from held-out rows whose law is known --------------------------------------------------------------------


def grades(latent):
    return np.clip(np.round(latent), 3, 8)


def counts(latent):
    return np.maximum(np.round(latent), 0)


def capped(latent):
    return np.minimum(latent, 6.5)


def mostly_lowest(latent):
    return np.maximum(latent, 5.5)


def continuous(latent):
    return latent


def simulated(observe, n=3000, seed=0, name=None):
    """Held-out locations and scales, the target that is observed, its scale, and an ensemble with its first shape."""
    rng = np.random.default_rng(seed)
    center, sigma = rng.normal(5.5, 1.0, n), rng.uniform(0.3, 1.2, n)
    if name == "log":
        center, sigma = np.log(np.maximum(center, 1)), sigma / 8
    latent = center + sigma * rng.normal(size=n)
    y = observe(np.exp(latent) if name == "log" else latent)
    scale = TargetScale.fit(name, y, np.ones(n))
    location = scale.scaler.transform(center)
    width = scale.scaler.transform(center + sigma) - location
    calibration = Calibration(location[:, None], width[:, None])
    ensemble = CrossEnsemble(nn.Identity(), n_groups=2, n_parts=4, n_inputs=1, n_numbers=0)
    residuals = (scale.forward(y) - location) / width
    ensemble.set_shapes([fit_shape(residuals, np.ones(n))])
    return ensemble, calibration, scale, y


@pytest.mark.parametrize("observe", [grades, counts, capped])
def test_latent_shape_is_learned(observe):
    """The latent noise is normal, and so is the shape, because the rounding is not counted as noise."""
    ensemble, calibration, scale, y = simulated(observe)
    fit_target_atoms(ensemble, calibration, scale, y, np.ones(len(y)))
    quartiles = Empirical(ensemble.shape[0].numpy()).quantile([0.25, 0.5, 0.75])
    assert_allclose(quartiles, [-0.674, 0, 0.674], atol=0.12)


@pytest.mark.parametrize("observe", [grades, counts, capped, mostly_lowest])
def test_atoms_are_found_and_calibrated(observe):
    """The distribution with atoms is calibrated by the randomized PIT, and has a lower CRPS than without them.

    The bound is the 99.9 % quantile of the calibration error of a perfect model (false-alarm rate 0.1 %).
    """
    ensemble, calibration, scale, y = simulated(observe)
    before = ensemble.shape.clone()
    plain = scale.in_units_of_y(calibration.calibrated(ensemble))
    atoms = fit_target_atoms(ensemble, calibration, scale, y, np.ones(len(y)))
    assert atoms is not None
    assert set(atoms.values) <= set(y)
    assert not torch.equal(before, ensemble.shape)
    prediction = atoms.apply(scale.in_units_of_y(calibration.calibrated(ensemble)))
    assert ce(y, prediction) < ce_quantile(len(y), 0.999)
    assert prediction.crps(y).mean() < plain.crps(y).mean()
    lower, upper = prediction.interval(0.9).T
    assert np.mean((lower <= y) & (y <= upper)) > 0.9 - 3 * np.sqrt(0.09 / len(y))


def test_continuous_targets_have_no_atoms():
    """The shape stays as it is."""
    ensemble, calibration, scale, y = simulated(continuous)
    before = ensemble.shape.clone()
    assert fit_target_atoms(ensemble, calibration, scale, y, np.ones(len(y))) is None
    assert torch.equal(before, ensemble.shape)


def test_atoms_under_a_transform():
    """Grades of a target that is trained by its logarithm: intervals of the latent logarithm."""
    ensemble, calibration, scale, y = simulated(lambda latent: np.clip(np.round(latent), 1, 12), name="log")
    atoms = fit_target_atoms(ensemble, calibration, scale, y, np.ones(len(y)))
    assert atoms is not None
    prediction = atoms.apply(scale.in_units_of_y(calibration.calibrated(ensemble)))
    assert set(np.unique(prediction.quantile(0.5))) <= set(y)
    assert ce(y, prediction) < ce_quantile(len(y), 0.999)


def test_weights_count_as_rows():
    """A value that only rows of weight 0 have is no atom."""
    ensemble, calibration, scale, y = simulated(grades)
    weights = (y < 8).astype(float)
    assert fit_target_atoms(ensemble, calibration, scale, y, weights).values.max() < 8


def test_intervals_of_a_regressor_end_on_atoms():
    """Grades from 1 to 5, few steps: ends and medians are grades, and the intervals cover at least their level."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 2))
    y = np.clip(np.round(3 + X[:, 0] + 0.5 * rng.normal(size=240)), 1, 5)
    model = HCRegressor(width=8, depth=1, max_steps=60, learning_rate=0.02, random_state=0).fit(X[:160], y[:160])
    assert_allclose(model.atoms_.values, np.arange(1, 6))
    interval = model.predict_interval(X, level=0.8)
    assert set(np.unique(interval)) <= set(np.arange(1.0, 6))
    assert set(np.unique(model.predict_quantiles(X, 0.5))) <= set(np.arange(1.0, 6))
    covered = (interval[160:, 0] <= y[160:]) & (y[160:] <= interval[160:, 1])
    assert covered.mean() > 0.8 - 3 * np.sqrt(0.16 / 80)  # three standard errors: false-alarm rate 0.1 %


def test_a_regressor_of_a_continuous_target_has_no_atoms():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    model = HCRegressor(width=8, depth=1, max_steps=5, random_state=0).fit(X, X[:, 0] + rng.normal(size=80))
    assert model.atoms_ is None


def constant(y):
    """The prediction of every row by the others: their mean and standard deviation."""
    return Prediction(np.array([np.delete(y, i).mean() for i in range(len(y))]), np.full(len(y), y.std()))


def test_predictions_no_better_than_a_constant():
    """A constant is no better than itself; a mean or a noise that depends on X is. Weights count like rows."""
    rng = np.random.default_rng(0)
    noise, x = rng.normal(size=200), rng.uniform(0.1, 3, 200)
    weights = np.ones(200)
    assert is_no_better_than_constant(constant(noise), noise, weights)
    assert is_no_better_than_constant(Prediction(rng.normal(size=200), np.ones(200)), noise, weights)
    signal = 0.3 * x + noise
    assert not is_no_better_than_constant(Prediction(0.3 * x, np.ones(200)), signal, weights)
    spread = x * noise  # its mean is 0 for every x
    center = np.full(200, spread.mean() + 0.2)
    assert not is_no_better_than_constant(Prediction(center, x), spread, weights)
    assert is_no_better_than_constant(Prediction(center, np.full(200, spread.std())), spread, weights)
    wrong = np.where(np.arange(200) < 100, 0.3 * x, -2.0)
    assert is_no_better_than_constant(Prediction(wrong, np.ones(200)), signal, weights)
    half = np.where(np.arange(200) < 100, 1.0, 0.0)
    assert not is_no_better_than_constant(Prediction(wrong, np.ones(200)), signal, half)


def test_one_target_of_several_that_is_predicted_is_enough():
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 100))
    y = np.stack([x, noise], axis=1)
    std = np.full(y.shape, 0.5)
    assert not is_no_better_than_constant(Prediction(np.stack([x, -noise], axis=1), std), y, np.ones(100))
    assert is_no_better_than_constant(Prediction(-y, std), y, np.ones(100))

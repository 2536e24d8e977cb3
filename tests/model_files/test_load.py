"""`hetcal.load` with the user's own objects, and what it says if they are missing or do not fit."""

import warnings

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

import hetcal
from hetcal import HCClassifier, HCRegressor, load
from hetcal.classifier import probit
from hetcal.estimators import ESTIMATORS, VarianceHead
from hetcal.estimators.uninformative import ConstantSigma
from hetcal.exceptions import DropoutInsertedWarning, ModelFileError
from hetcal.model_files.archive import read_model_file
from hetcal.networks import MLP
from hetcal.objectives import nll_loss
from tests.model_files.round_trip import SMALL, X, Y, check_round_trip, factory
from tests.model_files.samples import fit_small


class Wide(nn.Module):
    """A user's own network, with statistics, tied weights, a mask with infinities and no dropout."""

    def __init__(self, n_inputs, n_outputs, width=8):
        super().__init__()
        self.first, self.norm = nn.Linear(n_inputs, width), nn.BatchNorm1d(width)
        self.second, self.third = nn.Linear(width, width), nn.Linear(width, width)
        self.third.weight = self.second.weight
        self.last = nn.Linear(width, n_outputs)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf] + [0.0] * (width - 2)))

    def forward(self, x):
        h = self.norm(self.first(x)).relu()
        return self.last(self.third(self.second(h).relu()) * self.mask.softmax(0))


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_own_network(tmp_path, estimator):
    """A class, a factory and a module; the file has their weights, `load` is given the network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DropoutInsertedWarning)
        model = HCRegressor(estimator, network=Wide, **SMALL).fit(X, Y)
    loaded = check_round_trip(model, tmp_path / "model", network=Wide)
    assert loaded.network is Wide
    model = HCRegressor(estimator, network=factory, **SMALL).fit(X, Y)
    check_round_trip(model, tmp_path / "model", network=factory)
    module = factory(read_model_file(tmp_path / "model").model.n_inputs, ESTIMATORS[estimator].n_outputs)
    model = HCRegressor(estimator, network=module, **SMALL).fit(X, Y)
    check_round_trip(model, tmp_path / "model", network=module)


def test_own_network_that_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    HCRegressor("variance_head", network=factory, **SMALL).fit(X, Y).save("model.hetcal")
    with pytest.raises(ModelFileError) as caught:
        load("model.hetcal", network=lambda n_inputs, n_outputs: MLP(n_inputs, n_outputs, width=6, depth=2))
    assert str(caught.value) == (
        "model.hetcal must fit the network it is loaded with, got 'network.3.bias' F32 of shape (2,) where F32 of "
        "shape (6,) is needed; 'network.3.weight' F32 of shape (2, 6) where F32 of shape (6, 6) is needed, and 2 more; "
        "give what the model was fitted with"
    )
    with pytest.raises(ModelFileError, match="must fit the network it is loaded with, got network must accept rows of"):
        load("model.hetcal", network=nn.Linear(3, 2))
    with pytest.raises(ModelFileError) as caught:
        load("model.hetcal")
    assert str(caught.value) == (
        "model.hetcal must be loaded with your own network that it was fitted with, got network=None; write "
        "hetcal.load('model.hetcal', network=...)"
    )


def test_what_a_file_does_not_need(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit_small().save("model.hetcal")
    for handed in ({"network": factory}, {"estimator": "ensemble"}, {"objective": nll_loss}, {"likelihood": probit}):
        (name,) = handed
        rule = f"be loaded without {name}, because it was not fitted with one of your own"
        with pytest.raises(ModelFileError, match=rf"^model.hetcal must {rule}, got {name}=.*; omit {name}$"):
            load("model.hetcal", **handed)


class Shifted(VarianceHead):
    """A user's own estimator, with a setting and a parameter that the others do not have."""

    def __init__(self, network, *, shift=0.0, n_targets=1, seed=0):
        super().__init__(network, n_targets=n_targets, seed=seed)
        self.shift, self.raw_more = shift, nn.Parameter(torch.ones(()))

    def forward(self, x):
        prediction = super().forward(x)
        return prediction.scaled(1.0, self.shift * self.raw_more)


def own_objective(prediction, y):
    return (prediction.mean - y).abs() + prediction.std


def own_likelihood(prediction):
    return torch.log_softmax(2 * prediction.mean, dim=1)


def test_own_estimator_objective_and_likelihood(tmp_path):
    """The user's own objects are given to `load`; it asks for all that are missing."""
    options = {"estimator_options": {"shift": 0.5}}
    model = HCRegressor(Shifted, own_objective, **options, **SMALL).fit(X, Y)
    loaded = check_round_trip(model, tmp_path / "model", estimator=Shifted, objective=own_objective)
    assert loaded.get_params() == model.get_params()
    with pytest.raises(ModelFileError, match="loaded with your own objective"):
        load(tmp_path / "model", estimator=Shifted)
    with pytest.raises(
        ModelFileError, match="fit the estimator and objective it is loaded with, got estimator_options"
    ):
        load(tmp_path / "model", estimator=ConstantSigma, objective=own_objective)
    model = HCClassifier(Shifted, own_likelihood, **options, **SMALL).fit(X, Y > 1)
    check_round_trip(model, tmp_path / "model", estimator=Shifted, likelihood=own_likelihood)
    model = hetcal.make("random_sigma", **SMALL).fit(X, Y)
    check_round_trip(model, tmp_path / "model", estimator=model.estimator)


def test_another_number_of_threads(tmp_path):
    model = HCRegressor("ensemble", **SMALL).fit(X, Y)
    model.save(tmp_path / "model")
    threads = torch.get_num_threads()
    expected = model.predict(X, return_std=True)
    try:
        torch.set_num_threads(threads + 1)
        assert_allclose(load(tmp_path / "model").predict(X, return_std=True), expected, rtol=1e-5)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("method", ["conformal", "isotonic", "std"])
@pytest.mark.parametrize("target_transform", [None, "log"])
def test_a_recalibrated_model(tmp_path, method, target_transform):
    """The file holds the correction; the loaded model gives the recalibrated intervals, bit for bit."""
    model = HCRegressor("variance_head", target_transform=target_transform, **SMALL).fit(X, Y)
    plain = model.predict_interval(X)
    model.recalibrate(X, Y, method)
    assert (model.predict_interval(X) != plain).any()
    loaded = check_round_trip(model, tmp_path / "m.hetcal")
    assert loaded.recalibration_.method == method

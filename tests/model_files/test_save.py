"""`model.save`: what it writes besides the model, what it leaves alone, and what it refuses to write."""

import random
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import nn

from hetcal import HCRegressor, load
from hetcal.families import Family
from hetcal.metrics.history import History
from hetcal.model_files.archive import read_model_file
from tests.model_files.round_trip import SMALL, X, Y, factory
from tests.model_files.samples import fit_small


def global_state():
    return (
        torch.random.get_rng_state().tolist(),
        str(np.random.get_state()),  # noqa: NPY002
        random.getstate(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        list(warnings.filters),
    )


def test_global_state_is_left_alone(tmp_path):
    """By save and by load, also for a user's own network, which draws its first weights from torch's generator."""
    model = HCRegressor(network=factory, **SMALL).fit(X, Y)
    before = global_state()
    model.save(tmp_path / "model")
    assert global_state() == before
    loaded = load(tmp_path / "model", network=factory)
    assert global_state() == before
    assert not loaded.estimator_.training


def test_saving_changes_nothing(tmp_path):
    model = HCRegressor("concrete_dropout", **SMALL).fit(X, Y)
    weights = {name: value.clone() for name, value in model.estimator_.state_dict().items()}
    names, before = set(vars(model)), model.predict(X)
    model.save(tmp_path / "model")
    assert set(vars(model)) == names
    assert_array_equal(model.predict(X), before)
    for name, value in model.estimator_.state_dict().items():
        assert torch.equal(value, weights[name])


def test_history_and_summary(tmp_path):
    """The curves come back, also where they are not finite; the list of validation rows does not."""
    model = fit_small(max_epochs=3)
    model.history_.criterion[:2] = [np.inf, np.nan]
    created = "2024-02-29T12:00:00+00:00"
    said = {"target": "<y>", "dropped": ["id"], "rows": np.int64(30), "metrics": {"nll": np.inf}, "created": created}
    model.save(tmp_path / "model", summary=said)
    history = load(tmp_path / "model").history_
    assert history.train == model.history_.train
    assert history.validation == model.history_.validation
    assert_array_equal(history.criterion, model.history_.criterion)
    assert (history.best_epoch, history.stopped) == (model.history_.best_epoch, model.history_.stopped)
    assert model.history_.validation_rows
    assert history.validation_rows == []
    summary = read_model_file(tmp_path / "model").summary
    assert (summary.target, summary.dropped, summary.rows, summary.group) == ("<y>", ["id"], 30, None)
    assert summary.metrics == {"nll": "inf"}
    with pytest.raises(ValueError, match=r"summary must be one of .*, got summary='targets'; did you mean 'target'"):
        model.save(tmp_path / "model", summary={"targets": "y"})
    with pytest.raises(ValueError, match=r"summary must follow its schema, got rows=-1 .*; see .*SummaryDocument"):
        model.save(tmp_path / "model", summary={"rows": -1})


def test_a_history_without_end_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("hetcal.model_files.schema.MOST_EPOCHS", 2)
    fit_small(max_epochs=3).save(tmp_path / "model")
    assert read_model_file(tmp_path / "model").summary.history is None
    assert load(tmp_path / "model").history_ == History()


class Forgetful(nn.Module):
    """Keeps what it learns outside of parameters and buffers."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.layer, self.seen = nn.Linear(n_inputs, n_outputs), 0

    def forward(self, x):
        self.seen += self.training
        return self.layer(x) + self.seen


class Clamped(nn.Module):
    """Keeps the range of its inputs in a number, which matters far from the middle only."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.layer, self.top = nn.Linear(n_inputs, n_outputs), 1.5

    def forward(self, x):
        if self.training:
            self.top = max(self.top, float(x.abs().max()))
        return self.layer(x.clamp(-self.top, self.top))


class Drifting(Forgetful):
    """Forgets little: the fifth digit of its answers."""

    def forward(self, x):
        self.seen += self.training
        return self.layer(x) * (1 + 1e-5 * self.seen)


class Talkative(Forgetful):
    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]


class Own(Family):
    name = "own"


def test_models_that_would_not_come_back_are_not_saved(tmp_path):
    """A save that succeeds is a file that loads: everything else is said when there is still a model to save."""
    path = tmp_path / "model"
    with pytest.raises(ValueError, match="not fitted"):
        HCRegressor().save(path)
    for changes, found in [
        ({"width": 5}, "'network.0.bias' F32 of shape \\(4,\\) where F32 of shape \\(5,\\) is needed"),
        ({"dropout": 0.7}, "another prediction from the model as it would be loaded"),
        ({"estimator": "variance_head"}, "'network.3.bias' F32 of shape \\(1,\\) where"),
        ({"estimator_options": {"prediction_samples": 7}}, "another prediction"),
    ]:
        model = fit_small().set_params(**changes)
        with pytest.raises(
            ValueError, match="the model must be determined by its settings and weights, got .*" + found
        ):
            model.save(path)
    for changes, found in [
        ({"width": "wide"}, "settings.width='wide' .Input should be a valid integer"),
        (
            {"estimator_options": {"rate": 0.2, "prediction_samples": 10**6}},
            "settings .prediction_samples is from 1 to",
        ),
        ({"estimator_options": {"rate": object()}}, "settings.estimator_options.rate"),
    ]:
        with pytest.raises(ValueError, match="the model must fit into a model file, got " + found):
            fit_small().set_params(**changes).save(path)
    for network, found in [
        (Forgetful, "another prediction from the model as it would be loaded"),
        (Clamped, "another prediction from the model as it would be loaded"),
        (Drifting, "another prediction from the model as it would be loaded"),
        (Talkative, "the network must keep only tensors of common dtypes in its state_dict, got .*_extra_state"),
    ]:
        with pytest.raises(ValueError, match=found):
            HCRegressor("variance_head", network=network, **SMALL).fit(X, Y).save(path)
    model = fit_small()
    with torch.no_grad():
        next(model.estimator_.parameters())[0] = torch.nan
    with pytest.raises(ValueError, match=r"weights must be from -1e\+18 to 1e\+18, got nan in 'network.0.weight'"):
        model.save(path)
    with pytest.raises(ValueError, match=r"family must be one of .* to be saved, got family=<.*Own"):
        fit_small().set_params(family=Own()).save(path)
    for changes, found in [
        ({"width": 5}, "fit into a model file, got .*the width of the members is that of the settings"),
        ({"depth": 2}, "determined by its settings and weights, got .*'networks.biases.1' nothing where F32"),
        ({"patience": 5}, "determined by its settings .*patience must be None for the estimator 'cross_ensemble'"),
    ]:
        with pytest.raises(ValueError, match=found):
            fit_small(estimator="cross_ensemble").set_params(**changes).save(path)
    assert list(tmp_path.iterdir()) == []

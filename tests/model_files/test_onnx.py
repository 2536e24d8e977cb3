"""The exported graph, run by the real onnxruntime, answers what the model answers; nothing else changes.

Exporting takes a second or more, so each test combines what it can.
"""

import copy
import logging
import random
import re
import sys
import warnings
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from google.protobuf.text_format import MessageToString
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

import hetcal
from hetcal import HCClassifier, HCRegressor
from hetcal.estimators import boosted_members, forest_members
from hetcal.estimators.uninformative import ConstantSigma
from hetcal.model_files.onnx import OPSET, Graph, export_onnx, graph_metadata, inverse
from hetcal.training import parts
from hetcal.transforms import TRANSFORMS, PerTarget

# In standard deviations for the mean, relative for the std.
TOLERANCE = 1e-5
COLUMNS = ["tiny", "stamp", "large"]


def table(n, seed):
    """Units of 1e-12 and 1e9, and a column with an offset that float32 would swallow; two of them have gaps."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1e-12, 1, 1e9] + [0, 1.7e9, 0]
    X[rng.random(n) < 0.2, 0] = np.nan
    X[rng.random(n) < 0.1, 2] = np.nan
    return X


def target(X):
    """Positive, skewed, with gaps in X as its own case."""
    noise = np.random.default_rng(5).normal(size=len(X))
    return np.exp(0.5 * np.nan_to_num(X[:, 0] * 1e12, nan=1.0) + 0.3 * noise)


class Residual(nn.Module):
    """A user's network: skips, two kinds of norm, and a head."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.first = nn.Linear(n_inputs, 16)
        self.block = nn.Sequential(nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.LayerNorm(16))
        self.head = nn.Linear(16, n_outputs)

    def forward(self, x):
        h = self.first(x)
        return self.head(h + self.block(h))


class SharedDropout(nn.Module):
    """One dropout layer at two widths: masks of two shapes."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(n_inputs, 16), nn.Linear(16, 8), nn.Linear(8, n_outputs)])
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.dropout(layer(x).relu())
        return self.layers[-1](x)


# estimator -> settings, number of targets
CASES = {
    "cross_ensemble": ({}, 1),
    "mc_dropout": ({}, 1),
    "concrete_dropout": ({"network": SharedDropout}, 1),
    "bayes_by_backprop": ({"family": "student_t"}, 1),
    "quantile_range": ({}, 1),
    "simultaneous_quantiles": ({}, 1),
    "variance_head": ({}, 1),
    "ensemble": ({"network": Residual, "estimator_options": {"members": 2}}, 2),
    "ensemble_spread": ({"estimator_options": {"members": 4}}, 1),
}


def fit(X, y, **settings):
    model = HCRegressor(width=16, depth=2, max_epochs=3, random_state=0, **settings)
    return model.fit(pd.DataFrame(X, columns=COLUMNS), y)


@cache
def fitted(case):
    X = table(200, seed=0)
    y = target(X)
    if case == "members":
        y = np.column_stack([1e6 + y, 1e-9 * y[::-1]])
        return fit(X, y, network=Residual, target_transform="yeo-johnson")
    if case == "transforms":
        y = np.column_stack([y] * len(TRANSFORMS))
        model = fit(X, y, estimator="variance_head", family="student_t", target_transform="yeo-johnson")
        # All of them in one graph. In truth one serves all targets, but each on its own.
        model.transform_ = PerTarget([make().fit(y[:, 0], np.ones(200)) for make in TRANSFORMS.values()])
        return model
    settings, n_targets = CASES[case]
    y = 1e6 + y if n_targets == 1 else np.column_stack([1e6 + y, 1e-9 * y[::-1]])
    return fit(X, y, estimator=case, **settings)


@pytest.fixture(scope="module", autouse=True)
def _small_pools():
    """Two levels of each tree, four members of a user's network: more of the same operations take long to export."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forest_members, "MOST_DEPTH", 2)
        patch.setattr(boosted_members, "MEAN_DEPTH", 2)
        patch.setattr(boosted_members, "STD_DEPTH", 2)
        patch.setattr(parts, "PARTS_OF_FEWER_ROWS", 2)
        yield


@pytest.fixture(scope="module", autouse=True)
def _one_table_of_operations():
    """torch builds the same table of operations for each export, which takes a second; here it is built once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The path of a case's graph, which is exported once."""
    folder = tmp_path_factory.mktemp("graphs")

    @cache
    def export(case):
        export_onnx(fitted(case), folder / f"{case}.onnx")
        return folder / f"{case}.onnx"

    return export


def assert_agree(answer, model, X):
    mean, std = model.predict(pd.DataFrame(X, columns=COLUMNS), return_std=True)
    assert answer[0].dtype == answer[1].dtype == np.float64
    assert answer[0].shape == answer[1].shape == mean.shape
    assert_allclose((answer[0] - mean) / std, 0, atol=TOLERANCE)
    assert_allclose(answer[1], std, rtol=TOLERANCE)


@pytest.mark.parametrize("case", [*CASES, "transforms", "members"])
def test_onnxruntime_agrees(case, exported):
    """Every estimator and transform, another family, several targets, users' networks; gaps, offsets and units.

    One session takes batches of any size.
    """
    X = table(1000, seed=1)
    X[3] = np.nan  # one of these columns had no gap in fit
    if case != "transforms":  # exp would amplify the rounding errors of such means, 1e54 in the units of y
        X[4], X[5] = 1e250, -1e250
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(exported(case), options, providers=["CPUExecutionProvider"])
    for n in (1000, 1, 7):
        assert_agree(session.run(["mean", "std"], {"features": X[:n]}), fitted(case), X[:n])


def test_every_estimator_is_exported():
    """A new estimator must be tested here, too."""
    assert set(CASES) == set(HCRegressor.registries["estimator"])


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("family", ["gaussian", "laplace", "student_t"])
def test_graph_before_translation(transform, family):
    """What is traced agrees, for all that is too much to translate: transforms with families, a fit without gaps."""
    X = np.nan_to_num(table(200, seed=0), nan=0.0)
    y = target(X) if transform == "log" else target(X) - 1e6
    model = fit(X, y, estimator="variance_head", family=family, target_transform=transform)
    with torch.no_grad():
        answer = Graph(model)(torch.from_numpy(table(50, seed=1)))
    assert_agree([part.numpy() for part in answer], model, table(50, seed=1))


@pytest.mark.parametrize("transform", [None, *TRANSFORMS])
@pytest.mark.parametrize("widening", [0.0, 2.0])
def test_graph_of_members(transform, widening):
    """The default: with the shape of its residuals, wider where its groups disagree or not, with two targets."""
    X = table(200, seed=0)
    model = fit(X, np.column_stack([target(X), 1e6 + target(X[::-1])]), target_transform=transform)
    model.estimator_.widening.fill_(widening)
    with torch.no_grad():
        answer = Graph(model)(torch.from_numpy(table(50, seed=1)))
    assert_agree([part.numpy() for part in answer], model, table(50, seed=1))


def test_refuses_atoms(tmp_path):
    X = table(200, seed=0)
    model = fit(X, np.round(2 * target(X)))
    message = "be of a target without values that many rows share for ONNX, got model='one of .*; the graph has no prob"
    with pytest.raises(ValueError, match=message):
        export_onnx(model, tmp_path / "model.onnx")


def global_state(model):
    estimator = model.estimator_
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": str(np.random.get_state()),  # noqa: NPY002
        "random": random.getstate(),
        "warnings": list(warnings.filters),
        "level": logging.getLogger("torch.onnx").level,
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "training": [module.training for module in estimator.modules()],
        "weights": [(weight.tolist(), weight.requires_grad) for weight in estimator.parameters()],
    }


def test_only_a_file_is_written(exported, tmp_path, capfd):
    """Model and globals stay as they were, nothing is printed, no warning leaks; the same model, the same bytes."""
    model, X = copy.deepcopy(fitted("mc_dropout")), pd.DataFrame(table(50, seed=2), columns=COLUMNS)
    model.estimator_.train()
    before, mean = global_state(model), model.predict(X)
    first = exported("mc_dropout").read_bytes()
    capfd.readouterr()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export_onnx(model, str(tmp_path / "model.onnx"))
    assert not caught
    assert capfd.readouterr() == ("", "")
    assert global_state(model) == before
    assert_array_equal(model.predict(X), mean)
    assert (tmp_path / "model.onnx").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_what_the_file_says(exported):
    """Names and shapes of inputs and outputs, the opset, the metadata; nothing of the machine that wrote it."""
    file = onnx.load(exported("mc_dropout"))
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*file.graph.input, *file.graph.output)
    }
    assert shapes == {"features": ["batch", 3], "mean": ["batch"], "std": ["batch"]}
    assert [(opset.domain, opset.version) for opset in file.opset_import] == [("", OPSET)]
    assert {prop.key: prop.value for prop in file.metadata_props} == {
        "hetcal_version": hetcal.__version__,
        "estimator": "mc_dropout",
        "family": "gaussian",
        "target_transform": "None",
        "n_targets": "1",
        "columns": '["tiny", "stamp", "large"]',
    }
    assert len(file.graph.node) < 60  # passes are a batch, not copies of the network
    for tensor in file.graph.initializer:
        tensor.ClearField("raw_data")
    assert not re.search(r"\.py|/|torch", MessageToString(file))  # no file name, no stack trace


def test_metadata_of_unusual_models():
    """Estimators without a registered name, several targets, another family, names in any script."""
    X = pd.DataFrame({"größe": np.arange(20.0), "年齢": np.arange(20.0) ** 2})
    model = HCRegressor(ConstantSigma, family="laplace", width=4, depth=1, max_epochs=1, random_state=0)
    said = graph_metadata(model.fit(X, X.to_numpy()))
    assert (said["estimator"], said["family"], said["n_targets"]) == ("ConstantSigma", "laplace", "2")
    assert said["columns"] == '["größe", "年齢"]'


@pytest.mark.parametrize("name", TRANSFORMS)
def test_inverse_of_transforms(name):
    """On tensors what `inverse` is on arrays: at knots, between and far beyond them, and for several targets."""
    y = np.random.default_rng(1).lognormal(size=300)
    t = np.concatenate([np.linspace(-8, 8, 1001), [0.0, -1e3, 1e3, -1e305, 1e305]])
    targets = (y, y[:5], np.full(3, 2.0), 50 - 0.9 * np.minimum(y, 50))
    fits = [TRANSFORMS[name]().fit(part, np.ones(len(part))) for part in targets]
    for transform in fits:
        knots = getattr(transform, "scores", np.zeros(1))
        nodes = np.concatenate([t, knots])
        assert_allclose(inverse(transform, torch.from_numpy(nodes)), transform.inverse(nodes), rtol=1e-12, atol=1e-14)
    several = PerTarget(fits)
    nodes = np.random.default_rng(2).normal(size=(7, len(fits), 5))
    assert_allclose(inverse(several, torch.from_numpy(nodes)), several.inverse(nodes), rtol=1e-12, atol=1e-14)


def small_regressor(X, **settings):
    y = np.linspace(0, 1, len(X))
    return HCRegressor("variance_head", width=4, depth=1, max_epochs=1, random_state=0, **settings).fit(X, y)


def test_refuses_text_and_dates(tmp_path):
    """One sentence that names the columns; the old file stays."""
    days = pd.date_range("2024-01-01", periods=20)
    model = small_regressor(pd.DataFrame({"age": np.arange(20.0), "town": ["Ulm", "Bonn"] * 10, "day": days}))
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    message = (
        "model must be fitted on numeric columns for ONNX, got model={'town': 'text', 'day': 'dates'}; "
        "the graph accepts only numbers; encode or drop 'town', 'day' and fit again"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        export_onnx(model, path)
    assert path.read_bytes() == b"old"


def test_refuses_what_has_no_mean_and_std(tmp_path):
    """Unfitted models and classifiers."""
    with pytest.raises(NotFittedError, match="not fitted yet"):
        export_onnx(HCRegressor(), tmp_path / "model.onnx")
    message = "model must be an HCRegressor for ONNX, got model='HCClassifier'; the graph returns mean and std"
    with pytest.raises(TypeError, match=message):
        export_onnx(HCClassifier(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


class FixedRows(nn.Linear):
    def forward(self, x):
        return super().forward(x) * len(x)


def test_refuses_a_network_that_torch_cannot_export(tmp_path):
    """With what torch says, in one line, and what to do."""
    model = small_regressor(np.random.default_rng(0).normal(size=(20, 2)), network=FixedRows)
    message = "network must be exportable to ONNX by torch, for any number of rows, got network=.*batch"
    with pytest.raises(ValueError, match=message) as caught:
        export_onnx(model, tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["onnx", "onnxscript"])
def test_says_which_extra_is_missing(module, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=re.escape("pip install 'hetcal[onnx]'")):
        export_onnx(fitted("variance_head"), tmp_path / "model.onnx")

"""Leaving out dropped units changes nothing but the time."""

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal.estimators import MCDropout, predict
from hetcal.estimators import thinned as thinned_module
from hetcal.networks import MLP, global_seed

X = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))


def chain(*layers):
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.3), *layers, nn.Linear(16, 1))


with global_seed(0):
    THINNED = {
        "mlp": MLP(4, width=16, dropout=0.4),
        "other activation": chain(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.3)),
        "no bias": chain(nn.Linear(16, 16, bias=False), nn.ReLU(), nn.Dropout(0.3)),
        "a layer without dropout behind": chain(nn.Linear(16, 16), nn.Sigmoid()),
        "almost everything dropped": MLP(4, width=8, depth=2, dropout=0.95),
    }
    GENERAL = {
        "normalization": chain(nn.Linear(16, 16), nn.LayerNorm(16), nn.Dropout(0.3)),
        "dropout before the activation": chain(nn.Linear(16, 16), nn.Dropout(0.3), nn.Sigmoid()),
        "dropout at the end": nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1), nn.Dropout(0.3)),
        "nested": nn.Sequential(nn.Linear(4, 16), nn.Sequential(nn.Dropout(0.3), nn.Linear(16, 1))),
    }


@pytest.mark.parametrize("case", [*THINNED, *GENERAL])
def test_same_answers(case):
    """Prediction equals the estimator in evaluation mode, thinned where the chain allows, in general elsewhere."""
    estimator = MCDropout({**THINNED, **GENERAL}[case], prediction_samples=15).eval()
    expected, got = estimator(X), predict(estimator, X)
    assert (estimator.frozen() is not None) == (case in THINNED)
    assert_allclose(got.mean, expected.mean.detach(), atol=1e-5)
    # Where all passes agree, std is its floor of 1e-6 and whatever rounding adds to it.
    assert_allclose(got.std, expected.std.detach(), rtol=1e-4, atol=1e-8)


def test_memory_limit(monkeypatch):
    """A network whose thinned copies would take too much memory predicts the general way."""
    monkeypatch.setattr(thinned_module, "MEMORY_LIMIT", 1000)
    estimator = MCDropout(MLP(4, dropout=0.2))
    assert predict(estimator, X).mean.shape == (9,)
    assert estimator.frozen() is None


class Twice(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    "end",
    [[nn.Linear(16, 1), nn.ReLU()], [nn.Linear(16, 1), nn.Softplus()], [Twice(16, 1)]],
    ids=["relu", "softplus", "subclass"],
)
def test_what_is_not_thinned_predicts_the_general_way(end):
    """A chain that ends in an activation, or holds a layer with a forward of its own, predicts what it computes."""
    generator = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.3), *end)
    for parameter in network.parameters():
        nn.init.uniform_(parameter, 0.1, 0.5, generator=generator)
    estimator = MCDropout(network).eval()
    x = torch.rand(8, 3, generator=generator)
    assert_allclose(predict(estimator, x).mean, estimator(x).mean.detach(), rtol=1e-5)

"""Prediction in blocks, estimators that do not inherit, and which parameters decay."""

import copy

import pytest
import torch
from torch import nn

from hetcal.estimators import (
    AbstractEstimator,
    BayesByBackprop,
    ConcreteDropout,
    Ensemble,
    VarianceHead,
    WithFamily,
    parameter_groups,
    predict,
)
from hetcal.estimators.base import check_outputs
from hetcal.families import StudentT
from hetcal.networks import MLP
from hetcal.objectives import gaussian_nll
from hetcal.prediction import Prediction
from hetcal.training import train


class Homegrown(nn.Module):
    """A user's estimator with the three members and nothing else."""

    n_outputs = 1

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.log_std = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        mean = self.network(x)[:, 0]
        return Prediction(mean, self.log_std.exp().expand_as(mean))

    def own_loss(self, prediction, y, n_train):
        return torch.zeros_like(y)


def test_any_object_with_the_three_members_works():
    network = nn.Linear(2, 1)
    nn.init.zeros_(network.weight)  # torch's own initial weights are not seeded here
    estimator = Homegrown(network)
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    train(estimator, gaussian_nll, x, x[:, 0], max_epochs=30, learning_rate=0.05)
    assert predict(estimator, x).std[0] < 0.5


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1024, 1500])
def test_any_number_of_rows(n):
    prediction = predict(Homegrown(nn.Linear(2, 1)), torch.zeros(n, 2))
    assert prediction.mean.shape == (n,)


def test_all_columns_and_the_family_are_joined():
    """In addition to mean and std: the two parts of an ensemble's std, and the family."""
    estimator = WithFamily(Ensemble(MLP(2, 2, width=8, depth=1), members=2), "student_t")
    prediction = predict(estimator, torch.randn(1500, 2, generator=torch.Generator().manual_seed(0)))
    assert prediction.epistemic_std.shape == prediction.aleatoric_std.shape == (1500,)
    assert not prediction.epistemic_std.requires_grad
    assert isinstance(prediction.family, StudentT)


def test_shapes_of_the_network():
    """One output may come as (n,) or (n, 1); several targets share the columns, target by target."""
    outputs = torch.arange(12.0).reshape(2, 6)
    assert check_outputs(torch.zeros(3), 3, 1).shape == (3, 1)
    assert check_outputs(outputs, 2, 6).shape == (2, 6)
    assert check_outputs(outputs, 2, 2, n_targets=3)[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ValueError, match=r"network must return 4 column\(s\).*got network='output of shape \(2, 6\)"):
        check_outputs(outputs, 2, 2, n_targets=2)


def test_forward_must_be_defined():
    with pytest.raises(TypeError, match=r"AbstractEstimator must define forward\(x\) -> Prediction"):
        AbstractEstimator(nn.Linear(2, 1))(torch.zeros(1, 2))


def not_decaying(estimator):
    """Names of the parameters that do not decay."""
    names = {id(value): name for name, value in estimator.named_parameters()}
    groups = parameter_groups(estimator, weight_decay=0.3)
    assert {id(value) for group in groups for value in group["params"]} == set(names)
    assert {group["weight_decay"] for group in groups} <= {0.3, 0.0}
    return {names[id(value)] for group in groups if group["weight_decay"] == 0 for value in group["params"]}


def test_what_is_no_weight_does_not_decay():
    """Rates, spreads and degrees of freedom, named raw_*, would only be pulled to an arbitrary value."""
    network = MLP(2, 1, width=8, depth=1, dropout=0.2)
    assert not_decaying(VarianceHead(MLP(2, 2, width=8))) == set()
    assert not_decaying(ConcreteDropout(copy.deepcopy(network))) == {"network.2.raw_rate"}
    spreads = {f"network.{layer}.raw_std.{name}" for layer in (0, 3) for name in ("weight", "bias")}
    assert not_decaying(BayesByBackprop(copy.deepcopy(network))) == spreads
    assert not_decaying(WithFamily(VarianceHead(MLP(2, 2, width=8)), "student_t")) == {"raw_df"}


MEMORY = """
import resource, torch
from hetcal.estimators import MCDropout, predict
from hetcal.networks import MLP
torch.set_num_threads(1)
estimator = MCDropout(MLP(2, width=4, depth=2, dropout=0.2))
def peak(n):
    predict(estimator, torch.zeros(n, 2))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
small = peak(2_000)
print(peak(400_000) - small)
"""


def test_memory_does_not_grow_with_the_rows(warm_python, tmp_path):
    """400,000 rows x 100 passes: 6 MB of input and output; all passes at once would take 160 MB and more."""
    ended = warm_python.run("-c", MEMORY, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) < 60

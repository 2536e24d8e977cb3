"""From settings to a torch module: names, options and networks, each checked before training."""

import pytest
import torch
from torch import nn

from hetcal.estimators import ESTIMATORS, AbstractEstimator, MCDropout, VarianceHead
from hetcal.families import GAUSSIAN, Laplace, StudentT
from hetcal.networks import MLP
from hetcal.tabular.building import (
    build_network,
    check_estimator_options,
    family_of_members,
    resolve_estimator,
    resolve_name,
)

SIZE = {"width": 8, "depth": 1, "dropout": 0.2}


class OneTarget(AbstractEstimator):
    """An estimator that knows neither seeds nor several targets."""

    def __init__(self, network):
        super().__init__(network)


def test_names_and_objects():
    """A registered name, or the user's own class or function."""
    assert resolve_name("estimator", "mc_dropout", ESTIMATORS) is MCDropout
    assert resolve_name("estimator", VarianceHead, {}) is VarianceHead
    with pytest.raises(ValueError, match=r"estimator must be one of .*did you mean 'mc_dropout'\?"):
        resolve_name("estimator", "mc_droput", ESTIMATORS)


def test_options_are_copied():
    """What is added to them later must not reach the user's dict."""
    options = {"samples": 20}
    _, arguments = resolve_estimator("mc_dropout", options, n_targets=2, seed=7)
    assert arguments == {"samples": 20, "seed": 7, "n_targets": 2}
    assert options == {"samples": 20}
    assert check_estimator_options(None) == {}


def test_only_what_an_estimator_accepts():
    """Seed and number of targets are passed to those that take them; several targets need one that does."""
    assert resolve_estimator(OneTarget, None, n_targets=1, seed=7) == (OneTarget, {})
    with pytest.raises(ValueError, match=r"estimator must accept n_targets for several targets or classes"):
        resolve_estimator(OneTarget, None, n_targets=2, seed=7)
    for hidden in ("network", "seed", "n_targets"):
        with pytest.raises(ValueError, match=rf"estimator_options must be one of .*got estimator_options='{hidden}'"):
            resolve_estimator("mc_dropout", {hidden: 1}, n_targets=1, seed=7)


def weights(network):
    return torch.cat([parameter.flatten() for parameter in network.parameters()])


@pytest.mark.parametrize(
    "given",
    [None, MLP, lambda n_inputs, n_outputs: nn.Linear(n_inputs, n_outputs), nn.Linear(3, 2)],
    ids=["none", "class", "function", "module"],
)
def test_networks_are_drawn_from_the_seed(given):
    """The same seed draws the same weights, whatever the global generator; that one is not touched."""
    before = torch.random.get_rng_state()
    one, other = (build_network(given, 3, 2, seed=5, **SIZE) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert one is not other
    assert one is not given
    assert torch.equal(weights(one), weights(other))
    assert not torch.equal(weights(one), weights(build_network(given, 3, 2, seed=6, **SIZE)))
    assert one(torch.zeros(4, 3)).shape == (4, 2)


def test_family_of_the_members():
    """Named or given; degrees of freedom to learn are refused, because the shape is learned from held-out rows."""
    assert family_of_members("gaussian") == GAUSSIAN
    assert family_of_members("laplace") == Laplace()
    assert family_of_members(StudentT(4)) == StudentT(4)
    with pytest.raises(
        ValueError, match=r"^family must have no parameter to learn for 'cross_ensemble', got family='st"
    ):
        family_of_members("student_t")

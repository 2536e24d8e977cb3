"""`check_estimator`: passes what keeps the contract, and says what is wrong with what does not."""

import functools
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hetcal.estimators import MCDropout, VarianceHead, WithFamily
from hetcal.estimators.uninformative import ConstantSigma
from hetcal.objectives import gaussian_nll, squared_error
from hetcal.prediction import Prediction
from hetcal.testing import CHECKS, check_estimator


class Good(nn.Module):
    """The least that keeps the contract: three members, no base class, no seed."""

    n_outputs = 2

    def __init__(self, network):
        super().__init__()
        # the MLP's own dropout would draw from torch's global generator
        self.network = nn.Sequential(*(layer for layer in network if not isinstance(layer, nn.Dropout)))

    def forward(self, x):
        mean, raw = self.network(x).unbind(-1)
        return Prediction(mean, F.softplus(raw) + 1e-3)

    def own_loss(self, prediction, y, n_train):
        return torch.zeros(())


@pytest.mark.parametrize(
    "make",
    [
        Good,
        VarianceHead,
        lambda network: VarianceHead(network),
        lambda network, seed: VarianceHead(network, seed=seed),
        lambda network, seed, n_targets=1: VarianceHead(network, seed=seed, n_targets=n_targets),
        functools.partial(MCDropout, samples=4, prediction_samples=5),
        lambda network, seed: WithFamily(VarianceHead(network, seed=seed), "student_t"),
    ],
    ids=["bare", "class", "function", "with seed", "with targets", "partial", "wrapped"],
)
def test_what_keeps_the_contract_passes(make):
    assert check_estimator(make) is None


def test_other_inputs_and_objectives():
    """Any number of columns; under squared error a constant sigma is no fault."""
    check_estimator(VarianceHead, n_inputs=1, objective=gaussian_nll)
    check_estimator(ConstantSigma, n_inputs=9, objective=squared_error)
    with pytest.raises(ValueError, match="n_inputs must be at least 1, got n_inputs=0"):
        check_estimator(VarianceHead, n_inputs=0)


class NoOutputs(Good):
    n_outputs = "two"


class NoOwnLoss(Good):
    @property
    def own_loss(self):
        raise AttributeError


class NoForward(nn.Module):
    n_outputs = 2

    def __init__(self, network):
        super().__init__()

    own_loss = Good.own_loss


class NoModule:
    n_outputs = 2

    def __init__(self, network):
        pass


class NoPrediction(Good):
    def forward(self, x):
        return self.network(x)


class Columns(Good):
    def forward(self, x):
        return Prediction(self.network(x)[:, :1], F.softplus(self.network(x)[:, 1]))


class OneRow(Good):
    """A squeeze too many: one row loses its axis."""

    def forward(self, x):
        prediction = super().forward(x)
        return Prediction(prediction.mean.squeeze(), prediction.std)


class OwnLossPerColumn(Good):
    def own_loss(self, prediction, y, n_train):
        return torch.zeros(len(y), 3)


class Linear(Good):
    def forward(self, x):
        return Prediction(*self.network(x).unbind(-1))


class Overflowing(Good):
    def forward(self, x):
        mean, raw = self.network(x).unbind(-1)
        return Prediction(mean, (50 + 50 * raw.square()).exp())


class RootOfZero(Good):
    """The spread over rows: a batch of one has none, and its root no gradient."""

    def forward(self, x):
        prediction = super().forward(x)
        centered = prediction.mean - prediction.mean.mean()
        return Prediction(prediction.mean, (prediction.std + centered.square().mean().sqrt()))


class Forgotten(Good):
    def __init__(self, network):
        super().__init__(network)
        self.scale = nn.Parameter(torch.ones(()))


class GlobalNoise(Good):
    def forward(self, x):
        prediction = super().forward(x)
        noise = torch.randn(len(x)) if self.training else 0
        return Prediction(prediction.mean + noise, prediction.std)


class GlobalWeights(Good):
    """Layers of its own, drawn from the global generator, whose state it then restores: no seed determines them."""

    def __init__(self, network):
        super().__init__(network)
        with torch.random.fork_rng():
            self.skip = nn.Linear(4, 1)

    def forward(self, x):
        prediction = super().forward(x)
        return Prediction(prediction.mean + self.skip(x)[:, 0], prediction.std)


class NoisyPrediction(Good):
    def __init__(self, network):
        super().__init__(network)
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x):
        prediction = super().forward(x)
        return Prediction(prediction.mean + torch.randn(len(x), generator=self.generator), prediction.std)


class OtherFastWay(Good):
    def for_prediction(self):
        return lambda x: Prediction(self(x).mean, 2 * self(x).std)


class BatchStatistics(Good):
    def forward(self, x):
        prediction = super().forward(x)
        return Prediction(prediction.mean - prediction.mean.mean().detach(), prediction.std)


class HiddenState(Good):
    """Something learned that no state_dict knows of."""

    learned = 0.0

    def own_loss(self, prediction, y, n_train):
        self.learned = float(y.mean())
        return torch.zeros(())

    def forward(self, x):
        prediction = super().forward(x)
        return Prediction(prediction.mean + self.learned, prediction.std)


class Shrinking(Good):
    """Sigma falls where it should grow."""

    def forward(self, x):
        mean, raw = self.network(x).unbind(-1)
        std = F.softplus(raw) + 1e-3
        return Prediction(mean, (2 * std.detach() - std).abs() + 1e-3 + 0 * mean)


class OneTarget(Good):
    def __init__(self, network, n_targets=1):
        super().__init__(network)

    def forward(self, x):
        mean, raw = self.network(x)[:, :2].unbind(-1)
        return Prediction(mean, F.softplus(raw) + 1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (NoOutputs, "estimator.n_outputs must be a whole number, at least 1, got estimator.n_outputs='two'; set it"),
        (lambda network, s: Good(network), "make must be callable as make(network), make(network, seed=...) or"),
        (NoOwnLoss, "estimator must have the member(s) ['own_loss'], got"),
        (NoForward, "estimator must have the member(s) ['forward'], got"),
        (NoModule, "estimator must be an nn.Module, got estimator=<class"),
        (
            NoPrediction,
            "estimator(x) must be a Prediction, got estimator(x)=<class 'torch.Tensor'>; return hetcal.Pred",
        ),
        (Columns, "prediction.mean must have shape (1,) for 1 row(s) and 1 target(s) in training mode, got "),
        (OneRow, "prediction.mean must have shape (1,) for 1 row(s) and 1 target(s) in training mode, got "),
        (
            OwnLossPerColumn,
            "own_loss must be one number or one per row, shape (1,), in training mode, got own_loss='sh",
        ),
        (Linear, "prediction.std must be greater than 0 in training mode, got prediction.std=-"),
        (Overflowing, "std must be finite in training mode, got std=inf"),
        (
            RootOfZero,
            "must be finite for 1 row(s), got the gradient of network.0.weight='NaN or infinity'; a root of 0",
        ),
        (Forgotten, "the gradient of scale must differ from 0, got the gradient of scale=0; use the parameter in"),
        (GlobalNoise, "torch's global generator must keep its state, got torch's global generator='another state"),
        (
            GlobalWeights,
            "prediction must be identical, bit for bit, after the same training with the same seed, got prediction=",
        ),
        (NoisyPrediction, "prediction must be deterministic in evaluation mode, got prediction='means that differ by "),
        (OtherFastWay, "prediction must agree with forward(), got prediction='stds that differ by "),
        (BatchStatistics, "prediction must not depend on other rows in evaluation mode, got prediction='means that"),
        (HiddenState, "prediction must be the same after load_state_dict(state_dict()), got prediction='means that"),
        (Shrinking, "std must grow when residuals are large (it was "),
        (OneTarget, "prediction.mean must have shape (1, 2) for 1 row(s) and 2 target(s) in training mode, got "),
    ],
)
def test_what_breaks_the_contract_is_named(make, message):
    with pytest.raises(AssertionError, match=re.escape(message)):
        check_estimator(make)


def test_every_check_says_what_it_checks():
    """Named check_*, with a sentence."""
    for check in CHECKS:
        assert check.__name__.startswith("check_")
        assert check.__doc__.endswith(".")


def test_the_users_generator_is_restored():
    """Even where an estimator draws from it."""
    state = torch.random.get_rng_state()
    with pytest.raises(AssertionError, match="global generator"):
        check_estimator(GlobalNoise)
    assert torch.equal(state, torch.random.get_rng_state())

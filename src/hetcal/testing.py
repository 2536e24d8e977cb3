"""Checks that your own estimator follows the contract, in one call for your tests.

A check that fails raises `AssertionError`; the message states what is wrong and what to do. The same checks run on
every estimator of hetcal.
"""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hetcal._checks import check_number, must
from hetcal.estimators import predict
from hetcal.exceptions import TrainingWarning
from hetcal.networks import MLP
from hetcal.objectives import Objective, nll_loss, squared_error
from hetcal.prediction import Prediction
from hetcal.training import train

MODES = {True: "training mode", False: "evaluation mode"}


def check_estimator(make: Callable[..., Any], *, n_inputs: int = 4, objective: Objective = nll_loss) -> None:
    """Raise `AssertionError` unless the estimator follows the contract of `hetcal.estimators.base`.

    Args:
        make: The estimator's class, or a function `make(network)` that builds one. If it has parameters named `seed` or
            `n_targets`, these are passed and checked too: `lambda network, seed: MyEstimator(network, seed=seed)`.
        n_inputs: Number of input columns in the checks.
        objective: The objective for training. With `squared_error` sigma only has to be positive.

    >>> from hetcal.estimators import VarianceHead
    >>> check_estimator(VarianceHead)
    """
    trial = Trial(make, n_inputs, objective)
    with torch.random.fork_rng(devices=[]):  # restores the global generator, whatever the estimator does to it
        for check in CHECKS:
            check(trial)


class Trial:
    """An estimator that is built anew for every check, and rows to check it with."""

    def __init__(self, make: Callable[..., Any], n_inputs: int, objective: Objective) -> None:
        self.make = make
        self.n_inputs = check_number("n_inputs", n_inputs, 1, integer=True)
        self.objective = objective
        self.trains_sigma = objective is not squared_error
        self.accepted = set(inspect.signature(make).parameters)
        self.n_outputs: Any = getattr(make, "n_outputs", None)
        if not isinstance(self.n_outputs, int):  # set by __init__ only
            self.n_outputs = 1
            self.n_outputs = getattr(self.build(), "n_outputs", None)
        if not isinstance(self.n_outputs, int) or self.n_outputs < 1:
            advice = "set it to the number of columns that it needs from the network for each target"
            raise broken("estimator.n_outputs", "be a whole number, at least 1", self.n_outputs, advice)

    def build(self, *, network_seed: int = 0, n_targets: int = 1) -> Any:
        """The estimator around a small network; its own seed is always 0."""
        generator = torch.Generator().manual_seed(network_seed)
        n_outputs = n_targets * self.n_outputs
        network = MLP(self.n_inputs, n_outputs, width=16, depth=2, dropout=0.2, generator=generator)
        options = {"seed": 0} if "seed" in self.accepted else {}
        if n_targets > 1:
            options["n_targets"] = n_targets
        try:
            inspect.signature(self.make).bind(network, **options)
        except TypeError as error:
            rule = "be callable as make(network), make(network, seed=...) or make(network, seed=..., n_targets=...)"
            raise broken("make", rule, self.make, f"use these argument names ({error})") from None
        return self.make(network, **options)

    def rows(self, n: int, n_targets: int = 1) -> tuple[Tensor, Tensor]:
        """Standardized inputs and a target with noise: (n, n_inputs), and (n,) or (n, n_targets)."""
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(n, self.n_inputs, generator=generator)
        y = x[:, :1] + 0.3 * torch.randn(n, n_targets, generator=generator)
        return x, y[:, 0] if n_targets == 1 else y

    def loss(self, estimator: Any, x: Tensor, y: Tensor) -> Tensor:
        """The two core lines of training."""
        prediction = estimator(x)
        return self.objective(prediction, y).mean() + estimator.own_loss(prediction, y, len(y)).mean()

    def trained(self) -> Any:
        """An estimator after a short training run, which is always the same."""
        estimator = self.build()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)  # it ends early on purpose
            train(estimator, self.objective, *self.rows(64), max_epochs=3, batch_size=32)
        return estimator


def check_members(trial: Trial) -> None:
    """It is a module with `forward` and `own_loss`; `Trial` has already checked `n_outputs`."""
    estimator = trial.build()
    if not isinstance(estimator, nn.Module):
        raise broken("estimator", "be an nn.Module", type(estimator), "let its class inherit from nn.Module")
    missing = ["forward"] if type(estimator).forward is nn.Module.forward else []
    missing += [] if hasattr(estimator, "own_loss") else ["own_loss"]
    if missing:
        raise broken("estimator", f"have the member(s) {missing}", type(estimator), "see hetcal.estimators.base")


def check_shapes(trial: Trial, n_targets: int = 1) -> None:
    """Mean and std are (n,) in both modes, also for one row; (n, n_targets) for several targets."""
    for training, mode in MODES.items():
        estimator = trial.build(n_targets=n_targets).train(training)
        for n in (1, 2, 7):
            x, y = trial.rows(n, n_targets)
            prediction = estimator(x)
            if not isinstance(prediction, Prediction):
                advice = "return hetcal.Prediction(mean, std)"
                raise broken("estimator(x)", "be a Prediction", type(prediction), advice)
            for name in ("mean", "std"):
                shape = tuple(getattr(prediction, name).shape)
                if shape != y.shape:
                    rule = f"have shape {tuple(y.shape)} for {n} row(s) and {n_targets} target(s) in {mode}"
                    advice = "separate the network's columns, for example with outputs.unbind(-1)"
                    raise broken(f"prediction.{name}", rule, shape, advice)
            own_loss = estimator.own_loss(prediction, y, 100)
            if own_loss.shape not in ((), (n,), y.shape):
                rule = f"be one number or one per row, shape {tuple(y.shape)}, in {mode}"
                raise broken("own_loss", rule, f"shape {tuple(own_loss.shape)}", "average over the other axes only")


def check_values(trial: Trial) -> None:
    """Mean, std and own loss are finite, and std is greater than 0, also for rows ten standard deviations away."""
    x, y = trial.rows(64)
    for training, mode in MODES.items():
        estimator = trial.build().train(training)
        prediction = estimator(10 * x)
        own_loss = estimator.own_loss(prediction, y, len(y))
        for name, values in {"mean": prediction.mean, "std": prediction.std, "own_loss": own_loss}.items():
            wrong = values.detach()[~torch.isfinite(values)]
            if len(wrong):
                raise broken(name, f"be finite in {mode}", float(wrong[0]), "look for an overflow in forward()")
        if not (prediction.std > 0).all():
            advice = "sigma = softplus(raw) + floor is positive by construction"
            raise broken("prediction.std", f"be greater than 0 in {mode}", float(prediction.std.detach().min()), advice)


def check_gradients(trial: Trial) -> None:
    """Gradients are finite, also for one row; with an objective that trains sigma they reach every parameter."""
    for n in (1, 64):
        estimator = trial.build().train()
        trial.loss(estimator, *trial.rows(n)).backward()
        for name, parameter in estimator.named_parameters():
            gradient = torch.zeros(1) if parameter.grad is None else parameter.grad
            if not torch.isfinite(gradient).all():
                advice = "a root of 0 has no gradient: add a floor inside the root"
                raise broken(f"the gradient of {name}", f"be finite for {n} row(s)", "NaN or infinity", advice)
            if n > 1 and parameter.requires_grad and trial.trains_sigma and not gradient.any():
                advice = "use the parameter in forward() or own_loss(), and do not detach it"
                raise broken(f"the gradient of {name}", "differ from 0", 0, advice)


def check_generator(trial: Trial) -> None:
    """Nothing is drawn from torch's global generator."""
    before = torch.random.get_rng_state()
    predict(trial.trained(), trial.rows(7)[0])
    if not torch.equal(before, torch.random.get_rng_state()):
        advice = "draw from torch.Generator().manual_seed(seed) instead"
        raise broken("torch's global generator", "keep its state", "another state after training", advice)


def check_repeatability(trial: Trial) -> None:
    """The same training with the same seed gives the same prediction, bit for bit."""
    x, _ = trial.rows(64)
    first = predict(trial.trained(), x)
    torch.manual_seed(12345)  # must have no effect
    second = predict(trial.trained(), x)
    rule = "be identical, bit for bit, after the same training with the same seed"
    check_equal(first, second, rule, "seed everything that is drawn")


def check_evaluation_mode(trial: Trial) -> None:
    """In evaluation mode the estimator is deterministic, and `predict` agrees with `forward`."""
    estimator = trial.trained().eval()
    x, _ = trial.rows(64)
    with torch.no_grad():
        first, second = estimator(x), estimator(x)
    check_equal(first, second, "be deterministic in evaluation mode", "draw only if self.training")
    check_equal(first, predict(estimator, x), "agree with forward()", "see for_prediction()", relative=1e-4)


def check_rows_stand_alone(trial: Trial) -> None:
    """The prediction of a row does not depend on the other rows."""
    estimator = trial.trained()
    x, _ = trial.rows(64)
    whole, alone = predict(estimator, x).take(slice(5)), predict(estimator, x[:5])
    rule = "not depend on other rows in evaluation mode"
    check_equal(whole, alone, rule, "use no statistics over the batch", relative=1e-4)


def check_state_dict(trial: Trial) -> None:
    """`state_dict` contains everything that was learned."""
    estimator = trial.trained()
    x, _ = trial.rows(64)
    other = trial.build(network_seed=1)
    predict(other, x)  # reveals a cache of earlier weights
    other.load_state_dict(estimator.state_dict())
    rule = "be the same after load_state_dict(state_dict())"
    check_equal(predict(estimator, x), predict(other, x), rule, "keep what is learned in parameters and buffers")


def check_sigma_reacts(trial: Trial) -> None:
    """Large residuals make sigma larger: training widens the intervals."""
    if not trial.trains_sigma:
        return
    estimator = trial.build()
    x, _ = trial.rows(64)
    before = float(predict(estimator, x).std.mean())
    y = torch.full((64,), 30.0)
    train(estimator, trial.objective, x, y, max_epochs=3, learning_rate=1e-2, validation_fraction=0)
    after = float(predict(estimator, x).std.mean())
    if not after > before:
        rule = f"grow when residuals are large (it was {before:.3g} before training)"
        raise broken("std", rule, round(after, 3), "sigma must depend on parameters that the objective can train")


def check_several_targets(trial: Trial) -> None:
    """With `n_targets` all shapes have an additional axis."""
    if "n_targets" in trial.accepted:
        check_shapes(trial, n_targets=2)


CHECKS: tuple[Callable[[Trial], None], ...] = (
    check_members,
    check_shapes,
    check_values,
    check_gradients,
    check_generator,
    check_repeatability,
    check_evaluation_mode,
    check_rows_stand_alone,
    check_state_dict,
    check_sigma_reacts,
    check_several_targets,
)


def check_equal(first: Prediction, second: Prediction, rule: str, advice: str, relative: float = 0.0) -> None:
    for name in ("mean", "std"):
        one, other = getattr(first, name), getattr(second, name)
        difference = float((one - other).abs().max())
        if not difference <= relative * float(one.abs().max()):
            raise broken("prediction", rule, f"{name}s that differ by {difference:.3g}", advice)


def broken(name: str, rule: str, value: Any, advice: str) -> Exception:
    return must(name, rule, value, advice, AssertionError)

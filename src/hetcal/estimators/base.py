"""The contract of an estimator (where does sigma come from?), and prediction with it in bounded memory.

An estimator is an `nn.Module` around a network with three required members:

- `n_outputs`, the number of columns that it needs from the network for each target;
- `forward(x) -> Prediction`;
- `own_loss(prediction, y, n_train)`, the loss that it needs in addition to the objective.

Two members are optional: `at_rows(index, n_train)`, called before every training batch, and `for_prediction()`, a
faster equivalent of `forward` for evaluation mode. Parameters named raw_* are exempt from weight decay. Any object with
the required members works in `training.train`; the base class is a convenience. `hetcal.testing.check_estimator` checks
whether your own estimator follows the contract.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hetcal._checks import check_number, must
from hetcal.networks import CHANNEL_DROPOUT, DROPOUT_LAYERS, PrivateDropout, replace_layers_
from hetcal.prediction import Prediction, join_predictions

# The last bits of float32 products depend on the number of rows, so the result of a row would depend on the other rows.
# Blocks are therefore padded to a multiple of ROW_MULTIPLE. A single row stays cheap, and the activations of BLOCK_ROWS
# rows of width 128 stay in the cache of one core. One exception remains: if the width of the last hidden layer is not a
# multiple of 4, the last bit of MKL's narrow product after it depends on the position of the row.
ROW_MULTIPLE = 64
BLOCK_ROWS = 1024
# Members of an ensemble, or passes. A larger number is probably a typing error that would take hours, or all memory.
MOST_NETWORKS = 10_000


class AbstractEstimator(nn.Module):
    """Base class: holds the network. Subclasses define how its outputs become a mean and a standard deviation.

    The network's dropout layers are replaced, in place, by layers that draw from the estimator's own generator, so that
    training is reproducible and torch's global generator is not used.

    Args:
        network: Any module (n, ...) -> (n, n_targets * n_outputs).
        n_targets: Number of targets that are predicted together. Mean and std are (n,) for one target, (n, n_targets)
            for more.
        seed: Seed of everything that the estimator draws.
    """

    n_outputs: int = 1

    def __init__(self, network: nn.Module, *, n_targets: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.n_targets = check_number("n_targets", n_targets, 1, integer=True)
        self.seed = check_number("seed", seed, 0, integer=True)
        self.generator = torch.Generator().manual_seed(self.seed)
        self.network = replace_layers_(network, (*DROPOUT_LAYERS, PrivateDropout), self.private_dropout)

    def private_dropout(self, layer: Any) -> nn.Module:
        """The layer that replaces `nn.Dropout`, `nn.Dropout2d`, ... in the network."""
        return PrivateDropout(layer.p, channels=drops_channels(layer), generator=self.generator)

    def outputs(self, x: Tensor) -> Tensor:
        """The network's outputs with their shape checked: (n, n_outputs), or (n, n_targets, n_outputs)."""
        return check_outputs(self.network(x), x.shape[0], self.n_outputs, self.n_targets)

    def forward(self, x: Tensor) -> Prediction:
        raise TypeError(f"{type(self).__name__} must define forward(x) -> Prediction; see hetcal.estimators.base")

    def for_prediction(self) -> Callable[[Tensor], Prediction]:
        """Optional: what `predict` calls for each block in evaluation mode, the estimator or a faster equivalent."""
        return self

    def at_rows(self, index: Tensor, n_train: int) -> None:
        """Optional: called before every training batch with the indices of its rows among the `n_train` training rows.

        An ensemble uses it to weight the rows differently for each member; most estimators ignore it.
        """

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        """Loss per row, or one number for all rows, that the estimator needs in addition to the objective; 0 here."""
        return torch.zeros_like(y)


class FrozenForPrediction(nn.Module):
    """A module that predicts with something made of its weights once: when training ends, at load, at unpickling.

    Prediction reads it and never writes it, so that threads can share a model. If the weights have changed since, each
    call makes its own.
    """

    _frozen: tuple[Any, Any] | None = None

    def make_frozen(self) -> Any:
        """What prediction uses."""
        raise NotImplementedError

    def fingerprint(self) -> Any:
        """Equal as long as what was made is still right."""
        raise NotImplementedError

    @torch.inference_mode(False)
    @torch.no_grad()
    def freeze(self) -> None:
        self._frozen = self.fingerprint(), self.make_frozen()

    def frozen(self) -> Any:
        frozen = self._frozen
        return self.make_frozen() if frozen is None or frozen[0] != self.fingerprint() else frozen[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_frozen": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.freeze()


def freeze_(estimator: Any) -> None:
    """Prepare the prediction of an estimator whose weights are final; without it, each call prepares it again."""
    for part in estimator.modules():
        if isinstance(part, FrozenForPrediction):
            part.freeze()


def in_evaluation_mode(estimator: Any) -> Any:
    """The estimator if it is in evaluation mode, otherwise a copy that is: another thread may be using it."""
    if not any(part.training for part in estimator.modules()):
        return estimator
    try:
        return copy.deepcopy(estimator).eval()
    except Exception as error:  # a user's network may hold anything
        rule = "be in evaluation mode, or allow a copy, for prediction"
        raise must("estimator", rule, f"{type(error).__name__}: {error}", "call estimator.eval() first") from error


def drops_channels(layer: Any) -> bool:
    """Whether a dropout layer of torch or hetcal drops whole channels."""
    return isinstance(layer, CHANNEL_DROPOUT) or getattr(layer, "channels", False)


def check_std_floor(std_floor: Any) -> float:
    """A floor of sigma in units of the standardized target, where a million is far too much already."""
    return float(check_number("std_floor", std_floor, 0, 1e6, open_low=True))


def check_outputs(outputs: Tensor, n: int, n_outputs: int, n_targets: int = 1) -> Tensor:
    """Return the network's outputs as (n, n_outputs) or (n, n_targets, n_outputs); raise if their number is wrong."""
    columns = n_outputs * n_targets
    if columns == 1 and outputs.shape == (n,):
        outputs = outputs[:, None]
    if outputs.shape != (n, columns):
        raise must(
            "network",
            f"return {columns} column(s) per row for this estimator",
            f"output of shape {tuple(outputs.shape)} for {n} rows",
            f"end it with a layer of {columns} output(s)",
        )
    return outputs if n_targets == 1 else outputs.unflatten(1, (n_targets, n_outputs))


def parameter_groups(estimator: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Return the estimator's parameters for an optimizer, in one or two groups: those named raw_* do not decay.

    Weight decay would pull a dropout rate, or degrees of freedom, to an arbitrary value.
    """
    weights: list[Tensor] = []
    raw: list[Tensor] = []
    for name, parameter in estimator.named_parameters():
        is_raw = any(part.startswith("raw_") for part in name.split("."))
        (raw if is_raw else weights).append(parameter)
    groups = [{"params": weights, "weight_decay": weight_decay}, {"params": raw, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


@torch.no_grad()
def predict(estimator: Any, x: Tensor) -> Prediction:
    """Predict all rows in evaluation mode, block by block.

    The result of a row does not depend on the other rows, and memory beyond input and output does not grow with the
    number of rows. Nothing is written to the estimator, so that threads can share it.

    >>> from hetcal.estimators import VarianceHead
    >>> from hetcal.networks import MLP
    >>> predict(VarianceHead(MLP(3, 2)), torch.zeros(1000, 3)).std.shape
    torch.Size([1000])
    """
    estimator = in_evaluation_mode(estimator)
    predict_block = estimator.for_prediction() if hasattr(estimator, "for_prediction") else estimator
    parts = []
    for start in range(0, len(x) or 1, BLOCK_ROWS):  # without rows there is one block, of padding only
        block = x[start : start + BLOCK_ROWS]
        n = len(block)
        if n % ROW_MULTIPLE or n == 0:
            last = block[-1:] if n else x.new_zeros(1, *x.shape[1:])
            padding = last.expand(ROW_MULTIPLE - n % ROW_MULTIPLE, *block.shape[1:])
            block = torch.cat([block, padding])
        parts.append(predict_block(block).take(slice(n)))
    return join_predictions(parts, torch.cat)

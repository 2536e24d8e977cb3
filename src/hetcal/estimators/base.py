"""The contract of an estimator, "sigma from where?", and prediction with it in bounded memory.

An estimator is an `nn.Module` round a network with three members: `n_outputs`, how many columns it wants from the
network; `forward(x) -> Prediction`; `own_loss(prediction, y, n_train)`, what it needs beside the objective. Any
object with these members works in `training.train`; the base class only saves writing.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hetcal._checks import check_number, must
from hetcal.networks import CHANNEL_DROPOUT, DROPOUT_LAYERS, PrivateDropout, replace_layers_
from hetcal.prediction import Prediction

# Float32 products differ in the last bits with the number of rows, so a row's result would depend on its neighbours.
# Blocks are therefore filled up to a multiple of ROW_MULTIPLE, so that no product has a ragged edge; one row stays
# cheap, and the activations of BLOCK_ROWS rows of width 128 stay in the cache of one core.
ROW_MULTIPLE = 64
BLOCK_ROWS = 1024


class AbstractEstimator(nn.Module):
    """Holds the network; subclasses say how many outputs they want and how these become a mean and a std.

    The network's dropout layers are replaced, in place, by layers that draw from a generator of the estimator's own,
    so training is repeatable and torch's global generator stays untouched.

    Args:
        network: Any module (n, d) -> (n, n_outputs).
        seed: Seed of everything the estimator draws.
    """

    n_outputs: int = 1

    def __init__(self, network: nn.Module, *, seed: int = 0) -> None:
        super().__init__()
        self.seed = check_number("seed", seed, 0, integer=True)
        self.generator = torch.Generator().manual_seed(self.seed)
        self.network = replace_layers_(network, DROPOUT_LAYERS, self.private_dropout)

    def private_dropout(self, layer: Any) -> nn.Module:
        """The layer that takes the place of `nn.Dropout`, `nn.Dropout2d`, ... in the network."""
        return PrivateDropout(layer.p, channels=isinstance(layer, CHANNEL_DROPOUT), generator=self.generator)

    def outputs(self, x: Tensor) -> Tensor:
        """The network's answer, with its shape checked: (n, n_outputs)."""
        return check_outputs(self.network(x), len(x), self.n_outputs)

    def forward(self, x: Tensor) -> Prediction:
        raise TypeError(f"{type(self).__name__} must define forward(x) -> Prediction; see hetcal.estimators.base")

    def for_prediction(self) -> Callable[[Tensor], Prediction]:
        """What `predict` calls, in evaluation mode, for block after block: the estimator itself, or a faster equal."""
        return self

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        """Loss per row (or one number for all rows) that this estimator needs beside the objective; none here."""
        return torch.zeros_like(y)


def check_outputs(outputs: Tensor, n: int, n_outputs: int) -> Tensor:
    """Return the network's outputs as (n, n_outputs), or say what the network should have returned."""
    if n_outputs == 1 and outputs.shape == (n,):
        outputs = outputs[:, None]
    if outputs.shape != (n, n_outputs):
        raise must(
            "network",
            f"return {n_outputs} column(s) per row for this estimator",
            f"output of shape {tuple(outputs.shape)} for {n} rows",
            f"end it with a layer of {n_outputs} output(s)",
        )
    return outputs


@torch.no_grad()
def predict(estimator: Any, x: Tensor) -> Prediction:
    """Mean and std of all rows in evaluation mode, block by block.

    A row's result depends neither on its neighbours nor on their number, and memory beyond input and output does
    not grow with the number of rows.

    >>> from hetcal.estimators import VarianceHead
    >>> from hetcal.networks import MLP
    >>> predict(VarianceHead(MLP(3, 2)), torch.zeros(1000, 3)).std.shape
    torch.Size([1000])
    """
    was_training = estimator.training
    estimator.eval()
    try:
        predict_block = estimator.for_prediction() if hasattr(estimator, "for_prediction") else estimator
        mean, std = x.new_empty(len(x)), x.new_empty(len(x))
        for start in range(0, len(x), BLOCK_ROWS):
            block = x[start : start + BLOCK_ROWS]
            n = len(block)
            if n % ROW_MULTIPLE:
                filling = block[-1:].expand(ROW_MULTIPLE - n % ROW_MULTIPLE, *block.shape[1:])
                block = torch.cat([block, filling])
            prediction = predict_block(block)
            mean[start : start + n], std[start : start + n] = prediction.mean[:n], prediction.std[:n]
        return Prediction(mean, std)
    finally:
        estimator.train(was_training)

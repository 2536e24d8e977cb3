"""The sampled networks of MC dropout with the dropped units left out: the same answers for two thirds of the work.

One mask per pass makes a pass one network, and a unit that the mask drops need not be computed at all: with rate 0.2
the products between hidden layers shrink to 0.8 x 0.8. Only for prediction, where the masks are fixed, and only for a
chain of linear layers, elementwise activations and dropout; `thin` says None to anything else.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hetcal.estimators.base import check_outputs
from hetcal.networks import PrivateDropout, run

ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus)
# Thinned weights of all passes together; a network beyond that predicts the general way.
MEMORY_LIMIT = 128 * 2**20


@dataclass
class Stage:
    """A linear layer with the activations behind it and the masks of the dropout behind those (None: all kept)."""

    linear: nn.Linear
    activations: list[nn.Module]
    masks: Tensor | None = None  # (passes, units)


@dataclass
class ThinLayer:
    weight: Tensor  # (units, inputs): kept units and kept inputs, the scale of the inputs' mask folded in
    bias: Tensor  # (units, 1)
    activations: list[nn.Module]

    def __call__(self, h: Tensor) -> Tensor:
        if self.has_relu:
            z = torch.mm(self.weight, h)
            return torch.maximum(z, self.negative_bias, out=z)
        h = torch.addmm(self.bias, self.weight, h)
        for activation in self.activations:
            h = activation(h)
        return h

    def __post_init__(self) -> None:
        # relu(z + b) = max(z, -b) + b, and the next layer's bias can take the + b: one pass over memory less.
        self.has_relu = len(self.activations) == 1 and type(self.activations[0]) is nn.ReLU
        self.negative_bias = -self.bias

    @property
    def missing(self) -> Tensor:
        """What this layer's answer lacks, (units, 1): left to the bias of the next one."""
        return self.bias if self.has_relu else torch.zeros_like(self.bias)


@dataclass
class ThinNetwork:
    """One sampled network; `inputs` are the units before it that its first mask keeps."""

    inputs: Tensor
    layers: list[ThinLayer]

    def __call__(self, h: Tensor) -> Tensor:
        h = h.index_select(0, self.inputs)
        for layer in self.layers:
            h = layer(h)
        return h


class ThinnedNetworks:
    """All sampled networks of one chain; calling it gives every pass for every row: (passes, n).

    Activations are held as (units, n): the number of kept units is ragged, the number of rows is not, and products
    are fast where the last axis fills whole vector registers.
    """

    def __init__(self, first: list[nn.Module], networks: list[ThinNetwork]) -> None:
        self.first = first
        self.networks = networks

    def __call__(self, x: Tensor) -> Tensor:
        h = run(self.first, x).t().contiguous()  # (units, n)
        return torch.stack([check_outputs(network(h).t(), len(x), 1)[:, 0] for network in self.networks])


def thin(before: list[nn.Module], after: list[nn.Module], n_passes: int) -> ThinnedNetworks | None:
    """Thinned copies of a chain that begins with the layers `before` the first mask; None if it is no such chain."""
    chain = parse(after)
    if chain is None:
        return None
    first_masks, stages = chain
    n_weights = sum(stage.linear.weight.numel() for stage in stages)
    if n_weights * n_passes * 4 > MEMORY_LIMIT:
        return None
    return ThinnedNetworks(before, [thin_pass(first_masks[j], stages, j) for j in range(n_passes)])


def parse(layers: list[nn.Module]) -> tuple[Tensor, list[Stage]] | None:
    """Dropout, then (linear, activations, dropout) again and again, the last stage without dropout."""
    if not layers or not isinstance(layers[0], PrivateDropout) or layers[0].channels:
        return None
    dropout, *rest = layers
    stages: list[Stage] = []
    first_masks = None
    for layer in rest:
        if isinstance(layer, nn.Linear):
            if first_masks is None:
                first_masks = fixed_masks(dropout, layer.in_features, layer.weight)
            stages.append(Stage(layer, []))
        elif not stages:
            return None
        elif isinstance(layer, ELEMENTWISE) and stages[-1].masks is None:
            stages[-1].activations.append(layer)
        elif isinstance(layer, PrivateDropout) and not layer.channels and stages[-1].masks is None:
            stages[-1].masks = fixed_masks(layer, stages[-1].linear.out_features, stages[-1].linear.weight)
        else:
            return None
    if first_masks is None or stages[-1].masks is not None:
        return None
    return first_masks, stages


def fixed_masks(dropout: nn.Module, units: int, like: Tensor) -> Tensor:
    return dropout.frozen_masks(like.new_empty(1, units))  # type: ignore[operator]


@torch.no_grad()
def thin_pass(first_mask: Tensor, stages: list[Stage], j: int) -> ThinNetwork:
    """The j-th sampled network, each layer with the units that its mask keeps."""
    layers: list[ThinLayer] = []
    first_inputs = inputs = first_mask.nonzero()[:, 0]
    scale = first_mask.index_select(0, inputs)
    for stage in stages:
        weight = stage.linear.weight.index_select(1, inputs) * scale
        bias: Tensor = weight.new_zeros(len(weight)) if stage.linear.bias is None else stage.linear.bias
        mask = torch.ones_like(bias) if stage.masks is None else stage.masks[j]
        inputs = mask.nonzero()[:, 0]
        scale = mask.index_select(0, inputs)
        weight, bias = weight.index_select(0, inputs), bias.index_select(0, inputs)[:, None]
        if layers:
            bias = torch.addmm(bias, weight, layers[-1].missing)
        layers.append(ThinLayer(weight, bias, stage.activations))
    return ThinNetwork(first_inputs, layers)

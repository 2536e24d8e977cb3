"""The sampled networks of MC dropout without their dropped units: the same predictions for two thirds of the work.

With one mask per pass, a pass is one network, and a unit that the mask drops need not be computed at all. With a rate
of 0.2 the products between hidden layers shrink to 0.8 x 0.8. This applies to prediction only, where the masks are
fixed, and to a chain of linear layers, elementwise activations and dropout; for anything else `thin_networks` returns
None.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hetcal.estimators.base import check_outputs
from hetcal.networks import PrivateDropout

ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus)
# Limit on the bytes of the thinned weights of all passes; larger networks predict without thinning.
MEMORY_LIMIT = 128 * 2**20


@dataclass
class Stage:
    """A linear layer with the activations after it; `kept` are the units that the next mask of each pass keeps."""

    weight: Tensor  # (units, inputs), the scale of the inputs' masks folded in
    bias: Tensor  # (units,)
    activations: list[nn.Module]
    kept: list[Tensor] | None = None  # None: all units, in every pass
    scale: float = 1.0  # of these masks


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
        # relu(z + b) = max(z, -b) + b. The bias of the next layer can absorb the + b, which saves a pass over memory.
        self.has_relu = len(self.activations) == 1 and type(self.activations[0]) is nn.ReLU
        self.negative_bias = -self.bias

    @property
    def missing(self) -> Tensor:
        """What the output of this layer lacks, (units, 1): the bias of the next layer adds it."""
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
    """All sampled networks of one chain; a call returns all passes for all rows: (passes, n), or (passes, n, targets).

    Activations are stored as (units, n): products are fast if the last axis fills whole vector registers, and the
    number of rows does, whereas the number of kept units varies.
    """

    def __init__(self, first: list[nn.Module], networks: list[ThinNetwork], n_targets: int) -> None:
        self.first = first
        self.networks = networks
        self.n_targets = n_targets

    def __call__(self, x: Tensor) -> Tensor:
        h = nn.Sequential(*self.first)(x).t().contiguous()  # (units, n)
        passes = [check_outputs(network(h).t(), len(x), 1, self.n_targets) for network in self.networks]
        return torch.stack(passes)[..., 0]


@torch.no_grad()
def thin_networks(
    before: list[nn.Module], after: list[nn.Module], n_passes: int, n_targets: int = 1
) -> ThinnedNetworks | None:
    """Return thinned copies of a chain that begins with the layers `before` the first mask; None for other networks."""
    chain = parse_chain(after)
    if chain is None:
        return None
    first_kept, stages = chain
    n_weights = sum(stage.weight.numel() for stage in stages)
    if n_weights * n_passes * 4 > MEMORY_LIMIT:
        return None
    return ThinnedNetworks(before, [thin_pass(first_kept[j], stages, j) for j in range(n_passes)], n_targets)


def parse_chain(layers: list[nn.Module]) -> tuple[list[Tensor], list[Stage]] | None:
    """Dropout, then any number of stages (linear, activations, dropout), the last one without dropout."""
    dropout, *rest = layers
    if not isinstance(dropout, PrivateDropout) or not rest or type(rest[0]) is not nn.Linear:
        return None
    first_kept, scale = kept_units(dropout, rest[0].in_features, rest[0].weight)
    stages: list[Stage] = []
    for layer in rest:
        if type(layer) is nn.Linear:  # a subclass may compute something else
            bias = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
            stages.append(Stage(layer.weight * (stages[-1].scale if stages else scale), bias, []))
        elif type(layer) in ELEMENTWISE and stages[-1].kept is None:
            stages[-1].activations.append(layer)
        elif isinstance(layer, PrivateDropout) and not layer.channels and stages[-1].kept is None:
            stages[-1].kept, stages[-1].scale = kept_units(layer, len(stages[-1].bias), stages[-1].bias)
        else:
            return None
    ends_linear = stages[-1].kept is None and not stages[-1].activations
    return (first_kept, stages) if ends_linear and not dropout.channels else None


def kept_units(dropout: PrivateDropout, units: int, like: Tensor) -> tuple[list[Tensor], float]:
    """The units that each pass keeps, and the scale of its mask."""
    masks = dropout.fixed_draws(like.new_empty(1, units)) != 0  # type: ignore[operator]
    return list(masks.nonzero()[:, 1].split(masks.sum(dim=1).tolist())), 1 / (1 - dropout.rate)


def thin_pass(first_inputs: Tensor, stages: list[Stage], j: int) -> ThinNetwork:
    """The j-th sampled network, each layer with the units that its mask keeps."""
    layers: list[ThinLayer] = []
    inputs: Tensor | None = first_inputs
    for stage in stages:
        weight, bias = stage.weight, stage.bias
        if stage.kept is not None:
            weight, bias = weight.index_select(0, stage.kept[j]), bias.index_select(0, stage.kept[j])
        if inputs is not None:
            weight = weight.index_select(1, inputs)
        inputs = None if stage.kept is None else stage.kept[j]
        bias = bias[:, None]
        if layers:
            bias = torch.addmm(bias, weight, layers[-1].missing)
        layers.append(ThinLayer(weight, bias, stage.activations))
    return ThinNetwork(first_inputs, layers)

"""The paper's network, which any `nn.Module` from (n, d) to (n, k) can replace, and changes of networks."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from hetcal._checks import check_number, must

WEIGHT_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Layers that drop whole channels: their mask has one entry per channel, not one per element.
CHANNEL_DROPOUT = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
DROPOUT_LAYERS = (nn.Dropout, *CHANNEL_DROPOUT)
# The inputs of a table are z = limit * asinh(x / limit) of their standardized values x (`tabular.encoding.squash`).
SQUASH_LIMIT = 3.0
# Torch's global generator belongs to all threads, so that only one at a time may draw the weights of a network from it.
GLOBAL_GENERATOR_IN_USE = RLock()


def check_device(device: Any) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError):
        rule = "be one that torch finds on this machine"
        raise must("device", rule, device, "'cpu' always works") from None


def blank_linear(n_inputs: int, n_outputs: int) -> nn.Linear:
    """A linear layer whose weights have not been drawn, so that torch's global generator stays as it was.

    `torch.nn.utils.skip_init` does the same, but takes most of a second the first time, because it imports sympy.
    """
    layer = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(layer)
    layer.in_features, layer.out_features = n_inputs, n_outputs
    layer.weight = nn.Parameter(torch.empty(n_outputs, n_inputs, dtype=torch.float32))
    layer.bias = nn.Parameter(torch.empty(n_outputs, dtype=torch.float32))
    return layer


class MLP(nn.Sequential):
    """Fully connected ReLU network, with five hidden layers as in the paper.

    A dropout layer, possibly of rate 0, precedes every weight layer except the first. Initial weights are Kaiming
    normal, biases uniform. `generator` makes the initialization reproducible without using torch's global generator.

    >>> [type(layer).__name__ for layer in MLP(3, 1, width=8, depth=1, dropout=0.2)]
    ['Linear', 'ReLU', 'Dropout', 'Linear']
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int = 1,
        *,
        width: int = 128,
        depth: int = 5,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        check_number("width", width, 1, integer=True)
        check_number("depth", depth, 1, integer=True)
        check_number("dropout", dropout, 0, 1, open_high=True)
        layers: list[nn.Module] = []
        for fan_in in [n_inputs] + [width] * (depth - 1):
            layers += [
                blank_linear(fan_in, width),
                nn.ReLU(inplace=True),
                nn.Dropout(dropout),
            ]
        layers.append(blank_linear(width, n_outputs))
        super().__init__(*layers)
        self.initialize(generator)

    def __getitem__(self, index: slice | int) -> nn.Module:
        """Return one layer, or several as a plain `nn.Sequential`: a part of an MLP is not an MLP."""
        layers = list(self)
        return nn.Sequential(*layers[index]) if isinstance(index, slice) else layers[index]

    def initialize(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights anew, with the gain for ReLU in the hidden layers and 1 in the output layer."""
        linear_layers = [layer for layer in self if isinstance(layer, nn.Linear)]
        for layer in linear_layers:
            is_output = layer is linear_layers[-1]
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear" if is_output else "relu", generator=generator)
            # With biases of zero the kinks of all units would pass through the mean of the data.
            bound = 0.0 if is_output else 1 / math.sqrt(layer.in_features)
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


class PrivateDropout(nn.Module):
    """Dropout that draws its masks from its own generator: one per row in training, none in evaluation mode.

    Args:
        rate: Probability that an element is dropped.
        channels: Drop whole channels (axis 1), as `nn.Dropout2d` does.
        generator: Source of all masks; torch's global generator if None.

    Attributes:
        share: The share of the rate that is in force; `hetcal.training` lowers it while it trains.
    """

    is_regularizer = True  # sigma does not come from these masks
    share = 1.0

    def __init__(self, rate: float, *, channels: bool = False, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.rate = check_number("dropout", rate, 0, 1, open_high=True)
        self.channels = channels
        self.generator = generator

    def forward(self, h: Tensor) -> Tensor:
        return h * self.draw(h, len(h)) if self.training and self.rate else h

    def draw(self, h: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw new masks (count, features of h), scaled so that their mean is 1; by default from the own generator."""
        generator = self.generator if generator is None else generator
        features = self.features(h)
        n = count * math.prod(features)
        # Sixteen random bits per element are enough and cost a third of a random float. Always drawn on the CPU.
        words = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
        bits = words.view(torch.int16)[:n].view(count, *features)
        masks = torch.empty(bits.shape, dtype=h.dtype)
        rate = self.share * self.rate
        torch.ge(bits, round(rate * 2**16) - 2**15, out=masks)
        return masks.div_(1 - rate).to(h.device)

    def features(self, h: Tensor) -> torch.Size:
        """Shape of one mask: one entry per element of a row of h, or per channel."""
        return torch.Size(h.shape[1:2] + (1,) * (h.ndim - 2)) if self.channels else h.shape[1:]

    @property
    def p(self) -> float:
        """The rate, under the name that it has in `nn.Dropout`."""
        return self.rate

    def extra_repr(self) -> str:
        return f"rate={self.rate}, channels={self.channels}"


def replace_layers_(
    network: nn.Module, kind: type[nn.Module] | tuple[type[nn.Module], ...], make: Callable[[nn.Module], nn.Module]
) -> nn.Module:
    """Replace every layer of `kind` in `network` (or `network` itself) with `make(layer)`, in place; return `network`.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    >>> replace_layers_(network, nn.Tanh, lambda layer: nn.ReLU())[1]
    ReLU()
    """
    if isinstance(network, kind):
        return make(network)
    made: dict[nn.Module, nn.Module] = {}  # a layer that occurs several times gets a single replacement
    for parent in list(network.modules()):
        if isinstance(parent, nn.MultiheadAttention):
            continue  # it never calls its layers, but reads their weights
        for name, child in list(parent._modules.items()):  # named_children() would omit repeated layers
            if isinstance(child, kind):
                if child not in made:
                    made[child] = make(child)
                setattr(parent, name, made[child])
    return network


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed torch's global generator for the block, for code that draws from it; afterwards its state is as before."""
    with GLOBAL_GENERATOR_IN_USE:
        state = torch.default_generator.get_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.default_generator.set_state(state)


def initialize_(network: nn.Module, seed: int) -> nn.Module:
    """Draw the weights of any network anew, in place; the state of torch's global generator is restored afterwards.

    An `MLP` is initialized by `MLP.initialize`, other networks by the `reset_parameters` of their layers.
    """
    if isinstance(network, MLP):
        network.initialize(torch.Generator().manual_seed(seed))
        return network
    with global_seed(seed):
        for layer in network.modules():
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                reset()
    return network

"""The paper's network, which any `nn.Module` from (n, d) to (n, k) can replace, that of the default, and changes."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, Self

import torch
import torch.nn.functional as F
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


class MemberMLPs(nn.Module):
    r"""The networks of all members of an ensemble as one: (members, n, inputs) to (members, n, outputs).

    Every weight has a leading axis for the members, so that one batched product per layer trains all of them. Inside,
    rows are the last axis, which is the fast layout for matrix products with few columns. A member computes

    .. math:: f(x) = W_{out} \, h(x, e_1(x_1), \dots, e_d(x_d)) + \begin{pmatrix} A \tilde x \\ 0 \end{pmatrix}, \qquad
              e_j(x_j) = E_j \cos(2 \pi (w_j x_j + b_j))

    - :math:`h` is a SiLU network with dropout;
    - :math:`e_j` embeds a number in `EMBEDDING` learned functions of it, each a mixture of `FREQUENCIES` waves whose
      frequencies :math:`w_j \sim N(0, s^2)` are drawn once. A network of plain inputs learns slow functions of them
      first; s says how fast the functions of this member may be. (RealMLP: Holzmüller et al., 2024; there the
      frequencies are learned too.);
    - :math:`A \tilde x` is a linear path to the first half of the outputs, the means. :math:`\tilde x` are the inputs
      before they were squashed, standardized, so that a heavy-tailed input and a trend keep their scale. Beyond the
      range of the training rows it goes on by at most the width of that range.

    Args:
        n_inputs: Columns of the encoded table.
        n_outputs: Twice the number of targets: all means, then all raw standard deviations.
        n_numbers: The first columns, which are numbers; only these are embedded.
        dropout: (members,) dropout rates.
        frequency_scale: (members,) standard deviation s of the frequencies.
        width, depth: Of the hidden layers.
        generator: Source of the weights and of all masks.
    """

    FREQUENCIES, EMBEDDING = 16, 3
    # With more numbers, embeddings would take most of the time, and there are hardly ever enough rows to learn them.
    MOST_EMBEDDED = 256

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        *,
        n_numbers: int,
        dropout: Sequence[float],
        frequency_scale: Sequence[float],
        width: int,
        depth: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        check_number("width", width, 1, integer=True)
        check_number("depth", depth, 1, integer=True)
        members = self.members = len(dropout)
        self.width = width
        self.n_numbers, self.n_means, self.generator = n_numbers, n_outputs // 2, generator
        self.n_embedded = n_numbers if n_numbers <= self.MOST_EMBEDDED else 0

        def normal(*shape: int, std: float) -> Tensor:
            return std * torch.randn(members, *shape, generator=generator, dtype=torch.float32)

        def uniform(*shape: int, bound: float) -> Tensor:
            return bound * (2 * torch.rand(members, *shape, generator=generator, dtype=torch.float32) - 1)

        scale = 2 * math.pi * torch.tensor(frequency_scale, dtype=torch.float32).view(members, 1, 1, 1)
        waves = self.n_embedded, self.FREQUENCIES, 1
        self.register_buffer("frequency", scale * normal(*waves, std=1.0))
        self.register_buffer("phase", uniform(*waves, bound=math.pi))
        bound = self.FREQUENCIES**-0.5
        self.embedding = nn.Parameter(uniform(self.n_embedded, self.EMBEDDING, self.FREQUENCIES, bound=bound))
        self.embedding_bias = nn.Parameter(
            torch.zeros(members, self.n_embedded, self.EMBEDDING, 1, dtype=torch.float32)
        )
        first = n_inputs + self.n_embedded * self.EMBEDDING
        fans = [first] + [width] * (depth - 1)
        # The gain of 1 in the first layer, and its large biases, let units of any location arise from few inputs.
        gains = [1.0] + [2.0] * (depth - 1)
        self.weights = nn.ParameterList(
            normal(width, fan, std=math.sqrt(gain / fan)) for gain, fan in zip(gains, fans, strict=True)
        )
        self.biases = nn.ParameterList(uniform(width, 1, bound=1.0 if layer == 0 else 0.1) for layer in range(depth))
        # Predictions start at the mean of y with its standard deviation.
        self.output = nn.Parameter(normal(n_outputs, width, std=0.01))
        self.output_bias = nn.Parameter(torch.zeros(members, n_outputs, 1, dtype=torch.float32))
        self.linear = nn.Parameter(torch.zeros(members, self.n_means, n_inputs, dtype=torch.float32))
        self.path = LinearInputs(n_inputs, n_numbers)
        self.masks = DropoutTape(dropout, generator)

    frequency: Tensor
    phase: Tensor

    def decaying(self) -> list[nn.Parameter]:
        """The weights of the hidden layers: weight decay applies to these only."""
        return list(self.weights)

    def forward(self, x: Tensor) -> Tensor:
        """All members on the same rows (n, inputs), or each on its own (members, n, inputs)."""
        x = x.expand(self.members, *x.shape[-2:]).transpose(1, 2).contiguous()  # (members, inputs, n)
        # In two operations, because `addcmul` with such shapes takes three times as long.
        waves = (x[:, : self.n_embedded, None] * self.frequency).add_(self.phase).cos_()
        embedded = torch.matmul(self.embedding, waves) + self.embedding_bias  # (members, embedded, EMBEDDING, n)
        h = torch.cat([x, embedded.flatten(1, 2)], dim=1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            h = F.silu(torch.baddbmm(bias, weight, h))
            if self.training:
                h = h.mul_(self.masks.draw(*h.shape[1:]).to(h.device))
        outputs = torch.baddbmm(self.output_bias, self.output, h)
        means = outputs[:, : self.n_means] + torch.bmm(self.linear, self.path(x))
        return torch.cat([means, outputs[:, self.n_means :]], dim=1).transpose(1, 2)

    def train(self, mode: bool = True) -> Self:
        self.masks.forget()
        return super().train(mode)


class DropoutTape:
    """Dropout masks of all members: windows at random places of a longer tape of random numbers.

    To draw every mask anew takes almost as long as a matrix product. Within a window all elements are independent; two
    windows may overlap, but hardly ever at the same place, so that other units are dropped for a row. The tape is drawn
    anew after `DRAWS` windows.

    Args:
        rates: (members,) dropout rates, rounded to multiples of 1 / 256.
        generator: Source of the tape and of the places.
    """

    WINDOWS, DRAWS = 4, 200

    def __init__(self, rates: Sequence[float], generator: torch.Generator) -> None:
        checked = [check_number("dropout", rate, 0, 1, open_high=True) for rate in rates]
        self.dropped = (256 * torch.tensor(checked, dtype=torch.float32)).round().clamp(max=255)[:, None]
        self.generator = generator
        self.forget()

    def forget(self) -> None:
        """Give the memory back; the next mask comes from a new tape."""
        self.tape, self.draws_left = torch.empty(len(self.dropped), 0), 0

    def draw(self, width: int, n: int) -> Tensor:
        """A mask for hidden units (members, width, n): 0 where one is dropped, and 1 on average."""
        size = width * n
        if not self.draws_left or self.tape.shape[1] < 2 * size:
            self.tape, self.draws_left = self.random_tape(self.WINDOWS * size), self.DRAWS
        self.draws_left -= 1
        start = int(torch.randint(self.tape.shape[1] - size + 1, (), generator=self.generator))
        return self.tape[:, start : start + size].unflatten(1, (width, n))

    def random_tape(self, length: int) -> Tensor:
        shape = len(self.dropped), length
        # A byte for each element: this takes a fraction of the time of a random float.
        words = torch.empty(-(-math.prod(shape) // 8), dtype=torch.int64).random_(
            -(2**63), None, generator=self.generator
        )
        numbers = words.view(torch.uint8)[: math.prod(shape)].view(shape)
        return (numbers >= self.dropped).float().mul_(256 / (256 - self.dropped))


class LinearInputs(nn.Module):
    """The inputs of the linear path: numbers as they were before they were squashed, standardized; (..., inputs, n).

    Beyond the range of the training rows they go on by at most the width of that range.
    """

    low: Tensor
    high: Tensor
    center: Tensor
    scale: Tensor

    def __init__(self, n_inputs: int, n_numbers: int) -> None:
        super().__init__()
        self.n_numbers = n_numbers
        for name, value in {"low": -1.0, "high": 1.0, "center": 0.0, "scale": 1.0}.items():
            self.register_buffer(name, torch.full((n_inputs, 1), value, dtype=torch.float32))

    def fit(self, x: Tensor, weight: Tensor) -> None:
        """Learn range and scale of the training rows, x (n, inputs), in place."""
        self.low.copy_(x.amin(0)[:, None])
        self.high.copy_(x.amax(0)[:, None])
        plain = self.unsquash(x.T.double())
        share = weight.double() / weight.sum()
        center = (share * plain).sum(1, keepdim=True)
        scale = (share * (plain - center).square()).sum(1, keepdim=True).sqrt()
        self.center.copy_(center)
        self.scale.copy_(torch.where(scale > 1e-6, scale, 1.0))

    def inside(self, x: Tensor) -> Tensor:
        """The nearest rows in the range of the training rows."""
        return x.clamp(self.low, self.high)

    def unsquash(self, x: Tensor) -> Tensor:
        numbers = SQUASH_LIMIT * sinh(x[..., : self.n_numbers, :] / SQUASH_LIMIT)
        return torch.cat([numbers, x[..., self.n_numbers :, :]], dim=-2)

    def forward(self, x: Tensor) -> Tensor:
        low, high = self.unsquash(self.low), self.unsquash(self.high)
        return (self.unsquash(x).clamp(2 * low - high, 2 * high - low) - self.center) / self.scale


def sinh(x: Tensor) -> Tensor:
    """In an exported graph by exponentials where x is double, for which ONNX runtimes have no sinh."""
    if torch.compiler.is_exporting() and x.dtype == torch.float64:
        return (x.exp() - (-x).exp()) / 2
    return x.sinh()


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

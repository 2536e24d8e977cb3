"""Networks as members of a `CrossEnsemble`: small ones that run as one, with what suits tables."""

import math
from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hetcal._checks import check_number
from hetcal.estimators.linear_members import LinearInputs


class MemberMLPs(nn.Module):
    r"""The networks of all members of an ensemble as one: (members, n, inputs) to (members, n, outputs).

    Every weight has a leading axis for the members, so that one batched product per layer trains all of them. Inside,
    rows are the last axis, which is the fast layout for matrix products with few columns. A member computes

    .. math:: f(x) = W_{out} \, h(s_1 (x_1, e_1), \dots, s_d (x_d, e_d))
              + \begin{pmatrix} A \tilde x \\ 0 \end{pmatrix},
              \qquad e_j = E_j \cos(2 \pi (w_j x_j + b_j)), \qquad s_j = e^{12 t_j}

    - :math:`h` is a SiLU network with dropout;
    - :math:`s_j` says how much column j counts. It starts at 1 and learns faster than the weights, so that columns of
      no use fade before their noise is learned, and those that matter stand out (the scaling layer of RealMLP, there
      one factor for each input of the first layer);
    - :math:`e_j` embeds a number in `EMBEDDING` learned functions of it, each a mixture of `FREQUENCIES` waves whose
      frequencies :math:`w_j \sim N(0, \phi^2)` are drawn once. A network of plain inputs learns slow functions of them
      first; :math:`\phi` says how fast the functions of this member may be. (RealMLP: Holzmüller et al., 2024; there
      the frequencies are learned too.);
    - :math:`A \tilde x` is a linear path to the first half of the outputs, the means. :math:`\tilde x` are the inputs
      before they were squashed, standardized, so that a heavy-tailed input and a trend keep their scale.

    Args:
        n_inputs: Columns of the encoded table.
        n_outputs: Twice the number of targets: all means, then all raw standard deviations.
        n_numbers: The first columns, which are numbers; only these are embedded.
        dropout: (members,) dropout rates.
        frequency_scale: (members,) standard deviation :math:`\phi` of the frequencies.
        width, depth: Of the hidden layers.
        generator: Source of the weights and of all masks.
    """

    FREQUENCIES, EMBEDDING = 16, 3
    # How much faster than a weight log s changes: Adam takes steps of about equal size for all parameters.
    RELEVANCE_RATE = 12.0
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
        self.relevance = nn.Parameter(torch.zeros(members, 1, n_inputs, dtype=torch.float32))
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
        weights = [self.weights[0] * self.input_scale(), *self.weights[1:]]
        for weight, bias in zip(weights, self.biases, strict=True):
            h = F.silu(torch.baddbmm(bias, weight, h))
            if self.training:
                h = h.mul_(self.masks.draw(*h.shape[1:]).to(h.device))
        outputs = torch.baddbmm(self.output_bias, self.output, h)
        means = outputs[:, : self.n_means] + torch.bmm(self.linear, self.path(x))
        return torch.cat([means, outputs[:, self.n_means :]], dim=1).transpose(1, 2)

    def input_scale(self) -> Tensor:
        """The factor s of every input of the first layer, (members, 1, inputs): of the columns, then of embeddings."""
        scale = (self.RELEVANCE_RATE * self.relevance).exp()
        embedded = scale[:, :, : self.n_embedded].repeat_interleave(self.EMBEDDING, dim=2)
        return torch.cat([scale, embedded], dim=2)

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

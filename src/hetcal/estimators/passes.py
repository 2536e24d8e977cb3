"""Sigma from the spread of sampled networks: what MC dropout, concrete dropout and Bayes by backprop share.

The random layers of a network draw once per pass. All passes run as one batch, and the layers before the first random
layer are computed once.
"""

from math import gcd
from typing import Any

import torch
from torch import Tensor, nn

from hetcal._checks import check_number
from hetcal.estimators.base import MOST_NETWORKS, ROW_MULTIPLE, AbstractEstimator, check_outputs, check_std_floor
from hetcal.prediction import Prediction

# Rows of all passes together that are evaluated at once in prediction; it bounds the memory of a block.
ROWS_AT_ONCE = 10_240


class RandomLayer(nn.Module):
    """A layer that draws: anew in training, always the same draws in evaluation mode.

    The batch holds all passes one after the other: `samples` in training, `prediction_samples` in evaluation mode,
    where the layer writes nothing, so that threads can share it.
    """

    seed = 0
    samples = 1
    prediction_samples = 1

    def __init__(self) -> None:
        super().__init__()
        # In evaluation mode torch's fused transformer layer bypasses its inner layers, unless one has a hook.
        self.register_forward_hook(keep_output)

    def fixed_draws(self, h: Tensor) -> Tensor:
        """The draws of all passes in evaluation mode, (prediction_samples, ...), for inputs like h.

        They are determined by the seed, and cost little beside the passes, so that they are not kept.
        """
        return self.draw_passes(h, self.prediction_samples, torch.Generator().manual_seed(self.seed))

    def draw_passes(self, h: Tensor, passes: int, generator: torch.Generator | None) -> Tensor:
        """Draw (passes, ...) for inputs like h."""
        raise NotImplementedError


def keep_output(layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output


class SampledPasses(AbstractEstimator):
    r"""Mean and standard deviation over S passes through a network with random layers.

    .. math:: \mu_i = \frac1S \sum_j \hat y_i^j, \qquad
              \sigma_i^2 = \frac{1}{S-c} \sum_j (\hat y_i^j - \mu_i)^2 + \sigma_0^2

    with :math:`\hat y_i^j` = `network(x)` in pass j and :math:`\sigma_0` = `std_floor` in units of the (standardized)
    target. In evaluation mode S = `prediction_samples` and c = 1, the usual unbiased variance. The draws are always the
    same for a given `seed`, so that prediction is deterministic. In training S = `samples` and c = 3, because the
    likelihood divides by the variance: with few passes 1 / variance is too large on average by (S - 1) / (S - 3), and
    trained intervals would be too wide by the root of that factor, 13 % for ten passes.
    """

    n_outputs = 1

    def __init__(
        self,
        network: nn.Module,
        *,
        samples: int,
        prediction_samples: int,
        std_floor: float,
        n_targets: int,
        seed: int,
    ) -> None:
        is_one = check_number("samples", samples, 1, integer=True) == 1
        self.samples = samples if is_one else check_number("samples", samples, 4, MOST_NETWORKS, integer=True)
        self.prediction_samples = check_number("prediction_samples", prediction_samples, 2, MOST_NETWORKS, integer=True)
        self.std_floor = check_std_floor(std_floor)
        super().__init__(network, n_targets=n_targets, seed=seed)

    def number_layers(self) -> None:
        """Give every random layer its own seed; call this when the network is complete."""
        for number, layer in enumerate(self.random_layers):
            layer.seed = self.seed + number
            layer.samples, layer.prediction_samples = self.samples, self.prediction_samples

    @property
    def random_layers(self) -> list[RandomLayer]:
        return [layer for layer in self.network.modules() if isinstance(layer, RandomLayer)]

    def forward(self, x: Tensor) -> Prediction:
        passes = self.sampled_passes(x)
        if len(passes) == 1:
            return Prediction(passes[0], torch.full_like(passes[0], self.std_floor))
        return moments(passes, self.std_floor, lost=3 if self.training else 1)

    def sampled_passes(self, x: Tensor) -> Tensor:
        """The network's output in each pass: (samples, n), or (samples, n, n_targets)."""
        before, after = split_at_first_random_layer(self.network)
        h = self.run(before, x)  # computed once, because no draw affects it
        if self.training:
            return self.all_passes(after, h)
        step = ROW_MULTIPLE // gcd(ROW_MULTIPLE, self.prediction_samples)
        at_once = step * max(1, ROWS_AT_ONCE // (step * self.prediction_samples))
        return torch.cat([self.all_passes(after, rows) for rows in h.split(at_once)], dim=1)

    def all_passes(self, layers: list[nn.Module], h: Tensor) -> Tensor:
        """All passes as one batch of (passes * n) rows."""
        passes, n = self.samples if self.training else self.prediction_samples, h.shape[0]
        layers, h = self.repeat(layers, h, passes)
        outputs = check_outputs(self.run(layers, h), passes * n, 1, self.n_targets)[..., 0]
        return outputs.unflatten(0, (passes, n))

    def repeat(self, layers: list[nn.Module], h: Tensor, passes: int) -> tuple[list[nn.Module], Tensor]:
        """The layers that remain to be run, and the rows once for each pass."""
        return layers, h.repeat(passes, *(1,) * (h.ndim - 1))

    def run(self, layers: list[nn.Module], h: Tensor) -> Tensor:
        for layer in layers:
            h = layer(h)
        return h


def moments(passes: Tensor, std_floor: float, lost: int = 1) -> Prediction:
    """Mean and standard deviation over the first axis, (samples, n) -> (n,), with samples - lost in the denominator."""
    variance, mean = torch.var_mean(passes, dim=0, correction=lost)  # two-pass: no difference of large squares
    return Prediction(mean, (variance + std_floor**2).sqrt())


def split_at_first_random_layer(network: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """Split into the layers before the first draw, which are equal in all passes, and the rest.

    With skip connections all layers belong to the rest.
    """
    layers = [network]
    if isinstance(network, nn.Sequential) and type(network).forward is nn.Sequential.forward:
        layers = list(network)  # children() would omit repeated layers, such as one ReLU that is used throughout
    for place, layer in enumerate(layers):
        if any(isinstance(part, RandomLayer) for part in layer.modules()):
            return layers[:place], layers[place:]
    return [], layers

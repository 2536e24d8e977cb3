"""Sigma from the spread of sampled networks: Monte Carlo dropout (paper, section 2; Dropout-HC is algorithm 1).

One dropout mask per pass is shared by all rows, so a pass is one sampled network, and all passes run as one batch.
"""

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from hetcal._checks import DropoutInsertedWarning, check_choice, check_number, must
from hetcal.estimators.base import AbstractEstimator, check_outputs
from hetcal.estimators.thinned import ThinnedNetworks, thin
from hetcal.networks import CHANNEL_DROPOUT, DROPOUT_LAYERS, WEIGHT_LAYERS, PrivateDropout, replace_layers_
from hetcal.prediction import Prediction

MASKS = ("shared", "per_row")
# Passes that are evaluated together where the network cannot be thinned: bounds the memory of a block.
PASSES_AT_ONCE = 10


class MCDropout(AbstractEstimator):
    r"""Mean and standard deviation over passes with dropout kept on (Gal and Ghahramani, 2016).

    .. math:: \mu_i = \frac1S \sum_j \hat y_i^j, \qquad
              \sigma_i^2 = \frac{1}{S-c} \sum_j (\hat y_i^j - \mu_i)^2 + \sigma_0^2

    with :math:`\hat y_i^j` = `network(x)` under mask j and :math:`\sigma_0` = `std_floor` in units of the
    (standardised) target. In evaluation mode S = `prediction_samples` and c = 1, the usual unbiased variance, and the
    sampled networks are always the same ones for a given `seed`, so prediction is a function. In training S = `samples`
    and c = 3, because the likelihood divides by the variance: with few passes 1 / variance is too large on average by
    (S - 1) / (S - 3), and training would answer with intervals too wide by the root of that, 13 % for ten passes.

    Args:
        network: A module with `nn.Dropout` layers. One without gets dropout of `rate` before every weight layer but
            the first, and a `DropoutInsertedWarning` says so.
        rate: Dropout rate of inserted layers; the network's own layers keep theirs.
        samples: Passes per training step, at least 4; or 1, ordinary dropout, for an objective that leaves sigma alone
            (while training, sigma is then the floor).
        prediction_samples: Passes per prediction.
        masks: "shared", one mask per pass for the whole batch, or "per_row", a mask for every row and pass in
            training, as `nn.Dropout` draws them (slower). Prediction always samples whole networks.
        std_floor: Standard deviation that remains if all passes agree.
        seed: Seed of all masks.

    >>> from hetcal.networks import MLP
    >>> MCDropout(MLP(3, dropout=0.2))(torch.zeros(5, 3)).std.shape
    torch.Size([5])
    """

    n_outputs = 1

    def __init__(
        self,
        network: nn.Module,
        *,
        rate: float = 0.2,
        samples: int = 10,
        prediction_samples: int = 100,
        masks: str = "shared",
        std_floor: float = 1e-3,
        seed: int = 0,
    ) -> None:
        check_number("rate", rate, 0, 1, open_low=True, open_high=True)
        self.samples = samples if samples == 1 else check_number("samples", samples, 4, integer=True)
        self.prediction_samples = check_number("prediction_samples", prediction_samples, 2, integer=True)
        self.masks = check_choice("masks", masks, MASKS)
        self.std_floor = check_number("std_floor", std_floor, 0, open_low=True)
        super().__init__(with_dropout(network, rate), seed=seed)
        self._thinned: tuple[Any, ThinnedNetworks | None] | None = None
        if not any(layer.rate for layer in self.dropout_layers):
            raise must("dropout", "be greater than 0 for mc_dropout", 0, "sigma comes from dropout; 0.2 is usual")
        for number, layer in enumerate(self.dropout_layers):
            layer.seed = self.seed + number
            layer.prediction_samples = self.prediction_samples
            layer.per_row = self.masks == "per_row"

    @property
    def dropout_layers(self) -> "list[SampledDropout]":
        return [layer for layer in self.network.modules() if isinstance(layer, SampledDropout)]

    def private_dropout(self, layer: Any) -> nn.Module:
        return SampledDropout(layer.p, channels=isinstance(layer, CHANNEL_DROPOUT), generator=self.generator)

    def forward(self, x: Tensor) -> Prediction:
        passes = self.sampled_passes(x)
        if len(passes) == 1:
            return Prediction(passes[0], torch.full_like(passes[0], self.std_floor))
        return moments(passes, self.std_floor, lost=3 if self.training else 1)

    def sampled_passes(self, x: Tensor) -> Tensor:
        """The network's answer under each mask: (samples, n)."""
        before, after = split_at_first_dropout(self.network)
        h = run(before, x)  # what no mask touches is computed once
        if self.training:
            return self._passes(after, h, slice(0, self.samples))
        ends = [*range(0, self.prediction_samples, PASSES_AT_ONCE), self.prediction_samples]
        return torch.cat([self._passes(after, h, slice(*window)) for window in pairwise(ends)])

    def for_prediction(self) -> Callable[[Tensor], Prediction]:
        """The estimator in evaluation mode, with the units that each mask drops left out where the network allows."""
        weights = tuple((weight.data_ptr(), weight._version) for weight in self.network.parameters())
        if self._thinned is None or self._thinned[0] != weights:
            self._thinned = weights, thin(*split_at_first_dropout(self.network), self.prediction_samples)
        thinned = self._thinned[1]
        return self if thinned is None else lambda x: moments(thinned(x), self.std_floor)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_thinned": None}  # a cache

    def _passes(self, layers: list[nn.Module], h: Tensor, window: slice) -> Tensor:
        """All passes of the window as one batch of (passes * n) rows: (passes, n)."""
        passes, n = window.stop - window.start, len(h)
        for dropout in self.dropout_layers:
            dropout.window = window
        if isinstance(layers[0], SampledDropout) and layers[0].rate and not layers[0].per_row:
            masks = layers[0].pass_masks(h)  # (passes, features)
            layers, h = layers[1:], (h * masks[:, None]).flatten(0, 1)  # spares the copy that `repeat` makes
        else:
            h = h.repeat(passes, *(1,) * (h.ndim - 1))
        outputs = run(layers, h)  # (passes * n, 1)
        return check_outputs(outputs, passes * n, 1).view(passes, n)


class SampledDropout(PrivateDropout):
    """Dropout for a batch that holds several passes one after the other, with one mask per pass.

    Training draws new masks each time; evaluation uses the same `prediction_samples` masks for ever, of which
    `window` says the ones the batch holds.
    """

    seed = 0
    prediction_samples = 1
    per_row = False
    window = slice(0, 1)
    _frozen: tuple[Any, Tensor] | None = None

    def forward(self, h: Tensor) -> Tensor:
        if self.rate == 0:
            return h
        masks = self.pass_masks(h)
        return (h.unflatten(0, (len(masks), -1)) * masks[:, None]).flatten(0, 1)

    def after_relu(self, h: Tensor) -> Tensor:
        """This layer behind a ReLU, both in place."""
        return h.relu_() if self.rate == 0 else ReLUThenMask.apply(h, self.pass_masks(h), 1 / (1 - self.rate))

    def pass_masks(self, h: Tensor) -> Tensor:
        """One mask per pass in the batch; with `per_row`, in training, one per row."""
        if not self.training:
            return self.frozen_masks(h)[self.window]
        return self.draw(h, len(h) if self.per_row else self.window.stop - self.window.start)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_frozen": None}  # a cache

    def frozen_masks(self, h: Tensor) -> Tensor:
        """The masks of the sampled networks, (prediction_samples, features of h): drawn once, set by the seed."""
        like = h.shape[1:], h.dtype, h.device
        if self._frozen is None or self._frozen[0] != like:
            generator, self.generator = self.generator, torch.Generator().manual_seed(self.seed)
            self._frozen = like, self.draw(h, self.prediction_samples)
            self.generator = generator
        return self._frozen[1]


def moments(passes: Tensor, std_floor: float, lost: int = 1) -> Prediction:
    """Mean and standard deviation over the first axis, with samples - lost in the denominator: (samples, n) -> (n,)."""
    variance, mean = torch.var_mean(passes, dim=0, correction=lost)  # two-pass: no difference of large squares
    return Prediction(mean, (variance + std_floor**2).sqrt())


def with_dropout(network: nn.Module, rate: float) -> nn.Module:
    """The network itself if it has dropout layers; else with dropout before every weight layer but the first."""
    if any(isinstance(layer, DROPOUT_LAYERS) for layer in network.modules()):
        return network
    weight_layers = [layer for layer in network.modules() if isinstance(layer, WEIGHT_LAYERS)]
    if len(weight_layers) < 2:
        raise must(
            "network", "have nn.Dropout or at least two weight layers", network, "put nn.Dropout before its last layer"
        )
    warnings.warn(
        f"the network has no dropout layer; dropout of rate {rate} was inserted before {len(weight_layers) - 1} "
        "weight layer(s). Put nn.Dropout into the network to choose the places yourself",
        DropoutInsertedWarning,
        stacklevel=3,
    )

    def behind_dropout(layer: nn.Module) -> nn.Module:
        return layer if layer is weight_layers[0] else nn.Sequential(nn.Dropout(rate), layer)

    return replace_layers_(network, WEIGHT_LAYERS, behind_dropout)


class ReLUThenMask(torch.autograd.Function):
    """`relu(h) * masks` in place; the result alone tells where the gradient passes, scaled as the masks are."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, masks: Tensor, scale: float) -> Tensor:
        h.relu_().unflatten(0, (len(masks), -1)).mul_(masks[:, None])
        ctx.mark_dirty(h)
        ctx.save_for_backward(h)
        ctx.scale = scale
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (h,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradients[0], h, 0).mul_(ctx.scale), None, None


def split_at_first_dropout(network: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """The layers before the first mask, which no pass changes, and the rest; a network with skips is all rest."""
    layers = list(network.children()) if type(network).forward is nn.Sequential.forward else [network]
    for place, layer in enumerate(layers):
        if any(isinstance(part, SampledDropout) for part in layer.modules()):
            return layers[:place], layers[place:]
    return [], layers


def run(layers: list[nn.Module], h: Tensor) -> Tensor:
    """The layers in turn; a ReLU and the masks behind it as one operation, which saves a tenth of a training step."""
    fused = None
    for layer, following in pairwise([*layers, None]):
        if layer is None or layer is fused:
            continue
        if type(layer) is nn.ReLU and layer.inplace and isinstance(following, SampledDropout):
            fused = following
            h = fused.after_relu(h)
        else:
            h = layer(h)
    return h

"""Sigma from the spread of sampled networks: Monte Carlo dropout (paper, section 2; Dropout-HC is algorithm 1).

One dropout mask per pass is shared by all rows, so a pass is one sampled network, and all passes run as one batch.
"""

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from hetcal._checks import check_choice, check_number, must
from hetcal.estimators.base import drops_channels
from hetcal.estimators.passes import RandomLayer, SampledPasses, moments, split_at_first_random_layer
from hetcal.estimators.thinned import ThinnedNetworks, thin_networks
from hetcal.exceptions import DropoutInsertedWarning
from hetcal.networks import DROPOUT_LAYERS, WEIGHT_LAYERS, PrivateDropout, replace_layers_
from hetcal.prediction import Prediction

MASKS = ("shared", "per_row")


class MCDropout(SampledPasses):
    r"""Mean and standard deviation over passes with dropout kept on (Gal and Ghahramani, 2016).

    .. math:: \mu_i = \frac1S \sum_j \hat y_i^j, \qquad
              \sigma_i^2 = \frac{1}{S-c} \sum_j (\hat y_i^j - \mu_i)^2 + \sigma_0^2

    with :math:`\hat y_i^j` = `network(x)` under mask j, :math:`\sigma_0` = `std_floor`; S and c are explained in
    `SampledPasses`.

    Args:
        network: A module with `nn.Dropout` layers. If it has none, dropout of `rate` is inserted before every weight
            layer except the first, with a `DropoutInsertedWarning`.
        rate: Dropout rate of inserted layers; the network's own layers keep theirs.
        samples: Passes per training step, at least 4; or 1, which is ordinary dropout, for an objective that does not
            train sigma (sigma is then the floor during training).
        prediction_samples: Passes per prediction.
        masks: "shared", one mask per pass for the whole batch, or "per_row", a mask for every row and pass in
            training, as `nn.Dropout` draws them (slower). Prediction always samples whole networks.
        std_floor: Standard deviation that remains if all passes agree.
        n_targets: Number of targets that are predicted together.
        seed: Seed of all masks.

    >>> from hetcal.networks import MLP
    >>> MCDropout(MLP(3, dropout=0.2))(torch.zeros(5, 3)).std.shape
    torch.Size([5])
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        rate: float = 0.2,
        samples: int = 10,
        prediction_samples: int = 100,
        masks: str = "shared",
        std_floor: float = 1e-6,
        n_targets: int = 1,
        seed: int = 0,
    ) -> None:
        self.rate = check_number("rate", rate, 0, 1, open_low=True, open_high=True)
        self.masks = check_choice("masks", masks, MASKS)
        super().__init__(
            with_dropout(network, rate),
            samples=samples,
            prediction_samples=prediction_samples,
            std_floor=std_floor,
            n_targets=n_targets,
            seed=seed,
        )
        self.number_layers()
        self._thinned: tuple[Any, ThinnedNetworks | None] | None = None
        if not any(layer.rate for layer in self.dropout_layers):
            raise must("dropout", "be greater than 0 for mc_dropout", 0, "sigma comes from dropout; 0.2 is usual")
        for layer in self.dropout_layers:
            layer.per_row = self.masks == "per_row"

    @property
    def dropout_layers(self) -> "list[SampledDropout]":
        return [layer for layer in self.random_layers if isinstance(layer, SampledDropout)]

    def private_dropout(self, layer: Any) -> nn.Module:
        return SampledDropout(layer.p, channels=drops_channels(layer), generator=self.generator)

    def for_prediction(self) -> Callable[[Tensor], Prediction]:
        """The estimator in evaluation mode; where the network allows it, without the units that each mask drops."""
        weights = tuple((weight.data_ptr(), weight._version) for weight in self.network.parameters())
        if self._thinned is None or self._thinned[0] != weights:
            self._thinned = (
                weights,
                thin_networks(*split_at_first_random_layer(self.network), self.prediction_samples, self.n_targets),
            )
        thinned = self._thinned[1]
        return self if thinned is None else lambda x: moments(thinned(x), self.std_floor)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_thinned": None}  # a cache

    def repeat(self, layers: list[nn.Module], h: Tensor, passes: int) -> tuple[list[nn.Module], Tensor]:
        first = layers[0]
        if isinstance(first, SampledDropout) and first.rate and not first.per_row:
            masks = first.pass_masks(h)  # (passes, features)
            return layers[1:], (h * masks[:, None]).flatten(0, 1)  # avoids the copy that `repeat` makes
        return super().repeat(layers, h, passes)

    def run(self, layers: list[nn.Module], h: Tensor) -> Tensor:
        """Run a ReLU and the masks after it as one operation, which saves a tenth of a training step."""
        fused = None
        for layer, following in pairwise([*layers, None]):
            if layer is None or layer is fused:
                fused = None  # the same layer may occur in the network again
                continue
            if type(layer) is nn.ReLU and layer.inplace and isinstance(following, SampledDropout):
                fused = following
                h = fused.after_relu(h)
            else:
                h = layer(h)
        return h


class SampledDropout(PrivateDropout, RandomLayer):
    """Dropout for a batch that holds several passes, with one mask per pass."""

    is_regularizer = False
    per_row = False

    def forward(self, h: Tensor) -> Tensor:
        if self.rate == 0:
            return h
        masks = self.pass_masks(h)
        return (h.unflatten(0, (len(masks), -1)) * masks[:, None]).flatten(0, 1)

    def after_relu(self, h: Tensor) -> Tensor:
        """A ReLU followed by this layer, both in place."""
        return h.relu_() if self.rate == 0 else ReLUThenMask.apply(h, self.pass_masks(h), 1 / (1 - self.rate))

    def pass_masks(self, h: Tensor) -> Tensor:
        """One mask per pass in the batch; with `per_row`, in training, one per row."""
        if not self.training:
            return self.frozen_masks(h)[self.window]
        return self.draw(h, len(h) if self.per_row else self.window.stop - self.window.start)

    def frozen_masks(self, h: Tensor) -> Tensor:
        """The masks of the sampled networks: (prediction_samples, features of h)."""
        return self.frozen(h)

    def draw_frozen(self, h: Tensor, generator: torch.Generator) -> Tensor:
        own, self.generator = self.generator, generator
        masks = self.draw(h, self.prediction_samples)
        self.generator = own
        return masks


def with_dropout(network: nn.Module, rate: float) -> nn.Module:
    """Return the network if it has dropout layers; otherwise add dropout before every weight layer except the first."""
    if any(isinstance(layer, (*DROPOUT_LAYERS, PrivateDropout)) for layer in network.modules()):
        return network
    weight_layers = [layer for layer in network.modules() if isinstance(layer, WEIGHT_LAYERS)]
    if len(weight_layers) < 2:
        raise must(
            "network", "have nn.Dropout or at least two weight layers", network, "add nn.Dropout before its last layer"
        )
    warnings.warn(
        f"the network has no dropout layer; dropout of rate {rate} was inserted before {len(weight_layers) - 1} "
        "weight layer(s). Add nn.Dropout to the network to choose its positions yourself",
        DropoutInsertedWarning,
        stacklevel=3,
    )

    def behind_dropout(layer: nn.Module) -> nn.Module:
        return layer if layer is weight_layers[0] else nn.Sequential(nn.Dropout(rate), layer)

    return replace_layers_(network, WEIGHT_LAYERS, behind_dropout)


class ReLUThenMask(torch.autograd.Function):
    """`relu(h) * masks` in place; the gradient needs only the result, which is positive where the gradient passes."""

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

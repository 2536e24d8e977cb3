"""Sigma from dropout whose rates are learned, one per layer: concrete dropout (Gal, Hron and Kendall, 2017)."""

from typing import Any

import torch
from torch import Tensor, nn

from hetcal._checks import check_number
from hetcal.estimators.base import drops_channels
from hetcal.estimators.mc_dropout import MCDropout, SampledDropout
from hetcal.networks import WEIGHT_LAYERS
from hetcal.prediction import Prediction

# Keeps the logarithms of uniform numbers finite.
TINY = 1e-6


class ConcreteDropout(MCDropout):
    r"""MC dropout with a learned rate p for each dropout layer, by a continuous relaxation of its masks.

    .. math:: m = 1 - \mathrm{sigmoid}\left(\frac1t \left(\log\frac{p}{1-p} + \log\frac{u}{1-u}\right)\right),
              \qquad u \sim U(0, 1)

    and the own loss is the Kullback-Leibler divergence from the prior, over all dropout layers,

    .. math:: \frac1N \sum_l \frac{\ell^2 \lVert W_l \rVert^2}{2 (1 - p_l)} + K_l (p_l \log p_l + (1-p_l) \log(1-p_l))

    with t = `temperature`, :math:`\ell` = `length_scale`, N = `n_train`, :math:`W_l` the weights after dropout layer l
    and :math:`K_l` the number of units that it applies to.

    Args:
        network: A module with `nn.Dropout` layers, whose rates are the initial rates. If it has none, dropout of `rate`
            is inserted before every weight layer except the first, with a `DropoutInsertedWarning`.
        rate: Initial rate of inserted layers, and of layers with rate 0.
        length_scale: Prior length scale; a larger one means smaller weights.
        temperature: Temperature of the relaxation; 0 would be hard masks.
        samples, prediction_samples, std_floor, n_targets, seed: As for `MCDropout`.

    >>> from hetcal.networks import MLP
    >>> ConcreteDropout(MLP(3, depth=2, dropout=0.1)).rates
    [0.1, 0.1]
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        rate: float = 0.1,
        length_scale: float = 1e-2,
        temperature: float = 0.1,
        samples: int = 10,
        prediction_samples: int = 100,
        std_floor: float = 1e-6,
        n_targets: int = 1,
        seed: int = 0,
    ) -> None:
        self.length_scale = check_number("length_scale", length_scale, 0)
        self.temperature = check_number("temperature", temperature, 0, open_low=True)
        super().__init__(
            network,
            rate=rate,
            samples=samples,
            prediction_samples=prediction_samples,
            std_floor=std_floor,
            n_targets=n_targets,
            seed=seed,
        )

    def private_dropout(self, layer: Any) -> nn.Module:
        rate, channels = layer.p or self.rate, drops_channels(layer)
        return ConcreteMasks(rate, self.temperature, channels=channels, generator=self.generator)

    @property
    def rates(self) -> list[float]:
        """The rates learned so far, from the first dropout layer to the last."""
        return [round(float(layer.learned_rate.detach()), 4) for layer in self.concrete_layers]

    @property
    def concrete_layers(self) -> "list[ConcreteMasks]":
        return [layer for layer in self.random_layers if isinstance(layer, ConcreteMasks)]

    def make_frozen(self) -> None:
        return None  # soft masks drop no unit entirely, so no unit can be omitted

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        """The divergence from the prior per training row: one number."""
        layers = list(self.network.modules())
        divergence = y.new_zeros((), dtype=prediction.mean.dtype)
        for place, dropout in enumerate(layers):
            if isinstance(dropout, ConcreteMasks):
                p = dropout.learned_rate
                weights = next((layer.weight for layer in layers[place:] if isinstance(layer, WEIGHT_LAYERS)), None)
                if weights is not None:
                    divergence = divergence + self.length_scale**2 * weights.square().sum() / (2 * (1 - p))
                divergence = divergence + dropout.units * (p * p.log() + (1 - p) * (1 - p).log())
        return divergence / n_train


class ConcreteMasks(SampledDropout):
    """Relaxed masks with a learned rate, one per pass; differentiable in the rate."""

    def __init__(
        self, rate: float, temperature: float, *, channels: bool = False, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(rate, channels=channels, generator=generator)
        self.temperature = temperature
        # Named raw_*, because a rate is not a weight and must not decay (estimators.base.parameter_groups).
        self.raw_rate = nn.Parameter(torch.tensor(rate, dtype=torch.float32).logit())
        self.units = 0  # known after the first training batch

    @property
    def learned_rate(self) -> Tensor:
        return self.raw_rate.sigmoid()

    def after_relu(self, h: Tensor) -> Tensor:
        return self(h.relu_())

    def pass_masks(self, h: Tensor) -> Tensor:
        if self.training:
            self.units = self.features(h).numel()
            uniform = self.draw_passes(h, self.samples, self.generator)
        else:
            uniform = self.fixed_draws(h)
        noise = uniform.logit(eps=TINY)
        return torch.sigmoid(-(self.raw_rate + noise) / self.temperature) / (1 - self.learned_rate)

    def draw_passes(self, h: Tensor, passes: int, generator: torch.Generator | None) -> Tensor:
        return torch.rand(passes, *self.features(h), dtype=h.dtype, generator=generator).to(h.device)

"""Sigma from Gaussian weights: Bayes by backprop (Blundell et al., 2015).

Local reparametrization (Kingma et al., 2015) samples the outputs of a layer instead of its weights.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hetcal._checks import check_number, must
from hetcal.estimators.passes import RandomLayer, SampledPasses
from hetcal.networks import WEIGHT_LAYERS, replace_layers_
from hetcal.prediction import Prediction


class BayesByBackprop(SampledPasses):
    r"""Spread over passes through a network whose weights are Gaussian, :math:`w \sim N(m, s^2)`, with m and s learned.

    Given its inputs h, the outputs of a linear layer are then Gaussian too, and are sampled instead:

    .. math:: a \sim N\left(m h + m_b, \; s^2 h^2 + s_b^2\right)

    The own loss is the divergence from the prior, per training row,

    .. math:: \frac{\beta}{N} \sum_w \log\frac{s_0}{s} + \frac{s^2 + m^2}{2 s_0^2} - \frac12

    with N = `n_train`, :math:`\beta` = `kl_weight`, and :math:`s_0` = `prior_std` :math:`\cdot \sqrt{2 / fan\_in}`, so
    that the prior does not grow with the width. :math:`\beta = 1` is Bayes' rule. With tens of thousands of weights and
    hundreds of rows, the prior then dominates the data; therefore the default is smaller.

    Args:
        network: Any module; its linear and convolutional layers get Gaussian weights, in place.
        prior_std: Scale of the prior.
        initial_std: Initial value of s, as a fraction of :math:`s_0`.
        kl_weight: Weight of the divergence.
        samples, prediction_samples, std_floor, n_targets, seed: As for `MCDropout`.

    >>> from hetcal.networks import MLP
    >>> BayesByBackprop(MLP(3))(torch.zeros(5, 3)).std.shape
    torch.Size([5])
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        prior_std: float = 1.0,
        initial_std: float = 0.3,
        kl_weight: float = 0.01,
        samples: int = 10,
        prediction_samples: int = 100,
        std_floor: float = 1e-6,
        n_targets: int = 1,
        seed: int = 0,
    ) -> None:
        self.prior_std = check_number("prior_std", prior_std, 0, open_low=True)
        self.initial_std = check_number("initial_std", initial_std, 0, 1, open_low=True)
        self.kl_weight = check_number("kl_weight", kl_weight, 0)
        if not any(isinstance(layer, WEIGHT_LAYERS) for layer in network.modules()):
            raise must("network", "have a linear or convolutional layer", network, "these get Gaussian weights")
        super().__init__(
            network,
            samples=samples,
            prediction_samples=prediction_samples,
            std_floor=std_floor,
            n_targets=n_targets,
            seed=seed,
        )
        self.network = replace_layers_(self.network, WEIGHT_LAYERS, self.gaussian_weights)
        self.number_layers()

    def gaussian_weights(self, layer: Any) -> nn.Module:
        return GaussianWeights(layer, self.prior_std, self.initial_std, self.generator)

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        """The divergence from the prior per training row: one number."""
        layers = [layer for layer in self.random_layers if isinstance(layer, GaussianWeights)]
        return self.kl_weight * torch.stack([layer.divergence() for layer in layers]).sum() / n_train


class GaussianWeights(RandomLayer):
    """A linear or convolutional layer whose weights are Gaussian; `layer` holds their means."""

    def __init__(self, layer: Any, prior_std: float, initial_std: float, generator: torch.Generator) -> None:
        super().__init__()
        self.layer = layer
        self.generator = generator
        self.prior_std = prior_std * (2 / layer.weight[0].numel()) ** 0.5
        # softplus(raw) * prior_std is the standard deviation. Named raw_*, so that it does not decay.
        raw = float(torch.tensor(initial_std, dtype=torch.float32).expm1().log())
        self.raw_std = nn.ParameterDict(
            {name: torch.full_like(mean, raw) for name, mean in layer.named_parameters(recurse=False)}
        )

    def forward(self, h: Tensor) -> Tensor:
        variances = {name: (F.softplus(raw) * self.prior_std).square() for name, raw in self.raw_std.items()}
        mean = self.layer(h)
        twin = copy.copy(self.layer)  # `functional_call` would change the layer, which threads may share, for a moment
        twin._parameters = {**self.layer._parameters, **variances}
        variance = twin(h.square())
        return mean + (variance + 1e-12).sqrt() * self.noise(mean)

    def noise(self, like: Tensor) -> Tensor:
        """Noise for every row in training; in evaluation mode one draw per pass and unit, the same for all rows."""
        if self.training:
            return torch.randn(like.shape, dtype=like.dtype, generator=self.generator).to(like.device)
        draws = self.fixed_draws(like)  # (passes, units)
        rows = like.shape[0] // len(draws)
        return draws[:, None].expand(-1, rows, *draws.shape[1:]).flatten(0, 1)

    def draw_passes(self, h: Tensor, passes: int, generator: torch.Generator | None) -> Tensor:
        return torch.randn(passes, *h.shape[1:], dtype=h.dtype, generator=generator).to(h.device)

    def divergence(self) -> Tensor:
        """Kullback-Leibler divergence of all weights from the prior N(0, prior_std^2)."""
        total = []
        for name, raw in self.raw_std.items():
            mean, ratio = getattr(self.layer, name) / self.prior_std, F.softplus(raw)
            total.append(((ratio.square() + mean.square() - 1) / 2 - ratio.log()).sum())
        return torch.stack(total).sum()

"""Sigma from several networks: deep ensembles (Lakshminarayanan et al., 2017), trained as one batched network.

The members' parameters are stacked along a leading axis, and all members run together through `torch.func`, for any
network. All members see the same batch, because the pooled prediction needs all of them on the same rows. Each member
has its own initial weights and dropout masks, and its own loss ignores a random half of every batch.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hetcal._checks import check_number
from hetcal.estimators.base import MOST_NETWORKS, AbstractEstimator, check_outputs, check_std_floor, drops_channels
from hetcal.estimators.passes import moments
from hetcal.estimators.stacked import MemberDropout, StackedNetworks
from hetcal.families import Family
from hetcal.prediction import Prediction


@dataclass(frozen=True, kw_only=True)
class EnsemblePrediction(Prediction):
    """The pooled prediction with those of the members, (members, n), for the estimator's own loss."""

    members: Prediction

    def with_family(self, family: Family) -> Self:
        return replace(self, family=family, members=self.members.with_family(family))


class AbstractEnsemble(AbstractEstimator):
    """Networks with stacked parameters; subclasses define how their outputs are pooled.

    Args:
        network: Any module. It is the first member; the others are copies of it with newly drawn weights.
        members: Number of members.
        bootstrap: Weight the training rows in each member's own loss as in a sample with replacement.
        std_floor, n_targets, seed: As for `MCDropout`.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        members: int = 8,
        bootstrap: bool = False,
        std_floor: float = 1e-6,
        n_targets: int = 1,
        seed: int = 0,
    ) -> None:
        self.members = check_number("members", members, self.least_members, MOST_NETWORKS, integer=True)
        self.bootstrap = bool(bootstrap)
        self.std_floor = check_std_floor(std_floor)
        super().__init__(network, n_targets=n_targets, seed=seed)
        self.networks = StackedNetworks(self.network, self.members, self.seed)
        del self.network
        self._row_weights: Tensor | None = None
        self._batch_weights: Tensor | None = None

    least_members = 1

    def private_dropout(self, layer: Any) -> nn.Module:
        channels = drops_channels(layer)
        return MemberDropout(layer.p, self.members, channels=channels, generator=self.generator)

    def member_outputs(self, x: Tensor) -> Tensor:
        """The outputs of every member: (members, n, n_outputs), or (members, n, n_targets, n_outputs)."""
        outputs: Tensor = self.networks(x)
        return outputs.reshape(
            self.members, *check_outputs(outputs[0], x.shape[0], self.n_outputs, self.n_targets).shape
        )

    def at_rows(self, index: Tensor, n_train: int) -> None:
        """Draw the weights of the next rows in each member's own loss; called before every training batch."""
        if self.members == 1:
            return
        # Each member ignores its own half of the batch, so that members do not fit the same noise.
        weights = 2.0 * torch.randint(2, (self.members, len(index)), generator=self.generator).float()
        if self.bootstrap:
            if self._row_weights is None or self._row_weights.shape[1] != n_train:
                drawn = torch.randint(n_train, (self.members, n_train), generator=self.generator)
                ones = torch.ones(drawn.shape, dtype=torch.float32)
                self._row_weights = torch.zeros_like(ones).scatter_add_(1, drawn, ones)
            weights = weights * self._row_weights[:, index.cpu()]
        self._batch_weights = weights.to(index.device)

    def weigh(self, losses: Tensor) -> Tensor:
        """Average the losses (members, n, ...) over the members, weighted, to a loss per row."""
        weights, self._batch_weights = self._batch_weights, None
        if self.training and weights is not None and weights.shape == losses.shape[:2]:
            losses = losses * weights.view(*weights.shape, *(1,) * (losses.ndim - 2)).to(losses)
        return losses.mean(0)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_row_weights": None, "_batch_weights": None}


class Ensemble(AbstractEnsemble):
    r"""Members with a mean and a sigma each, pooled as a mixture, which separates noise of y from their disagreement.

    .. math:: \mu = \frac1M \sum_j \mu_j, \qquad
              \sigma^2 = \underbrace{\frac1M \sum_j \sigma_j^2}_{aleatoric}
              + \underbrace{\frac1M \sum_j (\mu_j - \mu)^2}_{epistemic}

    with :math:`\mu_j, \sigma_j` as for `VarianceHead`. The own loss is the members' own negative log likelihood,
    :math:`-\frac1M \sum_j \log p_j(y)`. With the likelihood as objective (weight 1) the pooled likelihood and those of
    the members thus count equally. With an objective of weight 0 this is the classical deep ensemble. An ensemble of
    one is its only member.

    >>> from hetcal.networks import MLP
    >>> Ensemble(MLP(3, 2), members=4)(torch.zeros(5, 3)).epistemic_std.shape
    torch.Size([5])
    """

    n_outputs = 2

    def forward(self, x: Tensor) -> EnsemblePrediction:
        mean, raw = self.member_outputs(x).unbind(-1)  # (members, n) each
        members = Prediction(mean, F.softplus(raw) + self.std_floor)
        between, pooled = torch.var_mean(mean, dim=0, correction=0)
        within = members.std.square().mean(0)
        return EnsemblePrediction(
            pooled,
            (between + within).sqrt(),
            epistemic_std=between.detach().sqrt(),
            aleatoric_std=within.detach().sqrt(),
            members=members,
        )

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        """The members' own negative log likelihood."""
        assert isinstance(prediction, EnsemblePrediction)
        return self.weigh(-prediction.members.log_prob(y))


class EnsembleSpread(AbstractEnsemble):
    r"""Members that predict a mean only; sigma is their disagreement.

    .. math:: \mu = \frac1M \sum_j \mu_j, \qquad \sigma^2 = \frac{1}{M - c} \sum_j (\mu_j - \mu)^2 + \sigma_0^2

    with c = 1, and 3 in training, as explained in `SampledPasses`. The own loss is the members' squared error,
    :math:`\frac1M \sum_j (y - \mu_j)^2`. With an objective of weight 0 this is an ordinary ensemble.

    >>> from hetcal.networks import MLP
    >>> EnsembleSpread(MLP(3))(torch.zeros(5, 3)).std.shape
    torch.Size([5])
    """

    n_outputs = 1
    least_members = 4

    def forward(self, x: Tensor) -> EnsemblePrediction:
        mean = self.member_outputs(x)[..., 0]  # (members, n)
        members = Prediction(mean, torch.full_like(mean, self.std_floor))
        pooled = moments(mean, self.std_floor, lost=3 if self.training else 1)
        return EnsemblePrediction(pooled.mean, pooled.std, members=members)

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        """The members' own squared error."""
        assert isinstance(prediction, EnsemblePrediction)
        return self.weigh((y - prediction.members.mean).square())

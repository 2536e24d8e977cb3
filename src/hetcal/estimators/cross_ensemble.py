"""Sigma from members that hold out rows: the default of `HCRegressor`.

Groups of members differ in regularization and in how fast their functions may vary. Each member of a group has its own
held-out part of the rows, so that the whole ensemble is calibrated on all rows by members that have not seen them
(`estimators.held_out`). `training.cross_fitting` trains it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hetcal._checks import Floats
from hetcal.estimators.boosted_members import BoostedMembers
from hetcal.estimators.forest_members import ForestMembers
from hetcal.estimators.held_out import (
    CERTAINTY_PREFERENCE,
    HeldOut,
    choose_floor,
    choose_stack,
    choose_widening,
    fit_shape,
    pool_factor,
)
from hetcal.estimators.linear_members import LinearMembers
from hetcal.families import SCORES, Empirical
from hetcal.prediction import Prediction, from_columns

# Limits of the logarithm of sigma, in units of the standardized target; they hardly ever bind.
LEAST_LOG_STD, MOST_LOG_STD = -14.0, 3.0


@dataclass(frozen=True)
class MemberGroup:
    """Settings that the members of a group share; see `hetcal.estimators.network_members`."""

    dropout: float
    frequency_scale: float


def plan_groups(n: int, n_inputs: int) -> list[MemberGroup]:
    """The groups for n rows: one of slow functions, and one of fast functions, which need many rows per input."""
    slow, fast = (0.1, 0.6) if n <= 1500 else (0.2, 0.9)
    return [MemberGroup(0.1, slow), MemberGroup(0.2, 0.1 + fast * min(1.0, n / (25 * n_inputs)))]


class CrossEnsemble(nn.Module):
    r"""Groups g of members j with a mean and a sigma each: of networks, linear models, boosted
    trees and forests.

    .. math:: \mu_j = \sum_g w_{gj}(x) \mu_{gj}, \qquad
              s_j^2 = \Big(\sum_g w_{gj}(x) \sigma_{gj}\Big)^2 + c \, b_j, \qquad
              w_{gj}(x) \propto w_g \sigma_{gj}^{-\gamma}, \\
              y = \overline{\mu_j} + \rho \, \overline{s_j} \, T(z), \; z \sim N(0, 1)

    with b the variance between groups of networks. The paper's idea is in the members: their sigma is trained as part
    of the objective. Weights w, power :math:`\gamma`, the least sigma of the forests, widening c, shape T and pool
    factor :math:`\rho` come from held-out rows, in `calibrate`. A held-out prediction is that of one member per group;
    the pool averages k such predictions, so that what is learned from the former holds for the latter. T is a family
    of its own, `hetcal.families.Empirical`, standardized, so that mean and std are those of the prediction.

    Args:
        networks: (groups * parts) members in the order of the groups: rows (n, inputs), or (members, n, inputs), to
            (members, n, 2 * targets), all means and then all raw sigmas.
        n_groups: Number of groups.
        n_parts: Members of each group, and parts of the rows.
        n_inputs, n_numbers: Columns of the encoded table, and those that are numbers.
        n_targets: Number of targets.
        n_nodes: Nodes of the forests and of the boosted trees (of mean and sigma); given to load a model file.
    """

    n_outputs = 2
    group_weights: Tensor
    power: Tensor
    floors: Tensor
    widening: Tensor
    factor: Tensor
    shape: Tensor

    def __init__(
        self,
        networks: nn.Module,
        *,
        n_groups: int,
        n_parts: int,
        n_inputs: int,
        n_numbers: int,
        n_targets: int = 1,
        n_nodes: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        super().__init__()
        self.networks, self.n_groups, self.n_parts, self.n_targets = networks, n_groups, n_parts, n_targets
        self.linear_members = LinearMembers(n_parts, n_inputs, n_numbers, n_targets)
        self.boosted_members = BoostedMembers(n_parts, n_targets, n_nodes[1:])
        self.forest_members = ForestMembers(n_parts, n_targets, n_nodes[0])
        total, double = n_groups + sum(module.n_groups for module in self.fitted), torch.float64
        self.register_buffer("group_weights", torch.full((total,), 1 / total, dtype=double))
        self.register_buffer("power", torch.zeros((), dtype=double))
        self.register_buffer("floors", torch.zeros(total, n_targets, dtype=double))
        self.register_buffer("widening", torch.zeros((), dtype=double))
        self.register_buffer("factor", torch.ones(n_targets, dtype=double))
        self.register_buffer("shape", torch.tensor(np.tile(SCORES, (n_targets, 1))))

    @property
    def fitted(self) -> tuple[LinearMembers, BoostedMembers, ForestMembers]:
        """The members that are not networks: a group of linear models, one of boosted trees, two of forests."""
        return self.linear_members, self.boosted_members, self.forest_members

    def member_predictions(self, x: Tensor) -> Prediction:
        """Mean and std of every member, (members, n, targets); x is (n, inputs), or (members, n, inputs)."""
        mean, raw = self.networks(x).chunk(2, dim=-1)
        return Prediction(mean, raw.clamp(LEAST_LOG_STD, MOST_LOG_STD).exp())

    def group_predictions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and std of all members by group, (groups, parts, n, targets): networks, then those of `fitted`.

        Beyond the range of the training rows a tree is constant, and a network is anything. So both predict the nearest
        row inside, and go on from there as the linear members do.
        """
        inside, beyond = self.linear_members.continuation(x)
        members = self.member_predictions(inside)
        linear, boosted, forests = self.linear_members(x), self.boosted_members(inside), self.forest_members(inside)
        networks = members.mean.double().unflatten(0, (self.n_groups, self.n_parts))
        means = [networks + beyond, linear[0], boosted[0] + beyond, forests[0] + beyond]
        stds = [members.std.double().unflatten(0, (self.n_groups, self.n_parts)), linear[1], boosted[1], forests[1]]
        floors = self.floors[:, None, None]
        return torch.cat(means), (torch.cat(stds).square() + floors.square()).sqrt()

    def forward(self, x: Tensor) -> Prediction:
        """The calibrated prediction of the whole pool."""
        mean, std = self.group_predictions(x)
        location, scale, widened = self.pool(mean, std, is_widened=bool(self.widening))
        *moments, family = Empirical(self.shape.cpu().numpy()).standardized()
        t_mean, t_std = (torch.as_tensor(moment).to(location) for moment in moments)
        unit = self.factor * widened
        center, total = location + unit * t_mean, unit * t_std
        # Of the variance of a mixture, the part that members disagree about is epistemic.
        between = (self.shares(std) * (mean - location).square()).sum(0).mean(0)
        share = scale.square() / (scale.square() + between)
        columns = [center, total, total * (1 - share).sqrt(), total * share.sqrt()]
        if self.n_targets == 1:
            columns, family = [column[:, 0] for column in columns], family.target(0)
        return from_columns((column.float() for column in columns), family)

    def shares(self, std: Tensor) -> Tensor:
        """Weights of the groups for each row and member, of the shape of std: (groups, parts, n, targets)."""
        shares = self.group_weights[:, None, None, None] * std.pow(-self.power)
        return shares / shares.sum(0)

    def pool(self, mean: Tensor, std: Tensor, is_widened: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Location, scale and widened scale, (n, targets): means over the parts. Tensors only, for ONNX."""
        shares = self.shares(std)
        location, scale = (shares * mean).sum(0), (shares * std).sum(0)
        widened = scale
        if is_widened:
            mean, shares = mean[: self.n_groups], shares[: self.n_groups]  # of networks
            center = (shares * mean).sum(0) / shares.sum(0)
            widened = (scale.square() + self.widening * (shares * (mean - center).square()).sum(0)).sqrt()
        return location.mean(0), scale.mean(0), widened.mean(0)

    def calibrate(self, held_out: HeldOut, y: Floats, weights: Floats) -> "Calibration":
        """Learn floors, weights, widening, shape and pool factor from held-out predictions of all groups."""
        floors = np.zeros(self.floors.shape)
        for group in range(len(floors) - ForestMembers.n_groups, len(floors)):
            floors[group] = choose_floor(held_out.mean[group], held_out.std[group], y, weights)
        held_out = with_floors(held_out, floors)
        mean, std = held_out.mean, held_out.std
        stack = choose_stack(mean, std, y, weights, 0.0 if held_out.are_groups else CERTAINTY_PREFERENCE)
        stack = choose_widening(stack, mean, std, y, weights, self.n_groups)
        location, _, scale = stack.pool(mean, std)
        shapes = [fit_shape(column, weights) for column in ((y - location) / scale).T]
        factor = pool_factor(held_out, stack, y, weights, self.n_parts)
        chosen = {"group_weights": stack.group_weights, "power": stack.power, "widening": stack.widening}
        for name, value in {**chosen, "floors": floors, "factor": factor}.items():
            getattr(self, name).copy_(torch.as_tensor(value))
        self.set_shapes(shapes)
        return Calibration(location, scale)

    def set_shapes(self, shapes: Sequence[Empirical]) -> None:
        self.shape.copy_(torch.as_tensor(np.stack([shape.values for shape in shapes])))

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        """None: the objective of each member is all that is trained."""
        return torch.zeros_like(y)

    def decaying(self) -> list[nn.Parameter]:
        """The parameters to which weight decay applies."""
        own: Any = getattr(self.networks, "decaying", None)
        return list(own()) if own else [value for value in self.networks.parameters() if value.ndim > 2]


def with_floors(held_out: HeldOut, floors: Floats) -> HeldOut:
    """The same predictions, with a least sigma of each group, (groups, targets)."""
    seconds = [
        replace(opinion, std=np.hypot(opinion.std, floors[opinion.groups, None])) for opinion in held_out.seconds
    ]
    return replace(held_out, std=np.hypot(held_out.std, floors[:, None]), seconds=seconds)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Held-out location and scale of every row, (n, targets), before the shape."""

    location: Floats
    scale: Floats

    def calibrated(self, ensemble: Any) -> Prediction:
        """The held-out predictions under the ensemble's shapes, in the scale of training."""
        return self.prediction(Empirical(ensemble.shape.cpu().numpy()))

    def prediction(self, shape: Empirical) -> Prediction:
        """The held-out predictions under a shape, in the scale of training."""
        mean, std, family = shape.standardized()
        prediction = Prediction(self.location + mean * self.scale, std * self.scale, family=family)
        return prediction.target(0) if self.location.shape[1] == 1 else prediction

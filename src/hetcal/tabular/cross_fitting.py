"""The training of a `CrossEnsemble`: each member on the rows that it does not hold out, all members at once.

One stopping time is chosen for each group, by the mean CRPS over the held-out rows of its members. (If each member had
its own, its held-out residuals would be too small.)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hetcal._checks import check_number
from hetcal.estimators.cross_ensemble import CrossEnsemble
from hetcal.estimators.held_out import HeldOut, SecondOpinion
from hetcal.exceptions import TrainingDivergedError
from hetcal.families import GAUSSIAN, Family
from hetcal.metrics.history import EpochRecord, History, ProgressBar
from hetcal.networks import LinearInputs
from hetcal.objectives import Objective, crps_loss
from hetcal.prediction import Prediction

PARTS = 4
# A member also holds out this fraction of the next member's part: rows that two members of a group have not seen.
SHARED_FRACTION = 1 / 8
# The stopping time is looked for at this many steps, evenly on a logarithmic scale, on at most so many rows a member.
LOOKS, LOOK_ROWS = 45, 2000
# The learning rate anneals to almost 0 at the end of each of four cycles, each twice as long as the one before.
CYCLE_ENDS = (1 / 15, 3 / 15, 7 / 15, 1.0)
PREDICTION_ROWS = 1024
# Training rows of a member of a table of 1,000 rows.
FEW_ROWS = 720
# Gradients are clipped to this multiple of their usual norm.
GRADIENT_CLIP = 3.0

RowIndex = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class CrossFitSettings:
    """The settings of `cross_fit`. `batch_size` and `max_steps` depend on the number of rows if they are None."""

    learning_rate: float = 4e-3
    weight_decay: float = 0.02
    batch_size: int | None = None
    max_steps: int | None = None
    max_epochs: int | None = None
    max_seconds: float | None = None
    seed: int = 0
    progress: bool | Callable[[int, int], Any] = False

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, 0, open_low=True)
        check_number("weight_decay", self.weight_decay, 0)
        for name in ("batch_size", "max_steps", "max_epochs"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, integer=True)
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds, 0, open_low=True)

    def batch_for(self, n_train: int) -> int:
        """About a twelfth of the rows, from 32 to 256; more only for more than 30,000 rows."""
        largest = 256 if n_train <= 30_000 else 512 if n_train <= 100_000 else 1024
        wanted = self.batch_size or int(np.clip(2 ** round(math.log2(max(n_train / 12, 1))), 32, largest))
        return min(wanted, n_train)

    def steps_for(self, n_train: int) -> int:
        """80 passes over the rows, from 2,000 (few rows: 1,300) to 4,000 steps; at most `max_steps` or `max_epochs`."""
        least = 1300 if n_train <= FEW_ROWS else 2000
        wanted = int(np.clip(80 * n_train / self.batch_for(n_train), least, 4000))
        passes = math.inf if self.max_epochs is None else self.max_epochs * (n_train // self.batch_for(n_train))
        return int(min(wanted, passes, math.inf if self.max_steps is None else self.max_steps))

    def limit_for(self, n_train: int) -> str | None:
        """The setting that allows fewer steps than usual, or None."""
        steps = self.steps_for(n_train)
        if steps == replace(self, max_steps=None, max_epochs=None).steps_for(n_train):
            return None
        return f"max_steps={steps}" if steps == self.max_steps else f"max_epochs={self.max_epochs}"


@dataclass(frozen=True, eq=False)
class FitRows:
    """The rows of a fit: x (n, inputs), y (n, targets), weights of mean 1, groups, and whether rows are held out."""

    x: Tensor
    y: Tensor
    weight: Tensor
    groups: NDArray[np.int64] | None = None
    # A table of repeated rows is held out by shares of the weight of every row: members then train on all rows.
    are_repeated: bool = False
    family: Family = GAUSSIAN  # of the members' own distributions, for the objective

    def __len__(self) -> int:
        return len(self.y)


def cross_fit(
    ensemble: CrossEnsemble, objective: Objective, rows: FitRows, settings: CrossFitSettings
) -> tuple[History, HeldOut]:
    """Train the ensemble in place, and return its history and the predictions of held-out rows.

    Ctrl-C after the first look ends training with the best weights so far; the caller raises it again.
    """
    run = CrossFit(ensemble, objective, rows, settings)
    try:
        run.train()
    except KeyboardInterrupt:
        if not run.history.end_interrupted():
            raise
    run.history.warn_of_early_end(f"{run.steps_done} of {run.steps} steps", settings.limit_for(run.n_train))
    return run.history, run.finish()


def draw_parts(
    n: int, groups: NDArray[np.int64] | None, parts: int, generator: np.random.Generator
) -> NDArray[np.intp]:
    """Number of the part of each row: parts of equal size at random, or of whole groups, the largest ones first."""
    if groups is None:
        numbers = np.arange(n) % parts
        return generator.permutation(numbers)
    sizes = np.bincount(groups)
    order = generator.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    totals, part_of = np.zeros(parts), np.zeros(len(sizes), dtype=np.intp)
    for group in order:
        part_of[group] = totals.argmin()
        totals[part_of[group]] += sizes[group]
    return part_of[groups]


def number_of_parts(n: int, groups: NDArray[np.int64] | None) -> int:
    """Four, fewer only for very few rows or groups."""
    units = n if groups is None else len(np.unique(groups))
    return int(np.clip(units // 2, 2, PARTS))


def as_one_vector(parameters: Sequence[nn.Parameter]) -> nn.Parameter:
    """All values and gradients in one vector each; the parameters become views of it."""
    whole = nn.Parameter(torch.cat([value.detach().flatten() for value in parameters]))
    whole.grad = torch.zeros_like(whole)
    sizes = [value.numel() for value in parameters]
    for parameter, values, slopes in zip(parameters, whole.data.split(sizes), whole.grad.split(sizes), strict=True):
        parameter.data, parameter.grad = values.view_as(parameter), slopes.view_as(parameter)
    return whole


class CrossFit:
    """One call of `cross_fit`: who holds out what, the loop, and the best weights so far."""

    def __init__(
        self, ensemble: CrossEnsemble, objective: Objective, rows: FitRows, settings: CrossFitSettings
    ) -> None:
        self.ensemble, self.objective, self.rows, self.settings = ensemble, objective, rows, settings
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.divide(np.random.default_rng(settings.seed))
        self.n_train = min(len(seen) for seen in self.seen)
        self.batch_size, self.steps = settings.batch_for(self.n_train), settings.steps_for(self.n_train)
        for module in ensemble.networks.modules():
            if isinstance(module, LinearInputs):
                module.fit(rows.x, rows.weight)
        self.optimizer = self.build_optimizer()
        self.history, self.steps_done = History(), 0
        self.best = {name: value.detach().clone() for name, value in self.states()}
        device = rows.y.device
        self.lowest = torch.full((ensemble.n_groups,), math.inf, device=device)
        self.found_at = torch.zeros(ensemble.n_groups, dtype=torch.int64, device=device)  # steps
        self.usual_norm, self.bad_steps = math.inf, 0

    def divide(self, generator: np.random.Generator) -> None:
        """Divide the rows: for each member those it holds out, those of its part first, and those it trains on."""
        n, parts, groups = len(self.rows), self.ensemble.n_parts, self.rows.groups
        self.own: list[RowIndex] = []
        self.shared: list[RowIndex] = []
        for _ in range(self.ensemble.n_groups):
            part = draw_parts(n, groups, parts, generator)
            order = generator.permutation(n)
            own = [order[part[order] == number] for number in range(parts)]
            self.own += own
            self.shared += [self.share(own[(number + 1) % parts]) for number in range(parts)]
        everything = np.arange(n)
        self.seen = []
        for own_rows, shared_rows in zip(self.own, self.shared, strict=True):
            others = np.setdiff1d(everything, np.concatenate([own_rows, shared_rows]))
            self.seen.append(torch.from_numpy(everything if self.rows.are_repeated or not len(others) else others))

    def share(self, rows: RowIndex) -> RowIndex:
        """The rows of the next member's part that this member holds out too: whole groups, if there are groups."""
        count = int(SHARED_FRACTION * len(rows))
        if self.rows.groups is None or not count:
            return rows[:count]
        groups = self.rows.groups[rows]
        sizes = np.bincount(groups)
        known = list(dict.fromkeys(groups.tolist()))
        taken = [group for group, end in zip(known, sizes[known].cumsum(), strict=True) if end <= 2 * count]
        return rows[np.isin(groups, taken)]

    def states(self) -> list[tuple[str, Tensor]]:
        """What training changes, members first: weights, and the statistics of a user's layers such as batch norm."""
        networks = self.ensemble.networks
        statistics = [(name, value) for name, value in networks.named_buffers() if "stacked_buffers." in name]
        return [*networks.named_parameters(), *statistics]

    def build_optimizer(self) -> torch.optim.AdamW:
        """AdamW over few long vectors instead of many small tensors, which takes a fraction of the time."""
        decaying = {id(parameter) for parameter in self.ensemble.decaying()}
        alike: dict[tuple[bool, torch.dtype], list[nn.Parameter]] = {}
        for value in self.ensemble.networks.parameters():
            if value.requires_grad:
                alike.setdefault((id(value) in decaying, value.dtype), []).append(value)
        groups = [
            {"params": [as_one_vector(parameters)], "weight_decay": decays * self.settings.weight_decay}
            for (decays, _), parameters in alike.items()
        ]
        return torch.optim.AdamW(groups, lr=self.settings.learning_rate, betas=(0.9, 0.98), fused=True)

    def train(self) -> None:
        """Train until the steps, the time, or the hope of a better stopping time are exhausted."""
        looks = np.concatenate(
            [np.geomspace(min(15, self.steps), self.steps, LOOKS), np.multiply(CYCLE_ENDS, self.steps)]
        )
        look_at = {max(1, round(float(step))) for step in looks}
        validation = self.held_out_sample()
        batches = self.batches()
        start, limit = monotonic(), self.settings.max_seconds
        self.ensemble.train()
        with ProgressBar(self.settings.progress, self.steps) as bar:
            for step in range(self.steps):
                self.take_step(step, next(batches))
                bar.update()
                is_late = limit is not None and monotonic() - start > limit
                if step + 1 in look_at or is_late:
                    self.look(step + 1, *validation)
                    bar.set_postfix(held_out=f"{self.history.criterion[-1]:.4f}")
                if is_late:
                    self.history.stopped = "max_seconds"
                    return
                if self.is_hopeless(step + 1):
                    self.history.stopped = "patience"
                    return
        self.history.stopped = "max_steps"

    def batches(self):  # type: ignore[no-untyped-def]
        """Row numbers (members, batch), each member's own rows in its own order, without end."""
        while True:
            orders = [seen[torch.randperm(len(seen), generator=self.generator)[: self.n_train]] for seen in self.seen]
            order = torch.stack(orders)
            for start in range(0, self.n_train - self.batch_size + 1, self.batch_size):
                yield order[:, start : start + self.batch_size]

    def take_step(self, step: int, index: Tensor) -> None:
        rows = self.rows
        prediction = self.of_targets(self.ensemble.member_predictions(rows.x[index]))
        y, weight = self.squeeze(rows.y[index]), rows.weight[index]
        losses = self.objective(prediction, y)  # (members, batch), or (members, batch, targets)
        per_row = self.over_targets(losses)
        loss = (weight * per_row).mean(1).sum()
        loss.backward()
        progress = step / self.steps
        rate = self.settings.learning_rate * ((1 - math.cos(2 * math.pi * math.log2(1 + 15 * progress))) / 2 + 1e-3)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.clip_and_step(loss, step)
        self.steps_done = step + 1
        self.last_batch = y, weight, prediction, per_row

    def clip_and_step(self, loss: Tensor, step: int) -> None:
        """One optimizer step; a step whose loss or gradient is not finite is omitted."""
        gradients = [value.grad for group in self.optimizer.param_groups for value in group["params"]]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if math.isfinite(norm) and math.isfinite(float(loss.detach())):
            limit = GRADIENT_CLIP * self.usual_norm
            if norm > limit:
                torch._foreach_mul_(gradients, limit / norm)
                norm = limit
            if norm > 0:
                self.usual_norm = norm if math.isinf(self.usual_norm) else 0.95 * self.usual_norm + 0.05 * norm
            self.optimizer.step()
            self.bad_steps = 0
        else:
            self.bad_steps += 1
            if self.bad_steps > min(20, self.steps - 1):
                raise TrainingDivergedError(
                    f"the loss must be finite, got loss={float(loss.detach())} in {self.bad_steps} steps in a row "
                    f"(step {step}); lower the learning_rate, or check the network and the scale of x and y"
                )
        torch._foreach_zero_(gradients)

    def held_out_sample(self) -> tuple[Tensor, Tensor]:
        """Row numbers (members, rows) and weights of held-out rows, padded with rows of weight 0."""
        size = max(len(own) for own in self.own)
        keep = torch.randperm(size, generator=self.generator)[:LOOK_ROWS]
        padded = np.stack([np.resize(own, size) for own in self.own])
        is_real = np.stack([np.arange(size) < len(own) for own in self.own])
        index = torch.from_numpy(padded)[:, keep]
        return index, self.rows.weight[index] * torch.from_numpy(is_real)[:, keep].to(self.rows.weight)

    @torch.no_grad()
    def look(self, step: int, index: Tensor, weight: Tensor) -> None:
        """Judge the weights by the held-out CRPS of each group, and keep them where they are the best so far."""
        ensemble, groups = self.ensemble, self.ensemble.n_groups
        ensemble.eval()
        prediction = self.of_targets(self.predict_members(self.rows.x[index]))
        ensemble.train()
        y = self.squeeze(self.rows.y[index])
        scores = self.over_targets(crps_loss(prediction, y))
        totals = (scores * weight).unflatten(0, (groups, -1)).sum((1, 2)) / weight.unflatten(0, (groups, -1)).sum(
            (1, 2)
        )
        is_better = totals < self.lowest
        self.lowest = torch.where(is_better, totals, self.lowest)
        self.found_at = torch.where(is_better, step, self.found_at)
        chosen = is_better.repeat_interleave(ensemble.n_parts)
        if is_better.any():
            # All at once: Ctrl-C must not leave some weights of this look and some of an earlier one.
            self.best = {
                name: torch.where(chosen.view(-1, *[1] * (value.ndim - 1)), value.detach(), self.best[name])
                for name, value in self.states()
            }
            self.history.best_epoch = len(self.history)
        real = weight.flatten() > 0
        losses = self.over_targets(self.objective(prediction, y)).flatten()
        record = EpochRecord()
        held = Prediction(self.flat(prediction.mean)[real], self.flat(prediction.std)[real])
        record.add(self.flat(y)[real], weight.flatten()[real], held, losses[real], torch.zeros(()))
        record.append_to(self.history.validation)
        y, weight, prediction, per_row = self.last_batch
        record = EpochRecord()
        batch = Prediction(self.flat(prediction.mean), self.flat(prediction.std))
        record.add(self.flat(y), weight.flatten(), batch, per_row.flatten(), torch.zeros(()))
        record.append_to(self.history.train)
        self.history.criterion.append(float(totals.mean()))

    def is_hopeless(self, step: int) -> bool:
        """Whether a whole cycle of the learning rate, which just ended, has brought nothing in any group."""
        ends = [round(end * self.steps) for end in CYCLE_ENDS]
        before = next((earlier for earlier, end in pairwise(ends[:-1]) if end == step), None)
        return before is not None and bool((self.found_at <= before).all())

    @torch.no_grad()
    def finish(self) -> HeldOut:
        """Restore the best weights, fit the members that are not networks, and predict all held-out rows."""
        ensemble, x = self.ensemble, self.rows.x
        for name, value in self.states():
            value.data, value.grad = self.best[name], None  # no longer views of a vector
        ensemble.eval()
        parts = ensemble.n_parts
        for module in ensemble.fitted:
            module.fit(x, self.rows.y, self.rows.weight, self.seen[:parts], self.settings.seed)
        blocks = [ensemble.group_predictions(block) for block in x.split(PREDICTION_ROWS)]
        means, stds = (torch.cat(block, dim=2).cpu().numpy() for block in zip(*blocks, strict=True))
        mean, std = np.empty_like(means[:, 0]), np.empty_like(stds[:, 0])  # (groups, n, targets)
        seconds = []
        for group in range(len(means)):
            first = parts * group if group < ensemble.n_groups else 0  # the others have the parts of the first group
            for number in range(parts):
                own, shared = self.own[first + number], self.shared[first + number]
                mean[group, own], std[group, own] = means[group, number, own], stds[group, number, own]
                if len(shared) and not self.rows.are_repeated:
                    opinion = means[group, number, shared], stds[group, number, shared]
                    seconds.append(SecondOpinion(group, shared, *opinion))
        self.history.validation_rows = list(range(len(self.rows)))
        return HeldOut(mean, std, seconds)

    def predict_members(self, x: Tensor) -> Prediction:
        """All members on rows of their own, (members, n, inputs), block by block."""
        parts = [self.ensemble.member_predictions(block) for block in x.split(PREDICTION_ROWS, dim=1)]
        return Prediction(torch.cat([part.mean for part in parts], 1), torch.cat([part.std for part in parts], 1))

    def squeeze(self, values: Tensor) -> Tensor:
        """(members, n, targets), or (members, n) for one target: objectives see a target as they always do."""
        return values[..., 0] if self.ensemble.n_targets == 1 else values

    def over_targets(self, values: Tensor) -> Tensor:
        """Mean over the targets: (members, n)."""
        return values.mean(-1) if values.ndim == 3 else values

    def of_targets(self, prediction: Prediction) -> Prediction:
        return Prediction(self.squeeze(prediction.mean), self.squeeze(prediction.std), family=self.rows.family)

    def flat(self, values: Tensor) -> Tensor:
        """Rows of all members one after the other."""
        return values.flatten(0, 1)

"""The training of a `CrossEnsemble`: each member on the rows that it does not hold out, all members at once.

One stopping time is chosen for each group, by the mean CRPS over the held-out rows of its members. (If each member had
its own, its held-out residuals would be too small.)
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from time import monotonic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hetcal.estimators.cross_ensemble import CrossEnsemble
from hetcal.estimators.held_out import HeldOut, SecondOpinion
from hetcal.estimators.linear_members import LinearInputs
from hetcal.exceptions import TrainingDivergedError
from hetcal.families import GAUSSIAN, Family
from hetcal.metrics.history import EpochRecord, History, ProgressBar
from hetcal.objectives import Objective, crps_loss
from hetcal.prediction import Prediction
from hetcal.training.parts import KeyedParts, RowIndex, divide
from hetcal.training.settings import CrossFitSettings
from hetcal.training.step import MAX_BAD_STEPS, clip_to_usual_norm_
from hetcal.training.streams import RowStream, share_of
from hetcal.training.workers import ALONE, State

# The stopping time is looked for at this many steps, evenly on a logarithmic scale, on at most so many rows a member.
LOOKS, LOOK_ROWS = 45, 2000
# The learning rate anneals to almost 0 at the end of each cycle, which is twice as long as the one before.
CYCLES = 4
CYCLE_ENDS = tuple((2**cycle - 1) / (2**CYCLES - 1) for cycle in range(1, CYCLES + 1))
# A cycle that lowers the held-out CRPS of no group by this share is the last one: the next takes as long as all before.
# It is not judged before so many steps.
WORTHWHILE, LEAST_STEPS = 0.02, 100
PREDICTION_ROWS = 1024
# Gradients are clipped to this multiple of their usual norm.
GRADIENT_CLIP = 3.0

MemberBatch = tuple[
    Tensor, Tensor, Tensor
]  # x, y and weight: (members, batch, inputs), (..., targets), (members, batch)


@dataclass(frozen=True, eq=False)
class FitRows:
    """The rows of a fit: x (n, inputs), y (n, targets), weights of mean 1, groups, and whether rows repeat."""

    x: Tensor
    y: Tensor
    weight: Tensor
    groups: NDArray[np.int64] | None = None
    # In a table of repeated rows no row is held out: members are trained, judged and calibrated on all rows.
    are_repeated: bool = False
    family: Family = GAUSSIAN  # of the members' own distributions, for the objective
    # More rows than fit into memory, on which networks are trained; the rows above are then a random sample of them.
    stream: RowStream | None = None

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
        self.keyed = KeyedParts(ensemble.n_groups, ensemble.n_parts, settings.seed)
        self.own, self.shared, self.seen = self.divide()
        self.n_train = min(len(seen) for seen in self.seen)
        if rows.stream is not None:
            self.n_train = max(1, int(self.keyed.share_seen * len(rows.stream)))
        self.batch_size, self.steps = settings.batch_for(self.n_train), settings.steps_for(self.n_train)
        for module in ensemble.networks.modules():
            if isinstance(module, LinearInputs):
                module.fit(rows.x, rows.weight)
        self.workers = ALONE if rows.stream is None else rows.stream.workers
        self.name = "" if rows.stream is None else rows.stream.name
        self.optimizer = self.build_optimizer()
        self.history, self.steps_done = History(), 0
        self.best = {name: value.detach().clone() for name, value in self.states()}
        device = rows.y.device
        self.lowest = torch.full((ensemble.n_groups,), math.inf, device=device)
        self.lowest_before = self.lowest  # at the end of the cycle before
        self.usual_norm, self.bad_steps = math.inf, 0

    def divide(self) -> tuple[Sequence[RowIndex], Sequence[RowIndex], Sequence[Tensor]]:
        """Divide the rows: for each member its part, the rows that it holds out besides, and those it trains on."""
        rows = self.rows
        if rows.stream is not None:
            division = self.keyed.divide(rows.stream.sample_keys)
        else:
            shape = self.ensemble.n_groups, self.ensemble.n_parts
            division = divide(len(rows), rows.groups, shape, self.settings.seed, are_repeated=rows.are_repeated)
        return division.own, division.shared, division.seen

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
            for step in range(self.resume(), self.steps):
                self.take_step(step, next(batches))
                bar.update(self.steps_done - bar.done)
                is_late = limit is not None and self.workers.any(monotonic() - start > limit)
                if step + 1 in look_at or is_late:
                    self.look(*validation)
                    is_worthwhile = self.goes_on_after(step + 1)
                    self.workers.save(self.name, self.state)
                    bar.set_postfix(held_out=f"{self.history.criterion[-1]:.4f}")
                    if is_late or not is_worthwhile:
                        self.history.stopped = "max_seconds" if is_late else "patience"
                        return
        self.history.stopped = "max_steps"

    def state(self) -> State:
        """Everything that the next steps depend on, except for the order of the rows."""
        return {
            "weights": {name: value.detach().clone() for name, value in self.states()},
            "best": self.best,
            "lowest": [self.lowest, self.lowest_before],
            "optimizer": self.optimizer.state_dict(),
            "counts": [self.usual_norm, self.bad_steps, self.steps_done],
            "history": asdict(self.history),
        }

    @torch.no_grad()
    def resume(self) -> int:
        """Go on where a process that failed has saved its state; return the number of the next step."""
        state = self.workers.restore(self.name)
        if state is not None:
            for name, value in self.states():
                value.copy_(state["weights"][name])
            self.best, (self.lowest, self.lowest_before) = state["best"], state["lowest"]
            self.optimizer.load_state_dict(state["optimizer"])
            self.usual_norm, self.bad_steps, self.steps_done = state["counts"]
            self.history = History(**state["history"])
        return self.steps_done

    def batches(self) -> Iterator[MemberBatch]:
        """Rows of each member, in an order of its own, without end."""
        rows, device = self.rows, self.rows.y.device
        if rows.stream is None:
            for index in self.orders():
                yield rows.x[index], rows.y[index], rows.weight[index]
            return
        batch_size = share_of(self.workers, self.batch_size)
        for block in rows.stream.blocks(self.generator):
            x, y = block.x.to(device), block.y.reshape(len(block), -1).to(device)
            seen = self.keyed.seen(block.keys, self.generator)
            size = min(map(len, seen))
            order = torch.stack([numbers[:size] for numbers in seen])
            for index in order.tensor_split(max(1, size // batch_size), dim=1) if size else ():
                yield x[index], y[index], torch.ones(index.shape, device=device)

    def orders(self) -> Iterator[Tensor]:
        """Row numbers (members, batch), without end."""
        while True:
            orders = [seen[torch.randperm(len(seen), generator=self.generator)[: self.n_train]] for seen in self.seen]
            order = torch.stack(orders)
            for start in range(0, self.n_train - self.batch_size + 1, self.batch_size):
                yield order[:, start : start + self.batch_size]

    def take_step(self, step: int, batch: MemberBatch) -> None:
        x, y, weight = batch
        prediction = self.of_targets(self.ensemble.member_predictions(x))
        y = self.squeeze(y)
        losses = self.objective(prediction, y)  # (members, batch), or (members, batch, targets)
        per_row = self.over_targets(losses)
        loss = (weight * per_row).mean(1).sum()
        loss.backward()
        progress = step / self.steps
        cycles = math.log2(1 + (2**CYCLES - 1) * progress)
        rate = self.settings.learning_rate * ((1 - math.cos(2 * math.pi * cycles)) / 2 + 1e-3)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.clip_and_step(loss, step)
        self.steps_done = step + 1
        self.last_batch = y, weight, prediction, per_row

    def clip_and_step(self, loss: Tensor, step: int) -> None:
        """One optimizer step; a step whose loss or gradient is not finite is omitted."""
        gradients = [value.grad for group in self.optimizer.param_groups for value in group["params"]]
        loss = loss.detach()
        self.workers.average_([*gradients, loss])
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if math.isfinite(norm) and math.isfinite(float(loss)):
            self.usual_norm = clip_to_usual_norm_(gradients, norm, self.usual_norm, GRADIENT_CLIP)
            self.optimizer.step()
            self.bad_steps = 0
        else:
            self.bad_steps += 1
            if self.bad_steps > min(MAX_BAD_STEPS, self.steps - 1):
                raise TrainingDivergedError(
                    f"the loss must be finite, got loss={float(loss)} in {self.bad_steps} steps in a row "
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
    def look(self, index: Tensor, weight: Tensor) -> None:
        """Judge the weights by the held-out CRPS of each group, and keep them where they are the best so far."""
        ensemble, groups = self.ensemble, self.ensemble.n_groups
        ensemble.eval()
        prediction = self.of_targets(self.predict_members(index))
        ensemble.train()
        y = self.squeeze(self.rows.y[index])
        scores = self.over_targets(crps_loss(prediction, y))
        totals = (scores * weight).unflatten(0, (groups, -1)).sum((1, 2)) / weight.unflatten(0, (groups, -1)).sum(
            (1, 2)
        )
        is_better = totals < self.lowest
        self.lowest = torch.where(is_better, totals, self.lowest)
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
        held = Prediction(self.flat(prediction.mean)[real], self.flat(prediction.std)[real], family=self.rows.family)
        record.add(self.flat(y)[real], weight.flatten()[real], held, losses[real], torch.zeros(()))
        record.append_to(self.history.validation)
        y, weight, prediction, per_row = self.last_batch
        record = EpochRecord()
        batch = Prediction(self.flat(prediction.mean), self.flat(prediction.std), family=self.rows.family)
        record.add(self.flat(y), weight.flatten(), batch, per_row.flatten(), torch.zeros(()))
        record.append_to(self.history.train)
        self.history.criterion.append(float(totals.mean()))

    def goes_on_after(self, step: int) -> bool:
        """Whether training goes on: not after the end of a cycle of the learning rate that was in vain for all groups.

        Remembers the scores at the end of a cycle, by which the next one is judged.
        """
        if step not in {round(end * self.steps) for end in CYCLE_ENDS[:-1]}:
            return True
        before, self.lowest_before = self.lowest_before, self.lowest
        return step < LEAST_STEPS or bool((self.lowest <= (1 - WORTHWHILE) * before).any())

    def finish(self) -> HeldOut:
        """Restore the best weights, fit the members that are not networks, and predict all held-out rows."""
        for name, value in self.states():
            value.data, value.grad = self.best[name], None  # no longer views of a vector
        self.ensemble.eval()
        self.history.validation_rows = list(range(len(self.rows)))
        return self.workers.compute_once(self.predict_held_out)

    @torch.no_grad()
    def predict_held_out(self) -> HeldOut:
        """Fit the members that are not networks, and predict every row by the members that hold it out."""
        ensemble, rows, parts = self.ensemble, self.rows, self.ensemble.n_parts
        shape = len(ensemble.group_weights), *rows.y.shape
        mean, std, second_mean, second_std = (np.empty(shape) for _ in range(4))

        def keep(group: int, member: int, means: Tensor, stds: Tensor) -> None:
            """Store the predictions of the rows that a member holds out: its part, and then the shared ones."""
            own, shared = self.own[member], self.shared[member]
            mean[group, own], second_mean[group, shared] = np.split(means.cpu().numpy(), [len(own)])
            std[group, own], second_std[group, shared] = np.split(stds.cpu().numpy(), [len(own)])

        held_out = [np.concatenate([own, shared]) for own, shared in zip(self.own, self.shared, strict=True)]
        size = max(map(len, held_out))
        networks = self.predict_members(torch.from_numpy(np.stack([np.resize(index, size) for index in held_out])))
        for member in range(len(held_out)):
            size = len(held_out[member])
            keep(member // parts, member, networks.mean[member, :size].double(), networks.std[member, :size].double())
        group = ensemble.n_groups
        for module in ensemble.fitted:
            # These members have the parts of the first group of networks.
            module.fit(rows.x, rows.y, rows.weight, self.seen[:parts], self.settings.seed)
            for part in range(parts):
                blocks = rows.x[held_out[part]].split(PREDICTION_ROWS)
                predictions = [module(block, slice(part, part + 1)) for block in blocks]
                means, stds = (torch.cat(columns, dim=2) for columns in zip(*predictions, strict=True))
                for number in range(module.n_groups):
                    keep(group + number, part, means[number, 0], stds[number, 0])
            group += module.n_groups
        seconds = []
        for number in range(ensemble.n_groups if not rows.are_repeated else 0):
            groups = [number, *range(ensemble.n_groups, group)] if number == 0 else [number]
            shared = np.concatenate(self.shared[number * parts : (number + 1) * parts])
            if len(shared):
                seconds.append(
                    SecondOpinion(groups, shared, second_mean[groups][:, shared], second_std[groups][:, shared])
                )
        return HeldOut(mean, std, seconds, are_groups=rows.groups is not None)

    def predict_members(self, index: Tensor) -> Prediction:
        """All networks on rows of their own, given by their numbers (members, n), block by block."""
        blocks = index.split(PREDICTION_ROWS, dim=1)
        parts = [self.ensemble.member_predictions(self.rows.x[block]) for block in blocks]
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

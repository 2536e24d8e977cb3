"""One step of the optimizer, and its learning rate."""

import math
from typing import Any

import torch
from torch import Tensor

from hetcal.estimators.base import parameter_groups
from hetcal.exceptions import TrainingDivergedError
from hetcal.training.settings import TrainingSettings
from hetcal.training.workers import ALONE, State, Workers

# Up to this number of rows `weight_decay` applies in full.
WEIGHT_DECAY_ROWS = 1000
MAX_BAD_STEPS = 20
WARM_UP_STEPS = 100  # at most a tenth of the planned ones


class Step:
    """One optimizer step; a loss or gradient that is not finite is skipped and the learning rate halved."""

    def __init__(
        self, estimator: Any, settings: TrainingSettings, n_rows: int, planned_steps: int, workers: Workers = ALONE
    ) -> None:
        self.workers = workers
        groups = parameter_groups(estimator, settings.weight_decay * min(1, WEIGHT_DECAY_ROWS / n_rows))
        self.parameters = list(estimator.parameters())
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: rate_factor(step, planned_steps))
        self.gradient_clip = settings.gradient_clip
        self.usual_norm, self.steps, self.bad_steps = math.inf, 0, 0

    def __call__(self, loss: Tensor, epoch: int) -> None:
        self.steps += 1
        self.optimizer.zero_grad()
        loss.backward()
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        loss = loss.detach()
        self.workers.average_([*gradients, loss])
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not (math.isfinite(norm) and math.isfinite(float(loss.detach()))):
            self._skip(loss, norm, epoch)
            return
        self.usual_norm = clip_to_usual_norm_(gradients, norm, self.usual_norm, self.gradient_clip)
        self.optimizer.step()
        self.schedule.step()
        self.bad_steps = 0

    def state(self) -> State:
        return {
            "optimizer": self.optimizer.state_dict(),
            "rates": [list(self.schedule.base_lrs), self.schedule.last_epoch],
            "counts": [self.usual_norm, self.steps, self.bad_steps],
        }

    def load(self, state: State) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.base_lrs, self.schedule.last_epoch = state["rates"]
        self.usual_norm, self.steps, self.bad_steps = state["counts"]

    def _skip(self, loss: Tensor, norm: float, epoch: int) -> None:
        self.bad_steps += 1
        self.schedule.base_lrs = [rate / 2 for rate in self.schedule.base_lrs]
        for group in self.optimizer.param_groups:
            group["lr"] /= 2
        if self.bad_steps > MAX_BAD_STEPS:
            cause, value = ("gradient", norm) if math.isfinite(float(loss.detach())) else ("loss", float(loss.detach()))
            raise TrainingDivergedError(
                f"the {cause} must be finite, got {cause}={value} in {self.bad_steps} steps in a row "
                f"(step {self.steps}, epoch {epoch}); lower the learning_rate, raise the estimator's std_floor, or "
                "check the network and the scale of x and y"
            )


def clip_to_usual_norm_(gradients: list[Tensor], norm: float, usual: float, multiple: float) -> float:
    """Clip gradients of a norm to a multiple of their usual norm, in place, and return the new usual norm."""
    limit = multiple * usual
    if norm > limit:
        torch._foreach_mul_(gradients, limit / norm)
        norm = limit
    if norm == 0:  # a batch without gradient carries no information about the usual norm
        return usual
    return norm if math.isinf(usual) else 0.95 * usual + 0.05 * norm


def annealing(step: int, planned_steps: int) -> float:
    """Half a cosine over the planned steps, from 1 to 0."""
    return (1 + math.cos(math.pi * min(1.0, step / planned_steps))) / 2


def rate_factor(step: int, planned_steps: int) -> float:
    """Learning rate relative to its peak: a short rise, because the first gradients mislead, then `annealing`."""
    return min(1.0, (step + 1) / min(WARM_UP_STEPS, 1 + planned_steps / 10)) * annealing(step, planned_steps)

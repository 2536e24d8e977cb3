"""The settings of the two trainings: of one network, and of an ensemble whose members hold out rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import torch

from hetcal._checks import check_number
from hetcal.networks import check_device

# Training rows of a member of a table of 1,000 rows.
FEW_TRAINING_ROWS = 720
# Steps of a trial, after which transforms of the target are compared.
TRIAL_STEPS = 260


def bounded(default: float | None, low: float, high: float = math.inf, **rule: bool) -> Any:
    """A setting with its default and the bounds that `check_number` applies to it."""
    return field(default=default, metadata={"low": low, "high": high, **rule})


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of `train`; `HCRegressor` and `HCClassifier` pass theirs on unchanged.

    Attributes:
        objective_weight: Weight of the objective relative to the estimator's own loss (0.75 for Quantile-HC in the
            paper). With 0 the objective only judges the epochs.
        validation_fraction: Fraction of the rows held out to choose the best epoch; 0 trains on all rows for
            `max_epochs`.
        learning_rate: Peak learning rate of AdamW. It rises over the first steps, then falls to 0 along half a cosine
            over the planned steps: `max_steps`, or those of `max_epochs` if fewer. Given validation rows, dropout that
            is only a regularizer falls with it, because a sigma learned with its noise would be too large.
        weight_decay: Weight decay of AdamW. With n > 1,000 rows it is multiplied by 1,000 / n, because a prior has
            less influence the more data there are. Parameters named raw_* (rates, degrees of freedom) do not decay.
        batch_size: Rows per training step.
        max_steps: Upper limit on the optimizer steps; it bounds the training time for any number of rows.
        max_epochs: Upper limit on the passes over the data.
        max_seconds: Upper limit on the seconds of training, or None; it ends with the epoch that exceeds it.
        patience: Steps without a better criterion (see `History`) after which training stops.
        input_noise: Noise added to `x`, drawn anew in each step, with a standard deviation of `input_noise / sqrt(n)`
            for n rows, at most 0.3. It widens the intervals of small data sets, but too much where y has hardly noise.
        gradient_clip: Gradients are clipped to this multiple of their usual norm, which grows as sigma falls.
        seed: Seed of the validation split, of the order of the rows and of the input noise.
        device: Where to train, "cpu" or "cuda"; the estimator is moved there.
        progress: Show a progress bar; or a function that is called with the steps that are done and those planned.
    """

    objective_weight: float = bounded(1.0, low=0)
    validation_fraction: float = bounded(0.1, low=0, high=1, open_high=True)
    learning_rate: float = bounded(2e-3, low=0, open_low=True)
    weight_decay: float = bounded(1e-2, low=0)
    batch_size: int = bounded(128, low=1, integer=True)
    max_steps: int = bounded(8_000, low=1, integer=True)
    max_epochs: int = bounded(500, low=1, integer=True)
    max_seconds: float | None = bounded(None, low=0, open_low=True)
    patience: int = bounded(1_000, low=1, integer=True)
    input_noise: float = bounded(0.0, low=0)
    gradient_clip: float = bounded(3.0, low=1)
    seed: int = bounded(0, low=0, integer=True)
    device: str | torch.device = "cpu"
    progress: bool | Callable[[int, int], Any] = False

    def __post_init__(self) -> None:
        for setting in fields(self):
            if setting.metadata and getattr(self, setting.name) is not None:
                check_number(setting.name, getattr(self, setting.name), **setting.metadata)
        check_device(self.device)

    def planned_steps(self, n_train: int) -> int:
        return min(self.max_steps, self.max_epochs * math.ceil(n_train / self.batch_size))

    def limit_for(self, n_train: int) -> str | None:
        """The setting that allows fewer steps than its default would, or None."""
        planned, usual = self.planned_steps(n_train), TrainingSettings(batch_size=self.batch_size)
        if planned >= usual.planned_steps(n_train):
            return None
        return f"max_steps={planned}" if planned == self.max_steps else f"max_epochs={self.max_epochs}"


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
    is_trial: bool = False  # few steps are then intended, and no reason for a warning

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, 0, open_low=True)
        check_number("weight_decay", self.weight_decay, 0)
        for name in ("batch_size", "max_steps", "max_epochs"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, integer=True)
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds, 0, open_low=True)

    def of_trial(self) -> Self:
        """The same settings with few steps, in silence."""
        steps = min(TRIAL_STEPS, self.max_steps or TRIAL_STEPS)
        return replace(self, max_steps=steps, progress=False, is_trial=True)

    def batch_for(self, n_train: int) -> int:
        """About a twelfth of the rows, from 32 to 256; more only for more than 30,000 rows."""
        largest = 256 if n_train <= 30_000 else 512 if n_train <= 100_000 else 1024
        wanted = self.batch_size or int(np.clip(2 ** round(math.log2(max(n_train / 12, 1))), 32, largest))
        return min(wanted, n_train)

    def steps_for(self, n_train: int) -> int:
        """80 passes over the rows, from 2,000 (few rows: 1,300) to 4,000 steps; at most `max_steps` or `max_epochs`."""
        least = 1300 if n_train <= FEW_TRAINING_ROWS else 2000
        wanted = int(np.clip(80 * n_train / self.batch_for(n_train), least, 4000))
        passes = math.inf if self.max_epochs is None else self.max_epochs * (n_train // self.batch_for(n_train))
        return int(min(wanted, passes, math.inf if self.max_steps is None else self.max_steps))

    def limit_for(self, n_train: int) -> str | None:
        """The setting that allows fewer steps than usual, or None."""
        steps = self.steps_for(n_train)
        if self.is_trial or steps == replace(self, max_steps=None, max_epochs=None).steps_for(n_train):
            return None
        return f"max_steps={steps}" if steps == self.max_steps else f"max_epochs={self.max_epochs}"

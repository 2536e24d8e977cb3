"""The course of a training run: its metrics by epoch, which model files keep and plots draw, and its progress bar."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from tqdm.auto import tqdm

from hetcal._checks import Floats
from hetcal.exceptions import TrainingInterrupted
from hetcal.metrics.regression import ce
from hetcal.prediction import Prediction, as_floats

# Share of the whole improvement that the last quarter brings if training was not finished.
STILL_IMPROVING = 0.05
CURVES = ("objective", "own_loss", "rmse", "ce")


@dataclass
class History:
    """The course of training by epoch, in the scale of the `y` passed to `hetcal.training.train`.

    Attributes:
        train: `objective`, `own_loss`, `rmse` and `ce` (calibration error) over the training batches of each epoch.
        validation: The same over the validation rows in evaluation mode; empty lists without validation rows.
        criterion: The validation objective, or the scaled CRPS if it is a likelihood (`hetcal.objectives.CRITERIA`);
            the epoch with the lowest is kept. With several targets it and all curves are means over the targets.
        best_epoch: Index of the epoch whose weights were kept.
        stopped: Why training ended: "patience", "max_steps", "max_epochs", "max_seconds" or "interrupted".
        validation_rows: Indices of the rows that were held out.
    """

    train: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})
    validation: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})
    criterion: list[float] = field(default_factory=list)
    best_epoch: int = 0
    stopped: str = "max_epochs"
    validation_rows: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.train["objective"])

    def warn_of_early_end(self, done: str, limit: str | None) -> None:
        """Warn if training ran out of time, or of steps while it still improved.

        Args:
            done: How far it came.
            limit: The setting that allowed fewer steps than usual, such as "max_steps=50"; None if there is none.
        """
        if self.stopped == "max_seconds":
            warn_of_training(f"training reached max_seconds after {done}; the best weights so far are kept")
        elif self.stopped in ("max_steps", "max_epochs") and limit is not None and self.is_improving:
            warn_of_training(f"training ended at {limit} while it was still improving; raise or omit this limit")

    @property
    def is_improving(self) -> bool:
        """Whether the last quarter of the epochs has brought more than a twentieth of what all have brought."""
        if len(self.criterion) < 2:
            return bool(self.criterion)  # nothing is known; but one epoch is not the end
        lowest = np.minimum.accumulate(self.criterion)
        last = math.ceil(len(lowest) / 4)
        with np.errstate(invalid="ignore"):  # an infinite criterion
            return bool(lowest[-1 - last] - lowest[-1] > STILL_IMPROVING * (lowest[0] - lowest[-1]))

    def end_interrupted(self, is_validated: bool = True) -> bool:
        """End at the last finished epoch, wherever Ctrl-C hit; return whether there is one."""
        curves = [*self.train.values(), *self.validation.values()]
        # The criterion is the last value of an epoch. Without validation rows there is none.
        finished = len(self.criterion) if is_validated else min((len(curve) for curve in curves if curve), default=0)
        for curve in curves:
            del curve[finished:]
        self.best_epoch, self.stopped = min(self.best_epoch, finished - 1), "interrupted"
        return finished > 0

    def raise_if_interrupted(self) -> None:
        """Raise `TrainingInterrupted` once everything that can be kept is in place."""
        if self.stopped == "interrupted":
            raise TrainingInterrupted(self)


def warn_of_training(message: str) -> None:
    """Issue a `TrainingWarning`; the class is imported here because it needs scikit-learn."""
    from hetcal.exceptions import TrainingWarning

    warnings.warn(message, TrainingWarning, stacklevel=4)


class ProgressBar:
    """How far training has come, drawn as a bar, or reported to a function `(steps done, steps planned)`."""

    def __init__(self, progress: bool | Callable[[int, int], Any], planned: int) -> None:
        self.planned, self.done = planned, 0
        self.report = progress if callable(progress) else None
        is_hidden = not progress or self.report is not None
        self.bar = tqdm(total=planned, desc="training", unit="step", leave=False, disable=is_hidden)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def update(self, steps: int = 1) -> None:
        self.done += steps
        self.bar.update(steps)
        if self.report is not None:
            self.report(self.done, self.planned)

    def set_postfix(self, **figures: str) -> None:
        self.bar.set_postfix(figures)


class EpochRecord:
    """Collects values that the batches of one epoch compute anyway, so that the curves cost almost nothing."""

    def __init__(self) -> None:
        self.batches: list[list[Floats]] = []
        self.family: Any = None

    def add(self, y: Any, weight: Any, prediction: Prediction, objective_rows: Any, own_rows: Any) -> None:
        """Add the rows of one batch, tensors or arrays; `own_rows` may be one number for all rows."""
        self.family = self.family or prediction.family.numpy()
        columns = [as_floats(values) for values in (y, weight, prediction.mean, prediction.std, objective_rows)]
        self.batches.append([*columns, np.broadcast_to(as_floats(own_rows), len(y))])

    def append_to(self, curves: dict[str, list[float]]) -> None:
        """Append one value to each curve."""
        y, weight, mean, std, objective_rows, own_rows = map(np.concatenate, zip(*self.batches, strict=True))
        curves["objective"].append(float(np.average(objective_rows, weights=weight)))
        curves["own_loss"].append(float(np.average(own_rows, weights=weight)))
        if mean.shape != y.shape:  # classes: the mean is of logits
            return
        squares = ((y - mean) ** 2).reshape(len(y), -1).mean(1)
        curves["rmse"].append(float(np.sqrt(np.average(squares, weights=weight))))
        is_finite = bool(np.isfinite(mean).all() and np.isfinite(std).all())
        error = np.mean(ce(y, Prediction(mean, std, family=self.family))) if is_finite else math.nan
        curves["ce"].append(float(error))

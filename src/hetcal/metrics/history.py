"""The metrics of a training run by epoch: what `train` returns, model files keep and `plot_history` draws."""

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetcal._checks import Floats
from hetcal.exceptions import TrainingWarning
from hetcal.metrics.regression import ce
from hetcal.prediction import Prediction, as_floats

CURVES = ("objective", "own_loss", "rmse", "ce")
EARLY_ENDS = {"interrupted": "training was interrupted", "max_seconds": "training reached max_seconds"}


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

    def warn_of_early_end(self, done: str) -> None:
        """Warn if training was interrupted or ran out of time; `done` says how far it came."""
        if self.stopped in EARLY_ENDS:
            message = f"{EARLY_ENDS[self.stopped]} after {done}; the best weights so far are kept"
            warnings.warn(message, TrainingWarning, stacklevel=3)


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

"""The training loop: the only place where estimator and objective meet, and the only one with an optimizer.

    prediction = estimator(x)
    loss = objective_weight * objective(prediction, y) + estimator.own_loss(prediction, y, n_train)

Everything else serves these two lines: settings, batches, early stopping, history, recovery from a non-finite loss.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetcal._checks import check_choice, check_number, must
from hetcal.estimators.base import BLOCK_ROWS, freeze_, parameter_groups
from hetcal.estimators.checkpoints import BestEpoch
from hetcal.exceptions import TrainingDivergedError
from hetcal.metrics.history import EpochRecord, History, ProgressBar
from hetcal.networks import check_device
from hetcal.objectives import CRITERIA, Objective, check_loss, mean_over_targets
from hetcal.prediction import Prediction
from hetcal.splitting import check_two_groups, hold_out

# With fewer rows, a tenth of them is too few for early stopping; then all rows are training rows.
MIN_ROWS_FOR_VALIDATION = 10
# Up to this number of rows `weight_decay` applies in full.
WEIGHT_DECAY_ROWS = 1000
# Even with very few rows, noise must not dominate the inputs.
MAX_INPUT_NOISE = 0.3
MAX_BAD_STEPS = 20
WARM_UP_STEPS = 100  # at most a tenth of the planned ones

GroupNumbers = NDArray[np.int64] | None


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


def train(
    estimator: Any,
    objective: Objective,
    x: Tensor,
    y: Tensor,
    *,
    sample_weight: Tensor | None = None,
    groups: Tensor | None = None,
    copies: Tensor | None = None,
    **settings: Any,
) -> History:
    """Train the estimator in place with AdamW; it keeps the weights of its best epoch, in evaluation mode.

    Args:
        estimator: Any module with the members of `hetcal.estimators.base`.
        objective: Loss per row of `(prediction, y)`; with several targets, per row and target.
        x: (n, ...) inputs, standardized.
        y: (n,) target, standardized; (n, k) for k targets, which then count equally.
        sample_weight: (n,) weights, at least 0; a weight of 2 counts like two equal rows.
        groups: (n,) integers; rows of one group are never split between training and validation.
        copies: (n,) numbers of equal rows that each row stands for, if the data consist of repeated rows. Then a
            fraction of the weight of every row is held out instead of whole rows, and n is the sum of the copies.
        **settings: Those of `TrainingSettings`, such as `max_epochs=20`.

    Returns:
        The `History`. `max_seconds` ends training with the best weights so far and a `TrainingWarning`; Ctrl-C ends it
        with these weights and `TrainingInterrupted`, a KeyboardInterrupt.

    Raises:
        TrainingDivergedError: If the loss stays non-finite; the best weights so far are restored first.

    >>> from hetcal.estimators import VarianceHead
    >>> from hetcal.networks import MLP
    >>> from hetcal.objectives import gaussian_nll
    >>> x = torch.linspace(-2, 2, 200)[:, None]
    >>> len(train(VarianceHead(MLP(1, 2, width=8)), gaussian_nll, x, x[:, 0] ** 2, max_epochs=3))
    3
    """
    for name in settings:
        check_choice("setting", name, [setting.name for setting in fields(TrainingSettings)])
    chosen = TrainingSettings(**settings)
    if not callable(objective):
        advice = "give one of hetcal.objectives, such as nll_loss"
        raise must("objective", "be a function (prediction, y) -> loss per row", objective, advice, TypeError)
    rows = check_rows(x, y, sample_weight, chosen)
    with torch.inference_mode(False), torch.enable_grad():
        run = TrainingRun(estimator, objective, rows, check_group_numbers(groups, len(rows)), chosen, copies)
        try:
            run.train_epochs()
        except KeyboardInterrupt:
            if not run.history.end_interrupted(is_validated=len(run.validation) > 0):
                raise
        finally:
            run.finish()
    run.history.raise_if_interrupted()
    run.history.warn_of_early_end(f"{len(run.history)} epoch(s)", chosen.limit_for(len(run.training)))
    return run.history


@dataclass
class TensorRows:
    """Rows that are trained or validated on together."""

    x: Tensor
    y: Tensor
    weight: Tensor
    index: Tensor  # numbers of the rows

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> "TensorRows":
        return TensorRows(self.x[index], self.y[index], self.weight[index], index)


def check_rows(x: Tensor, y: Tensor, sample_weight: Tensor | None, settings: TrainingSettings) -> TensorRows:
    """Check shapes and values (an (n, 1) target would broadcast silently); move the rows, scale weights to mean 1."""
    for name, value in {"x": x, "y": y}.items():
        if not isinstance(value, Tensor):
            raise must(name, "be a torch tensor", type(value).__name__, "use torch.as_tensor(...)", TypeError)
    if y.ndim > 2 or y.shape[1:] == (1,):
        raise must("y", "be (n,), or (n, k) for k > 1 targets", f"tensor of shape {tuple(y.shape)}", "use y[:, 0]")
    if len(x) != len(y):
        raise must("y", f"have one value per row of x ({len(x)})", f"{len(y)} values", "give both the same length")
    if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise must("x and y", "be finite", "NaN or infinity", "remove or impute these values first")
    if settings.input_noise and not x.is_floating_point():
        raise must("input_noise", f"be 0 for x of type {x.dtype}", settings.input_noise, "token ids cannot have noise")
    weight = torch.ones(len(y), dtype=torch.float32) if sample_weight is None else sample_weight.to(torch.float32)
    if weight.shape != (len(y),) or not torch.isfinite(weight).all() or weight.min() < 0 or weight.sum() <= 0:
        raise must("sample_weight", "be at least 0, not all 0, one per row", sample_weight, "give one weight per row")
    device = settings.device
    return TensorRows(x.to(device), y.to(device), (weight / weight.mean()).to(device), torch.arange(len(y)))


def check_group_numbers(groups: Tensor | None, n: int) -> GroupNumbers:
    """Number the groups from 0; return one number per row."""
    if groups is None:
        return None
    if groups.shape != (n,):
        raise must("groups", f"have one number per row ({n})", f"shape {tuple(groups.shape)}", "give one per row")
    known, codes = np.unique(groups.cpu().numpy(), return_inverse=True)
    check_two_groups(known)
    return codes.astype(np.int64)


class TrainingRun:
    """One call of `train`: the parts of the loop and its epochs."""

    def __init__(
        self,
        estimator: Any,
        objective: Objective,
        rows: TensorRows,
        groups: GroupNumbers,
        settings: TrainingSettings,
        copies: Tensor | None = None,
    ) -> None:
        if any(parameter.is_inference() for parameter in estimator.parameters()):
            rule, advice = "have parameters that can be trained", "build it outside of torch.inference_mode"
            raise must("estimator", rule, "inference tensors", advice)
        estimator.to(settings.device).train()
        self.estimator, self.objective, self.settings = estimator, objective, settings
        self.criterion = CRITERIA.get(objective, objective)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.training, self.validation = split_tensors(rows, settings.validation_fraction, self.generator, groups)
        n, self.n_train = len(rows), len(self.training)
        if copies is not None and settings.validation_fraction:
            # Every row is on both sides, with shares of its weight; only their ratios matter.
            n = self.n_train = round(float(copies.sum()))
            self.training = self.validation = rows
        self.noise_std = min(MAX_INPUT_NOISE, settings.input_noise / n**0.5)
        self.step, self.best_step = Step(estimator, settings, n, settings.planned_steps(len(self.training))), 0
        self.best = BestEpoch(estimator)
        falls = len(self.validation) and rows.y.is_floating_point()  # not for classes, which were not measured
        self.dropout = [layer for layer in estimator.modules() if falls and getattr(layer, "is_regularizer", False)]
        self.history = History(validation_rows=self.validation.index.tolist())

    def train_epochs(self) -> None:
        """Train until patience, steps or epochs are exhausted."""
        settings, history, start = self.settings, self.history, monotonic()
        with ProgressBar(settings.progress, settings.planned_steps(len(self.training))) as bar:
            for epoch in range(settings.max_epochs):
                self.train_epoch(epoch)
                if len(self.validation):
                    self.validate(epoch)
                    bar.set_postfix(validation=f"{history.criterion[-1]:.3f}", best=f"{min(history.criterion):.3f}")
                bar.update(self.step.steps - bar.done)
                seconds, patience = monotonic() - start, self.step.steps - self.best_step
                ends = {
                    "patience": len(self.validation) > 0 and patience >= settings.patience,
                    "max_steps": self.step.steps >= settings.max_steps,
                    "max_seconds": settings.max_seconds is not None and seconds > settings.max_seconds,
                }
                if any(ends.values()):
                    history.stopped = next(reason for reason, holds in ends.items() if holds)
                    return

    def train_epoch(self, epoch: int) -> None:
        """One pass over the training rows, cut short at `max_steps`."""
        record = EpochRecord()
        for batch in batches(self.training, self.settings.batch_size, self.generator, self.noise_std):
            if self.step.steps >= self.settings.max_steps:
                break
            for layer in self.dropout:
                layer.share = annealing(self.step.steps, self.settings.planned_steps(len(self.training)))
            prediction, objective_rows, own_rows = self.losses(batch)
            loss = self.settings.objective_weight * objective_rows + own_rows
            self.step((batch.weight * loss).mean(), epoch)
            record.add(batch.y, batch.weight, prediction, objective_rows, own_rows)
        record.append_to(self.history.train)

    @torch.no_grad()
    def validate(self, epoch: int) -> None:
        """Evaluate the epoch on the validation rows, block by block."""
        self.estimator.eval()
        record, scores = EpochRecord(), []
        for index in torch.arange(len(self.validation), device=self.validation.y.device).split(BLOCK_ROWS):
            block = self.validation.take(index)
            prediction, objective_rows, own_rows = self.losses(block)
            record.add(block.y, block.weight, prediction, objective_rows, own_rows)
            scores.append(mean_over_targets(self.criterion(prediction, block.y)).double())
        self.estimator.train()
        record.append_to(self.history.validation)
        score = float((self.validation.weight * torch.cat(scores)).sum() / self.validation.weight.sum())
        self.history.criterion.append(math.inf if math.isnan(score) else score)
        if self.best.consider(epoch, self.history.criterion[-1]):
            self.best_step = self.step.steps

    def losses(self, batch: TensorRows) -> tuple[Prediction, Tensor, Tensor]:
        """The core of the design: the prediction, and per row its objective and the estimator's own loss."""
        if self.estimator.training and hasattr(self.estimator, "at_rows"):
            self.estimator.at_rows(batch.index, len(self.training))
        prediction = self.estimator(batch.x)
        check_mean(prediction, batch.y)
        objective_rows = self.objective(prediction, batch.y)
        check_loss(objective_rows, batch.y)
        own_rows = self.estimator.own_loss(prediction, batch.y, self.n_train)
        if own_rows.ndim == 0 and batch.y.ndim == 2:
            own_rows = own_rows / batch.y.shape[1]  # one prior for all targets; the objective is a mean over them
        return prediction, mean_over_targets(objective_rows), mean_over_targets(own_rows)

    def finish(self) -> None:
        """Keep the weights of the best epoch, or of the last epoch if there are no validation rows."""
        self.best.restore()
        for layer in self.dropout:
            layer.share = 1.0
        freeze_(self.estimator.eval())
        self.history.best_epoch = self.best.epoch if len(self.validation) else len(self.history) - 1


def check_mean(prediction: Prediction, y: Tensor) -> None:
    if y.is_floating_point() and prediction.mean.shape != y.shape:  # labels of classes are integers
        rule, found = f"have the shape of y, {tuple(y.shape)}", f"shape {tuple(prediction.mean.shape)}"
        raise must("the estimator's mean", rule, found, "for k targets give y as (n, k) and the estimator n_targets=k")


def split_tensors(
    rows: TensorRows, validation_fraction: float, generator: torch.Generator, groups: GroupNumbers = None
) -> tuple[TensorRows, TensorRows]:
    """Split into training and validation rows, at random or by groups; few rows are all used for training."""
    n_validation = math.ceil(validation_fraction * len(rows)) if len(rows) >= MIN_ROWS_FOR_VALIDATION else 0
    order = torch.randperm(len(rows), generator=generator).numpy()
    first, second = (torch.from_numpy(part).to(rows.y.device) for part in hold_out(order, n_validation, groups))
    return rows.take(first), rows.take(second)


def batches(
    rows: TensorRows, batch_size: int, generator: torch.Generator, noise_std: float = 0.0
) -> Iterator[TensorRows]:
    """Yield all rows in random order, in batches of nearly equal size: a last batch of one row would be noise."""
    order = torch.randperm(len(rows), generator=generator).to(rows.y.device)
    for index in order.tensor_split(math.ceil(len(rows) / batch_size)):
        batch = rows.take(index)
        if noise_std:  # x is a copy, because rows are selected by index
            batch.x.add_(
                torch.randn(batch.x.shape, generator=generator, dtype=torch.float32).to(batch.x), alpha=noise_std
            )
        yield batch


class Step:
    """One optimizer step; a loss or gradient that is not finite is skipped and the learning rate halved."""

    def __init__(self, estimator: Any, settings: TrainingSettings, n_rows: int, planned_steps: int) -> None:
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
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not (math.isfinite(norm) and math.isfinite(float(loss.detach()))):
            self._skip(loss, norm, epoch)
            return
        limit = self.gradient_clip * self.usual_norm
        if norm > limit:
            torch._foreach_mul_(gradients, limit / norm)
            norm = limit
        if norm > 0:  # a batch without gradient carries no information about the usual norm
            self.usual_norm = norm if math.isinf(self.usual_norm) else 0.95 * self.usual_norm + 0.05 * norm
        self.optimizer.step()
        self.schedule.step()
        self.bad_steps = 0

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


def annealing(step: int, planned_steps: int) -> float:
    """Half a cosine over the planned steps, from 1 to 0."""
    return (1 + math.cos(math.pi * min(1.0, step / planned_steps))) / 2


def rate_factor(step: int, planned_steps: int) -> float:
    """Learning rate relative to its peak: a short rise, because the first gradients mislead, then `annealing`."""
    return min(1.0, (step + 1) / min(WARM_UP_STEPS, 1 + planned_steps / 10)) * annealing(step, planned_steps)

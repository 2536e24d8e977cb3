"""The training loop: the one place where estimator and objective meet, and the only one with an optimizer.

    prediction = estimator(x)
    loss = objective_weight * objective(prediction, y) + estimator.own_loss(prediction, y, n_train)

Everything else here serves these two lines: mini-batches, early stopping, history, progress, and rescue from a loss
that is not finite.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from hetcal._checks import check_number, must
from hetcal.estimators.base import BLOCK_ROWS
from hetcal.exceptions import TrainingDivergedError, TrainingWarning
from hetcal.metrics import ce
from hetcal.objectives import CRITERIA, Objective
from hetcal.prediction import Prediction, join
from hetcal.splitting import hold_out

# With fewer rows than this a tenth of them says nothing about when to stop; all rows then train.
MIN_ROWS_FOR_VALIDATION = 10
MAX_BAD_STEPS = 20
WARM_UP_STEPS = 100
# Copies of the weights that are kept at a time; more would cost memory and change little.
MAX_CANDIDATES = 10
CURVES = ("objective", "own_loss", "rmse", "ce")


@dataclass
class History:
    """What happened by epoch, in the scale of the `y` that `train` was given.

    Attributes:
        train: `objective`, `own_loss`, `rmse` and `ce` (calibration error) over the training batches of each epoch.
        validation: The same over the validation rows in evaluation mode; empty lists without validation rows.
        criterion: What the best epoch is chosen by: the validation objective, with outliers capped
            (`objectives.CRITERIA`). With several targets this and all curves are means over the targets.
        best_epoch: Index of the epoch whose weights were kept: the earliest within one standard error of the best.
        stopped: Why training ended: "patience", "max_steps", "max_epochs" or "interrupted".
        validation_rows: Numbers of the rows that were held back.
    """

    train: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})
    validation: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})
    criterion: list[float] = field(default_factory=list)
    best_epoch: int = 0
    stopped: str = "max_epochs"
    validation_rows: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.train["objective"])


@dataclass
class Rows:
    """Rows that are trained or validated on together."""

    x: Tensor
    y: Tensor
    weight: Tensor
    index: Tensor  # numbers of the rows

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> "Rows":
        return Rows(self.x[index], self.y[index], self.weight[index], index)


LossOf = Callable[[Rows], tuple[Prediction, Tensor, Tensor]]


def train(
    estimator: Any,
    objective: Objective,
    x: Tensor,
    y: Tensor,
    *,
    sample_weight: Tensor | None = None,
    groups: Tensor | None = None,
    objective_weight: float = 1.0,
    validation_fraction: float = 0.1,
    learning_rate: float = 2e-3,
    weight_decay: float = 1e-2,
    batch_size: int = 128,
    max_steps: int = 8_000,
    max_epochs: int = 500,
    patience: int = 30,
    standard_errors: float = 1.0,
    input_noise: float = 0.0,
    gradient_clip: float = 3.0,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: bool = False,
) -> History:
    """Train the estimator in place by AdamW and leave it with the weights of its best epoch, in evaluation mode.

    Args:
        estimator: Any module with the members of `hetcal.estimators.base`.
        objective: Loss per row of `(prediction, y)`; with several targets, per row and target.
        x: (n, ...) inputs, standardized.
        y: (n,) target, standardized; (n, k) for k targets, which then weigh the same.
        sample_weight: (n,) weights, at least 0; a weight of 2 counts like two equal rows.
        groups: (n,) integers; rows of one group are never split between training and validation.
        objective_weight: Weight of the objective beside the estimator's own loss (0.75 for Quantile-HC in the paper).
        validation_fraction: Part of the rows held back to choose the best epoch; 0 trains on all for `max_epochs`.
        learning_rate: Of AdamW at its highest; it rises over the first hundred steps, then falls to 0 along half a
            cosine over `max_steps`.
        weight_decay, batch_size: Of AdamW; parameters named raw_* (rates, degrees of freedom) do not decay.
        max_steps: Upper limit on the optimizer steps: bounds the time, whatever the number of rows.
        max_epochs: Upper limit on the passes over the data.
        patience: Epochs without a better criterion (see `History`) after which training stops.
        standard_errors: The earliest epoch is kept whose criterion is within so many of the best (see `Best`).
        input_noise: Standard deviation of the noise that is added to `x`, anew in each step. Intervals of small sets
            come out too narrow without: training rows lie closer to the fitted curve than new ones will.
        gradient_clip: Gradients are clipped to this multiple of their usual norm. A fixed limit would slow the end of
            training, where sigma is small and every gradient of the likelihood is large.
        seed: Seed of the validation split and of the order of the rows.
        device: Where to train, "cpu" or "cuda"; the estimator is moved there.
        progress: Show a progress bar.

    Returns:
        The `History`. Ctrl-C ends training early with the best weights so far and a `TrainingWarning`.

    Raises:
        TrainingDivergedError: If the loss stays non-finite; the best weights so far are restored first.

    >>> from hetcal.estimators import VarianceHead
    >>> from hetcal.networks import MLP
    >>> from hetcal.objectives import gaussian_nll
    >>> x = torch.linspace(-2, 2, 200)[:, None]
    >>> len(train(VarianceHead(MLP(1, 2, width=8)), gaussian_nll, x, x[:, 0] ** 2, max_epochs=3))
    3
    """
    check_number("objective_weight", objective_weight, 0)
    check_number("validation_fraction", validation_fraction, 0, 1, open_high=True)
    check_number("learning_rate", learning_rate, 0, open_low=True)
    check_number("weight_decay", weight_decay, 0)
    check_number("batch_size", batch_size, 1, integer=True)
    check_number("max_steps", max_steps, 1, integer=True)
    check_number("max_epochs", max_epochs, 1, integer=True)
    check_number("patience", patience, 1, integer=True)
    check_number("standard_errors", standard_errors, 0)
    check_number("input_noise", input_noise, 0)
    check_number("gradient_clip", gradient_clip, 1)
    check_number("seed", seed, 0, integer=True)
    device = check_device(device)
    for name, value in {"x": x, "y": y}.items():
        if not isinstance(value, Tensor):
            raise must(name, "be a torch tensor", type(value).__name__, "use torch.as_tensor(...)", TypeError)
    if not callable(objective):
        advice = "give one of hetcal.objectives, such as nll_loss"
        raise must("objective", "be a function (prediction, y) -> loss per row", objective, advice, TypeError)

    generator = torch.Generator().manual_seed(seed)
    rows = check_rows(x, y, sample_weight, device)
    if input_noise and not x.is_floating_point():
        raise must("input_noise", f"be 0 for x of type {x.dtype}", input_noise, "word numbers and codes take no noise")
    training, validation = split(rows, validation_fraction, generator, check_groups(groups, len(rows)))
    estimator.to(device).train()
    optimizer = torch.optim.AdamW(parameter_groups(estimator, weight_decay), lr=learning_rate, fused=True)
    loss_of = make_loss(estimator, objective, n_train=len(training))
    criterion = CRITERIA.get(objective, objective)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, max_steps))
    step = Step(estimator, optimizer, schedule, gradient_clip)
    history = History(validation_rows=validation.index.tolist())
    best = Best(estimator, validation.weight, standard_errors)
    epochs = tqdm(range(max_epochs), desc="training", unit="epoch", disable=not progress, leave=False)
    try:
        for epoch in epochs:
            record = EpochRecord()
            for batch in batches(training, batch_size, generator, input_noise):
                prediction, objective_rows, own_rows = loss_of(batch)
                step((batch.weight * (objective_weight * objective_rows + own_rows)).mean(), epoch)
                record.add(batch, prediction, objective_rows, own_rows)
            record.append_to(history.train)
            if len(validation):
                record, scores = validate(estimator, loss_of, criterion, validation)
                record.append_to(history.validation)
                best.consider(epoch, scores)
                history.criterion.append(best.mean(scores))
                epochs.set_postfix(validation=f"{history.criterion[-1]:.3f}", best=f"{min(history.criterion):.3f}")
            if len(validation) and epoch - best.epoch >= patience:
                history.stopped = "patience"
            elif step.steps >= max_steps:
                history.stopped = "max_steps"
            else:
                continue
            break
    except KeyboardInterrupt:
        history.stopped = "interrupted"
        warnings.warn(
            f"training was interrupted after {len(history)} epoch(s); the best weights so far are kept",
            TrainingWarning,
            stacklevel=2,
        )
    finally:
        epochs.close()
        best.restore()
        estimator.eval()
    history.best_epoch = best.chosen_epoch if len(validation) else len(history) - 1
    return history


def check_device(device: str | torch.device) -> torch.device:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError):
        raise must("device", "be one that torch finds on this machine", device, "'cpu' always works") from None
    return torch.device(device)


def check_rows(x: Tensor, y: Tensor, sample_weight: Tensor | None, device: torch.device) -> Rows:
    """The rows on the device, shapes checked (an (n, 1) target would broadcast silently), weights of mean 1."""
    if y.ndim > 2 or y.shape[1:] == (1,):
        raise must("y", "be (n,), or (n, k) for k > 1 targets", f"tensor of shape {tuple(y.shape)}", "use y[:, 0]")
    if len(x) != len(y):
        raise must("y", f"have one value per row of x ({len(x)})", f"{len(y)} values", "give both the same length")
    if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise must("x and y", "be finite", "NaN or infinity", "remove or impute these values first")
    weight = torch.ones(len(y)) if sample_weight is None else sample_weight.to(torch.float32)
    if weight.shape != (len(y),) or not torch.isfinite(weight).all() or weight.min() < 0 or weight.sum() <= 0:
        raise must("sample_weight", "be at least 0, not all 0, one per row", sample_weight, "give one weight per row")
    return Rows(x.to(device), y.to(device), (weight / weight.mean()).to(device), torch.arange(len(y)))


def check_groups(groups: Tensor | None, n: int) -> Tensor | None:
    if groups is not None and groups.shape != (n,):
        raise must("groups", f"have one number per row ({n})", f"shape {tuple(groups.shape)}", "give one per row")
    if groups is None:
        return None
    known, codes = torch.unique(groups, return_inverse=True)
    if len(known) < 2:
        raise must("groups", "name at least 2 groups", known.tolist(), "leave groups away if all rows belong together")
    return codes


def split(
    rows: Rows, validation_fraction: float, generator: torch.Generator, groups: Tensor | None = None
) -> tuple[Rows, Rows]:
    """Random training and validation rows, or whole groups; none for validation if too few to say anything."""
    n_validation = math.ceil(validation_fraction * len(rows)) if len(rows) >= MIN_ROWS_FOR_VALIDATION else 0
    order = torch.randperm(len(rows), generator=generator).numpy()
    parts = hold_out(order, n_validation, None if groups is None else groups.cpu().numpy())
    training, validation = (rows.take(torch.from_numpy(part).to(rows.y.device)) for part in parts)
    return training, validation


def batches(rows: Rows, batch_size: int, generator: torch.Generator, input_noise: float = 0.0) -> Iterator[Rows]:
    """All rows in random order, in batches of nearly equal size: a last batch of one row would be noise."""
    order = torch.randperm(len(rows), generator=generator).to(rows.y.device)
    for index in order.tensor_split(math.ceil(len(rows) / batch_size)):
        batch = rows.take(index)
        if input_noise:
            noise = torch.randn(batch.x.shape, generator=generator).to(batch.x)
            batch.x.add_(noise, alpha=input_noise)  # a copy of its own: indexing by rows makes one
        yield batch


def rate_factor(step: int, max_steps: int) -> float:
    """Learning rate as a part of its highest: a short rise, because the first gradients mislead, then half a cosine."""
    return min(1.0, (step + 1) / WARM_UP_STEPS) * (1 + math.cos(math.pi * min(1.0, step / max_steps))) / 2


def make_loss(estimator: Any, objective: Objective, n_train: int) -> LossOf:
    """The core of the design: prediction, objective and own loss per row of a batch."""

    def loss_of(batch: Rows) -> tuple[Prediction, Tensor, Tensor]:
        if estimator.training and hasattr(estimator, "at_rows"):
            estimator.at_rows(batch.index, n_train)
        prediction = estimator(batch.x)
        if batch.y.is_floating_point() and prediction.mean.shape != batch.y.shape:  # labels of classes are integers
            raise must(
                "the estimator's mean",
                f"have the shape of y, {tuple(batch.y.shape)}",
                f"shape {tuple(prediction.mean.shape)}",
                "for k targets give y as (n, k) and the estimator n_targets=k",
            )
        objective_rows = objective(prediction, batch.y)
        if objective_rows.shape not in ((len(batch),), batch.y.shape):
            raise must(
                "objective",
                f"return one loss per row, shape {tuple(batch.y.shape)}",
                f"shape {tuple(objective_rows.shape)}",
                "do not average over the rows",
            )
        own_rows = estimator.own_loss(prediction, batch.y, n_train)
        if own_rows.ndim == 0 and batch.y.ndim == 2:
            own_rows = own_rows / batch.y.shape[1]  # one prior for all targets, beside a mean over them
        return prediction, mean_over_targets(objective_rows), mean_over_targets(own_rows)

    return loss_of


def mean_over_targets(values: Tensor) -> Tensor:
    """(n,) from (n,) or (n, k); one number stays one number."""
    return values.flatten(1).mean(1) if values.ndim > 1 else values


def parameter_groups(estimator: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Weights decay; what is named raw_*, such as a dropout rate, would only be pulled to an arbitrary value."""
    weights: list[Tensor] = []
    raw: list[Tensor] = []
    for name, parameter in estimator.named_parameters():
        is_raw = any(part.startswith("raw_") for part in name.split("."))
        (raw if is_raw else weights).append(parameter)
    groups = [{"params": weights, "weight_decay": weight_decay}, {"params": raw, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


class Step:
    """One optimizer step; a loss or gradient that is not finite is skipped and the learning rate halved."""

    def __init__(
        self,
        estimator: Any,
        optimizer: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LambdaLR,
        gradient_clip: float,
    ) -> None:
        self.parameters = list(estimator.parameters())
        self.optimizer = optimizer
        self.schedule = schedule
        self.gradient_clip = gradient_clip
        self.usual_norm = math.inf
        self.steps = 0
        self.bad_steps = 0

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
        if norm > 0:  # a batch without any gradient says nothing about the usual one
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
            value = float(loss.detach())
            cause, value = ("gradient", norm) if math.isfinite(value) else ("loss", value)
            raise TrainingDivergedError(
                f"the {cause} must be finite, got {cause}={value} in {self.bad_steps} steps in a row "
                f"(step {self.steps}, epoch {epoch}); lower the learning_rate, raise the estimator's std_floor, or "
                "check the network and the scale of x and y"
            )


class Best:
    """Which epoch's weights to keep: the earliest whose score is within one standard error of the best.

    Later epochs are no better as far as the validation rows can tell, and their sigma has had more time to adapt to the
    training rows, where residuals are smaller than on new ones: the one-standard-error rule of Breiman et al. (1984),
    Classification and Regression Trees, with the standard error of the difference row by row.
    """

    def __init__(self, estimator: Any, weight: Tensor, standard_errors: float = 1.0) -> None:
        self.estimator = estimator
        self.standard_errors = standard_errors
        self.weight = weight.double() / weight.sum()  # (n,) of the validation rows
        self.epoch = 0  # with the best score
        self.scores: Tensor | None = None
        self.candidates: list[tuple[int, Tensor, dict[str, Any]]] = []  # epoch, scores (n,), weights; earliest first

    def mean(self, scores: Tensor) -> float:
        mean = float((self.weight * scores).sum())
        return math.inf if math.isnan(mean) else mean

    def consider(self, epoch: int, scores: Tensor) -> None:
        if self.scores is None or self.mean(scores) < self.mean(self.scores):
            self.epoch, self.scores = epoch, scores
            near = [candidate for candidate in self.candidates if self.is_near(candidate[1], scores)]
            self.candidates = near[: MAX_CANDIDATES - 1]
        elif len(self.candidates) == MAX_CANDIDATES or not self.is_near(scores, self.scores):
            return
        self.candidates.append((epoch, scores, copy.deepcopy(self.estimator.state_dict())))

    def is_near(self, scores: Tensor, best: Tensor) -> bool:
        excess = scores - best
        mean = (self.weight * excess).sum()
        variance = (self.weight * (excess - mean)).square().sum()
        return bool(mean <= self.standard_errors * variance.sqrt())

    @property
    def chosen_epoch(self) -> int:
        return self.candidates[0][0] if self.candidates else self.epoch

    def restore(self) -> None:
        if self.candidates:
            self.estimator.load_state_dict(self.candidates[0][2])


class EpochRecord:
    """Gathers what the batches of one epoch gave anyway, so that the training curves cost nothing."""

    def __init__(self) -> None:
        self.rows: list[tuple[Tensor, ...]] = []
        self.predictions: list[Prediction] = []

    def add(self, batch: Rows, prediction: Prediction, objective_rows: Tensor, own_rows: Tensor) -> None:
        columns = batch.y, objective_rows, own_rows.expand(len(batch)), batch.weight
        self.rows.append(tuple(column.detach() for column in columns))
        self.predictions.append(Prediction(prediction.mean.detach(), prediction.std.detach(), family=prediction.family))

    def append_to(self, curves: dict[str, list[float]]) -> None:
        y, objective_rows, own_rows, weight = (
            torch.cat(column).cpu().double().numpy() for column in zip(*self.rows, strict=True)
        )
        curves["objective"].append(float(np.average(objective_rows, weights=weight)))
        curves["own_loss"].append(float(np.average(own_rows, weights=weight)))
        prediction = join(self.predictions, torch.cat).numpy()
        if prediction.mean.shape != y.shape:  # classes: the mean is of logits
            return
        squares = ((y - prediction.mean) ** 2).reshape(len(y), -1).mean(1)
        curves["rmse"].append(float(np.sqrt(np.average(squares, weights=weight))))
        finite = bool(np.isfinite(prediction.mean).all() and np.isfinite(prediction.std).all())
        curves["ce"].append(float(np.mean(ce(y, prediction))) if finite else math.nan)


@torch.no_grad()
def validate(estimator: Any, loss_of: LossOf, criterion: Objective, rows: Rows) -> tuple[EpochRecord, Tensor]:
    """The validation rows in evaluation mode, block by block: their record, and the criterion per row."""
    estimator.eval()
    record, scores = EpochRecord(), []
    for index in torch.arange(len(rows), device=rows.y.device).split(BLOCK_ROWS):
        block = rows.take(index)
        prediction, objective_rows, own_rows = loss_of(block)
        record.add(block, prediction, objective_rows, own_rows)
        scores.append(mean_over_targets(criterion(prediction, block.y)).double())
    estimator.train()
    return record, torch.cat(scores)

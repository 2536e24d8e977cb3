"""The training loop of one network, where an estimator and an objective meet.

    prediction = estimator(x)
    loss = objective_weight * objective(prediction, y) + estimator.own_loss(prediction, y, n_train)

Everything else serves these two lines: settings, batches, early stopping, history, recovery from a non-finite loss.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, fields
from itertools import islice
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from hetcal._checks import check_choice, must
from hetcal.estimators.base import BLOCK_ROWS, freeze_
from hetcal.estimators.checkpoints import BestEpoch
from hetcal.metrics.history import EpochRecord, History, ProgressBar
from hetcal.objectives import CRITERIA, Objective, check_loss, mean_over_targets
from hetcal.prediction import Prediction
from hetcal.training.rows import (
    GroupNumbers,
    TensorRows,
    batches,
    check_group_numbers,
    check_rows,
    split_tensors,
    with_noise,
)
from hetcal.training.settings import TrainingSettings
from hetcal.training.step import Step, annealing
from hetcal.training.streams import RowStream, is_validation, stream_batches
from hetcal.training.workers import ALONE, State

# Even with very few rows, noise must not dominate the inputs.
MAX_INPUT_NOISE = 0.3
# Steps between two judgments of a network that is trained on a stream, where a pass over the rows may take hours.
STREAM_EPOCH_STEPS = 500


def train(
    estimator: Any,
    objective: Objective,
    x: Tensor,
    y: Tensor,
    *,
    sample_weight: Tensor | None = None,
    groups: Tensor | None = None,
    copies: Tensor | None = None,
    stream: RowStream | None = None,
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
        stream: More rows than fit into memory; x and y are then a random sample of them, whose keys it knows. The
            network is trained on the stream, and epochs are judged on rows of the sample that training omits.
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
        run = TrainingRun(estimator, objective, rows, check_group_numbers(groups, len(rows)), chosen, copies, stream)
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
        stream: RowStream | None = None,
    ) -> None:
        if any(parameter.is_inference() for parameter in estimator.parameters()):
            rule, advice = "have parameters that can be trained", "build it outside of torch.inference_mode"
            raise must("estimator", rule, "inference tensors", advice)
        estimator.to(settings.device).train()
        self.estimator, self.objective, self.settings = estimator, objective, settings
        self.criterion = CRITERIA.get(objective, objective)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.training, self.validation = split_tensors(rows, settings.validation_fraction, self.generator, groups)
        n, self.n_train, self.source = len(rows), len(self.training), None
        self.workers = ALONE if stream is None else stream.workers
        self.name = "" if stream is None else stream.name
        if stream is not None:
            held_out = torch.from_numpy(is_validation(stream.sample_keys, settings.validation_fraction, settings.seed))
            self.training, self.validation = rows.take((~held_out).nonzero()[:, 0]), rows.take(held_out.nonzero()[:, 0])
            n, self.n_train = len(stream), round(len(stream) * (1 - settings.validation_fraction))
            self.source = stream_batches(stream, settings, self.generator)
        if copies is not None and settings.validation_fraction:
            # Every row is on both sides, with shares of its weight; only their ratios matter.
            n = self.n_train = round(float(copies.sum()))
            self.training = self.validation = rows
        self.noise_std = min(MAX_INPUT_NOISE, settings.input_noise / n**0.5)
        self.planned_steps = settings.planned_steps(self.n_train if self.source else len(self.training))
        self.step, self.best_step = Step(estimator, settings, n, self.planned_steps, self.workers), 0
        self.best = BestEpoch(estimator)
        falls = len(self.validation) and rows.y.is_floating_point()  # not for classes, which were not measured
        self.dropout = [layer for layer in estimator.modules() if falls and getattr(layer, "is_regularizer", False)]
        self.history = History(validation_rows=self.validation.index.tolist())

    def train_epochs(self) -> None:
        """Train until patience, steps or epochs are exhausted."""
        settings, start, limit = self.settings, monotonic(), self.settings.max_seconds
        first = self.resume()
        history = self.history
        with ProgressBar(settings.progress, self.planned_steps) as bar:
            for epoch in range(first, settings.max_epochs):
                if self.step.steps >= settings.max_steps:  # a state that was saved at the end
                    history.stopped = "max_steps"
                    return
                self.train_epoch(epoch)
                if len(self.validation):
                    self.validate(epoch)
                    bar.set_postfix(validation=f"{history.criterion[-1]:.3f}", best=f"{min(history.criterion):.3f}")
                bar.update(self.step.steps - bar.done)
                seconds, patience = monotonic() - start, self.step.steps - self.best_step
                ends = {
                    "patience": len(self.validation) > 0 and patience >= settings.patience,
                    "max_steps": self.step.steps >= settings.max_steps,
                    "max_seconds": limit is not None and self.workers.any(seconds > limit),
                }
                self.workers.save(self.name, self.state)
                if any(ends.values()):
                    history.stopped = next(reason for reason, holds in ends.items() if holds)
                    return

    def train_epoch(self, epoch: int) -> None:
        """One pass over the training rows, cut short at `max_steps`."""
        record = EpochRecord()
        for batch in self.epoch_batches():
            if self.step.steps >= self.settings.max_steps:
                break
            for layer in self.dropout:
                layer.share = annealing(self.step.steps, self.planned_steps)
            prediction, objective_rows, own_rows = self.losses(batch)
            loss = self.settings.objective_weight * objective_rows + own_rows
            self.step((batch.weight * loss).mean(), epoch)
            record.add(batch.y, batch.weight, prediction, objective_rows, own_rows)
        record.append_to(self.history.train)

    def state(self) -> State:
        """Everything that the next epochs depend on, except for the order of the rows."""
        best = {"epoch": self.best.epoch, "score": self.best.score, "weights": self.best.weights}
        weights, history = self.estimator.state_dict(), asdict(self.history)
        return {"weights": weights, "best": best, "best_step": self.best_step, "history": history, **self.step.state()}

    def resume(self) -> int:
        """Go on where a process that failed has saved its state; return the number of the next epoch."""
        state = self.workers.restore(self.name)
        if state is not None:
            self.estimator.load_state_dict(state["weights"])
            self.step.load(state)
            self.best_step, self.history = state["best_step"], History(**state["history"])
            vars(self.best).update(state["best"])
        return len(self.history)

    def epoch_batches(self) -> Iterator[TensorRows]:
        """The batches of one pass over the rows, or of so many steps if the rows are a stream."""
        if self.source is None:
            return batches(self.training, self.settings.batch_size, self.generator, self.noise_std)
        steps = min(STREAM_EPOCH_STEPS, math.ceil(self.n_train / self.settings.batch_size))
        return (with_noise(batch, self.noise_std, self.generator) for batch in islice(self.source, steps))

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
            self.estimator.at_rows(batch.index % len(self.training), len(self.training))
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

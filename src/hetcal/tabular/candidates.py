"""Models of the target under several transforms, and the choice among them by rows that were held out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from hetcal._checks import Floats
from hetcal.estimators import predict
from hetcal.estimators.cross_ensemble import Calibration
from hetcal.metrics.history import History
from hetcal.prediction import Prediction
from hetcal.tabular.preparing import TrainingRows
from hetcal.tabular.targets import TargetScale, is_no_better_than_constant

# Held-out rows that tell whether a model is better than another one. Fewer cannot; more only take longer.
LEAST_JUDGING, MOST_JUDGING = 30, 2000
# A positive target of at least this skewness may need a logarithm. It is tried on at most so many rows.
LEAST_SKEWNESS, TRIAL_ROWS = 1.0, 1000
# The gain in the logarithm of the density, on average over the rows, that makes a transform worth it, and the most that
# a single row counts. With noise in percent of a smooth law the gain is 0.05 to 0.15, and the CRPS hardly changes.
LEAST_GAIN, MOST_GAIN = 0.3, 3.0
LEAST_SAVING = 0.05


@dataclass
class Candidate:
    """A model for one transform of the target."""

    scale: TargetScale
    estimator: nn.Module
    history: History
    calibration: Calibration | None = None  # of a `CrossEnsemble`: its held-out predictions of all rows

    def losses(self, rows: TrainingRows, judging: Sequence[int]) -> Floats:
        """Loss of each of the rows that judge, averaged over the targets, in the units of y.

        For a `CrossEnsemble` it is the CRPS of held-out predictions, otherwise the negative log likelihood.
        """
        if self.calibration is None:
            return -self.log_densities(rows, judging)
        y, prediction = rows.target[judging], self.scale.in_units_of_y(self.held_out(rows, judging))
        return np.asarray(prediction.crps(y)).reshape(len(y), -1).mean(1)

    def log_densities(self, rows: TrainingRows, judging: Sequence[int]) -> Floats:
        """Logarithm of the density of each of these rows, averaged over the targets, in the units of y."""
        y, prediction = rows.target[judging], self.scale.in_units_of_y(self.held_out(rows, judging))
        return np.asarray(prediction.log_prob(y)).reshape(len(y), -1).mean(1)

    def held_out(self, rows: TrainingRows, judging: Sequence[int]) -> Prediction:
        """The predictions of rows that were held out, in the scale of training."""
        if self.calibration is not None:
            return self.calibration.calibrated(self.estimator).take(judging)
        return predict(self.estimator, rows.x[judging].to(next(self.estimator.parameters()).device)).numpy()

    def is_useless(self, rows: TrainingRows) -> bool:
        """Whether a constant would do, as far as enough held-out rows can tell; a table of constants says so itself."""
        judging = self.history.validation_rows
        if len(judging) < LEAST_JUDGING or not rows.encoder.is_informative or np.ptp(rows.target) == 0:
            return False
        if len(judging) > MOST_JUDGING:
            judging = np.random.default_rng(rows.seed).choice(judging, MOST_JUDGING, replace=False).tolist()
        y = self.scale.standardize(rows.target[judging]).astype(np.float64)
        return is_no_better_than_constant(self.held_out(rows, judging), y, rows.weights[judging])


def simplest_near_best(candidates: Sequence[Candidate], rows: TrainingRows) -> Candidate:
    """The first (simplest) candidate within two standard errors of the best on the rows that judge."""
    judging = candidates[0].history.validation_rows
    share = rows.weights[judging] / rows.weights[judging].sum()
    losses = [candidate.losses(rows, judging) for candidate in candidates]
    best = min(losses, key=lambda loss: share @ loss)

    def is_near(loss: Floats) -> bool:
        excess = loss - best
        return bool(share @ excess <= 2 * np.sqrt((share**2) @ (excess - share @ excess) ** 2))

    return next(candidate for candidate, loss in zip(candidates, losses, strict=True) if is_near(loss))


def may_need_logarithm(rows: TrainingRows) -> bool:
    """Whether the target is positive with a long tail, so that a trial of its logarithm may be worth its time."""
    y, share = rows.target, rows.weights / rows.weights.sum()
    if len(y) < LEAST_JUDGING or rows.n_targets > 1 or rows.are_repeated or rows.spool is not None:
        return False
    if not (y > 0).all():
        return False
    z = y / y.max()  # free of overflow
    z = z - share @ z
    return bool(share @ z**3 >= LEAST_SKEWNESS * (share @ z**2) ** 1.5 > 0)


def rows_of_trial(rows: TrainingRows) -> TrainingRows:
    """All rows, or a random sample of them (unless it has rows of one group only)."""
    n = len(rows.target)
    if n <= TRIAL_ROWS:
        return rows
    index = np.sort(np.random.default_rng(rows.seed).choice(n, TRIAL_ROWS, replace=False))
    groups = None if rows.groups is None else rows.groups[index]
    if groups is not None and np.ptp(groups) == 0:
        return rows
    return replace(
        rows,
        target=rows.target[index],
        weights=rows.weights[index],
        copies=rows.copies[index],
        groups=groups,
        x=rows.x[index],
    )


def is_clearly_better(candidate: Candidate, other: Candidate, rows: TrainingRows) -> bool:
    """Whether held-out rows are much likelier, by `LEAST_GAIN`, and their CRPS is lower by the share `LEAST_SAVING`.

    Where a target spans orders of magnitude, few large values make up the CRPS. The likelihood counts relative errors,
    and its differences are limited, so that single rows do not decide. But it does not see means that are far too
    large, as the exponential of a wide distribution has.
    """
    every = range(len(rows.target))
    share = rows.weights / rows.weights.sum()
    gain = candidate.log_densities(rows, every) - other.log_densities(rows, every)
    crps, usual = (share @ one.losses(rows, every) for one in (candidate, other))
    is_likelier = share @ gain.clip(-MOST_GAIN, MOST_GAIN) >= LEAST_GAIN
    return bool(is_likelier and crps <= (1 - LEAST_SAVING) * usual)

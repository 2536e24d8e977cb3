"""The scikit-learn regressor: from a table and its target to predictions in the units of y."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import column_or_1d
from torch import nn

from hetcal._checks import Floats, check_choice, check_vector, must
from hetcal.estimators import ESTIMATORS, predict
from hetcal.exceptions import DegenerateDataWarning
from hetcal.families import Family, StudentT, check_family
from hetcal.metrics.history import History
from hetcal.objectives import OBJECTIVES, Objective, gaussian_nll, squared_error
from hetcal.prediction import DistributionMixin, Prediction, TransformedPrediction
from hetcal.tabular.building import check_estimator_options, resolve_name
from hetcal.tabular.encoding import fit_column_scaler
from hetcal.tabular.model import TabularModel, TrainingRows
from hetcal.training import MIN_ROWS_FOR_VALIDATION
from hetcal.transforms import TRANSFORMS, PerTarget, Standardizer, TargetTransform

# The standardized target is rounded to a millionth of its standard deviation, which is the estimators' floor of sigma.
# This removes rounding errors of y (in kelvin instead of degrees Celsius, say). Otherwise a single bit would lead to
# another model, because training is chaotic.
TARGET_GRID = 2.0**-20
# Where the standard deviation of y is this many times the one that its quartiles suggest, few values make it up: gross
# errors. Then y is scaled by the quartiles, and no value counts as farther away than this.
GROSS_ERROR = 30.0


class HCRegressor(DistributionMixin, RegressorMixin, TabularModel):
    """Neural network regressor with heteroscedastic calibration (HC): prediction intervals from one training run.

    HC puts the predictive standard deviation of any uncertainty estimator into the likelihood that is trained. Tables
    are fitted as they are: pandas or polars frames with numbers, booleans, dates, text, categories and missing values,
    or numeric arrays. The columns of a frame are matched by name. All predictions are in the units of y.

    Args:
        estimator: Where the predictive standard deviation comes from: a name in `hetcal.estimators.ESTIMATORS`, such as
            "mc_dropout", "variance_head" or "ensemble", or a class with the members of `hetcal.estimators.base`.
        objective: What is trained: "nll", the likelihood (it calibrates; eq. 1 of the paper for the Gaussian family),
            "squared_error" (it does not), "gaussian_nll", "beta_nll", "faithful_nll", "crps", or a function
            `(prediction, y) -> loss per row`.
        family: Shape of the predictive distribution: "gaussian", "laplace", "student_t" (its degrees of freedom are
            learned), or a family such as `hetcal.families.StudentT(df=4)`. Intervals, quantiles and scores follow it.
        target_transform: None, "log", "yeo-johnson" or "quantile". The network predicts the transformed target, and
            predictions are mapped back. "auto" trains a model with each and keeps the simplest whose likelihood on the
            validation rows is within two standard errors of the best.
        network: None for an `MLP`; a class or function `(n_inputs, n_outputs) -> nn.Module`; or an `nn.Module`, which
            is copied and initialized anew in each fit.
        width: Units per hidden layer of the `MLP`.
        depth: Number of hidden layers of the `MLP`.
        dropout: Dropout rate of the `MLP`. "mc_dropout" samples it; for all estimators it is a regularizer.
        estimator_options: Further settings of the estimator, such as `{"samples": 20}`.
        objective_weight: Weight of the objective relative to the estimator's own loss.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Weight decay of AdamW; `hetcal.training.TrainingSettings` describes how it depends on the
            number of rows.
        batch_size: Rows per training step.
        max_steps: Upper limit on the training steps; it bounds the training time for any number of rows.
        max_epochs: Upper limit on the passes over the data.
        patience: Training steps without a better validation score after which training stops.
        validation_fraction: Fraction of the training rows held out to choose the best epoch.
        input_noise: Noise on the standardized inputs in training, which widens the intervals of small tables;
            `hetcal.training.TrainingSettings` describes how it depends on the number of rows.
        column_order: "by_name" accepts the columns of a frame in any order; "as_fitted" refuses another order, as
            scikit-learn's own estimators do.
        random_state: None, an integer, or a NumPy generator. An integer makes fit and predict reproducible bit for bit
            on one machine with one number of threads. Global generators are not used, unless a user's network draws
            from them itself (`torch.nn.functional.dropout`); use `nn.Dropout` there instead.
        device: "cpu" or "cuda".
        progress: Show a progress bar during training.

    Attributes:
        estimator_: The trained torch module.
        encoder_: The fitted `TableEncoder`.
        target_transform_: Name of the chosen transform, or None.
        transform_: The fitted transform of y, or None; see `hetcal.transforms`.
        target_scaler_: The fitted `Standardizer` of y, or of the transformed y.
        history_: The `History` of training. Its `rmse` is in the units of y for a single target without transform.
        n_targets_: Number of targets.
        seed_: The seed drawn from `random_state`.
        n_features_in_: Number of columns seen during fit.
        feature_names_in_: Names of the columns seen during fit, if X was a frame with names.

    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = HCRegressor(width=16, max_epochs=5, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict(X, return_std=True)
    >>> model.predict_interval(X, level=0.9).shape
    (200, 2)
    """

    kind = "regressor"
    registries: ClassVar[dict[str, dict[str, Any]]] = {"estimator": ESTIMATORS, "objective": OBJECTIVES}

    def __init__(
        self,
        estimator: str | type = "mc_dropout",
        objective: str | Objective = "nll",
        family: str | Family = "gaussian",
        target_transform: str | None = None,
        *,
        network: Any = None,
        width: int = 128,
        depth: int = 5,
        dropout: float = 0.2,
        estimator_options: dict[str, Any] | None = None,
        objective_weight: float = 1.0,
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-2,
        batch_size: int = 128,
        max_steps: int = 8_000,
        max_epochs: int = 500,
        patience: int = 1_000,
        validation_fraction: float = 0.1,
        input_noise: float = 0.0,
        column_order: str = "by_name",
        random_state: Any = None,
        device: str = "cpu",
        progress: bool = False,
    ) -> None:
        self.objective = objective
        self.family = family
        self.target_transform = target_transform
        self.objective_weight = objective_weight
        super().__init__(
            estimator,
            network=network,
            width=width,
            depth=depth,
            dropout=dropout,
            estimator_options=estimator_options,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            max_steps=max_steps,
            max_epochs=max_epochs,
            patience=patience,
            validation_fraction=validation_fraction,
            input_noise=input_noise,
            column_order=column_order,
            random_state=random_state,
            device=device,
            progress=progress,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> "HCRegressor":
        """Train on a table and its target.

        Args:
            X: (n, d) frame or array; missing values are allowed.
            y: (n,) finite numbers; or (n, k) for k targets, which share the network and are independent given X.
            sample_weight: (n,) weights, at least 0; a weight of 2 counts exactly like giving the row twice, unless
                the table consists of repeated rows (at least five for each different one).
            groups: (n,) labels of rows that belong together (a patient, a day). Whole groups are then held out for
                validation. Give them if you will predict for new groups; otherwise training stops too late, and the
                intervals for new groups are too narrow.
        """
        objective = resolve_name("objective", self.objective, OBJECTIVES)
        check_likelihood(self.family, objective)
        check_passes(self.estimator_options, objective, self.objective_weight)
        rows = self._prepare(X, y, sample_weight, groups, check_regression_target)
        warn_of_constants(rows.target)
        first_name, *others = self._transforms(rows.target)
        candidates = [self._fit_candidate(first_name, objective, rows)]
        held_out = () if rows.are_repeated else candidates[0].history.validation_rows
        candidates += [self._fit_candidate(name, objective, rows, held_out) for name in others]
        best = likeliest(candidates, rows) if others else candidates[0]
        # All at once, so that a fit that fails leaves an earlier one intact.
        self.encoder_, self.seed_, self.n_targets_ = rows.encoder, rows.seed, rows.n_targets
        self.target_transform_, self.transform_, self.target_scaler_ = best.name, best.transform, best.scaler
        self.estimator_, self.history_ = best.estimator, best.history
        if best.transform is None and self.n_targets_ == 1:
            for curves in (self.history_.train, self.history_.validation):
                curves["rmse"] = [value * float(self.target_scaler_.scale) for value in curves["rmse"]]
        return self

    def predict_dist(self, X: Any) -> Prediction | TransformedPrediction:
        """The predictive distribution of each row on NumPy arrays: mean, std, interval, quantile, log_prob, ..."""
        return in_units_of_y(self._predict(X), self.target_scaler_, self.transform_)

    def _fit_candidate(
        self, name: str | None, objective: Objective, rows: TrainingRows, held_out: Sequence[int] = ()
    ) -> "Candidate":
        """Train a model of the target under one transform; the transform is fitted without the `held_out` rows."""
        target, transform = rows.target, None
        if name is not None:
            weights = rows.weights.copy()
            weights[list(held_out)] = 0.0  # rows that judge a transform must not shape it
            transform = fit_transform(name, target, weights)
            target = transform.forward(target)
        scaler = fit_target_scaler(target, rows.weights)
        standardized = standardize_target(target, scaler)
        estimator, history = self._train(
            objective,
            rows,
            torch.from_numpy(standardized.astype(np.float32)),
            n_targets=rows.n_targets,
            family=self.family,
            objective_weight=self.objective_weight,
        )
        return Candidate(name, transform, scaler, estimator, history)

    def _transforms(self, target: Floats) -> list[str | None]:
        """The transforms to try, simplest first."""
        if self.target_transform is None:
            return [None]
        name = check_choice("target_transform", self.target_transform, [*TRANSFORMS, "auto"])
        if name != "auto":
            return [name]
        if len(target) < MIN_ROWS_FOR_VALIDATION or not self.validation_fraction:
            warnings.warn(
                "target_transform='auto' has no validation rows to choose by; the target is not transformed",
                DegenerateDataWarning,
                stacklevel=3,
            )
            return [None]
        return [None, *(name for name in TRANSFORMS if name != "log" or (target > 0).all())]


@dataclass
class Candidate:
    """A model for one transform of the target."""

    name: str | None
    transform: TargetTransform | PerTarget | None
    scaler: Standardizer
    estimator: nn.Module
    history: History

    def log_prob(self, x: torch.Tensor, target: Floats) -> Floats:
        """Log density per row, averaged over the targets, in the units of y."""
        prediction = in_units_of_y(predict(self.estimator, x).numpy(), self.scaler, self.transform)
        return np.asarray(prediction.log_prob(target)).reshape(len(target), -1).mean(1)


def likeliest(candidates: Sequence[Candidate], rows: TrainingRows) -> Candidate:
    """The first (simplest) candidate within two standard errors of the likeliest on the validation rows."""
    judging = candidates[0].history.validation_rows
    share = rows.weights[judging] / rows.weights[judging].sum()
    x = rows.x[judging].to(next(candidates[0].estimator.parameters()).device)
    scores = [candidate.log_prob(x, rows.target[judging]) for candidate in candidates]
    best = max(scores, key=lambda score: share @ score)

    def is_near(score: Floats) -> bool:
        excess = best - score
        return bool(share @ excess <= 2 * np.sqrt((share**2) @ (excess - share @ excess) ** 2))

    return next(candidate for candidate, score in zip(candidates, scores, strict=True) if is_near(score))


def in_units_of_y(
    prediction: Prediction, scaler: Standardizer, transform: TargetTransform | PerTarget | None
) -> Prediction | TransformedPrediction:
    """Undo the standardization and the transform of y; predictions return to the units of y only here."""
    prediction = scaler.inverse(prediction)
    return prediction if transform is None else TransformedPrediction(prediction, transform)


def fit_transform(name: str, y: Floats, weights: Floats) -> TargetTransform | PerTarget:
    make = TRANSFORMS[name]
    if y.ndim == 1:
        return make().fit(y, weights)
    return PerTarget([make() for _ in range(y.shape[1])]).fit(y, weights)


def check_likelihood(family: Any, objective: Objective) -> None:
    """Refuse degrees of freedom that no objective trains: they would silently keep their initial value."""
    if check_family(family) == StudentT.name and objective in (squared_error, gaussian_nll):
        raise must(
            "family",
            f"be trained by the objective, which {objective.__name__} does not do",
            family,
            "use objective='nll', or fix the degrees of freedom: family=hetcal.families.StudentT(df=4)",
        )


def check_passes(options: Any, objective: Objective, objective_weight: Any) -> None:
    """Refuse a single pass, which has no spread: the likelihood would only see the floor of sigma."""
    if check_estimator_options(options).get("samples") == 1 and objective is not squared_error and objective_weight:
        advice = "give at least 4 passes, or use objective='squared_error'"
        raise must("samples", "be at least 4 for an objective that trains sigma", 1, advice)


def check_regression_target(y: NDArray[Any]) -> Floats:
    """The target as finite float64 numbers: (n,), or (n, k) for k > 1 targets."""
    if y.dtype.kind == "c":
        raise must("y", "hold real numbers; Complex data not supported", y.dtype.name, "use its real part")
    if y.dtype.kind not in "biufO":
        raise must("y", "hold numbers", y.dtype.name, "convert text or dates to numbers first")
    if y.ndim == 2 and y.shape[1] > 1:
        return np.column_stack([check_vector(f"y[:, {j}]", column) for j, column in enumerate(y.T)])
    if y.ndim > 2:
        raise must("y", "be (n,), or (n, k) for k targets", f"array of shape {y.shape}", "give it that shape")
    return check_vector("y", column_or_1d(y, warn=True))


def warn_of_constants(target: Floats) -> None:
    for column in target.reshape(len(target), -1).T:
        if Standardizer().fit(column, np.ones(len(column))).is_constant:
            warnings.warn(
                f"y is constant ({column[0]:g}); its predictive standard deviation is meaningless",
                DegenerateDataWarning,
                stacklevel=3,
            )


def standardize_target(target: Floats, scaler: Standardizer) -> Floats:
    """The target as it is trained: standardized, without gross errors and rounding errors."""
    limited = np.clip(scaler.transform(target), -GROSS_ERROR, GROSS_ERROR)
    return np.asarray(TARGET_GRID * np.round(limited / TARGET_GRID))


def fit_target_scaler(target: Floats, weights: Floats) -> Standardizer:
    """Mean and standard deviation, or median and quartiles where few values make up the standard deviation."""
    scaler = Standardizer().fit(target, weights)
    robust = fit_column_scaler(target.reshape(len(target), -1), weights)
    shape = scaler.spread.shape
    has_errors = scaler.spread > GROSS_ERROR * robust.spread.reshape(shape)
    scaler.center = np.where(has_errors, robust.center.reshape(shape), scaler.center)
    scaler.spread = np.where(has_errors, robust.spread.reshape(shape), scaler.spread)
    # Intervals around a constant are then narrow relative to it, in any units.
    scaler.spread = np.where(scaler.is_constant, 1e-6, scaler.spread)
    return scaler

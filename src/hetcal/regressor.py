"""The scikit-learn regressor: from a table and its target to predictions in the units of y."""

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import torch
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from hetcal._checks import check_choice, must
from hetcal.distributions import RecalibratedPrediction, TransformedPrediction
from hetcal.estimators import ESTIMATORS
from hetcal.estimators.atoms import AtomicPrediction
from hetcal.estimators.cross_ensemble import CrossEnsemble
from hetcal.exceptions import CalibrationRowsWarning, DegenerateDataWarning
from hetcal.families import Family, StudentT, check_family
from hetcal.metrics.calibration_map import Recalibration
from hetcal.metrics.history import warn_of_training
from hetcal.objectives import OBJECTIVES, Objective, gaussian_nll, squared_error
from hetcal.prediction import DistributionMixin, Prediction
from hetcal.recalibration import RECALIBRATORS
from hetcal.tabular.building import check_estimator_options, resolve_name
from hetcal.tabular.candidates import (
    Candidate,
    is_clearly_better,
    may_need_logarithm,
    rows_of_trial,
    simplest_near_best,
)
from hetcal.tabular.model import TabularModel
from hetcal.tabular.preparing import TrainingRows
from hetcal.tabular.targets import TargetScale, check_regression_target, fit_target_atoms, warn_of_constants
from hetcal.tabular.whole_fits import whole_or_not_at_all
from hetcal.training.rows import MIN_ROWS_FOR_VALIDATION
from hetcal.transforms import TRANSFORMS

# Of a conformal interval of level 0.9: level / (1 - level).
FEWEST_CALIBRATION_ROWS = 9


class HCRegressor(DistributionMixin, RegressorMixin, TabularModel):
    """Neural network regressor with heteroscedastic calibration (HC): prediction intervals from one training run.

    HC puts the predictive standard deviation of any uncertainty estimator into the likelihood that is trained. Tables
    are fitted as they are: pandas or polars frames with numbers, booleans, dates, text, categories and missing values,
    or numeric arrays. The columns of a frame are matched by name. All predictions are in the units of y.

    Args:
        estimator: Where the predictive standard deviation comes from: "cross_ensemble" (members that hold out rows, and
            are calibrated on them); a name in `hetcal.estimators.ESTIMATORS`, such as "mc_dropout", "variance_head" or
            "ensemble"; or a class with the members of `hetcal.estimators.base`.
        objective: What is trained: "crps", the continuous ranked probability score, or "nll", the likelihood (both
            calibrate; the latter is eq. 1 of the paper for the Gaussian family), "squared_error" (it does not),
            "gaussian_nll", "beta_nll", "faithful_nll", or a function `(prediction, y) -> loss per row`. None is "crps"
            for "cross_ensemble", otherwise "nll".
        family: Shape of the predictive distribution: "gaussian", "laplace", "student_t" (its degrees of freedom are
            learned), or a family such as `hetcal.families.StudentT(df=4)`. Intervals, quantiles and scores follow it.
            For "cross_ensemble" it is that of the members in training only; the shape of predictions is learned.
        target_transform: "log", "yeo-johnson", "quantile" or "identity". The network predicts the transformed target,
            and predictions are mapped back. None is "identity", except that "cross_ensemble" chooses "log" where y is
            positive with a long tail and held-out rows of a short trial are much likelier with it. "auto" trains a
            model with each and keeps the simplest within two standard errors of the best: by the likelihood of the
            validation rows, or for "cross_ensemble" by the CRPS of held-out rows, without "quantile".
        network: None for the estimator's own network; a class or function `(n_inputs, n_outputs) -> nn.Module`; or an
            `nn.Module`, which is copied and initialized anew in each fit.
        width: Units per hidden layer of the built-in network. None, here and below, is what suits the estimator; see
            `hetcal.tabular.defaults` and `hetcal.training.settings`.
        depth: Number of hidden layers of the built-in network.
        dropout: Dropout rate of the built-in network. "mc_dropout" samples it; for all estimators it is a regularizer.
        estimator_options: Further settings of the estimator, such as `{"samples": 20}`.
        objective_weight: Weight of the objective relative to the estimator's own loss.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Weight decay of AdamW; `hetcal.training.TrainingSettings` describes how it depends on the
            number of rows.
        batch_size: Rows per training step.
        max_steps: Upper limit on the training steps; it bounds the training time for any number of rows.
        max_epochs: Upper limit on the passes over the data.
        max_seconds: Upper limit on the seconds of training. The best weights so far are kept, and a warning says so.
        patience: Training steps without a better validation score after which training stops.
        validation_fraction: Fraction of the training rows held out to choose the best epoch. The default estimator has
            none: its members hold out rows themselves.
        input_noise: Noise on the standardized inputs in training; `hetcal.training.TrainingSettings` describes how it
            depends on the number of rows.
        column_order: "by_name" accepts the columns of a frame in any order; "as_fitted" refuses another order, as
            scikit-learn's own estimators do.
        random_state: None, an integer, or a NumPy generator. An integer makes fit and predict reproducible bit for bit
            on one machine with one number of threads. Global generators are not used, unless a user's network draws
            from them itself (`torch.nn.functional.dropout`); use `nn.Dropout` there instead.
        device: "cpu" or "cuda".
        progress: Show a progress bar during training; or a function that is called with the number of training steps
            that are done and of those planned.

    Attributes:
        estimator_: The trained torch module.
        encoder_: The fitted `TableEncoder`.
        target_transform_: Name of the chosen transform, or None.
        transform_: The fitted transform of y, or None; see `hetcal.transforms`.
        target_scaler_: The fitted `Standardizer` of y, or of the transformed y.
        atoms_: The `Atoms` of y (grades, counts, a cap) that the predictive distribution has, or None.
        recalibration_: What `recalibrate` learned, or None.
        history_: The `History` of training. Its `rmse` is in the units of y for a single target without transform.
        n_targets_: Number of targets.
        seed_: The seed drawn from `random_state`.
        n_features_in_: Number of columns seen during fit.
        feature_names_in_: Names of the columns seen during fit, if X was a frame with names.

    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = HCRegressor(width=16, max_epochs=5, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict(X, return_std=True)
    >>> model.predict_interval(X, level=0.9).shape
    (200, 2)
    """

    kind = "regressor"
    registries: ClassVar[dict[str, dict[str, Any]]] = {
        "estimator": {"cross_ensemble": CrossEnsemble, **ESTIMATORS},
        "objective": OBJECTIVES,
    }

    def __init__(
        self,
        estimator: str | type = "cross_ensemble",
        objective: str | Objective | None = None,
        family: str | Family = "gaussian",
        target_transform: str | None = None,
        *,
        network: Any = None,
        width: int | None = None,
        depth: int | None = None,
        dropout: float | None = None,
        estimator_options: dict[str, Any] | None = None,
        objective_weight: float = 1.0,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        max_steps: int | None = None,
        max_epochs: int | None = None,
        max_seconds: float | None = None,
        patience: int | None = None,
        validation_fraction: float | None = None,
        input_noise: float | None = None,
        column_order: str = "by_name",
        random_state: Any = None,
        device: str = "cpu",
        progress: bool | Callable[[int, int], Any] = False,
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
            max_seconds=max_seconds,
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

    @whole_or_not_at_all
    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> "HCRegressor":
        """Train on a table and its target.

        Args:
            X: (n, d) frame or array; missing values are allowed. Rows that do not fit into memory: a Parquet file or a
                folder of them, a `pyarrow.dataset.Dataset`, or an iterable of Arrow batches or other data frames; y and
                groups are then names of its columns (see docs/large-tables.md).
            y: (n,) finite numbers; or (n, k) for k targets, which share the network and are independent given X.
            sample_weight: (n,) weights, at least 0; a weight of 2 counts exactly like giving the row twice, unless
                the table consists of repeated rows (at least five for each different one).
            groups: (n,) labels of rows that belong together (a patient, a day). Whole groups are then held out for
                validation. Give them if you will predict for new groups; otherwise training stops too late, and the
                intervals for new groups are too narrow.

        Raises:
            TrainingInterrupted: After Ctrl-C in training; the model is fitted, with its best weights so far. It is a
                KeyboardInterrupt, so that a cross-validation ends, too. A fit that fails for any other reason, or is
                interrupted earlier or later, leaves the model as it was.
        """
        objective = resolve_name("objective", self._objective_name, OBJECTIVES)
        if self._is_cross:
            self._check_cross()
        check_likelihood(self.family, objective)
        check_passes(self.estimator_options, objective, self.objective_weight)
        rows = self._prepare(X, y, sample_weight, groups, check_regression_target)
        warn_of_constants(rows.target)
        first_name, *others = self._transforms(rows, objective)
        candidates = [self._fit_candidate(first_name, objective, rows)]
        held_out = () if rows.are_repeated or self._is_cross else candidates[0].history.validation_rows
        for name in others:
            if candidates[-1].history.stopped != "interrupted":
                candidates.append(self._fit_candidate(name, objective, rows, held_out))
        best = simplest_near_best(candidates, rows) if len(candidates) > 1 else candidates[0]
        if best.is_useless(rows):
            warn_of_training(
                "the predictions of held-out rows are no better than the mean of y; "
                "either X carries no information about y, or training ended too early"
            )
        atoms = None
        if isinstance(best.estimator, CrossEnsemble) and best.calibration is not None and rows.n_targets == 1:
            atoms = fit_target_atoms(best.estimator, best.calibration, best.scale, rows.target, rows.counts)
        self.encoder_, self.seed_, self.n_targets_ = rows.encoder, rows.seed, rows.n_targets
        self.target_transform_, self.transform_, self.target_scaler_ = (
            best.scale.name,
            best.scale.transform,
            best.scale.scaler,
        )
        self.estimator_, self.history_, self.atoms_ = best.estimator, best.history, atoms
        self.recalibration_: Recalibration | None = None
        if best.scale.transform is None and self.n_targets_ == 1:
            for curves in (self.history_.train, self.history_.validation):
                curves["rmse"] = [value * float(self.target_scaler_.scale) for value in curves["rmse"]]
        candidates[-1].history.raise_if_interrupted()
        return self

    def recalibrate(self, X: Any, y: ArrayLike, method: str = "conformal") -> Self:
        """Correct all predictions of the fitted model by rows that it was not fitted on; the next `fit` forgets it.

        Args:
            X: (n, d) calibration rows.
            y: (n,) their targets.
            method: "conformal" (central intervals of every level as wide as these rows require), "isotonic"
                (probabilities mapped to observed frequencies) or "std" (one factor); see `hetcal.recalibration`.
        """
        recalibrator = RECALIBRATORS[check_choice("method", method, RECALIBRATORS)]
        plain = copy(self)
        plain.recalibration_ = None  # a second recalibration replaces the first
        learned: Recalibration = recalibrator(plain).fit(X, y).recalibration_
        if method == "conformal" and learned.rows < FEWEST_CALIBRATION_ROWS:
            message = f"conformal intervals of level 0.9 need at least {FEWEST_CALIBRATION_ROWS} calibration rows, got "
            warnings.warn(f"{message}{learned.rows}; give more", CalibrationRowsWarning, stacklevel=2)
        self.recalibration_ = learned
        return self

    def predict_dist(self, X: Any) -> Prediction | TransformedPrediction | AtomicPrediction | RecalibratedPrediction:
        """The predictive distribution of each row on NumPy arrays: mean, std, interval, quantile, log_prob, ..."""
        standardized = self._predict(X)  # first, so that an unfitted model raises NotFittedError
        scale = TargetScale(self.target_transform_, self.transform_, self.target_scaler_)
        prediction: Any = scale.in_units_of_y(standardized)
        prediction = prediction if self.atoms_ is None else self.atoms_.apply(prediction)
        return prediction if self.recalibration_ is None else self.recalibration_.apply(prediction)

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _fit_candidate(
        self,
        name: str | None,
        objective: Objective,
        rows: TrainingRows,
        held_out: Sequence[int] = (),
        is_trial: bool = False,
    ) -> Candidate:
        """Train a model of the target under one transform; the transform is fitted without the `held_out` rows."""
        weights = rows.weights.copy()
        weights[list(held_out)] = 0.0  # rows that judge a transform must not shape it
        scale = TargetScale.fit(name, rows.target, rows.weights, weights)
        y = torch.from_numpy(scale.standardize(rows.target))
        stream = rows.stream(str(name), scale.standardize)
        if self._is_cross:
            ensemble, history, held = self._cross_fit(objective, rows, y, self.family, stream, is_trial)
            targets = y.reshape(len(y), -1).double().numpy()
            return Candidate(scale, ensemble, history, ensemble.calibrate(held, targets, rows.weights))
        estimator, history = self._train(
            objective,
            rows,
            y,
            n_targets=rows.n_targets,
            family=self.family,
            objective_weight=self.objective_weight,
            stream=stream,
        )
        return Candidate(scale, estimator, history)

    @property
    def _objective_name(self) -> Any:
        return self.objective if self.objective is not None else "crps" if self._is_cross else "nll"

    def _logarithm_helps(self, rows: TrainingRows, objective: Objective) -> bool:
        """Whether a short trial of the default is clearly better with the logarithm of y than with y."""
        if not self._is_cross or self.max_seconds is not None or not may_need_logarithm(rows):
            return False
        rows = rows_of_trial(rows)
        plain, logarithmic = (self._fit_candidate(name, objective, rows, is_trial=True) for name in (None, "log"))
        return is_clearly_better(logarithmic, plain, rows)

    def _transforms(self, rows: TrainingRows, objective: Objective) -> list[str | None]:
        """The transforms to train with, simplest first."""
        target = rows.target
        if self.target_transform is None:
            return ["log" if self._logarithm_helps(rows, objective) else None]
        name = check_choice("target_transform", self.target_transform, ["identity", *TRANSFORMS, "auto"])
        if name != "auto":
            return [None if name == "identity" else name]
        if len(target) < MIN_ROWS_FOR_VALIDATION or self.validation_fraction == 0:
            warnings.warn(
                "target_transform='auto' has no validation rows to choose by; the target is not transformed",
                DegenerateDataWarning,
                stacklevel=4,
            )
            return [None]
        # A transform by quantiles that has seen the rows that judge it would win by that; held-out parts do not help.
        unsuitable = {"quantile"} if self._is_cross else set()
        if not (target > 0).all():
            unsuitable.add("log")
        return [None, *(name for name in TRANSFORMS if name not in unsuitable)]


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

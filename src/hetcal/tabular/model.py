"""What regressor and classifier share: settings, reading a table, preparing its rows, a training run, prediction.

`HCRegressor` and `HCClassifier` add what differs: the target.
"""

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from hetcal._checks import check_choice, must
from hetcal.estimators import WithFamily, predict
from hetcal.estimators.base import freeze_
from hetcal.estimators.cross_ensemble import CrossEnsemble, MemberGroup, plan_groups
from hetcal.estimators.held_out import HeldOut
from hetcal.exceptions import TrainingInterrupted
from hetcal.families import Family
from hetcal.metrics.history import History
from hetcal.networks import check_device
from hetcal.objectives import Objective
from hetcal.prediction import Prediction, join_predictions
from hetcal.splitting import check_two_groups
from hetcal.tabular.building import (
    EnsembleLayout,
    build_cross_ensemble,
    build_network,
    check_estimator_options,
    check_inputs,
    check_trains,
    family_of_members,
    resolve_estimator,
)
from hetcal.tabular.columns import Table, check_unique_columns, read_table
from hetcal.tabular.defaults import NETWORK_SIZES, usual_width
from hetcal.tabular.encoding import TableEncoder
from hetcal.tabular.preparing import ReadTarget, TrainingRows, prepare_table
from hetcal.tabular.rows import draw_seed
from hetcal.tabular.sources import is_stream
from hetcal.tabular.streaming import Shard, prepare_stream
from hetcal.training import train
from hetcal.training.cross_fitting import FitRows, cross_fit
from hetcal.training.parts import number_of_parts
from hetcal.training.settings import CrossFitSettings
from hetcal.training.streams import RowStream

COLUMN_ORDERS = ("by_name", "as_fitted")
# Settings that are passed on to the training of one network, and of an ensemble whose members hold out rows.
TRAINING_SETTINGS = (
    "validation_fraction",
    "learning_rate",
    "weight_decay",
    "batch_size",
    "max_steps",
    "max_epochs",
    "max_seconds",
    "patience",
    "input_noise",
)
CROSS_FIT_SETTINGS = ("learning_rate", "weight_decay", "batch_size", "max_steps", "max_epochs", "max_seconds")
# Number of rows that are encoded at once in prediction, so that memory beyond input and output stays bounded.
CHUNK_ROWS = 16_384


class TabularModel(BaseEstimator):
    """A network on a table, with the settings that regressor and classifier share; `HCRegressor` documents them."""

    kind: ClassVar[str]  # in model files
    registries: ClassVar[Mapping[str, Mapping[str, Any]]]  # the settings that are names, and what these mean
    encoder_: TableEncoder
    estimator_: nn.Module
    history_: History
    seed_: int

    def __init__(
        self,
        estimator: str | type,
        *,
        network: Any,
        width: int | None,
        depth: int | None,
        dropout: float | None,
        estimator_options: dict[str, Any] | None,
        learning_rate: float | None,
        weight_decay: float | None,
        batch_size: int | None,
        max_steps: int | None,
        max_epochs: int | None,
        max_seconds: float | None,
        patience: int | None,
        validation_fraction: float | None,
        input_noise: float | None,
        column_order: str,
        random_state: Any,
        device: str,
        progress: bool | Callable[[int, int], Any],
    ) -> None:
        self.estimator = estimator
        self.network = network
        self.width = width
        self.depth = depth
        self.dropout = dropout
        self.estimator_options = estimator_options
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.max_epochs = max_epochs
        self.max_seconds = max_seconds
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.input_noise = input_noise
        self.column_order = column_order
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def count_unseen(self, X: Any) -> dict[str, int]:
        """Number of rows of X with a label that `fit` has not seen, by column; other columns are omitted."""
        check_is_fitted(self)
        return self.encoder_.count_unseen(self._read(X, reset=False))

    def count_outside(self, X: Any) -> dict[str, int]:
        """Number of rows of X far outside the range that `fit` has seen, or beyond its dates, by column.

        Other columns are omitted.
        """
        check_is_fitted(self)
        return self.encoder_.count_outside(self._read(X, reset=False))

    def save(self, path: str | PathLike[str], *, summary: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file, for `hetcal.load`: numbers, text and names, no code.

        An existing file is replaced; a crash or a kill leaves the old one intact. Your own network, estimator,
        objective or likelihood is not in the file (its weights are); pass it to `hetcal.load` again.

        Args:
            path: By convention it ends in ".hetcal".
            summary: Further information for `hetcal info`: any of `target`, `method`, `created` (a time in UTC),
                `rows`, `test_rows`, `split`, `sketch`, `dropped`, `group` and `metrics`. Versions and the history
                are always included.

        Raises:
            ValueError: The loaded model would differ from this one, or a setting cannot be written.
        """
        from hetcal.model_files.save import save_model  # a higher layer; but users look for `save` here

        save_model(self, path, summary)

    def _prepare(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        read_target: ReadTarget,
        *,
        are_classes: bool = False,
    ) -> TrainingRows:
        """Prepare the arguments of `fit` for training; `read_target` checks y and returns it as an array."""
        check_choice("column_order", self.column_order, COLUMN_ORDERS)
        if isinstance(X, Shard) or is_stream(X):
            if are_classes:
                advice = "read the rows into memory first"
                raise must("X", "be a table for HCClassifier", type(X).__name__, advice, TypeError)
            seed = draw_seed(self.random_state)
            return prepare_stream(X, y, sample_weight, groups, read_target, seed, lambda one: self._read(one, True))
        table = self._read(X, reset=True)
        if y is None:
            name = type(self).__name__
            raise ValueError(f"y must be given: {name} requires y to be passed, but the target y is None")
        seed = draw_seed(self.random_state)
        return prepare_table(table, y, sample_weight, groups, read_target, seed, are_classes=are_classes)

    def _train(
        self,
        objective: Objective,
        rows: TrainingRows,
        y: Tensor,
        *,
        n_targets: int,
        family: str | Family = "gaussian",
        objective_weight: float = 1.0,
        stream: RowStream | None = None,
    ) -> tuple[nn.Module, History]:
        """Train a new estimator on the rows; y is their target in the form that the objective accepts."""
        estimator = self._build(rows.x.shape[1], n_targets, family, rows.seed)
        check_trains(estimator, objective_weight)
        try:
            history = train(
                estimator,
                objective,
                rows.x,
                y,
                sample_weight=torch.from_numpy(rows.weights),
                groups=None if rows.groups is None else torch.from_numpy(rows.groups),
                copies=torch.from_numpy(rows.copies) if rows.are_repeated else None,
                stream=stream,
                objective_weight=objective_weight,
                seed=rows.seed,
                device=self.device,
                progress=self.progress,
                **self._given(TRAINING_SETTINGS),
            )
        except TrainingInterrupted as end:
            history = end.history  # `fit` raises it again, when the model is complete
        return estimator, history

    def _cross_fit(
        self,
        objective: Objective,
        rows: TrainingRows,
        y: Tensor,
        family: str | Family,
        stream: RowStream | None = None,
        is_trial: bool = False,
    ) -> tuple[CrossEnsemble, History, HeldOut]:
        """Train a new `CrossEnsemble` on the rows, and return it with the predictions of held-out rows."""
        check_device(self.device)
        if rows.groups is not None:
            check_two_groups(rows.groups)
        n, n_inputs = rows.x.shape
        in_memory = round(rows.copies.sum()) if rows.are_repeated else n
        n_rows = in_memory if stream is None else len(stream)
        groups = plan_groups(n_rows, n_inputs)
        if self.network is not None:
            groups = [MemberGroup(0.0, 0.0)] * 2  # the same network in both; they differ in their parts
        n_numbers = len(np.ravel(rows.encoder.scaler.spread))
        n_parts = number_of_parts(n, rows.groups, is_trial)
        layout = EnsembleLayout(n_numbers, tuple(groups), n_parts, usual_width(n_rows))
        ensemble = self._build(n_inputs, rows.n_targets, family, rows.seed, layout).to(self.device)
        assert isinstance(ensemble, CrossEnsemble)
        weight = torch.from_numpy(rows.weights / rows.weights.mean()).float()
        fit_rows = FitRows(
            rows.x.to(self.device),
            y.reshape(n, -1).to(self.device),
            weight.to(self.device),
            rows.groups,
            rows.are_repeated,
            family=family_of_members(family),
            stream=stream,
        )
        settings = CrossFitSettings(seed=rows.seed, progress=self.progress, **self._given(CROSS_FIT_SETTINGS))
        history, held_out = cross_fit(ensemble, objective, fit_rows, settings.of_trial() if is_trial else settings)
        if is_trial and history.stopped == "interrupted":
            raise KeyboardInterrupt  # there is nothing to keep yet
        freeze_(ensemble)
        return ensemble, history, held_out

    def _given(self, names: Iterable[str]) -> dict[str, Any]:
        """The settings of these names that are not None."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def _is_cross(self) -> bool:
        return self.estimator in ("cross_ensemble", CrossEnsemble)

    def _check_cross(self) -> None:
        """Refuse settings that a `CrossEnsemble` does not have."""
        for name in ("patience", "validation_fraction", "input_noise"):
            if getattr(self, name) is not None:
                advice = (
                    "members hold out rows themselves; choose another estimator, such as 'variance_head', to set it"
                )
                raise must(name, "be None for the estimator 'cross_ensemble'", getattr(self, name), advice)
        if check_estimator_options(self.estimator_options):
            advice = "omit them, or choose another estimator"
            raise must("estimator_options", "be None for 'cross_ensemble'", self.estimator_options, advice)
        if getattr(self, "objective_weight", 1.0) != 1.0:
            advice = "its members have no loss of their own"
            raise must("objective_weight", "be 1 for 'cross_ensemble'", self.objective_weight, advice)

    def _build(
        self, n_inputs: int, n_targets: int, family: str | Family, seed: int, layout: EnsembleLayout | None = None
    ) -> nn.Module:
        """Build the estimator and its network, both newly initialized from the seed."""
        given = self._given(("width", "depth", "dropout"))
        sizes = {**NETWORK_SIZES[self._is_cross], **given}
        if self._is_cross:
            if layout is None:
                raise ValueError("a layout of the members must be given for 'cross_ensemble'")
            sizes["width"] = given.get("width", layout.width)
            ensemble = build_cross_ensemble(layout, self.network, n_inputs, n_targets, seed, **sizes)
            if self.network is not None:
                check_inputs(ensemble, n_inputs)
            return ensemble
        factory, arguments = resolve_estimator(self.estimator, self.estimator_options, n_targets, seed)
        network = build_network(
            self.network,
            n_inputs,
            n_targets * factory.n_outputs,
            seed,
            **sizes,
        )
        estimator: nn.Module = factory(network, **arguments)
        if self.network is not None:
            check_inputs(estimator, n_inputs)
        return estimator if family == "gaussian" else WithFamily(estimator, family)

    def _predict(self, X: Any) -> Prediction:
        """Predict a table, chunk by chunk, in the scale in which the estimator was trained."""
        check_is_fitted(self)
        table = self._read(X, reset=False)
        parts = []
        for start in range(0, len(table), CHUNK_ROWS):
            rows = self.encoder_.transform(table.take(slice(start, start + CHUNK_ROWS)))
            parts.append(predict(self.estimator_, torch.from_numpy(rows).to(self.device)).numpy())
        return join_predictions(parts, np.concatenate)

    def _read(self, X: Any, reset: bool) -> Table:
        """Read X as a table and check its columns against those of `fit`; with `reset`, remember them instead."""
        if isinstance(X, Table):
            return self._read_columns(X, reset)
        if sparse.issparse(X):
            raise must("X", "be dense", f"a sparse {type(X).__name__}", "call X.toarray()", TypeError)
        if not nw.dependencies.is_into_dataframe(X):
            is_checked = is_table_of_numbers(X)
            X = validate_data(self, X, reset=reset, skip_check_array=is_checked, dtype=None, ensure_all_finite=False)
            if X.dtype.kind in "SU":
                raise must("X", "hold numbers if it is an array", X.dtype.name, "give a data frame for text columns")
            return self._named(read_table(X, self._texts(reset)), reset)
        frame = nw.from_native(check_unique_columns(X), eager_only=True)
        for count, noun in zip(frame.shape, ("sample", "feature"), strict=True):
            if count == 0:
                raise must("X", f"have at least one {noun}", f"0 {noun}(s)", "give a table with rows and columns")
        fitted_names = None if reset else getattr(self, "feature_names_in_", None)
        if fitted_names is not None and self.column_order == "by_name" and set(frame.columns) == set(fitted_names):
            frame = frame.select(list(fitted_names))
        X = frame.to_native()
        validate_data(self, X, reset=reset, skip_check_array=True)
        return self._named(read_table(X, self._texts(reset)), reset)

    def _read_columns(self, table: Table, reset: bool) -> Table:
        """Match the columns of a table that `read_table` has already read, by name."""
        if reset:
            self.n_features_in_, self.feature_names_in_ = len(table.columns), np.array([*table.columns], dtype=object)
            return table
        missing = [name for name in self.encoder_.kinds if name not in table.columns]
        if missing:
            raise must("X", f"have the columns {missing}", [*table.columns], "give the columns that it had in fit")
        return Table({name: table.columns[name] for name in self.encoder_.kinds})

    def _texts(self, reset: bool) -> set[int]:
        """Positions of the columns that held text in `fit`; there, text that looks like a number is a label too."""
        kinds = [] if reset else self.encoder_.kinds.values()
        return {place for place, kind in enumerate(kinds) if kind == "text"}

    def _named(self, table: Table, reset: bool) -> Table:
        """Give the columns the names of `fit`; if only one of the two tables has names, match by position."""
        return table if reset else Table(dict(zip(self.encoder_.kinds, table.columns.values(), strict=True)))


def is_table_of_numbers(X: Any) -> bool:
    """Whether scikit-learn's `check_array` would return X as it is.

    It sets the filters of warnings for a moment. They belong to all threads, so that of two calls at the same time, one
    could leave them changed.
    """
    return type(X) is np.ndarray and X.ndim == 2 and X.size > 0 and X.dtype.kind in "biuf"

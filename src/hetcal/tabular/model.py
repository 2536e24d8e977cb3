"""What regressor and classifier share: reading the table, building network and estimator, one training run, prediction.

The two classes above hold what differs, the target. Checks of what users hand to `fit` live here too.
"""

import copy
import inspect
import warnings
from collections.abc import Mapping
from os import PathLike
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from hetcal._checks import check_choice, must
from hetcal.estimators import ESTIMATORS, AbstractEstimator, WithFamily, predict
from hetcal.exceptions import DegenerateDataWarning
from hetcal.families import Family
from hetcal.metrics.history import History
from hetcal.networks import MLP, initialize_
from hetcal.objectives import Objective
from hetcal.prediction import Prediction, join
from hetcal.tabular.columns import Table, check_unique_columns, read_table
from hetcal.tabular.encoding import TableEncoder
from hetcal.training import train

COLUMN_ORDERS = ("by_name", "as_fitted")
# Rows that are encoded at once in prediction: memory beyond input and output stays bounded.
CHUNK_ROWS = 16_384


class TabularModel(BaseEstimator):
    """A network on a table; subclasses have the settings of `HCRegressor` that this class uses."""

    kind: ClassVar[str]  # in model files
    registries: ClassVar[Mapping[str, Mapping[str, Any]]]  # the settings that are names, and what these mean
    encoder_: TableEncoder
    estimator_: nn.Module
    history_: History
    seed_: int
    standard_errors = 1.0  # see `train`

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _train(
        self,
        objective: Objective,
        x: Tensor,
        y: Tensor,
        weights: NDArray[np.float64],
        groups: NDArray[np.int64] | None,
        seed: int,
        n_targets: int,
        family: str | Family = "gaussian",
    ) -> tuple[nn.Module, History]:
        """A new estimator, trained."""
        estimator = self._build(x.shape[1], n_targets, family, seed)
        check_trains(estimator, self.objective_weight)
        history = train(
            estimator,
            objective,
            x,
            y,
            sample_weight=torch.from_numpy(weights),
            groups=None if groups is None else torch.from_numpy(groups),
            objective_weight=self.objective_weight,
            validation_fraction=self.validation_fraction,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            max_steps=self.max_steps,
            max_epochs=self.max_epochs,
            patience=self.patience,
            standard_errors=self.standard_errors,
            input_noise=self.input_noise,
            seed=seed,
            device=self.device,
            progress=self.progress,
        )
        return estimator, history

    def _predict(self, X: Any) -> Prediction:
        """The estimator's answer for a table, chunk by chunk, in the scale it was trained in."""
        check_is_fitted(self)
        table = self._read(X, reset=False)
        parts = []
        for start in range(0, len(table), CHUNK_ROWS):
            rows = self.encoder_.transform(table.take(slice(start, start + CHUNK_ROWS)))
            parts.append(predict(self.estimator_, torch.from_numpy(rows).to(self.device)).numpy())
        return join(parts, np.concatenate)

    def count_unseen(self, X: Any) -> dict[str, int]:
        """How many rows of X hold a label that fit has not seen, by column; columns without are left out."""
        check_is_fitted(self)
        return self.encoder_.count_unseen(self._read(X, reset=False))

    def count_outside(self, X: Any) -> dict[str, int]:
        """How many rows of X lie far outside the range that fit has seen, by column; columns without are left out."""
        check_is_fitted(self)
        return self.encoder_.count_outside(self._read(X, reset=False))

    def _read(self, X: Any, reset: bool) -> Table:
        """X as a table, its columns checked against (or, with `reset`, remembered from) fit."""
        if isinstance(X, Table):
            return self._read_columns(X, reset)
        if sparse.issparse(X):
            raise must("X", "be dense", f"a sparse {type(X).__name__}", "call X.toarray()", TypeError)
        if not nw.dependencies.is_into_dataframe(X):
            X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
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
        """A table that was read before, by `read_table`: its columns are matched by name."""
        if reset:
            self.n_features_in_, self.feature_names_in_ = len(table.columns), np.array([*table.columns], dtype=object)
            return table
        missing = [name for name in self.encoder_.kinds if name not in table.columns]
        if missing:
            raise must("X", f"have the columns {missing}", [*table.columns], "give the columns that it had in fit")
        return Table({name: table.columns[name] for name in self.encoder_.kinds})

    def _texts(self, reset: bool) -> set[int]:
        """Places of the columns that held text in fit; there, text that reads as a number is a label like others."""
        kinds = [] if reset else self.encoder_.kinds.values()
        return {place for place, kind in enumerate(kinds) if kind == "text"}

    def _named(self, table: Table, reset: bool) -> Table:
        """With the names of fit: an array may follow a frame, or a frame an array, and is then taken by position."""
        return table if reset else Table(dict(zip(self.encoder_.kinds, table.columns.values(), strict=True)))

    def save(self, path: str | PathLike[str], *, summary: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file, for `hetcal.load`: numbers, text and names, nothing that could run.

        A file that exists is replaced; a crash or a kill leaves the old one whole. A network, estimator, objective or
        likelihood of your own is not in the file (its weights are): hand it to `hetcal.load` again.

        Args:
            path: By custom it ends in ".hetcal".
            summary: What else to note for `hetcal info`: any of `target`, `method`, `created` (a time in UTC),
                `rows`, `test_rows`, `dropped`, `group` and `metrics`. Versions and the history are always there.

        Raises:
            ValueError: The model as it would be loaded is not this one, or a setting cannot be written.
        """
        from hetcal.model_files.save import save_model  # the room above: a method, because users look for it here

        save_model(self, path, summary)

    def _build(self, n_inputs: int, n_targets: int, family: str | Family, seed: int) -> nn.Module:
        """The estimator round its network, both freshly initialized from the seed."""
        if isinstance(self.estimator, nn.Module):
            advice = "give the class, its network is built at each fit; options go into estimator_options"
            raise must("estimator", "be a name or a class, not an instance", type(self.estimator).__name__, advice)
        factory = choose("estimator", self.estimator, ESTIMATORS)
        missing = [member for member in ("n_outputs", "forward", "own_loss") if not hasattr(factory, member)]
        if missing:
            raise must(
                "estimator", f"be a name or a class with the member(s) {missing}", factory, "see hetcal.estimators.base"
            )
        accepted = inspect.signature(factory).parameters
        options = check_options(self.estimator_options)
        for name in options:
            check_choice("estimator_options", name, set(accepted) - {"self", "network", "seed", "n_targets"})
        if "seed" in accepted:
            options["seed"] = seed
        if n_targets > 1:
            if "n_targets" not in accepted:
                advice = "let its __init__ pass n_targets on to AbstractEstimator"
                raise must("estimator", "take n_targets for several targets or classes", factory, advice)
            options["n_targets"] = n_targets
        estimator = factory(self._network(n_inputs, n_targets * factory.n_outputs, seed), **options)
        if self.network is not None:
            check_inputs(estimator, n_inputs)
        return estimator if family == "gaussian" else WithFamily(estimator, family)

    def _network(self, n_inputs: int, n_outputs: int, seed: int) -> nn.Module:
        if self.network is None:
            generator = torch.Generator().manual_seed(seed)
            return MLP(
                n_inputs,
                n_outputs,
                width=self.width,
                depth=self.depth,
                dropout=self.dropout,
                generator=generator,
            )
        network = None
        if isinstance(self.network, nn.Module):
            network = initialize_(copy.deepcopy(self.network), seed)
        elif callable(self.network):
            # A user's network draws its weights from torch's global generator, which is put back afterwards.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                network = call_factory(self.network, n_inputs, n_outputs)
        if not isinstance(network, nn.Module):
            raise must(
                "network",
                "be None, an nn.Module, or a class or function (n_inputs, n_outputs) -> nn.Module",
                self.network,
                "give one of these",
                TypeError,
            )
        return network


def choose(name: str, value: Any, known: dict[str, Any]) -> Any:
    """The registered object of that name, or the user's own class or function as it is."""
    if callable(value):
        return value
    return known[check_choice(name, value, known)]


def check_trains(estimator: Any, objective_weight: Any) -> None:
    """Without objective and without a loss of its own, nothing would be trained but by weight decay."""
    inner = getattr(estimator, "estimator", estimator)  # behind a family
    if objective_weight == 0 and getattr(type(inner), "own_loss", None) is AbstractEstimator.own_loss:
        advice = "this estimator has no loss of its own, so the objective must train it"
        raise must("objective_weight", "be greater than 0", objective_weight, advice)


def check_options(options: Any) -> dict[str, Any]:
    """A copy of the estimator's options."""
    if options is not None and not isinstance(options, dict):
        advice = "write estimator_options={'samples': 20}"
        raise must("estimator_options", "be a dict of settings", options, advice, TypeError)
    return dict(options or {})


def warn_of_no_information(encoder: TableEncoder) -> None:
    if not encoder.is_informative:
        warnings.warn("no column of X varies; every row gets the same prediction", DegenerateDataWarning, stacklevel=3)


def call_factory(factory: Any, n_inputs: int, n_outputs: int) -> Any:
    try:
        inspect.signature(factory).bind(n_inputs, n_outputs)
    except TypeError as error:
        advice = f"let it take the two numbers ({error})"
        raise must("network", "be callable as network(n_inputs, n_outputs)", factory, advice, TypeError) from None
    return factory(n_inputs, n_outputs)


@torch.no_grad()
def check_inputs(estimator: nn.Module, n_inputs: int) -> None:
    """Try a user's network on two rows of zeros, so that a wrong width is said before training."""
    try:
        estimator.eval()(torch.zeros(2, n_inputs))
    except RuntimeError as error:
        raise must(
            "network",
            f"take rows of {n_inputs} numbers, the width of the encoded table",
            f"{type(error).__name__}: {error}",
            "for tables give a class or function (n_inputs, n_outputs) instead of a module",
        ) from error

"""scikit-learn on top: HCRegressor, and METHODS, the paper's names as rows of (estimator, objective).

A reader who wants the paper's idea in one place finds it in METHODS: "MC Dropout" and "Dropout-HC" take sigma from the
same place and differ in their objective.
"""

import copy
import inspect
import warnings
from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import nn

from hetcal._checks import (
    DegenerateDataWarning,
    check_choice,
    check_levels,
    check_number,
    check_vector,
    must,
)
from hetcal.estimators import ESTIMATORS, predict
from hetcal.networks import MLP
from hetcal.objectives import OBJECTIVES, Objective
from hetcal.prediction import Prediction
from hetcal.preprocessing import Standardizer, Table, TableEncoder, merge_equal_rows, read_table
from hetcal.training import train

COLUMN_ORDERS = ("by_name", "as_fitted")
# The standardised target is rounded to a thousandth of its standard deviation, the size of the estimators' floor under
# sigma. Rounding errors of y (in kelvin instead of degrees, say) then vanish here; in training, which is chaotic, a
# single bit would grow into another model.
TARGET_GRID = 2.0**-10
WEIGHT_DECAY_ROWS = 1000
# However few the rows are, noise must not drown the inputs.
MAX_INPUT_NOISE = 0.3
# Rows that are encoded at once in prediction: memory beyond input and output stays bounded.
CHUNK_ROWS = 16_384


@dataclass(frozen=True)
class Method:
    """A row of the paper's table: where sigma comes from, what it is trained for, and what else the paper sets."""

    title: str
    estimator: str
    objective: str
    settings: dict[str, Any] = field(default_factory=dict)


# The paper sets the dropout rate 0.2 where dropout gives sigma. Methods with heads need another regulariser; half that
# rate and a strong weight decay did well on validation rows inside the training parts (benchmarks/paper).
HEADS = {"dropout": 0.1, "weight_decay": 1.0}
# MC Dropout is trained as Gal and Ghahramani do, by ordinary dropout: one pass, a mask for each row.
ORDINARY_DROPOUT = {"samples": 1, "masks": "per_row"}
METHODS = {
    "mc-dropout": Method(
        "MC Dropout", "mc_dropout", "squared_error", {"dropout": 0.2, "estimator_options": ORDINARY_DROPOUT}
    ),
    "hnn": Method("HNN", "variance_head", "gaussian_nll", HEADS),
    "dropout-hc": Method("Dropout-HC", "mc_dropout", "gaussian_nll", {"dropout": 0.2}),
    "quantile-hc": Method("Quantile-HC", "quantile_range", "gaussian_nll", {**HEADS, "objective_weight": 0.75}),
}


def make(method: str, **overrides: Any) -> "HCRegressor":
    """A regressor for one of the paper's methods; `overrides` are parameters of `HCRegressor`.

    `estimator_options` are added to those of the method.

    >>> make("hnn", random_state=0)
    HCRegressor(dropout=0.1, estimator='variance_head', random_state=0,
                weight_decay=1.0)
    """
    row = METHODS[check_choice("method", method, METHODS)]
    settings = {"estimator": row.estimator, "objective": row.objective, **row.settings, **overrides}
    options = {**row.settings.get("estimator_options", {}), **(overrides.get("estimator_options") or {})}
    return HCRegressor(**{**settings, "estimator_options": options or None})


class HCRegressor(RegressorMixin, BaseEstimator):
    """Neural network regression with calibrated prediction intervals from one training run.

    Fits tables as they come: pandas or polars frames with numbers, booleans, text, categories and missing values, or
    numeric arrays. Columns of a frame are matched by name. Everything is in the units of y.

    Args:
        estimator: Where sigma comes from: "mc_dropout", "quantile_range", "variance_head", or a class with the
            members of `hetcal.estimators.base`.
        objective: What is trained: "gaussian_nll" (calibrates), "squared_error" (does not), or a function
            `(prediction, y) -> loss per row`.
        network: None for an `MLP`; or a class or factory `(n_inputs, n_outputs) -> nn.Module`; or an `nn.Module`,
            which is copied and initialised anew at each fit.
        width: Units per hidden layer of the `MLP`.
        depth: Hidden layers of the `MLP`.
        dropout: Dropout rate of the `MLP`: what "mc_dropout" samples, and a regulariser for every estimator.
        estimator_options: Further settings of the estimator, such as `{"samples": 20}`.
        objective_weight: Weight of the objective beside the estimator's own loss.
        learning_rate: Of AdamW at its highest; it falls to 0 along half a cosine over `max_steps`.
        weight_decay: Of AdamW for up to 1,000 rows; beyond, it fades as 1,000 / n, as a prior weighs less the more data
            there are.
        batch_size: Rows per training step.
        max_steps: Upper limit on the training steps: bounds the time, whatever the number of rows.
        max_epochs: Upper limit on the passes over the data.
        patience: Epochs without a better validation objective after which training stops.
        validation_fraction: Part of the training rows that chooses the best epoch.
        input_noise: Noise on the standardised inputs in training, with a standard deviation of `input_noise` / sqrt(n)
            for n rows. Intervals of small tables come out too narrow without.
        column_order: "by_name" takes the columns of a frame in any order; "as_fitted" refuses another order, as
            scikit-learn's own estimators do.
        random_state: None, an integer, or a NumPy generator. An integer makes fit and predict repeatable bit for bit
            on one machine with one number of threads. Global generators are left as they were, unless a user's network
            draws from them itself (`torch.nn.functional.dropout`); put `nn.Dropout` there instead.
        device: "cpu" or "cuda".
        progress: Show a progress bar while fitting.

    Attributes:
        estimator_: The trained torch module.
        encoder_: The fitted `TableEncoder`.
        target_scaler_: The fitted `Standardizer` of y.
        history_: The training `History`; its `rmse` is in the units of y.
        n_features_in_: Number of columns seen in fit.
        feature_names_in_: Their names, if X was a frame with names.

    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = HCRegressor(width=16, max_epochs=5, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict(X, return_std=True)
    >>> model.predict_interval(X, level=0.9).shape
    (200, 2)
    """

    def __init__(
        self,
        estimator: str | type = "mc_dropout",
        objective: str | Objective = "gaussian_nll",
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
        patience: int = 30,
        validation_fraction: float = 0.1,
        input_noise: float = 2.0,
        column_order: str = "by_name",
        random_state: Any = None,
        device: str = "cpu",
        progress: bool = False,
    ) -> None:
        self.estimator = estimator
        self.objective = objective
        self.network = network
        self.width = width
        self.depth = depth
        self.dropout = dropout
        self.estimator_options = estimator_options
        self.objective_weight = objective_weight
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.max_epochs = max_epochs
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

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> "HCRegressor":
        """Train on a table and its target.

        Args:
            X: (n, d) frame or array; missing values are allowed.
            y: (n,) finite numbers.
            sample_weight: (n,) weights, at least 0; a weight of 2 counts exactly like the row given twice.
            groups: (n,) labels of rows that belong together (a patient, a day). The validation part is then drawn by
                whole groups: give them if you will predict for new groups, or training stops too late and the
                intervals come out too narrow there.
        """
        check_choice("column_order", self.column_order, COLUMN_ORDERS)
        objective = choose("objective", self.objective, OBJECTIVES)
        table = self._read(X, reset=True)
        target = check_target(y, len(table))
        weights = check_weights(sample_weight, table)
        labels = check_groups(groups, len(table))
        first, weights = merge_equal_rows(table, target, weights)
        table, target = table.take(first), target[first]
        if len(table) < 2:
            raise must(
                "X", "have at least 2 different rows", f"n_samples={len(table)}", "a spread needs more than one sample"
            )

        seed = draw_seed(self.random_state)
        self.encoder_ = TableEncoder().fit(table, weights)
        self.target_scaler_ = fit_target_scaler(target, weights)
        if not self.encoder_.is_informative:
            warnings.warn(
                "no column of X varies; every row gets the same prediction", DegenerateDataWarning, stacklevel=2
            )
        x = torch.from_numpy(self.encoder_.transform(table))
        standardised = TARGET_GRID * np.round(self.target_scaler_.transform(target) / TARGET_GRID)

        self.estimator_ = self._build(x.shape[1], seed)
        self.history_ = train(
            self.estimator_,
            objective,
            x,
            torch.from_numpy(standardised.astype(np.float32)),
            sample_weight=torch.from_numpy(weights),
            groups=None if labels is None else torch.from_numpy(labels[first]),
            objective_weight=self.objective_weight,
            validation_fraction=self.validation_fraction,
            learning_rate=self.learning_rate,
            weight_decay=check_number("weight_decay", self.weight_decay, 0) * min(1, WEIGHT_DECAY_ROWS / len(x)),
            batch_size=self.batch_size,
            max_steps=self.max_steps,
            max_epochs=self.max_epochs,
            patience=self.patience,
            input_noise=min(MAX_INPUT_NOISE, check_number("input_noise", self.input_noise, 0) / len(x) ** 0.5),
            seed=seed,
            device=self.device,
            progress=self.progress,
        )
        for curves in (self.history_.train, self.history_.validation):
            curves["rmse"] = [value * float(self.target_scaler_.scale) for value in curves["rmse"]]
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean per row; with `return_std=True` the pair of mean and standard deviation."""
        prediction = self.predict_dist(X)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    def predict_interval(self, X: Any, level: ArrayLike = 0.9) -> NDArray[np.float64]:
        """Central prediction intervals: (n, 2) for one level, (n, 2, k) for a list of k levels."""
        check_levels("level", level)
        return self.predict_dist(X).interval(level)

    def predict_quantiles(self, X: Any, q: ArrayLike = (0.05, 0.5, 0.95)) -> NDArray[np.float64]:
        """Quantiles: (n, k) for a list of k probabilities, (n,) for a single one."""
        check_levels("q", q)
        return self.predict_dist(X).quantile(q)

    def predict_dist(self, X: Any) -> Prediction:
        """The whole predictive distribution: a `Prediction` on NumPy arrays, in the units of y."""
        check_is_fitted(self)
        table = self._read(X, reset=False)
        mean, std = np.empty(len(table)), np.empty(len(table))
        for start in range(0, len(table), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            x = torch.from_numpy(self.encoder_.transform(table.take(rows))).to(self.device)
            prediction = self.target_scaler_.inverse(predict(self.estimator_, x).numpy())
            mean[rows], std[rows] = prediction.mean, prediction.std
        return Prediction(mean, std)

    def _read(self, X: Any, reset: bool) -> Table:
        """X as a table, its columns checked against (or, with `reset`, remembered from) fit."""
        if sparse.issparse(X):
            raise must("X", "be dense", f"a sparse {type(X).__name__}", "call X.toarray()", TypeError)
        if not nw.dependencies.is_into_dataframe(X):
            X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
            if X.dtype.kind in "SU":
                raise must("X", "hold numbers if it is an array", X.dtype.name, "give a data frame for text columns")
            return self._named(read_table(X), reset)
        frame = nw.from_native(check_unique_columns(X), eager_only=True)
        for count, noun in zip(frame.shape, ("sample", "feature"), strict=True):
            if count == 0:
                raise must("X", f"have at least one {noun}", f"0 {noun}(s)", "give a table with rows and columns")
        fitted_names = None if reset else getattr(self, "feature_names_in_", None)
        if fitted_names is not None and self.column_order == "by_name" and set(frame.columns) == set(fitted_names):
            frame = frame.select(list(fitted_names))
        X = frame.to_native()
        validate_data(self, X, reset=reset, skip_check_array=True)
        return self._named(read_table(X), reset)

    def _named(self, table: Table, reset: bool) -> Table:
        """With the names of fit: an array may follow a frame, or a frame an array, and is then taken by position."""
        return table if reset else Table(dict(zip(self.encoder_.kinds, table.columns.values(), strict=True)))

    def _build(self, n_inputs: int, seed: int) -> nn.Module:
        """The estimator round its network, both freshly initialised from the seed."""
        factory = choose("estimator", self.estimator, ESTIMATORS)
        missing = [member for member in ("n_outputs", "forward", "own_loss") if not hasattr(factory, member)]
        if missing:
            raise must(
                "estimator", f"be a name or a class with the member(s) {missing}", factory, "see hetcal.estimators.base"
            )
        options = dict(self.estimator_options or {})
        known = [name for name in inspect.signature(factory).parameters if name not in ("self", "network", "seed")]
        for name in options:
            check_choice("estimator_options", name, known)
        if "seed" in inspect.signature(factory).parameters:
            options["seed"] = seed
        estimator = factory(self._network(n_inputs, factory.n_outputs, seed), **options)
        if self.network is not None:
            check_inputs(estimator, n_inputs)
        return estimator

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
        # A user's network draws its weights from torch's global generator, which is put back afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if isinstance(self.network, nn.Module):
                network = copy.deepcopy(self.network)
                for layer in network.modules():
                    reset = getattr(layer, "reset_parameters", None)
                    if callable(reset):
                        reset()
            elif callable(self.network):
                network = call_factory(self.network, n_inputs, n_outputs)
            else:
                network = None
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


def check_unique_columns(X: Any) -> Any:
    names = [str(name) for name in X.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise must("X", "have column names that differ", twice, "rename or drop the columns that occur twice")
    return X


def check_target(y: Any, n: int) -> NDArray[np.float64]:
    """The target as n finite float64 numbers."""
    if y is None:
        raise ValueError("y must be given: HCRegressor requires y to be passed, but the target y is None")
    if sparse.issparse(y):
        raise must("y", "be dense", f"a sparse {type(y).__name__}", "call y.toarray().ravel()", TypeError)
    array = np.asarray(y)
    if array.dtype.kind == "c":
        raise must("y", "hold real numbers; Complex data not supported", array.dtype.name, "use its real part")
    if array.dtype.kind not in "biufO":
        raise must("y", "hold numbers", array.dtype.name, "convert text or dates to numbers first")
    if array.ndim == 2 and array.shape[1] > 1:
        raise must("y", "be one-dimensional", f"array of shape {array.shape}", "fit one regressor per target column")
    target = check_vector("y", column_or_1d(array, warn=True))
    if len(target) != n:
        raise must("y", f"have one value per row of X ({n})", f"{len(target)} values", "give both the same length")
    return target


def check_weights(sample_weight: Any, table: Table) -> NDArray[np.float64]:
    """One weight per row, at least 0. Only ratios matter, so the largest is brought near 1, and no sum overflows."""
    if sample_weight is None:
        return np.ones(len(table))
    weights = _check_sample_weight(sample_weight, np.empty((len(table), 1)), dtype=np.float64, ensure_non_negative=True)
    if not (weights > 0).any():
        raise must("sample_weight", "be greater than zero for some row", 0.0, "give at least two rows a weight")
    return weights / 2.0 ** np.floor(np.log2(weights.max()))  # a power of two: exact


def check_groups(groups: Any, n: int) -> NDArray[np.int64] | None:
    """One number per group, in the order of the sorted labels."""
    if groups is None:
        return None
    labels = column_or_1d(groups)
    if len(labels) != n:
        raise must("groups", f"have one label per row of X ({n})", f"{len(labels)} labels", "give both the same length")
    known, codes = np.unique(labels.astype(str) if labels.dtype.kind == "O" else labels, return_inverse=True)
    if len(known) < 2:
        raise must("groups", "name at least 2 groups", known.tolist(), "leave groups away if all rows belong together")
    return codes.astype(np.int64)


def fit_target_scaler(target: NDArray[np.float64], weights: NDArray[np.float64]) -> Standardizer:
    scaler = Standardizer().fit(target, weights)
    if scaler.is_constant:
        warnings.warn(
            f"y is constant ({target[0]:g}); its standard deviation then means nothing",
            DegenerateDataWarning,
            stacklevel=3,
        )
        # So that intervals are narrow beside the constant, whatever its units.
        scaler.spread = np.asarray(1e-6)
    return scaler


def draw_seed(random_state: Any) -> int:
    """An integer seed from None (the system's entropy), an integer, or a NumPy generator of either kind."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_number("random_state", random_state, 0, 2**32 - 1, integer=True))

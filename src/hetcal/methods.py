"""METHODS: the paper's methods, and more, as rows of one table (estimator, objective).

This is the paper's idea in one place: "MC Dropout" and "Dropout-HC" take sigma from the same estimator and differ in
their objective. The same holds for all pairs below: HC puts the sigma of any estimator into the likelihood. The
default, "Cross-HC", does so in each of its members, with the CRPS in place of the likelihood (docs/default.md).
"""

from dataclasses import dataclass, field
from typing import Any

from hetcal._checks import check_choice, underscored
from hetcal.estimators import AbstractEstimator
from hetcal.estimators.uninformative import ConstantSigma, RandomSigma
from hetcal.regressor import HCRegressor
from hetcal.tabular.building import check_estimator_options


@dataclass(frozen=True)
class Method:
    """Where sigma comes from, what it is trained for, and the settings that belong to the method."""

    title: str
    estimator: str | type[AbstractEstimator]
    objective: str
    settings: dict[str, Any] = field(default_factory=dict)


# The paper sets the dropout rate to 0.2 where sigma comes from dropout. Methods with heads need another regularizer;
# half that rate, falling to 0, and a strong weight decay did well on validation rows within the training parts
# (benchmarks/paper).
DROPOUT = {"dropout": 0.2}
HEADS = {"dropout": 0.1, "weight_decay": 1.0}
# An ensemble already averages over noise; additional dropout made it slower, not better (on the same rows).
ENSEMBLE = {"dropout": 0.0, "weight_decay": 1.0}
# Without HC, dropout and its relatives are trained as published, with one pass: a mask, or a draw, for each row.
ORDINARY_DROPOUT = {**DROPOUT, "estimator_options": {"samples": 1, "masks": "per_row"}}
ONE_PASS = {"estimator_options": {"samples": 1}}
# The estimator's own loss does all the training; the objective only judges epochs.
OWN_LOSS_ONLY = {"objective_weight": 0.0}

# The method of `HCRegressor()`.
DEFAULT = "cross_hc"
# The rows of the paper's Table 1.
PAPER = ("mc_dropout", "hnn", "dropout_hc", "quantile_hc")
METHODS = {
    # The default: an ensemble whose members hold out rows, trained with HC and calibrated on these rows.
    "cross_hc": Method("Cross-HC", "cross_ensemble", "crps"),
    "mc_dropout": Method("MC Dropout", "mc_dropout", "squared_error", ORDINARY_DROPOUT),
    "hnn": Method("HNN", "variance_head", "nll", HEADS),
    "dropout_hc": Method("Dropout-HC", "mc_dropout", "nll", DROPOUT),
    "quantile_hc": Method("Quantile-HC", "quantile_range", "nll", {**HEADS, "objective_weight": 0.75}),
    # Any estimator: without HC, with HC.
    "quantile": Method("Quantile", "quantile_range", "squared_error", HEADS),
    "sqr": Method("SQR", "simultaneous_quantiles", "squared_error", {**HEADS, **OWN_LOSS_ONLY}),
    "sqr_hc": Method("SQR-HC", "simultaneous_quantiles", "nll", HEADS),
    "concrete_dropout": Method("Concrete Dropout", "concrete_dropout", "squared_error", {**DROPOUT, **ONE_PASS}),
    "concrete_hc": Method("Concrete-HC", "concrete_dropout", "nll", DROPOUT),
    "bayes": Method("Bayes by Backprop", "bayes_by_backprop", "squared_error", {"dropout": 0.0, **ONE_PASS}),
    "bayes_hc": Method("Bayes-HC", "bayes_by_backprop", "nll", {"dropout": 0.0}),
    "ensemble_spread": Method("Ensemble spread", "ensemble_spread", "squared_error", {**ENSEMBLE, **OWN_LOSS_ONLY}),
    "ensemble_spread_hc": Method("Ensemble spread-HC", "ensemble_spread", "nll", ENSEMBLE),
    "deep_ensemble": Method("Deep Ensemble", "ensemble", "nll", {**ENSEMBLE, **OWN_LOSS_ONLY}),
    "ensemble_hc": Method("Ensemble-HC", "ensemble", "nll", ENSEMBLE),
    # Uninformative sigmas, for the argument against recalibration (benchmarks/recalibration).
    "constant_sigma": Method("Constant sigma", ConstantSigma, "squared_error", HEADS),
    "random_sigma": Method("Random sigma", RandomSigma, "squared_error", HEADS),
}


def method_name(text: str) -> str:
    """Return the name of a method in `METHODS`; hyphens may replace underscores, as in the paper's "Dropout-HC".

    >>> method_name("dropout-hc")
    'dropout_hc'
    """
    name = underscored(text)
    return name if name in METHODS else check_choice("method", text, METHODS)


def make(method: str, **overrides: Any) -> HCRegressor:
    """Build the regressor of a row of `METHODS`.

    Args:
        method: The name, such as "dropout_hc"; hyphens may replace underscores.
        **overrides: Parameters of `HCRegressor`. `estimator_options` are added to those of the method.

    >>> make("hnn", random_state=0)
    HCRegressor(dropout=0.1, estimator='variance_head', objective='nll',
                random_state=0, weight_decay=1.0)
    """
    row = METHODS[method_name(method)]
    settings = {"estimator": row.estimator, "objective": row.objective, **row.settings, **overrides}
    options = row.settings.get("estimator_options", {}) | check_estimator_options(overrides.get("estimator_options"))
    return HCRegressor(**{**settings, "estimator_options": options or None})

"""Estimators: where the predictive standard deviation comes from, one file for each answer.

`ESTIMATORS` is the registry of those that one training loop trains, around any network. One line there makes an
estimator known to the regressor, the command line and the tests. The default of the regressor, `CrossEnsemble`, is made
of many networks and has a loop of its own.
"""

from hetcal.estimators.base import AbstractEstimator, parameter_groups, predict
from hetcal.estimators.bayes_by_backprop import BayesByBackprop
from hetcal.estimators.concrete_dropout import ConcreteDropout
from hetcal.estimators.cross_ensemble import CrossEnsemble
from hetcal.estimators.ensemble import Ensemble, EnsembleSpread
from hetcal.estimators.mc_dropout import MCDropout
from hetcal.estimators.quantile_range import QuantileRange, pinball
from hetcal.estimators.simultaneous_quantiles import SimultaneousQuantiles
from hetcal.estimators.variance_head import VarianceHead
from hetcal.estimators.with_family import WithFamily

ESTIMATORS: dict[str, type[AbstractEstimator]] = {
    "mc_dropout": MCDropout,
    "concrete_dropout": ConcreteDropout,
    "bayes_by_backprop": BayesByBackprop,
    "quantile_range": QuantileRange,
    "simultaneous_quantiles": SimultaneousQuantiles,
    "variance_head": VarianceHead,
    "ensemble": Ensemble,
    "ensemble_spread": EnsembleSpread,
}

__all__ = [
    "ESTIMATORS",
    "AbstractEstimator",
    "BayesByBackprop",
    "ConcreteDropout",
    "CrossEnsemble",
    "Ensemble",
    "EnsembleSpread",
    "MCDropout",
    "QuantileRange",
    "SimultaneousQuantiles",
    "VarianceHead",
    "WithFamily",
    "parameter_groups",
    "pinball",
    "predict",
]

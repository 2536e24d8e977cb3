"""One file per answer to "sigma from where?". `ESTIMATORS` is the one registration: a line here, and the regressor,
the contract tests and everything built on them have it."""

from hetcal.estimators.base import AbstractEstimator, predict
from hetcal.estimators.mc_dropout import MCDropout
from hetcal.estimators.quantile_range import QuantileRange, pinball
from hetcal.estimators.variance_head import VarianceHead

ESTIMATORS: dict[str, type[AbstractEstimator]] = {
    "mc_dropout": MCDropout,
    "quantile_range": QuantileRange,
    "variance_head": VarianceHead,
}

__all__ = ["ESTIMATORS", "AbstractEstimator", "MCDropout", "QuantileRange", "VarianceHead", "pinball", "predict"]

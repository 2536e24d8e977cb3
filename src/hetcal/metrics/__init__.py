"""Metrics of predictions: plain formulas on NumPy arrays, for the predictions of any model; none imports torch."""

from hetcal.metrics.classification import expected_calibration_error, expected_calibration_error_noise_floor
from hetcal.metrics.evaluation import METRICS, Metric, evaluate
from hetcal.metrics.noise import CURVE_LEVELS, LEVELS, calibration_band, ce_noise_floor, ce_quantile
from hetcal.metrics.regression import (
    CalibrationCurve,
    calibration_curve,
    ce,
    conditional_coverage_error,
    coverage,
    crps,
    ence,
    equal_count_bins,
    interval_score,
    interval_width,
    mae,
    nll,
    pinball_loss,
    pit,
    rmse,
    sharpness,
)
from hetcal.metrics.verdict import Verdict, judge

__all__ = [
    "CURVE_LEVELS",
    "LEVELS",
    "METRICS",
    "CalibrationCurve",
    "Metric",
    "Verdict",
    "calibration_band",
    "calibration_curve",
    "ce",
    "ce_noise_floor",
    "ce_quantile",
    "conditional_coverage_error",
    "coverage",
    "crps",
    "ence",
    "equal_count_bins",
    "evaluate",
    "expected_calibration_error",
    "expected_calibration_error_noise_floor",
    "interval_score",
    "interval_width",
    "judge",
    "mae",
    "nll",
    "pinball_loss",
    "pit",
    "rmse",
    "sharpness",
]

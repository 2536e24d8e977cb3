"""Prediction intervals that mean what they say, from one training run.

Names are imported on first use: importing torch takes seconds, and the metrics do not need it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetcal.classifier import HCClassifier
    from hetcal.methods import METHODS, make
    from hetcal.metrics import evaluate
    from hetcal.model_files.load import load
    from hetcal.prediction import Prediction
    from hetcal.regressor import HCRegressor
    from hetcal.tabular.explaining import explain

__version__ = "0.1.0"
__all__ = ["METHODS", "HCClassifier", "HCRegressor", "Prediction", "evaluate", "explain", "load", "make"]

_HOMES = {
    "METHODS": "methods",
    "HCClassifier": "classifier",
    "HCRegressor": "regressor",
    "load": "model_files.load",
    "make": "methods",
    "Prediction": "prediction",
    "evaluate": "metrics",
    "explain": "tabular.explaining",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"hetcal.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hetcal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

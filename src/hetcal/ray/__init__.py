"""hetcal on a Ray cluster: training and predictions for data sets of any size here, many fits through `backend="ray"`.

Every machine of the cluster needs hetcal, because functions are sent by name and not as code. Names are imported on
first use: every worker imports this package for its jobs, and not all of them need torch, Ray Data and Ray Train.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

# Before Ray is imported: it would send statistics of its use, and with `uv run` it would install hetcal by uv.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

try:
    import ray  # noqa: F401
except ImportError as error:
    raise ImportError("hetcal.ray needs Ray; install it with: pip install 'hetcal[ray]'") from error

from hetcal.ray.cluster import connect

if TYPE_CHECKING:
    from hetcal.ray.predicting import predict
    from hetcal.ray.training import fit

__all__ = ["connect", "fit", "predict"]

_HOMES = {"fit": "training", "predict": "predicting"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"hetcal.ray.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hetcal.ray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

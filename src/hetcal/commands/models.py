"""Model files for the commands: what they were trained for, and loading one that they can use."""

from pathlib import Path
from typing import Any

from hetcal._checks import must
from hetcal.loading import load
from hetcal.regressor import HCRegressor


def load_regressor(path: Path) -> HCRegressor:
    """A regressor for one target; what else a file may hold is for Python."""
    model: Any = load(path)
    if not isinstance(model, HCRegressor) or model.n_targets_ != 1:
        found = type(model).__name__ if not isinstance(model, HCRegressor) else f"{model.n_targets_} targets"
        raise must(str(path), "hold a regressor for one target", found, "use hetcal.load in Python for this one")
    return model

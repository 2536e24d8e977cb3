"""Model files for the commands: a model that they can use, and what its file says about it."""

from pathlib import Path
from typing import Any

from hetcal._checks import must
from hetcal.model_files import archive
from hetcal.model_files.load import rebuild
from hetcal.model_files.schema import Summary
from hetcal.regressor import HCRegressor


def read_regressor(path: Path) -> tuple[HCRegressor, Summary]:
    """A regressor for one target, and its summary. Files of other models can be used from Python only."""
    contents = archive.read(path)
    model: Any = rebuild(contents, str(path), {})
    if not isinstance(model, HCRegressor) or model.n_targets_ != 1:
        found = type(model).__name__ if not isinstance(model, HCRegressor) else f"{model.n_targets_} targets"
        raise must(str(path), "hold a regressor for one target", found, "load this one in Python, by hetcal.load")
    return model, contents.summary

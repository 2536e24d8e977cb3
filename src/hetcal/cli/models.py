"""Model files for the commands: a model that they can use, and its summary."""

from pathlib import Path
from typing import Any

from hetcal._checks import must
from hetcal.model_files.archive import read_model_file
from hetcal.model_files.load import rebuild
from hetcal.model_files.schema import SummaryDocument
from hetcal.regressor import HCRegressor


def read_regressor(path: Path) -> tuple[HCRegressor, SummaryDocument]:
    """Load a regressor for one target, and its summary. Files of other models can be used only from Python."""
    contents = read_model_file(path)
    model: Any = rebuild(contents, str(path), {})
    if not isinstance(model, HCRegressor) or model.n_targets_ != 1:
        found = type(model).__name__ if not isinstance(model, HCRegressor) else f"{model.n_targets_} targets"
        raise must(str(path), "hold a regressor for one target", found, "load this one in Python with hetcal.load")
    return model, contents.summary

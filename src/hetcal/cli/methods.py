"""`hetcal methods`: what there is to fit."""

from typing import Any

from hetcal.methods import METHODS
from hetcal.studies.compare import INFORMATIVE


def describe_methods() -> dict[str, Any]:
    """The rows of `METHODS` that a model can be fitted by."""
    rows = [
        {"name": name, "title": row.title, "estimator": row.estimator, "objective": row.objective}
        for name, row in METHODS.items()
        if name in INFORMATIVE
    ]
    return {"command": "methods", "methods": rows}

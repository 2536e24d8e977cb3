"""Evaluating predictions on rows with known targets: the content of the report, its page, and warnings of unusual rows.

Nothing here imports torch, because predictions of any model can be evaluated without it.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetcal._files import atomic_write
from hetcal.cli.columns import Observations
from hetcal.exceptions import OutsideRangeWarning, UnseenLabelsWarning
from hetcal.report import describe, render
from hetcal.tabular.explaining import explain

if TYPE_CHECKING:
    from hetcal.regressor import HCRegressor


def judge_model(
    observations: Observations,
    model: "HCRegressor",
    *,
    data: Mapping[str, Any],
    is_explained: bool = False,
    **content: Any,
) -> dict[str, Any]:
    """Return the content of the report on a model's predictions for these rows.

    What the predictions depend on is added if `is_explained`; this takes seconds.
    """
    prediction = model.predict_dist(observations.X)
    unseen, outside = model.count_unseen(observations.X), model.count_outside(observations.X)
    warn_of_unusual_rows(unseen, outside, len(observations))
    unusual = {f"rows with an unseen label in {name}": count for name, count in unseen.items()}
    unusual |= {f"rows far outside the training range of {name}": count for name, count in outside.items()}
    if is_explained:
        content["explanation"] = explain(model, observations.X, observations.y)
    return judge_prediction(observations, prediction, data={**data, **unusual}, **content)


def judge_prediction(
    observations: Observations, prediction: Any, *, target: str, group: str | None, **content: Any
) -> dict[str, Any]:
    """Return the content of the report on a prediction for these rows."""
    return describe(
        observations.y,
        prediction,
        target=target,
        features=observations.X if observations.X.columns else None,
        groups=observations.groups,
        group_name=group,
        title=f"Are the prediction intervals for {target} reliable?",
        **content,
    )


def write_report(content: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """Return the report for the result of a command; the page is written if a path is given."""
    if path is not None:
        atomic_write(path, render(content))
    return {"report_file": None if path is None else str(path), "report": content}


def warn_of_unusual_rows(unseen: Mapping[str, int], outside: Mapping[str, int], rows: int) -> None:
    """Warn of rows that are unlike the training rows."""
    for name, count in unseen.items():
        message = f"column {name!r} holds labels that were not seen in training in {count} of {rows} rows"
        warnings.warn(message, UnseenLabelsWarning, stacklevel=3)
    for name, count in outside.items():
        message = f"column {name!r} lies far outside the range of the training rows in {count} of {rows} rows"
        warnings.warn(message, OutsideRangeWarning, stacklevel=3)

"""`hetcal evaluate`: can a model's intervals, or anyone's predictions, be believed on these rows?

Predictions in a file are judged without torch.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetcal._checks import check_choice
from hetcal._files import atomic_write
from hetcal.cli.columns import Rows, check_groups, check_numbers, split_columns
from hetcal.cli.reproduce import command_line, shown_name
from hetcal.cli.tables import Format, read_frame
from hetcal.exceptions import OtherTargetWarning, OutsideRangeWarning, UnseenLabelsWarning
from hetcal.prediction import Prediction
from hetcal.report import describe, render

if TYPE_CHECKING:
    from hetcal.regressor import HCRegressor


def judge(rows: Rows, model: "HCRegressor", *, data: dict[str, Any], **content: Any) -> dict[str, Any]:
    """The content of the report on a model's predictions of these rows."""
    prediction = model.predict_dist(rows.X)
    unseen, outside = model.count_unseen(rows.X), model.count_outside(rows.X)
    warn_of_strange_rows(unseen, outside, len(rows))
    new = {f"rows with a new label in {name}": count for name, count in unseen.items()}
    new |= {f"rows far outside the training range of {name}": count for name, count in outside.items()}
    return judge_prediction(rows, prediction, data={**data, **new}, **content)


def judge_prediction(rows: Rows, prediction: Any, *, target: str, group: str | None, **content: Any) -> dict[str, Any]:
    return describe(
        rows.y,
        prediction,
        target=target,
        features=rows.X if rows.X.shape[1] else None,
        groups=None if rows.groups is None else rows.groups.to_numpy(),
        group_name=group,
        title=f"Can the intervals for {target} be believed?",
        **content,
    )


def written(content: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """What a command tells of a report; the page is written if a path is given."""
    if path is not None:
        atomic_write(path, render(content))
    return {"report_file": None if path is None else str(path), "report": content}


def warn_of_strange_rows(unseen: Mapping[str, int], outside: Mapping[str, int], rows: int) -> None:
    """Rows that training tells little about."""
    for name, count in unseen.items():
        message = f"column {name!r} holds labels that training has not seen in {count} of {rows} rows"
        warnings.warn(message, UnseenLabelsWarning, stacklevel=3)
    for name, count in outside.items():
        message = f"column {name!r} lies far outside the range of the training rows in {count} of {rows} rows"
        warnings.warn(message, OutsideRangeWarning, stacklevel=3)


def evaluate_model(
    model: Path,
    source: str,
    *,
    target: str | None = None,
    group: str | None = None,
    report: Path | None = None,
    format: Format = Format(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """Judge a model file on a table that has the target."""
    from hetcal.cli.models import read_regressor

    regressor, summary = read_regressor(model)
    target = target or summary.target
    if target is None:
        raise ValueError(f"{model} does not say what it predicts, as it was saved from Python; add --target NAME")
    if summary.target not in (None, target):
        warnings.warn(
            f"{model} was fitted to predict {summary.target!r}, not {target!r}", OtherTargetWarning, stacklevel=2
        )
    kinds = {**regressor.encoder_.kinds, target: "numbers"}
    if group is not None and group not in kinds:
        kinds[group] = "text"
    frame = read_frame(source, format, kinds=kinds)
    features = frame[list(regressor.encoder_.kinds)]
    rows = Rows(features, check_numbers("target", frame[target]), None if group is None else check_groups(frame[group]))
    content = judge(
        rows,
        regressor,
        target=target,
        group=group,
        data={"model": shown_name(model), "file": shown_name(source), "rows to judge": len(rows)},
        reproduce=[command_line("evaluate", model, source, target=target, group=group, **asdict(format))],
    )
    return {"command": "evaluate", "rows": len(rows), **written(content, report)}


def evaluate_predictions(
    source: str,
    *,
    target: str | None,
    mean: str = "mean",
    std: str = "std",
    drop: Sequence[str] = (),
    group: str | None = None,
    report: Path | None = None,
    format: Format = Format(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """Judge a file of predictions: the columns of truth, mean and std, all others as places to look at."""
    if Path(source).suffix == ".hetcal":
        raise ValueError(f"{source} is a model; give the table to judge it on after it")
    if target is None:
        raise ValueError("a table of predictions needs --target, the column of the truth")
    frame = read_frame(source, format, drop=drop)
    for option, name in (("mean", mean), ("std", std)):
        check_choice(option, name, frame.columns)
    prediction = Prediction(check_numbers("mean", frame[mean]), check_numbers("std", frame[std], positive=True))
    rows = split_columns(frame, target, group, others=[mean, std])
    options = {"target": target, "mean": mean, "std": std, "drop": list(drop), "group": group}
    content = judge_prediction(
        rows,
        prediction,
        target=target,
        group=group,
        data={"file": shown_name(source), "rows to judge": len(rows)},
        reproduce=[command_line("evaluate", source, **options, **asdict(format))],
    )
    return {"command": "evaluate", "rows": len(rows), **written(content, report)}

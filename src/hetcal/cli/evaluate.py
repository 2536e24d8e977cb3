"""`hetcal evaluate`: check whether prediction intervals are reliable on the rows of a table.

Predictions in a file are evaluated without torch.
"""

import warnings
from typing import Any

from hetcal._checks import check_choice
from hetcal.cli.columns import Observations, check_group_labels, check_numbers, split_columns
from hetcal.cli.judging import judge_model, judge_prediction, write_report
from hetcal.cli.options import EvaluateOptions
from hetcal.cli.reproduce import command_line, shown_name
from hetcal.cli.tables import read_file
from hetcal.exceptions import OtherTargetWarning
from hetcal.prediction import Prediction
from hetcal.tabular.columns import Kind, Table


def evaluate_file(options: EvaluateOptions) -> dict[str, Any]:
    """Evaluate a model file on a table, or a table of predictions, and write the report if requested."""
    if options.table is None:
        content = evaluate_predictions(options)
    elif options.mean or options.std or options.drop:
        raise ValueError("--mean, --std and --drop are for a table of predictions; omit them with a model")
    else:
        content = evaluate_model(options, options.table)
    return {"command": options.command, "rows": content["rows"], **write_report(content, options.report)}


def evaluate_model(options: EvaluateOptions, source: str) -> dict[str, Any]:
    """Return the content of the report on a model file and a table that contains the target."""
    from hetcal.cli.models import read_regressor

    regressor, summary = read_regressor(options.file)
    target, group = options.target or summary.target, options.group
    if target is None:
        raise ValueError(
            f"{options.file} was saved from Python and does not name its target; add --target with the column"
        )
    if summary.target not in (None, target):
        message = f"{options.file} was fitted to predict {summary.target!r}, not {target!r}"
        warnings.warn(message, OtherTargetWarning, stacklevel=2)
    features: dict[str, Kind] = regressor.encoder_.kinds
    kinds: dict[str, Kind] = {**features, target: "numbers"}
    if group is not None:
        kinds.setdefault(group, "text")
    data = read_file(source, options.csv_format, kinds=kinds)
    observations = Observations(
        Table({name: data.table.columns[name] for name in features}),
        check_numbers(data, "target", target),
        None if group is None else check_group_labels(data, group),
    )
    return judge_model(
        observations,
        regressor,
        target=target,
        group=group,
        is_explained=options.report is not None,
        data={"model": shown_name(options.file), "file": shown_name(source), "rows": len(observations)},
        reproduce=[command_line(options)],
    )


def evaluate_predictions(options: EvaluateOptions) -> dict[str, Any]:
    """Return the content of the report on a file of predictions; columns other than y, mean, std define subgroups."""
    if options.file.suffix == ".hetcal":
        raise ValueError(f"{options.file} is a model; add the name of the table to evaluate it on")
    if options.target is None:
        raise ValueError("a table of predictions needs --target, the column of the true values")
    data = read_file(str(options.file), options.csv_format, drop=options.drop)
    mean, std = options.mean or "mean", options.std or "std"
    for option, name in (("mean", mean), ("std", std)):
        check_choice(option, name, data.table.columns)
    prediction = Prediction(check_numbers(data, "mean", mean), check_numbers(data, "std", std, positive=True))
    observations = split_columns(data, options.target, options.group, others=[mean, std])
    return judge_prediction(
        observations,
        prediction,
        target=options.target,
        group=options.group,
        data={"file": shown_name(options.file), "rows": len(observations)},
        reproduce=[command_line(options)],
    )

"""`hetcal evaluate`: check whether prediction intervals are reliable on the rows of a table.

Predictions in a file are evaluated without torch.
"""

import warnings
from typing import TYPE_CHECKING, Any

from hetcal.cli.columns import (
    Observations,
    check_group_labels,
    check_numbers,
    drop_missing_target,
    split_columns,
)
from hetcal.cli.judging import judge_model, judge_prediction, write_report
from hetcal.cli.options import EvaluateOptions
from hetcal.cli.predictions import describe_intervals, describe_mean, read_predictions
from hetcal.cli.reproduce import command_line, shown_name
from hetcal.cli.sketches import estimate_training_rows
from hetcal.cli.tables import NumberedTable, read_file
from hetcal.exceptions import OtherTargetWarning, TrainingRowsWarning
from hetcal.tabular.columns import Kind, Table

if TYPE_CHECKING:
    from hetcal.model_files.schema import SummaryDocument


# The share of the rows from which on training rows matter.
FEWEST_TRAINING_ROWS = 0.05
OMITTED = "rows without a target, omitted"


def evaluate_file(options: EvaluateOptions) -> dict[str, Any]:
    """Evaluate a model file on a table, or a table of predictions, and write the report if requested."""
    about: dict[str, Any] = {"form": None, "intervals": [], "mean": None, "training_rows": 0}
    if options.table is None:
        content, found = evaluate_predictions(options)
    elif options.mean or options.std or options.lower or options.upper or options.quantile or options.drop:
        message = "--mean, --std, --lower, --upper, --quantile and --drop are for a table of predictions"
        raise ValueError(f"{message}; omit them with a model")
    else:
        content, found = evaluate_model(options, options.table)
    about |= {"command": options.command, "rows": content["rows"], **found}
    return {**about, **write_report(content, options.report)}


def evaluate_model(options: EvaluateOptions, source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of the report on a model file and a table with the target, and the number of training rows."""
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
    data, omitted = keep_targets(read_file(source, options.csv_format, kinds=kinds), target, options)
    observations = Observations(
        Table({name: data.table.columns[name] for name in features}),
        check_numbers(data, "target", target),
        None if group is None else check_group_labels(data, group),
    )
    data_facts = {"model": shown_name(options.file), "file": shown_name(source), "rows": len(observations), **omitted}
    trained = count_training_rows(observations, summary)
    if trained:
        data_facts["of these, rows that the model was trained on"] = trained
        message = f"about {trained} of {len(observations)} rows of {shown_name(source)} are rows that "
        message += f"{shown_name(options.file)} was trained on, which look better than new rows; evaluate on others"
        warnings.warn(message, TrainingRowsWarning, stacklevel=2)
    content = judge_model(
        observations,
        regressor,
        target=target,
        group=group,
        is_explained=options.report is not None,
        data=data_facts,
        reproduce=[command_line(options)],
    )
    content = doubt(content, trained) if trained else content
    return content, {"training_rows": trained, "omitted": omitted.get(OMITTED, 0)}


def keep_targets(data: NumberedTable, target: str, options: EvaluateOptions) -> tuple[NumberedTable, dict[str, int]]:
    """Omit rows without a target if requested, and return what the report and the terminal say about it."""
    if not options.drop_missing_target:
        return data, {}
    kept = drop_missing_target(data, target)
    omitted = len(data.rows) - len(kept.rows)
    return kept, {OMITTED: omitted} if omitted else {}


def count_training_rows(observations: Observations, summary: "SummaryDocument") -> int:
    """About how many rows the model was trained on; 0 if they are few: equal rows may be a coincidence."""
    if summary.sketch is None or summary.rows is None:
        return 0
    trained = estimate_training_rows(observations, summary.sketch, summary.rows)
    return trained if trained >= FEWEST_TRAINING_ROWS * len(observations) else 0


def doubt(content: dict[str, Any], trained: int) -> dict[str, Any]:
    """Say in the verdict that rows are training rows, and omit the advice, which would rely on it."""
    verdict = content["verdict"]
    text = (
        f"About {trained} of {content['rows']} rows are rows that the model was trained on, so that this verdict says "
    )
    text += f"little about new rows. {verdict['text']}"
    kept = {name: section for name, section in content.items() if name != "advice"}
    return {**kept, "verdict": {**verdict, "text": text}}


def evaluate_predictions(options: EvaluateOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of the report on a file of predictions, and what was read.

    Columns other than y and those of predictions define subgroups.
    """
    if options.file.suffix == ".hetcal":
        raise ValueError(f"{options.file} is a model; add the name of the table to evaluate it on")
    if options.target is None:
        raise ValueError("a table of predictions needs --target, the column of the true values")
    data = read_file(str(options.file), options.csv_format, drop=options.drop)
    data, omitted = keep_targets(data, options.target, options)
    given = read_predictions(data, options)
    observations = split_columns(data, options.target, options.group, others=given.columns)
    mean = describe_mean(given, observations.y, observations.groups)
    content = judge_prediction(
        observations,
        given.prediction,
        target=options.target,
        group=options.group,
        data={
            "file": shown_name(options.file),
            "rows": len(observations),
            **omitted,
            "predictions": given.form,
            **({} if mean is None else {"bias of the mean": mean["text"]}),
        },
        reproduce=[command_line(options)],
    )
    found = {"form": given.form, "intervals": describe_intervals(given, observations.y), "mean": mean}
    return content, {**found, "omitted": omitted.get(OMITTED, 0)}

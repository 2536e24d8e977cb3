"""`hetcal compare`: compare methods on a table by cross-validation."""

from typing import Any

from hetcal._checks import must
from hetcal.cli.backends import open_backend
from hetcal.cli.columns import check_dropped
from hetcal.cli.inspecting import inspect_folds
from hetcal.cli.judging import write_report
from hetcal.cli.options import CompareOptions
from hetcal.cli.progress import announce, fits_bar, is_watched
from hetcal.cli.reproduce import command_line, shown_name
from hetcal.cli.settings import check_estimator_settings, parse_settings
from hetcal.cli.splits import check_time, read_rows
from hetcal.methods import METHODS
from hetcal.report import describe_comparison
from hetcal.studies.compare import compare, method_names


def compare_file(options: CompareOptions) -> dict[str, Any]:
    """Compare methods on the rows of a file, and write the report if requested."""
    names = method_names(options.methods)
    settings = parse_settings(options.set)
    check_estimator_settings(settings, [name for name in names if name in METHODS])
    check_dropped(options.target, options.group, options.drop)
    if options.time is not None and options.group is not None:
        advice = "a group has rows of many times; omit one of the two"
        raise must("--time", "not be given with --group", options.time, advice)
    check_time(options)
    backend = open_backend(options)
    table = read_rows(options)
    observations = table.observations
    inspection = inspect_folds(options, table, settings).as_dict()
    announce(options.quiet, f"comparing {len(names)} methods in {options.folds} folds")
    with fits_bar(is_watched(options.quiet)) as show:
        comparison = compare(
            observations.X,
            observations.y,
            methods=names,
            folds=options.folds,
            seed=options.seed,
            groups=observations.groups,
            times=table.times,
            settings=settings,
            recalibrate=options.recalibrate,
            jobs=options.jobs,
            backend=backend,
            target=options.target,
            group_name=options.group,
            progress=show,
        )
    content = describe_comparison(
        comparison,
        title=f"Which method for {options.target}?",
        data={
            "file": shown_name(options.table),
            "rows": len(observations),
            "features": len(observations.X.columns),
            **calibration_rows(comparison["recalibration"]),
        },
        settings={
            "folds": options.folds,
            "seed": options.seed,
            **{name: str(value) for name, value in settings.items()},
        },
        reproduce=[command_line(options)],
    )
    return {"command": options.command, **comparison, "inspection": inspection, **write_report(content, options.report)}


def calibration_rows(recalibration: dict[str, Any] | None) -> dict[str, int]:
    """What the report lists of the recalibration, if there is one."""
    if recalibration is None:
        return {}
    return {f"rows of each fold for {recalibration['method']} recalibration, not trained on": recalibration["rows"]}

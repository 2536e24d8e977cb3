"""`hetcal fit`: from a table to a model file, evaluated on rows that the model has not seen.

The steps, in order: read the table, hold out rows, inspect them, choose a method, train, evaluate, save.
"""

import warnings
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from hetcal._checks import check_choice, check_number, must, underscored
from hetcal.cli.backends import open_backend
from hetcal.cli.columns import Observations, check_dropped
from hetcal.cli.inspecting import inspect_split
from hetcal.cli.judging import judge_model, write_report
from hetcal.cli.options import RECALIBRATIONS, FitOptions
from hetcal.cli.progress import announce, fits_bar, is_watched
from hetcal.cli.reproduce import command_line, shown_name
from hetcal.cli.settings import check_estimator_settings, parse_settings
from hetcal.cli.show import describe_choices
from hetcal.cli.sketches import sketch_of
from hetcal.cli.splits import check_split, hold_out_calibration, read_split
from hetcal.exceptions import TrainingInterrupted, TrainingWarning
from hetcal.methods import METHODS, make
from hetcal.regressor import HCRegressor
from hetcal.studies.compare import AUTO, INFORMATIVE, Progress, choose_method

Comparison = dict[str, Any]


def fit_file(options: FitOptions) -> dict[str, Any]:
    """Train a model, evaluate it on the test rows, save it, and write the report if requested."""
    options = replace(options, method=underscored(options.method))
    settings = check_fit_options(options)
    split = read_split(options)
    train, test = split.train, split.test
    train, calibration = hold_out_calibration(options, train)
    inspection = inspect_split(options, split, settings).as_dict()
    with fits_bar(is_watched(options.quiet)) as show:
        method, comparison = find_method(options, settings, train, show)
        model = train_model(options, method, settings, train, comparison, show)
    if options.recalibrate is not None and calibration is not None:
        model.recalibrate(calibration.X, calibration.y, options.recalibrate)
    content = None
    if test is not None:
        announce(options.quiet, f"evaluating on {len(test)} rows")
        content = judge_model(
            test,
            model,
            target=options.target,
            group=options.group,
            data={**list_data(options, train, calibration, test), "split": split.how},
            is_explained=options.report is not None,
            inspection=inspection,
            has_own_split=options.test is None,
            history=asdict(model.history_),
            settings=list_settings(method, model, comparison),
            reproduce=[command_line(replace(options, method=method))],
        )
    summary = {**summarize_fit(options, method, train, test, content), "split": split.how}
    model.save(options.out, summary={**summary, "sketch": sketch_of(train)})
    result = {"command": options.command, "model": str(options.out), **summary, "recommendation": reason(comparison)}
    result |= {"recalibrate": options.recalibrate, "calibration_rows": 0 if calibration is None else len(calibration)}
    result |= {"inspection": inspection, "choices": list_choices(model)}
    return result if content is None else {**result, **write_report(content, options.report)}


def check_fit_options(options: FitOptions) -> dict[str, Any]:
    """Check the options before the table is read; return the settings of `--set`."""
    check_choice("method", options.method, ["auto", *INFORMATIVE])
    check_number("test_size", options.test_size, 0, 1, open_high=True)
    check_number("seed", options.seed, 0, 2**32 - 1, integer=True)
    if options.recalibrate is not None:
        check_choice("recalibrate", options.recalibrate, RECALIBRATIONS)
    settings = parse_settings(options.set)
    check_estimator_settings(settings, AUTO if options.method == "auto" else [options.method])
    check_dropped(options.target, options.group, options.drop)
    check_split(options)
    if options.backend is not None and options.method != "auto":
        raise must("method", "be auto for a backend", options.method, "only the comparison of `auto` runs in parallel")
    open_backend(options)
    if options.report is not None and options.test is None and options.test_size == 0:
        raise must("test_size", "be greater than 0 for a report", options.test_size, "a report needs test rows")
    return settings


def find_method(
    options: FitOptions, settings: dict[str, Any], train: Observations, show: Progress
) -> tuple[str, Comparison | None]:
    """Return the requested method; with "auto", the best one by cross-validation, and the comparison."""
    if options.method != "auto":
        return options.method, None
    announce(options.quiet, f"comparing {len(AUTO)} methods by cross-validation")
    return choose_method(
        train.X,
        train.y,
        seed=options.seed,
        groups=train.groups,
        settings=settings,
        recalibrate=options.recalibrate,
        jobs=options.jobs,
        backend=options.backend,
        progress=lambda done, total, label: show(done, total + 1, label),  # the training of the model comes last
    )


def train_model(
    options: FitOptions,
    method: str,
    settings: dict[str, Any],
    train: Observations,
    comparison: Comparison | None,
    show: Progress,
) -> HCRegressor:
    """Train the model; on a terminal, Ctrl-C keeps the best weights so far."""
    before = 0 if comparison is None else comparison["folds"] * len(comparison["methods"])
    title = METHODS[method].title
    announce(options.quiet, f"training {title} on {len(train)} rows")

    def progress(done: int, planned: int) -> None:
        show(before + done / planned, before + 1, f"{title} on {len(train)} rows (Ctrl-C keeps the best)")

    model: HCRegressor = make(method, random_state=options.seed, progress=progress, **settings)
    try:
        model.fit(train.X, train.y, groups=train.groups if train.n_groups > 1 else None)
    except TrainingInterrupted as end:
        if not is_watched(options.quiet):  # nobody is at the keyboard: whatever runs this command wants to stop
            raise
        warnings.warn(str(end), TrainingWarning, stacklevel=2)
    return model


def summarize_fit(
    options: FitOptions, method: str, train: Observations, test: Observations | None, content: dict[str, Any] | None
) -> dict[str, Any]:
    """The information about the training in the model file."""
    metrics = {} if content is None else content["metrics"]
    return {
        "target": options.target,
        "method": method,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": len(train),
        "test_rows": 0 if test is None else len(test),
        "dropped": list(options.drop),
        "group": options.group,
        "metrics": {name: value for name, value in metrics.items() if value is not None},
    }


def list_data(
    options: FitOptions, train: Observations, calibration: Observations | None, test: Observations
) -> dict[str, Any]:
    recalibrating = {} if calibration is None else {f"rows for {options.recalibrate} recalibration": len(calibration)}
    return {
        "file": shown_name(options.table),
        "training rows": len(train),
        **recalibrating,
        "test rows": len(test),
        "features": len(train.X.columns),
    }


def list_settings(method: str, model: HCRegressor, comparison: Comparison | None) -> dict[str, Any]:
    """The settings that differ from the defaults, and why "auto" chose the method."""
    defaults = HCRegressor().get_params()
    changed = {name: value for name, value in model.get_params().items() if value != defaults[name]}
    changed = {name: str(value) for name, value in changed.items() if name not in ("random_state", "progress")}
    settings = {"method": method, **changed, "seed": model.random_state}
    settings |= list_choices(model)
    if comparison is not None:
        settings["why this method"] = reason(comparison)
    return settings


def list_choices(model: HCRegressor) -> dict[str, str]:
    atoms = 0 if model.atoms_ is None else len(model.atoms_.values)
    return describe_choices(model.target_transform_, model.estimator == "cross_ensemble", atoms)


def reason(comparison: Comparison | None) -> str | None:
    return None if comparison is None else comparison["recommendation"]["text"]

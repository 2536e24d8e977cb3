"""`hetcal fit`: from a table to a model file, evaluated on rows that the model has not seen.

The steps, in order: read the table, hold out rows, choose a method, train, evaluate, save.
"""

import warnings
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hetcal._checks import check_choice, check_number, must, underscored
from hetcal.cli.columns import Observations, check_dropped, check_features, split_columns
from hetcal.cli.judging import judge_model, write_report
from hetcal.cli.options import FitOptions
from hetcal.cli.progress import announce, fits_bar, is_watched
from hetcal.cli.reproduce import command_line, shown_name
from hetcal.cli.settings import check_estimator_settings, parse_settings
from hetcal.cli.tables import read_file
from hetcal.exceptions import SharedGroupsWarning, TrainingInterrupted, TrainingWarning
from hetcal.methods import METHODS, make
from hetcal.regressor import HCRegressor
from hetcal.splitting import split_rows
from hetcal.studies.compare import AUTO, INFORMATIVE, Progress, choose_method

Comparison = dict[str, Any]
MINIMUM_ROWS_TO_SPLIT = 5


def fit_file(options: FitOptions) -> dict[str, Any]:
    """Train a model, evaluate it on the test rows, save it, and write the report if requested."""
    options = replace(options, method=underscored(options.method))
    settings = check_fit_options(options)
    train, test = read_observations(options)
    if options.report is not None and test is None:
        raise must("test_size", "be greater than 0 for a report", options.test_size, "a report needs test rows")
    with fits_bar(is_watched(options.quiet)) as show:
        method, comparison = find_method(options, settings, train, show)
        model = train_model(options, method, settings, train, comparison, show)
    content = None
    if test is not None:
        announce(options.quiet, f"evaluating on {len(test)} rows")
        content = judge_model(
            test,
            model,
            target=options.target,
            group=options.group,
            data=list_data(options, train, test),
            history=asdict(model.history_),
            settings=list_settings(method, model, comparison),
            reproduce=[command_line(replace(options, method=method))],
        )
    summary = summarize_fit(options, method, train, test, content)
    model.save(options.out, summary=summary)
    result = {"command": options.command, "model": str(options.out), **summary, "recommendation": reason(comparison)}
    return result if content is None else {**result, **write_report(content, options.report)}


def check_fit_options(options: FitOptions) -> dict[str, Any]:
    """Check the options before the table is read; return the settings of `--set`."""
    check_choice("method", options.method, ["auto", *INFORMATIVE])
    check_number("test_size", options.test_size, 0, 1, open_high=True)
    check_number("seed", options.seed, 0, 2**32 - 1, integer=True)
    settings = parse_settings(options.set)
    check_estimator_settings(settings, AUTO if options.method == "auto" else [options.method])
    check_dropped(options.target, options.group, options.drop)
    return settings


def read_observations(options: FitOptions) -> tuple[Observations, Observations | None]:
    """Read training and test rows, from one table or from two."""
    data = read_file(options.table, options.csv_format, texts=options.text, drop=options.drop)
    train = check_features(split_columns(data, options.target, options.group))
    if options.test is None:
        return hold_out_rows(train, options.test_size, options.seed)
    test_data = read_file(options.test, options.csv_format, kinds=data.table.kinds)
    test = split_columns(test_data, options.target, options.group)
    warn_of_shared_groups(train, test)
    return train, test


def hold_out_rows(observations: Observations, test_size: float, seed: int) -> tuple[Observations, Observations | None]:
    """Split into training and test rows, both in the order of the file; groups are not split."""
    if test_size == 0:
        return observations, None
    n, groups = len(observations), None
    if observations.groups is not None:
        labels, groups = np.unique(observations.groups, return_inverse=True)
        if len(labels) < 2:
            raise must("group", "have at least 2 different labels", str(labels[0]), "omit --group")
    if n < MINIMUM_ROWS_TO_SPLIT:
        rule = f"have at least {MINIMUM_ROWS_TO_SPLIT} rows to be split"
        raise must("the table", rule, n, "give more rows, or --test-size 0")
    train, test = split_rows(n, test_size, seed, groups)
    if not len(train):
        raise must("test_size", f"leave at least one of {n} rows for training", test_size, "choose a smaller one")
    return observations.take(np.sort(train)), observations.take(np.sort(test))


def warn_of_shared_groups(train: Observations, test: Observations) -> None:
    """Warn of groups with training and test rows: the model then looks better than it is for new groups."""
    if train.groups is not None and test.groups is not None:
        shared = len(np.intersect1d(train.groups, test.groups))
        if shared:
            message = f"{shared} of {test.n_groups} groups of the test table are also in the training table"
            warnings.warn(message, SharedGroupsWarning, stacklevel=3)


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
        jobs=options.jobs,
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


def list_data(options: FitOptions, train: Observations, test: Observations) -> dict[str, Any]:
    return {
        "file": shown_name(options.table),
        "training rows": len(train),
        "test rows": len(test),
        "features": len(train.X.columns),
    }


def list_settings(method: str, model: HCRegressor, comparison: Comparison | None) -> dict[str, Any]:
    """The settings that differ from the defaults, and why "auto" chose the method."""
    defaults = HCRegressor().get_params()
    changed = {name: value for name, value in model.get_params().items() if value != defaults[name]}
    changed = {name: str(value) for name, value in changed.items() if name not in ("random_state", "progress")}
    settings = {"method": method, **changed, "seed": model.random_state}
    if model.target_transform_ is not None:
        settings["target transform"] = model.target_transform_
    if comparison is not None:
        settings["why this method"] = reason(comparison)
    return settings


def reason(comparison: Comparison | None) -> str | None:
    return None if comparison is None else comparison["recommendation"]["text"]

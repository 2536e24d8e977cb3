"""`hetcal fit`: from a table to a model file, judged on rows that it has not seen."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

from hetcal._checks import check_choice, check_number, must
from hetcal.cli.columns import Rows, check_dropped, check_features, split_columns
from hetcal.cli.evaluate import judge, written
from hetcal.cli.progress import is_watched, steps
from hetcal.cli.reproduce import command_line, shown_name
from hetcal.cli.settings import check_options, parse_settings
from hetcal.cli.tables import Format, read_frame
from hetcal.exceptions import SharedGroupsWarning
from hetcal.methods import make
from hetcal.regressor import HCRegressor
from hetcal.studies.compare import AUTO, INFORMATIVE, choose_method

KINDS = {"f": "numbers", "M": "dates"}


def fit_file(
    source: str,
    out: Path,
    *,
    target: str,
    method: str = "auto",
    test_size: float = 0.2,
    test: str | None = None,
    drop: Sequence[str] = (),
    group: str | None = None,
    texts: Sequence[str] = (),
    seed: int = 0,
    settings: Sequence[str] = (),
    jobs: int = 1,
    report: Path | None = None,
    format: Format = Format(),  # noqa: B008 (frozen)
    quiet: bool = False,
) -> dict[str, Any]:
    """Train, judge on the test rows, save, and write the report if asked."""
    check_choice("method", method, ["auto", *INFORMATIVE])
    check_number("test_size", test_size, 0, 1, open_high=True)
    check_number("seed", seed, 0, 2**32 - 1, integer=True)
    chosen_settings = parse_settings(settings)
    check_options(chosen_settings, AUTO if method == "auto" else [method])
    check_dropped(target, group, drop)
    frame = read_frame(source, format, texts=texts, drop=drop)
    rows = check_features(split_columns(frame, target, group))
    if test is None:
        train_rows, test_rows = split_rows(rows, test_size, seed)
    else:
        kinds = {name: KINDS.get(frame[name].dtype.kind, "text") for name in frame}
        train_rows, test_rows = rows, split_columns(read_frame(test, format, kinds=kinds), target, group)
        warn_of_shared_groups(train_rows, test_rows)
    if report is not None and test_rows is None:
        raise must("test_size", "be greater than 0 for a report", test_size, "a report needs rows to judge on")

    comparison = None
    if method == "auto":
        with steps(is_watched(quiet), "fit") as show:
            method, comparison = choose_method(
                train_rows.X,
                train_rows.y,
                seed=seed,
                groups=train_rows.groups,
                settings=chosen_settings,
                jobs=jobs,
                progress=show,
            )
    model = make(method, random_state=seed, progress=is_watched(quiet), **chosen_settings)
    is_grouped = train_rows.groups is not None and train_rows.groups.nunique() > 1
    model.fit(train_rows.X, train_rows.y, groups=train_rows.groups if is_grouped else None)
    content = None
    if test_rows is not None:
        reproduce = [
            command_line(
                "fit",
                source,
                target=target,
                out=out,
                method=method,
                test_size=None if test else test_size,
                test=test,
                drop=drop,
                group=group,
                text=texts,
                seed=seed,
                set=settings,
                **asdict(format),
            )
        ]
        content = judge(
            test_rows,
            model,
            target=target,
            group=group,
            data=describe_data(source, train_rows, test_rows),
            history=asdict(model.history_),
            settings=describe_settings(method, model, comparison),
            reproduce=reproduce,
        )
    summary = {
        "target": target,
        "method": method,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": len(train_rows),
        "test_rows": 0 if test_rows is None else len(test_rows),
        "dropped": list(drop),
        "group": group,
        "metrics": {} if content is None else {k: v for k, v in content["metrics"].items() if v is not None},
    }
    model.save(out, summary=summary)
    result = {"command": "fit", "model": str(out), **summary, "recommendation": recommendation(comparison)}
    return result if content is None else {**result, **written(content, report)}


def split_rows(rows: Rows, test_size: float, seed: int) -> tuple[Rows, Rows | None]:
    """Training and test rows; whole groups where there are groups."""
    if test_size == 0:
        return rows, None
    if rows.groups is not None and rows.groups.nunique() < 2:
        raise must("group", "have at least 2 different labels", rows.groups.iloc[0], "leave --group out")
    if len(rows) < 5:
        raise must("the table", "have at least 5 rows to be split", len(rows), "give more, or --test-size 0")
    splitter = ShuffleSplit if rows.groups is None else GroupShuffleSplit
    parts = splitter(1, test_size=test_size, random_state=seed).split(rows.X, groups=rows.groups)
    train, test = next(iter(parts))
    return rows.take(np.sort(train)), rows.take(np.sort(test))


def warn_of_shared_groups(train: Rows, test: Rows) -> None:
    """Rows of a group on both sides make a model look better than it is for new groups."""
    if train.groups is not None and test.groups is not None:
        shared = set(train.groups) & set(test.groups)
        if shared:
            message = f"{len(shared)} of {test.groups.nunique()} groups of the test table are in the training table too"
            warnings.warn(message, SharedGroupsWarning, stacklevel=3)


def describe_data(source: str, train: Rows, test: Rows) -> dict[str, Any]:
    return {
        "file": shown_name(source),
        "rows to train": len(train),
        "rows to judge": len(test),
        "features": train.X.shape[1],
    }


def describe_settings(method: str, model: HCRegressor, comparison: dict[str, Any] | None) -> dict[str, Any]:
    """What differs from the defaults, and what "auto" chose."""
    defaults = HCRegressor().get_params()
    changed = {name: value for name, value in model.get_params().items() if value != defaults[name]}
    changed = {name: str(value) for name, value in changed.items() if name not in ("random_state", "progress")}
    settings = {"method": method, **changed, "seed": model.random_state}
    if model.target_transform_ is not None:
        settings["transform of the target"] = model.target_transform_
    if comparison is not None:
        settings["why this method"] = comparison["recommendation"]["text"]
    return settings


def recommendation(comparison: dict[str, Any] | None) -> str | None:
    return None if comparison is None else comparison["recommendation"]["text"]

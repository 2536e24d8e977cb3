"""`hetcal compare`: which method suits this table, by cross-validation."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hetcal.cli.columns import check_dropped, check_features, split_columns
from hetcal.cli.evaluate import written
from hetcal.cli.progress import is_watched, steps
from hetcal.cli.reproduce import command_line, shown_name
from hetcal.cli.settings import check_options, parse_settings
from hetcal.cli.tables import Format, read_frame
from hetcal.report import describe_comparison
from hetcal.studies.compare import compare, method_names


def compare_file(
    source: str,
    *,
    target: str,
    methods: str = "paper",
    folds: int = 5,
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
    """Compare methods on the rows of a file, and write the report if asked."""
    names = method_names(methods)
    chosen_settings = parse_settings(settings)
    check_options(chosen_settings, names)
    check_dropped(target, group, drop)
    rows = check_features(split_columns(read_frame(source, format, texts=texts, drop=drop), target, group))
    with steps(is_watched(quiet), "fit") as show:
        comparison = compare(
            rows.X,
            rows.y,
            methods=names,
            folds=folds,
            seed=seed,
            groups=rows.groups,
            settings=chosen_settings,
            jobs=jobs,
            target=target,
            group_name=group,
            progress=show,
        )
    options = {
        "methods": methods,
        **asdict(format),
        "folds": folds,
        "drop": list(drop),
        "group": group,
        "text": list(texts),
    }
    content = describe_comparison(
        comparison,
        title=f"Which method for {target}?",
        data={"file": shown_name(source), "rows": len(rows), "features": rows.X.shape[1]},
        settings={"folds": folds, "seed": seed, **{name: str(value) for name, value in chosen_settings.items()}},
        reproduce=[command_line("compare", source, target=target, **options, seed=seed, set=list(settings))],
    )
    return {"command": "compare", **comparison, **written(content, report)}

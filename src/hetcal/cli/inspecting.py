"""What `hetcal fit` and `hetcal compare` say about a table before they train."""

import warnings
from dataclasses import replace
from typing import Any

import typer

from hetcal._checks import printable
from hetcal.cli.columns import Observations
from hetcal.cli.options import CompareOptions, FitOptions
from hetcal.cli.reproduce import shown_name
from hetcal.cli.splits import SplitTable, TableRows
from hetcal.exceptions import InspectionWarning
from hetcal.metrics.wording import count
from hetcal.tabular.inspection import Finding, Inspection, inspect


def inspect_split(options: FitOptions, split: SplitTable, settings: dict[str, Any]) -> Inspection:
    """Inspect a table before it trains and tests one model."""
    later = options.time or options.test  # a table of its own may be a later one
    test_rows = None if split.test is None or options.test is not None else len(split.test)
    inspection = inspect_rows(options, split.rows, split.omitted, settings, later, test_rows)
    return tell(options, inspection, describe_split(split))


def inspect_folds(options: CompareOptions, table: TableRows, settings: dict[str, Any]) -> Inspection:
    """Inspect a table before a cross-validation, which has no --split: equal rows stay in one fold."""
    inspection = inspect_rows(options, table.observations, table.omitted, settings, options.time)
    findings = [
        replace(found, text=found.text.rpartition("; ")[0], flag=None) if found.flag == "--split random" else found
        for found in inspection.findings
    ]
    how = "each later than its training rows" if options.time else "each held out once"
    return tell(options, replace(inspection, findings=findings), f"{count(options.folds, 'fold')}, {how}")


def inspect_rows(
    options: FitOptions | CompareOptions,
    rows: Observations,
    omitted: int,
    settings: dict[str, Any],
    time: str | None,
    test_rows: int | None = None,
) -> Inspection:
    inspection = inspect(
        rows.X,
        rows.y,
        target=options.target,
        groups=rows.groups if rows.n_groups > 1 else None,
        time=time,
        target_transform=settings.get("target_transform"),
        test_rows=test_rows,
    )
    if not omitted:
        return inspection
    without_target = Finding("missing_target", f"{count(omitted, 'row')} without a target {was(omitted)} omitted")
    return replace(inspection, findings=[without_target, *inspection.findings])


def was(rows: int) -> str:
    return "was" if rows == 1 else "were"


def tell(options: FitOptions | CompareOptions, inspection: Inspection, how: str) -> Inspection:
    """Warn of what misleads, and print the rest, unless the answer is JSON or nothing at all."""
    for finding in inspection.findings:
        if finding.is_warning:
            warnings.warn(finding.text, InspectionWarning, stacklevel=2)
    if not options.quiet and not options.json:
        quieter = replace(inspection, findings=[found for found in inspection.findings if not found.is_warning])
        for line in f"{shown_name(options.table)}: {quieter}".splitlines():
            typer.echo(printable(line), err=True)
        typer.echo(printable(f"  {how}"), err=True)
    return inspection


def describe_split(split: SplitTable) -> str:
    if split.test is None:
        return f"{count(len(split.train), 'training row')}, no test rows"
    return f"{count(len(split.train), 'training row')}, {count(len(split.test), 'test row')}: {split.how}"

"""What `hetcal fit` says about a table before it trains."""

import warnings
from dataclasses import replace
from typing import Any

import typer

from hetcal._checks import printable
from hetcal.cli.options import FitOptions
from hetcal.cli.reproduce import shown_name
from hetcal.cli.splits import SplitTable
from hetcal.exceptions import InspectionWarning
from hetcal.metrics.wording import count
from hetcal.tabular.inspection import Finding, Inspection, inspect


def inspect_split(options: FitOptions, split: SplitTable, settings: dict[str, Any]) -> Inspection:
    """Inspect the table, warn of what misleads, and print the rest, unless the answer is JSON or nothing at all."""
    inspection = inspect(
        split.rows.X,
        split.rows.y,
        target=options.target,
        groups=split.rows.groups if split.rows.n_groups > 1 else None,
        time=options.time or options.test,  # a table of its own may be a later one
        target_transform=settings.get("target_transform"),
        test_rows=None if split.test is None or options.test is not None else len(split.test),
    )
    if split.omitted:
        omitted = Finding("missing_target", f"{count(split.omitted, 'row')} without a target were omitted")
        inspection = replace(inspection, findings=[omitted, *inspection.findings])
    for finding in inspection.findings:
        if finding.is_warning:
            warnings.warn(finding.text, InspectionWarning, stacklevel=2)
    if not options.quiet and not options.json:
        quieter = replace(inspection, findings=[found for found in inspection.findings if not found.is_warning])
        for line in f"{shown_name(options.table)}: {quieter}".splitlines():
            typer.echo(printable(line), err=True)
        typer.echo(printable(f"  {describe_split(split)}"), err=True)
    return inspection


def describe_split(split: SplitTable) -> str:
    if split.test is None:
        return f"{count(len(split.train), 'training row')}, no test rows"
    return f"{count(len(split.train), 'training row')}, {count(len(split.test), 'test row')}: {split.how}"

"""`hetcal bench`: run a study, and show it as tables, figures and a report.

Modules are imported when a command needs them: only `run` needs torch.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hetcal.cli.arguments import split_words
from hetcal.cli.options import (
    TABLE_FORMATS,
    BenchFiguresOptions,
    BenchReportOptions,
    BenchRunOptions,
    BenchTableOptions,
)

if TYPE_CHECKING:
    from hetcal._checks import Floats
    from hetcal.studies.protocol import OwnTable
    from hetcal.tabular.columns import Table


def run_study(options: BenchRunOptions) -> None:
    """Run the cells of a protocol; the exit code is 1 if some failed."""
    from hetcal.cli.backends import open_backend
    from hetcal.studies.protocol import read_protocol
    from hetcal.studies.run import run_protocol

    protocol = read_protocol(options.protocol)
    backend = open_backend(options) or "processes"
    # Results of the quick version are kept apart.
    folder = options.out or options.protocol.parent / ("quick/results" if options.quick else "results")
    results = run_protocol(
        protocol.made_quick() if options.quick else protocol,
        folder,
        studies=split_words(options.studies),
        only=split_words(options.only),
        methods=split_words(options.methods),
        seeds=parse_seeds(options.seeds),
        jobs=options.jobs,
        backend=backend,
        read=read_rows,
    )
    typer.echo(f"{len(results.done)} cells finished, {len(results.failed)} failed; now: hetcal bench table {folder}")
    if results.failed:
        raise typer.Exit(1)


def read_rows(path: Path, table: "OwnTable") -> "tuple[Table, Floats, Any]":
    """Features, target and groups of a table of the user's own, read as every command reads files."""
    from hetcal.cli.columns import check_features, split_columns
    from hetcal.cli.tables import read_file

    rows = check_features(split_columns(read_file(path), table.target, table.group))
    return rows.X, rows.y, rows.groups


def print_table(options: BenchTableOptions) -> None:
    """Print the table to standard output and the notes to standard error."""
    from hetcal._checks import check_choice
    from hetcal.studies import table
    from hetcal.studies.results import read_results

    check_choice("format", options.format, TABLE_FORMATS)
    for name in options.metric:
        check_choice("metric", name, table.CSV_FIGURES)
    results = read_results(options.folder)
    if options.format in ("csv", "cells"):
        text = table.render_csv(results) if options.format == "csv" else table.render_cells(results)
    else:
        tables = [one for name in options.metric or table.PAPER_FIGURES for one in table.tabulate(results, name)]
        render: Any = getattr(table, f"render_{options.format}")
        text = render(tables)
    typer.echo(text, nl=False)
    for note in table.study_notes(results):
        typer.echo(note, err=True)


def write_figures(options: BenchFiguresOptions) -> None:
    """Draw the figures and print their names."""
    from hetcal.studies.figures import draw_figures
    from hetcal.studies.results import read_results

    results = read_results(options.folder)
    target = options.out or options.folder
    target.mkdir(parents=True, exist_ok=True)
    for path in draw_figures(results, target):
        typer.echo(path)


def write_study_report(options: BenchReportOptions) -> None:
    """Write the page and print its name."""
    from hetcal._files import atomic_write
    from hetcal.report import describe_bench, render
    from hetcal.studies.results import read_results

    atomic_write(options.out, render(describe_bench(read_results(options.folder))))
    typer.echo(options.out)


def parse_seeds(text: str | None) -> list[int] | None:
    """Integers and ranges; None for an option that was not given.

    >>> parse_seeds("0,1,5-7")
    [0, 1, 5, 6, 7]
    """
    from hetcal._checks import must

    chosen: list[int] = []
    for word in split_words(text) or ():
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if not found:
            raise must("seeds", "be integers and ranges", text, "write 0,1,2 or 0-4")
        first, last = found.groups()
        chosen += range(int(first), int(last or first) + 1)
    return None if text is None else chosen

"""`hetcal bench`: arguments to one call, as in `hetcal.cli.app`."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from hetcal.cli.arguments import Force, check_ending, may_write, words

bench = typer.Typer(help="Run studies of data sets x methods x splits, and show them.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of results that `hetcal bench run` has written.")]
FORMATS = ("terminal", "markdown", "latex", "csv", "cells")


@bench.command("run")
def bench_run(
    protocol: Annotated[Path, typer.Argument(help="TOML file that describes the study.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results; finished cells in it are not run again. Default: beside the protocol."
        ),
    ] = None,
    studies: Annotated[str | None, typer.Option(help="Only these studies of the protocol: a,b")] = None,
    only: Annotated[str | None, typer.Option(help="Only these data sets: boston,crime")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these methods: hnn,dropout_hc")] = None,
    seeds: Annotated[str | None, typer.Option(help="Only these splits: 0,1,2 or 0-4")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side, one thread each.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="The protocol's first look, in minutes.")] = False,
) -> None:
    """Run a protocol, cell by cell. Stop it at any time: the same command goes on where it stopped."""
    from hetcal.studies.protocol import read_protocol
    from hetcal.studies.run import run_protocol

    chosen = read_protocol(protocol)
    folder = out or protocol.parent / ("quick/results" if quick else "results")  # a first look is kept apart
    results = run_protocol(
        chosen.made_quick() if quick else chosen,
        folder,
        studies=words(studies),
        only=words(only),
        methods=words(methods),
        seeds=numbers(seeds),
        jobs=jobs,
    )
    typer.echo(f"{len(results.done)} cells finished, {len(results.failed)} failed; now: hetcal bench table {folder}")
    if results.failed:
        raise typer.Exit(1)


@bench.command("table")
def bench_table(
    folder: Folder,
    output: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "terminal",
    metric: Annotated[list[str] | None, typer.Option(help="ce, rmse, crps, ...; may be given several times.")] = None,
) -> None:
    """Print the table: mean and standard error over the splits, noise floor, published values."""
    from hetcal._checks import check_choice
    from hetcal.studies import table
    from hetcal.studies.results import read_results

    check_choice("format", output, FORMATS)
    for name in metric or ():
        check_choice("metric", name, table.CSV_FIGURES)
    results = read_results(folder)
    if output in ("csv", "cells"):
        text = table.render_csv(results) if output == "csv" else table.render_cells(results)
    else:
        tables = [one for name in metric or table.PAPER_FIGURES for one in table.tabulate(results, name)]
        render: Any = getattr(table, f"render_{output}")
        text = render(tables)
    typer.echo(text, nl=False)
    for note in table.study_notes(results):
        typer.echo(note, err=True)


@bench.command("figures")
def bench_figures(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="Folder for the pictures; the folder of results by default.")] = None,
) -> None:
    """Draw the figures, as PNG and SVG."""
    from hetcal.studies.figures import draw_figures
    from hetcal.studies.results import read_results

    results = read_results(folder)
    target = out or folder
    target.mkdir(parents=True, exist_ok=True)
    for path in draw_figures(results, target):
        typer.echo(path)


@bench.command("report")
def bench_report(
    folder: Folder, out: Annotated[Path, typer.Option(metavar="FILE.html", help="Page to write.")], force: Force = False
) -> None:
    """Write the tables and calibration curves as one self-contained page."""
    check_ending("--out", out, ".html")
    may_write([out], [], force)
    from hetcal._files import atomic_write
    from hetcal.report import describe_bench, render
    from hetcal.studies.results import read_results

    atomic_write(out, render(describe_bench(read_results(folder))))
    typer.echo(out)


def numbers(text: str | None) -> list[int] | None:
    """Whole numbers and ranges: "0,1,5-7" is 0, 1, 5, 6, 7."""
    from hetcal._checks import must

    chosen: list[int] = []
    for word in words(text) or ():
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if not found:
            raise must("seeds", "be whole numbers and ranges", text, "write 0,1,2 or 0-4")
        first, last = found.groups()
        chosen += range(int(first), int(last or first) + 1)
    return None if text is None else chosen

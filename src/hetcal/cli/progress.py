"""Progress on standard error: on a terminal a bar with the remaining time, otherwise a line for every stage."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from tqdm.auto import tqdm


def is_watched(quiet: bool) -> bool:
    """Whether somebody at a terminal sees the progress."""
    return not quiet and sys.stderr.isatty()


def announce(quiet: bool, stage: str) -> None:
    """Print a stage on its own line where no bar is drawn."""
    if not quiet and not sys.stderr.isatty():
        typer.echo(f"hetcal: {stage}", err=True)


@contextmanager
def rows_bar(watched: bool) -> Iterator[Callable[..., None]]:
    """Return a function (done, total) that draws a bar of rows; a total of None is unknown."""
    with tqdm(unit="rows", leave=False, disable=not watched, unit_scale=True) as bar:

        def show(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


@contextmanager
def fits_bar(watched: bool) -> Iterator[Callable[..., None]]:
    """Return a function (done, total, label) that draws a bar of fits; a part of a fit counts as a fraction."""
    form = "{percentage:3.0f}%|{bar:10}| {elapsed} passed, {remaining} left, {desc}"  # a narrow terminal cuts the end
    # The remaining time follows from all the time that has passed, because fits differ.
    bar: Any = tqdm(leave=False, disable=not watched, bar_format=form, smoothing=0, miniters=0)

    def show(done: float, total: int, label: str) -> None:
        bar.total = total
        bar.set_description_str(f"fit {min(int(done) + 1, total)} of {total}, {label}", refresh=False)
        bar.update(done - bar.n)

    with bar:
        yield show

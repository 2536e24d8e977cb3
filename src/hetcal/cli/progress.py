"""Progress on the terminal, with the remaining time; nothing is drawn if standard error is not a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm


def is_watched(quiet: bool) -> bool:
    return not quiet and sys.stderr.isatty()


@contextmanager
def steps(watched: bool, unit: str) -> Iterator[Any]:
    """Return a function (done, total, label) that draws a progress bar; a total of None is unknown."""
    bar = tqdm(unit=unit, leave=False, disable=not watched, unit_scale=unit == "rows")

    def show(done: int, total: int | None = None, label: str = "") -> None:
        bar.total = total
        bar.set_description(label, refresh=False)
        bar.update(done - bar.n)

    with bar:
        yield show

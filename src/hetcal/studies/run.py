"""Running a protocol: cells side by side, each kept as soon as it is finished."""

import statistics
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from tqdm.auto import tqdm

from hetcal._checks import check_choice, must
from hetcal.studies.cells import check_settings, identity, model_of, run_cell, settings_of
from hetcal.studies.jobs import run_jobs
from hetcal.studies.protocol import Cell, Protocol
from hetcal.studies.results import CELLS, Results, open_folder, read_cells, write_result


def run(
    protocol: Protocol,
    folder: Path,
    *,
    studies: Collection[str] | None = None,
    only: Collection[str] | None = None,
    methods: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
    jobs: int = 1,
    say: Callable[[str], Any] = tqdm.write,
) -> Results:
    """Run the cells of a protocol that are not finished yet, and return all results of the folder.

    Args:
        protocol: What to run.
        folder: Where results are kept; finished cells in it are not run again, failed and damaged ones are.
        studies, only, methods, seeds: Run these studies, data sets, methods and seeds alone.
        jobs: Processes side by side, with one thread each.
        say: Where remarks go while the progress bar is up.
    """
    check_settings(protocol)
    cells = select(protocol, studies=studies, only=only, methods=methods, seeds=seeds)
    results = open_folder(folder, protocol)
    for cell in cells:
        if cell in results.done and results.done[cell]["settings"] != settings_of(model_of(protocol, cell)):
            say(f"made with other defaults of hetcal, done again: {cell} seed {cell.seed}")
            del results.done[cell]
    todo = [cell for cell in cells if cell not in results.done]
    again = {folder / CELLS / cell.path for cell in todo}
    for path in results.damaged:
        say(f"damaged, {'done again' if path in again else 'left out'}: {path}")
    seconds = {cell: result["metrics"]["seconds"] for cell, result in results.done.items()}

    with tqdm(total=len(cells), initial=len(cells) - len(todo), unit="cell", bar_format=BAR) as bar:
        bar.set_postfix_str(time_left(todo, seconds, jobs))
        for outcome in run_jobs(partial(run_and_keep, protocol, folder), todo, jobs, PRELOAD):
            cell = outcome.job
            if outcome.error is None:
                seconds[cell] = outcome.result
            else:
                write_result(folder, cell, {**identity(protocol, cell), "error": outcome.error})
                say(f"failed: {cell} seed {cell.seed}: {outcome.error.strip().splitlines()[-1]}")
            todo.remove(cell)
            bar.set_description(str(cell), refresh=False)
            bar.set_postfix_str(time_left(todo, seconds, jobs), refresh=False)
            bar.update()
    return read_cells(folder, protocol)


# Slow imports that every cell needs, some of which torch and the data sets put off until they are used.
PRELOAD = (__name__, "pandas", "torch._dynamo")
BAR = "{n_fmt} of {total_fmt} cells |{bar:24}| {elapsed}{postfix}, last {desc}"


def run_and_keep(protocol: Protocol, folder: Path, cell: Cell) -> float:
    """In the process of the cell: run it, write its file, and tell how long it took."""
    start = perf_counter()
    write_result(folder, cell, run_cell(protocol, cell))
    return perf_counter() - start


def select(
    protocol: Protocol,
    *,
    studies: Collection[str] | None,
    only: Collection[str] | None,
    methods: Collection[str] | None,
    seeds: Collection[int] | None,
) -> list[Cell]:
    """The cells of these studies, data sets, methods and seeds; a name that occurs nowhere is an error."""
    cells = protocol.cells()
    wanted = {"study": studies, "dataset": only, "method": methods, "seed": seeds}
    for name, chosen in wanted.items():
        known = {getattr(cell, name) for cell in cells}
        for value in chosen or ():
            check_choice(name, value, known) if isinstance(value, str) else check_seed(value, known)
        if chosen is not None:
            cells = [cell for cell in cells if getattr(cell, name) in chosen]
        if not cells:
            asked = {key: value for key, value in wanted.items() if value is not None}
            raise must("selection", "leave at least one cell", asked, "choose more")
    return cells


def check_seed(seed: int, known: set[int]) -> None:
    if seed not in known:
        raise must("seeds", f"be within 0 to {max(known)}, as the protocol has them", seed, "raise its seeds")


def time_left(todo: list[Cell], seconds: dict[Cell, float], jobs: int) -> str:
    """From what finished cells of the same method and data set took, or failing that, the most alike."""
    if not todo:
        return "done"
    if not seconds:
        return "time left unknown yet"
    keys: list[Callable[[Cell], Any]] = [lambda c: (c.dataset, c.method), lambda c: c.dataset, lambda c: None]
    total = 0.0
    for cell in todo:
        alike = ([s for other, s in seconds.items() if key(other) == key(cell)] for key in keys)
        total += statistics.fmean(next(filter(None, alike)))
    minutes = total / min(jobs, len(todo)) / 60
    return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"

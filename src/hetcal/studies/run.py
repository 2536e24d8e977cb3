"""Run a protocol: cells in parallel, each saved as soon as it is finished."""

import statistics
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from hetcal._checks import check_choice, must, underscored
from hetcal.studies.cells import (
    Load,
    check_protocol,
    identify,
    load_described,
    load_part,
    make_model,
    model_settings,
    run_cell,
)
from hetcal.studies.jobs import BACKENDS, count_slots, run_jobs
from hetcal.studies.own_tables import ReadRows, describe_table, locate_tables
from hetcal.studies.peers import PEERS
from hetcal.studies.protocol import Cell, Protocol, split_method
from hetcal.studies.results import CELLS, Result, Results, open_folder, read_cells, write_result

BAR = "{n_fmt} of {total_fmt} cells |{bar:24}| {elapsed}{postfix}, last {desc}"


def run_protocol(
    protocol: Protocol,
    folder: Path,
    *,
    studies: Collection[str] | None = None,
    only: Collection[str] | None = None,
    methods: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
    jobs: int | None = None,
    backend: str = "processes",
    read: ReadRows | None = None,
    say: Callable[[str], Any] = tqdm.write,
) -> Results:
    """Run the cells of a protocol that are not finished yet, and return all results of the folder.

    Args:
        protocol: What to run.
        folder: Where results are kept; finished cells in it are not run again, failed and damaged ones are.
        studies, only, methods, seeds: Run only these studies, data sets, methods and seeds.
        jobs: Number of cells at once, with one thread each; by default one, on Ray as many as the cluster has CPUs.
        backend: Where cells run: "serial", "processes" or "ray", see `run_jobs`. This process writes the results and,
            for Ray, reads the data, once, so that the machines of a cluster need neither folder.
        read: Reader of the files of the user's own tables, a function at the top level of a module.
        say: Function that prints messages while the progress bar is shown.
    """
    check_protocol(protocol)
    check_choice("backend", backend, BACKENDS)
    cells = select_cells(protocol, studies=studies, only=only, methods=methods, seeds=seeds)
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    protocol = locate_tables(protocol, datasets)
    tables = {name: describe_table(protocol, name) for name in datasets}
    for name in filter(tables.get, datasets):
        load_part(name, protocol, read)  # a wrong column is reported now, not by every cell
    results = open_folder(folder, protocol)
    todo = list_unfinished(results, protocol, cells, tables, say)
    seconds = {cell: result["metrics"]["seconds"] for cell, result in results.done.items()}
    load: Load = partial(load_described, protocol, read)
    if backend == "ray" and todo:
        from hetcal.ray.jobs import share

        load = share(load, dict.fromkeys(cell.dataset for cell in todo))

    with tqdm(total=len(cells), initial=len(cells) - len(todo), unit="cell", bar_format=BAR) as bar:
        bar.set_postfix_str(time_left(todo, seconds, count_slots(backend, jobs)))
        for outcome in run_jobs(partial(run_cell, protocol, load=load), list(todo), jobs, backend):
            cell = outcome.job
            if outcome.error is None:
                seconds[cell] = outcome.result["metrics"]["seconds"]
                # A process that runs several cells has the peak of them all.
                memory = {} if backend == "processes" else {"peak_memory_mb": None}
                write_result(folder, cell, {**outcome.result, **memory})
            else:
                write_result(folder, cell, {**identify(protocol, cell), "error": outcome.error})
                say(f"failed: {cell} seed {cell.seed}: {outcome.error.strip().splitlines()[-1]}")
            todo.remove(cell)
            bar.set_description(str(cell), refresh=False)
            bar.set_postfix_str(time_left(todo, seconds, count_slots(backend, jobs)), refresh=False)
            bar.update()
    return read_cells(folder, protocol)


def list_unfinished(
    results: Results, protocol: Protocol, cells: list[Cell], tables: dict[str, Any], say: Callable[[str], Any]
) -> list[Cell]:
    """The cells that are still to be run; what is run again is reported, and removed from the finished ones."""
    for cell in cells:
        reason = changed_since(results.done[cell], protocol, cell, tables) if cell in results.done else ""
        if reason:
            say(f"{reason}, run again: {cell} seed {cell.seed}")
            del results.done[cell]
    todo = [cell for cell in cells if cell not in results.done]
    for name in {split_method(cell.method)[0] for cell in todo} & PEERS.keys():
        PEERS[name].import_packages()
    again = {results.folder / CELLS / cell.path for cell in todo}
    for path in results.damaged:
        say(f"damaged, {'run again' if path in again else 'not selected'}: {path}")
    return todo


def changed_since(result: Result, protocol: Protocol, cell: Cell, tables: dict[str, Any]) -> str:
    """What the result of a finished cell no longer corresponds to; empty if it is still valid."""
    if result["settings"] != model_settings(make_model(protocol, cell)):
        return "other defaults of hetcal"
    if result.get("table") != tables[cell.dataset]:
        return "other file or columns"
    return ""


def select_cells(
    protocol: Protocol,
    *,
    studies: Collection[str] | None,
    only: Collection[str] | None,
    methods: Collection[str] | None,
    seeds: Collection[int] | None,
) -> list[Cell]:
    """Select the cells of these studies, data sets, methods and seeds; a name that the protocol lacks is an error."""
    cells = protocol.cells()
    methods = None if methods is None else [underscored(method) for method in methods]
    wanted = {"study": studies, "dataset": only, "method": methods, "seed": seeds}
    for name, chosen in wanted.items():
        known = {getattr(cell, name) for cell in cells}
        for value in chosen or ():
            if isinstance(value, str):
                check_choice(name, value, known)
            elif value not in known:
                rule = f"be within 0 to {max(known)}, the seeds of the protocol"
                raise must("seeds", rule, value, "raise its seeds")
        if chosen is not None:
            cells = [cell for cell in cells if getattr(cell, name) in chosen]
        if not cells:
            asked = {key: value for key, value in wanted.items() if value is not None}
            raise must("selection", "leave at least one cell", asked, "choose more")
    return cells


def time_left(todo: list[Cell], seconds: dict[Cell, float], jobs: int) -> str:
    """Estimate it from finished cells of the same data set and method, or of the same data set, or from all."""
    if not todo:
        return "done"
    if not seconds:
        return "time left not yet known"
    keys: list[Callable[[Cell], Any]] = [lambda c: (c.dataset, c.method), lambda c: c.dataset, lambda c: None]
    total = 0.0
    for cell in todo:
        alike = ([s for other, s in seconds.items() if key(other) == key(cell)] for key in keys)
        total += statistics.fmean(next(filter(None, alike)))
    minutes = total / min(jobs, len(todo)) / 60
    return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"

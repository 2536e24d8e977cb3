"""Jobs in this process, in processes of this machine, or on a Ray cluster, through one function.

A process per job costs a fork and provides isolation: a job that crashes or runs out of memory does not affect the
others, and the crash is reported to the caller. The jobs are forked from a server that has already imported what they
need, so that torch is imported only once. `hetcal.ray.jobs` is the twin for a cluster.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from hetcal._checks import check_choice, check_number

Job = TypeVar("Job")
BACKENDS = ("serial", "processes", "ray")
# Slow imports that every fit needs; torch and the data sets defer some of them until they are used.
PRELOAD = ("hetcal.studies.cells", "pandas", "torch._dynamo")


@dataclass(frozen=True)
class Outcome(Generic[Job]):
    """The end of a job: its result, or the error that ended it."""

    job: Job
    result: Any = None
    error: str | None = None


def run_jobs(
    function: Callable[[Job], Any],
    jobs: Iterable[Job],
    processes: int | None = None,
    backend: str = "processes",
    preload: Sequence[str] = PRELOAD,
) -> Iterator[Outcome[Job]]:
    """Yield the outcome of `function(job)` for every job as it finishes.

    Args:
        function: Defined at the top level of a module, because another process imports it by name.
        jobs: What it is called with.
        processes: Largest number of jobs that run at once: one by default, on Ray as many as the cluster has CPUs.
        backend: "serial" (in this process, one after the other), "processes" (of this machine) or "ray" (a cluster; see
            `hetcal.ray.connect`). Running jobs of the last two end when the caller stops iterating or presses Ctrl-C.
        preload: Modules that every job in a process of this machine needs.
    """
    check_choice("backend", backend, BACKENDS)
    if processes is not None:
        check_number("processes", processes, 1, integer=True)
    if backend == "ray":
        from hetcal.ray.jobs import run_tasks

        return (Outcome(*ended) for ended in run_tasks(partial(attempt, function), jobs, processes))
    return run_here(function, jobs) if backend == "serial" else run_processes(function, jobs, processes or 1, preload)


def check_backend(backend: str | None, jobs: int | None) -> str:
    """The backend, or that which the number of jobs needs."""
    if jobs is not None:
        check_number("jobs", jobs, 1, integer=True)
    return check_choice("backend", backend or ("serial" if jobs in (None, 1) else "processes"), BACKENDS)


def count_slots(backend: str, processes: int | None) -> int:
    """How many jobs can run at once."""
    if backend != "ray":
        return processes or 1
    from hetcal.ray.cluster import count_cpus

    return max(1, min(count_cpus(), processes or sys.maxsize))


def run_here(function: Callable[[Job], Any], jobs: Iterable[Job]) -> Iterator[Outcome[Job]]:
    """Run one job after the other in this process, so that a caller's script needs no main guard."""
    for job in jobs:
        yield Outcome(job, *attempt(function, job))


def attempt(function: Callable[[Any], Any], job: Any) -> tuple[Any, str | None]:
    """The result of a job, or the traceback of its error."""
    try:
        return function(job), None
    except Exception as error:
        return None, "".join(traceback.format_exception(error))


def run_processes(
    function: Callable[[Job], Any], jobs: Iterable[Job], processes: int, preload: Sequence[str]
) -> Iterator[Outcome[Job]]:
    """Run each job in a process of its own."""
    method = "forkserver" if sys.platform != "win32" else "spawn"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        start_server(context, preload)
    waiting = deque(jobs)
    running: dict[Any, tuple[Any, Job]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                job = waiting.popleft()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(function, job, sender), daemon=True)
                process.start()
                sender.close()
                running[receiver] = process, job
            for receiver in wait(list(running)):
                process, job = running.pop(receiver)
                yield _outcome(process, receiver, job)
    finally:
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.join()


def start_server(context: Any, preload: Sequence[str]) -> None:
    """Start the server that jobs are forked from; it starts once per process, so only the first `preload` counts.

    Ctrl-C is blocked in the server and in its jobs; during the imports it would print a traceback.
    """
    from multiprocessing import forkserver, resource_tracker

    context.set_forkserver_preload(list(preload))
    resource_tracker.ensure_running()  # now, because starting it unblocks Ctrl-C
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _work(function: Callable[[Any], Any], job: Any, sender: Connection) -> None:
    # Ctrl-C reaches every process of the terminal; only the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = multiprocessing.parent_process()
    if not parent.is_alive():  # it was stopped while the server was still importing
        return
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # tqdm shares a lock between processes; a terminated process would leave it behind, with a warning.
    tqdm.set_lock(threading.RLock())
    try:
        sender.send((function(job), None))
    except Exception as error:
        sender.send((None, "".join(traceback.format_exception(error))))


def _end_with(parent: Any) -> None:
    """Exit as soon as the parent has ended, because the result of the job is no longer needed."""
    parent.join()
    os._exit(1)


def _outcome(process: Any, receiver: Any, job: Any) -> Outcome[Any]:
    try:
        result, error = receiver.recv()
    except (EOFError, OSError):  # it ended without a message, or in the middle of one
        process.join()
        result, error = None, f"the process ended with exit code {process.exitcode}; it may have run out of memory"
    receiver.close()
    process.join()
    return Outcome(job, result, error)

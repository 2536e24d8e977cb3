"""Jobs in parallel on this machine, each in its own process.

A process per job costs a fork and provides isolation: a job that crashes or runs out of memory does not affect the
others, and the crash is reported to the caller. The jobs are forked from a server that has already imported what they
need, so that torch is imported only once.
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
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from hetcal._checks import check_number

Job = TypeVar("Job")
# Slow imports that every fit needs; torch and the data sets defer some of them until they are used.
PRELOAD = ("hetcal.studies.cells", "pandas", "torch._dynamo")


@dataclass(frozen=True)
class Outcome(Generic[Job]):
    """The end of a job: its result, or the error that ended it."""

    job: Job
    result: Any = None
    error: str | None = None


def run_jobs(
    function: Callable[[Job], Any], jobs: Iterable[Job], processes: int = 1, preload: Sequence[str] = PRELOAD
) -> Iterator[Outcome[Job]]:
    """Yield the outcome of `function(job)` for every job as it finishes; at most `processes` jobs run at once.

    `function` must be defined at the top level of a module, because the new process imports it by name. `preload` are
    modules that every job needs. Running jobs are terminated when the caller stops iterating or presses Ctrl-C.
    """
    check_number("processes", processes, 1, integer=True)
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

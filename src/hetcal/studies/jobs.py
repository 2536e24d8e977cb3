"""Jobs side by side on this machine, each in a process of its own.

A process per job costs a fork and buys isolation: a job that runs out of memory or crashes takes nothing with it, and
whoever asked hears of it. The jobs are forked from a server that has imported their module already, so that nobody
waits for torch twice.
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


@dataclass(frozen=True)
class Outcome(Generic[Job]):
    """What became of a job: its result, or the error that ended it."""

    job: Job
    result: Any = None
    error: str | None = None


def run_jobs(
    function: Callable[[Job], Any], jobs: Iterable[Job], processes: int = 1, preload: Sequence[str] = ()
) -> Iterator[Outcome[Job]]:
    """Yield the outcome of `function(job)` for every job, as they finish, never more than `processes` at once.

    `function` is a function of a module (it is found by its name in the new process), and `preload` are modules that
    every job needs. When the caller stops iterating or Ctrl-C is pressed, the jobs under way are ended.
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
    """Start the server that jobs are forked from (once per process: the first `preload` counts).

    It starts with Ctrl-C blocked, and hands that down to its jobs: while it imports, it would answer with a traceback.
    """
    from multiprocessing import forkserver, resource_tracker

    context.set_forkserver_preload(list(preload))
    resource_tracker.ensure_running()  # now, because it unblocks Ctrl-C at its end
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _work(function: Callable[[Any], Any], job: Any, sender: Connection) -> None:
    # Ctrl-C reaches every process of the terminal; ending this one is for the parent to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = multiprocessing.parent_process()
    if not parent.is_alive():  # stopped while the server was still importing
        return
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # The lock that tqdm shares between processes is left behind by one that is ended, with a warning.
    tqdm.set_lock(threading.RLock())
    try:
        sender.send((function(job), None))
    except Exception as error:
        sender.send((None, "".join(traceback.format_exception(error))))


def _end_with(parent: Any) -> None:
    """Whatever ends the parent, nobody is left to hear of the job."""
    parent.join()
    os._exit(1)


def _outcome(process: Any, receiver: Any, job: Any) -> Outcome[Any]:
    try:
        result, error = receiver.recv()
    except (EOFError, OSError):  # it ended without a word, or within one
        process.join()
        result, error = None, f"the process ended with exit code {process.exitcode}; it may have run out of memory"
    receiver.close()
    process.join()
    return Outcome(job, result, error)

"""Jobs on a Ray cluster: the twin of processes in `hetcal.studies.jobs`."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import ray
from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RayError, WorkerCrashedError

from hetcal.ray.cluster import connect

# Ray's own retries have no limit for a job that needs more memory than there is.
TRIES = 3
ADVICE = "it may have run out of memory"
LOST = (WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError)
Attempt = tuple[Any, str | None]  # the result of a job, or the error that ended it


def run_tasks(
    function: Callable[[Any], Attempt], jobs: Iterable[Any], most: int | None = None
) -> Iterator[tuple[Any, Any, str | None]]:
    """Yield every job with `function(job)` as it finishes, each on one CPU of the cluster.

    `function` and the data that it holds are put into the cluster once. A job whose worker was lost is run again. At
    most `most` jobs run at once, by default as many as the cluster has CPUs.
    """
    connect()
    shared, task = ray.put(function), ray.remote(num_cpus=1, max_retries=0)(call)
    waiting = deque((job, 1) for job in jobs)
    running: dict[Any, tuple[Any, int]] = {}
    try:
        while waiting or running:
            while waiting and (most is None or len(running) < most):
                job, attempt = waiting.popleft()
                running[task.remote(shared, job)] = job, attempt
            (ended,), _ = ray.wait(list(running), num_returns=1)
            job, attempt = running.pop(ended)
            try:
                result, error = ray.get(ended)
            except LOST as lost:
                if attempt < TRIES:
                    waiting.append((job, attempt + 1))
                    continue
                result, error = None, f"the worker was lost {TRIES} times ({type(lost).__name__}); {ADVICE}"
            except RayError as other:  # hetcal or a library is missing there, or the result cannot be sent
                result, error = None, str(other)
            yield job, result, error
    finally:
        for ref in running:
            ray.cancel(ref, force=True)


def call(function: Callable[[Any], Attempt], job: Any) -> Attempt:
    """On a worker: the function has been fetched from the object store of this machine."""
    return function(job)


def share(load: Callable[[str], Any], names: Iterable[str]) -> Callable[[str], Any]:
    """Load each of these here and put it into the cluster, once; return the function by which a job gets one.

    What cannot be loaded is an error of the jobs that need it, as it is without a cluster.
    """
    connect()
    return partial(fetch_shared, {name: ray.put(load_or_error(load, name)) for name in names})


def load_or_error(load: Callable[[str], Any], name: str) -> Any:
    try:
        return load(name)
    except Exception as error:
        return error


def fetch_shared(refs: dict[str, Any], name: str) -> Any:
    found = ray.get(refs[name])
    if isinstance(found, Exception):
        raise found
    return found

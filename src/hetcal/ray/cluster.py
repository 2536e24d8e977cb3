"""The connection of this process to a Ray cluster. A failure is reported within bounded time, in one sentence."""

import importlib.metadata
import logging
import os
import socket
import threading
from typing import Any

import ray

from hetcal._checks import must

TIMEOUT_SECONDS = 60  # of the connection; Ray itself would try for minutes
PROBE_SECONDS = 10
# The head forks a server for every client, and the fork sometimes dies at once (ray-project/ray, issue 63202).
LOST_CLIENT_SERVER, CLIENT_ATTEMPTS = "Starting Ray client server failed", 4
CLIENT = "ray://"
HOW_TO_START = "start one with `ray start --head`, or omit the address to use this machine alone"


def connect(address: str | None = None) -> None:
    """Connect this process to a Ray cluster, unless it is connected already, for example by your own `ray.init`.

    Args:
        address: "auto" (the cluster that runs on this machine), "host:6379", or "ray://host:10001" (Ray Client, from a
            machine outside of the cluster). None is the variable RAY_ADDRESS, or else a cluster of this machine alone,
            which ends with this process.

    Raises:
        ConnectionError: There is no cluster at the address, or it does not answer.
        RuntimeError: The cluster has another version of Ray, Python or hetcal, or no hetcal.
    """
    if ray.is_initialized():
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":  # in this thread: a cluster ends with the thread that started it
        ray.init(address, include_dashboard=False, **quiet)
        return
    if address != "auto":
        probe(address)
    for _ in range(CLIENT_ATTEMPTS):
        failure = call_within(TIMEOUT_SECONDS, lambda: ray.init(address, **quiet))
        if LOST_CLIENT_SERVER not in str(failure):
            break
    if failure is not None:
        raise explain_failure(address, failure) from failure
    check_hetcal(address)


def count_cpus() -> int:
    """The CPUs of all machines of the cluster, at this moment."""
    return int(ray.cluster_resources().get("CPU", 0))


def probe(address: str) -> None:
    """Check that something listens at the address; Ray itself would try for minutes."""
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not (host and port.isdecimal()):
        raise must("address", "be auto, host:port or ray://host:port", address, "write for example auto")
    try:
        socket.create_connection((host, int(port)), timeout=PROBE_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise no_cluster(address, str(error)) from None


def call_within(seconds: float, function: Any) -> BaseException | None:
    """Call a function that may hang, in a thread; return its error, or TimeoutError."""
    failures: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return TimeoutError(f"no answer within {seconds:g} seconds")
    return failures[0] if failures else None


def explain_failure(address: str, failure: BaseException) -> Exception:
    """The error of `ray.init` as one that says what to do."""
    text = " ".join(str(failure).split())
    if "mismatch" in text.lower() or "versions" in text.lower():
        rule = "name a cluster with the versions of Ray and Python that this process has"
        return must("address", rule, address, f"{text}; install the same on both", RuntimeError)
    if isinstance(failure, ImportError) or "ray[client]" in text:
        return ImportError(f"{CLIENT} addresses need Ray Client; install it with: pip install 'hetcal[ray]'")
    return no_cluster(address, text or type(failure).__name__)


def no_cluster(address: str, reason: str) -> Exception:
    return must("address", "name a running Ray cluster", address, f"{reason}; {HOW_TO_START}", ConnectionError)


def check_hetcal(address: str) -> None:
    """Check that the workers have this version of hetcal, which they import by name."""
    here = importlib.metadata.version("hetcal")
    # A function of the standard library: a worker can call it without hetcal.
    asked = ray.remote(importlib.metadata.version).options(num_cpus=0).remote("hetcal")
    try:
        there = ray.get(asked, timeout=TIMEOUT_SECONDS)
    except ray.exceptions.GetTimeoutError:
        ray.shutdown()
        raise no_cluster(address, "it started no worker") from None
    except ray.exceptions.RayTaskError:
        there = None
    if there != here:
        ray.shutdown()
        rule, advice = f"name a cluster whose workers have hetcal {here}", "install it on every machine of the cluster"
        raise must("address", rule, address, f"they have {there or 'none'}; {advice}", RuntimeError)

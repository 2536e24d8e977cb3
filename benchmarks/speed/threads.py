"""What threads gain that share one model: rows predicted per second by several threads, relative to one.

    python benchmarks/speed/threads.py --threads 2

The threads predict the same table again and again. One thread and several take turns in short rounds, so that a change
in the load of the machine affects both; the ratio is within a round, and the median over the rounds counts. Torch uses
one thread for each operation; otherwise a single call would already occupy all cores. The first row, a large matrix
product, is what the cores of the machine allow in this run.
"""

import argparse
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from time import perf_counter

import numpy as np
import torch

from hetcal import make

METHODS = ("cross_hc", "hnn", "dropout_hc", "concrete_hc", "bayes_hc", "ensemble_hc")
GEMM = 1024
SIZES = (1, 1_000)  # rows per call
TRAINING_ROWS, COLUMNS, STEPS = 1_000, 10, 20
ROUNDS, SECONDS = 5, 0.5  # of each round and number of threads


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, COLUMNS))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)


def calls_per_second(job: Callable[[], object], threads: int, calls: int) -> float:
    """Each thread makes this many calls; all start together."""
    barrier = Barrier(threads + 1)

    def work() -> None:
        barrier.wait()
        for _ in range(calls):
            job()

    with ThreadPoolExecutor(threads) as pool:
        done = [pool.submit(work) for _ in range(threads)]
        barrier.wait()
        start = perf_counter()
        for future in done:
            future.result()
        return threads * calls / (perf_counter() - start)


def measure(job: Callable[[], object], threads: int) -> str:
    measured = partial(calls_per_second, job)
    calls = max(1, round(SECONDS * measured(1, 1)))
    pairs = [(measured(1, calls), measured(threads, calls)) for _ in range(ROUNDS)]
    ratios = sorted(several / one for one, several in pairs)
    one = statistics.median(one for one, _ in pairs)
    return f"{1e3 / one:.2f} ms | {statistics.median(ratios):.2f} x | {ratios[0]:.2f} to {ratios[-1]:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    torch.set_num_threads(1)
    print("| method | rows per call | time of a call, one thread | rate of", threads, "threads | in the rounds |")
    print("|---|---|---|---|---|")
    a = torch.ones(GEMM, GEMM)
    print(f"| matrix product, {GEMM} |  | {measure(lambda: a @ a, threads)} |", flush=True)
    X, y = table(TRAINING_ROWS)
    for method in METHODS:
        model = make(method, max_steps=STEPS, random_state=0).fit(X, y)
        for rows in SIZES:
            job = partial(model.predict, table(rows)[0], return_std=True)
            print(f"| {method} | {rows:,} | {measure(job, threads)} |", flush=True)


if __name__ == "__main__":
    main()

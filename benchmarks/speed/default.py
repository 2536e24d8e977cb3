"""What a fit of the default costs: seconds against rows and columns, and the share of the machine's peak that it uses.

    python benchmarks/speed/default.py --threads 1 2
    python benchmarks/speed/default.py --whole 500 1000 10000
    python benchmarks/speed/default.py --beside 1000 10000    # needs the extra peers, and lightning-uq-box as in run.py

A whole fit takes minutes for the largest tables. Therefore each table is fitted with a few steps, whose median is the
time of a step. The rest is what a fit costs beside its steps: reading, looks at held-out rows, linear models, trees,
calibration. "whole fit" is that rest plus the planned number of steps; early stopping often takes fewer. `--whole` fits
tables of so many rows to the end instead, `--beside` does so beside RealMLP with its defaults and a deep ensemble of
lightning-uq-box with as many members of the same width and depth, which takes as many steps.
"""

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch
from peers import PeerMissingError, lightning_uq_box_ensemble_fit

from hetcal import HCRegressor
from hetcal.networks import MLP
from hetcal.studies.peers import PEERS
from hetcal.training.parts import SHARED_FRACTION, number_of_parts
from hetcal.training.settings import CrossFitSettings

CASES = [(500, 10), (1_000, 10), (10_000, 10), (100_000, 10), (500_000, 10), (1_000, 100), (1_000, 1_000)]
STEPS = 100
PREDICTED_ROWS = 100_000
GEMM = 1024
SETTINGS: dict[str, int] = {}  # of the models that are fitted to the end


def table(n: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a smooth function of a few columns with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, columns))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)


def timed_fit(X: np.ndarray, y: np.ndarray) -> tuple[float, float, HCRegressor]:
    """Seconds of a step (the median: looks at held-out rows come between some), of everything else, and the model."""
    times = [perf_counter()]
    model = HCRegressor(max_steps=STEPS, random_state=0, progress=lambda done, planned: times.append(perf_counter()))
    model.fit(X, y)
    step = float(np.median(np.diff(times[1:])))
    return step, perf_counter() - times[0] - STEPS * step, model


def peak(threads: int) -> float:
    """Operations per second of a large matrix product, in units of 1e9."""
    a = torch.randn(GEMM, GEMM)
    times = []
    for _ in range(5):
        start = perf_counter()
        a @ a
        times.append(perf_counter() - start)
    return 2 * GEMM**3 / min(times) / 1e9


def operations(model: HCRegressor, batch: int) -> float:
    """Of the matrix products of one training step: forward, and twice that backward."""
    networks = model.estimator_.networks
    weights = sum(weight[0].numel() for weight in [*networks.weights, networks.output, networks.embedding])
    return 3 * 2 * weights * batch * networks.members / 1e9


def measure(n: int, columns: int, threads: int, highest: float) -> tuple[str, float]:
    X, y = table(n, columns)
    step, rest, model = timed_fit(X, y)
    n_train = int(n * (1 - (1 + SHARED_FRACTION) / number_of_parts(n, None)))
    settings = CrossFitSettings()
    planned, batch = settings.steps_for(n_train), settings.batch_for(n_train)
    whole = rest + planned * step
    share = operations(model, batch) / step / highest
    start = perf_counter()
    model.predict(table(PREDICTED_ROWS, columns)[0])
    predicted = perf_counter() - start
    cells = [f"{n:,}", f"{columns:,}", threads, f"{1e3 * step:.1f} ms", planned, f"{rest:.1f} s", f"{whole:.0f} s"]
    return f"| {' | '.join(map(str, cells))} | {share:.0%} | {predicted:.1f} s |", whole


def fit_to_the_end(sizes: list[int]) -> None:
    """Seconds of real fits and predictions, with as many steps as training takes."""
    print(f"| rows | steps | whole fit | predict {PREDICTED_ROWS:,} rows |\n|---|---|---|---|")
    for n in sizes:
        X, y = table(n, CASES[0][1])
        steps: list[int] = []
        model = HCRegressor(random_state=0, progress=lambda done, planned, steps=steps: steps.append(done), **SETTINGS)
        start = perf_counter()
        model.fit(X, y)
        fitted = perf_counter()
        model.predict(table(PREDICTED_ROWS, CASES[0][1])[0])
        print(f"| {n:,} | {steps[-1]:,} | {fitted - start:.1f} s | {perf_counter() - fitted:.1f} s |", flush=True)


def fit_beside_others(sizes: list[int]) -> None:
    """Seconds of whole fits of the default, of RealMLP and of a deep ensemble of lightning-uq-box."""
    print("| rows | `HCRegressor()` | steps | RealMLP | deep ensemble of lightning-uq-box |\n|---|---|---|---|---|")
    for n in sizes:
        X, y = table(n, CASES[0][1])
        steps: list[int] = []
        ours = HCRegressor(random_state=0, progress=lambda done, planned, steps=steps: steps.append(done), **SETTINGS)
        cells = [f"{seconds_of(lambda X=X, y=y, ours=ours: ours.fit(X, y)):.1f} s", f"{steps[-1]:,}"]
        for job in (realmlp_job(X, y), ensemble_job(X, y, ours, steps[-1])):
            try:
                cells.append(f"{seconds_of(job):.1f} s")
            except (PeerMissingError, ImportError) as error:
                cells.append(str(error))
        print(f"| {n:,} | {' | '.join(cells)} |", flush=True)


def realmlp_job(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    return lambda: PEERS["realmlp"](random_state=0).fit(X, y)


def ensemble_job(X: np.ndarray, y: np.ndarray, ours: HCRegressor, steps: int) -> Callable[[], Any]:
    """A deep ensemble of lightning-uq-box that is trained as long as ours."""
    networks, settings = ours.estimator_.networks, CrossFitSettings()
    members = [MLP(X.shape[1], 2, width=networks.width, depth=len(networks.weights)) for _ in range(networks.members)]
    x, target = (torch.from_numpy((values - values.mean(0)) / values.std(0)).float() for values in (X, y))
    batch = settings.batch_for(int(len(y) * (1 - 1 / number_of_parts(len(y), None))))
    rate = settings.learning_rate
    return lambda: lightning_uq_box_ensemble_fit(
        members, x, target, steps=steps, batch_size=batch, learning_rate=rate
    )()


def seconds_of(job: Callable[[], Any]) -> float:
    start = perf_counter()
    job()
    return perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="numbers of torch threads")
    parser.add_argument("--whole", type=int, nargs="+", help="rows of tables that are fitted to the end")
    parser.add_argument("--beside", type=int, nargs="+", help="rows of tables that other libraries fit, too")
    options = parser.parse_args()
    if options.whole or options.beside:
        torch.set_num_threads(options.threads[0])
        timed_fit(*table(500, 10))  # imports and first calls
        if options.whole:
            fit_to_the_end(options.whole)
        if options.beside:
            fit_beside_others(options.beside)
        return
    for threads in options.threads:
        torch.set_num_threads(threads)
        highest = peak(threads)
        timed_fit(*table(500, 10))  # imports and first calls
        print(f"{threads} thread(s): matrix products reach {highest:.0f} GF/s\n")
        headings = ["rows", "columns", "threads", "a step", "steps", "rest", "whole fit", "share of peak"]
        print(f"| {' | '.join([*headings, f'predict {PREDICTED_ROWS:,} rows'])} |")
        print("|---|---|---|---|---|---|---|---|---|")
        totals = {}
        for n, columns in CASES:
            line, totals[n, columns] = measure(n, columns, threads, highest)
            print(line, flush=True)
        by_rows = [(n, total) for (n, columns), total in totals.items() if columns == CASES[0][1]]
        if len(by_rows) > 2:
            slope = np.polyfit(*np.log(np.array(by_rows[2:])).T, 1)[0]
            print(f"\nExponent of the seconds against the rows, from {by_rows[2][0]:,} rows on: {slope:.2f}\n")


if __name__ == "__main__":
    main()

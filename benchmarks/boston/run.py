"""The paper's four methods on Boston housing, ten random 80/20 splits, as `hetcal.make` sets them.

    HETCAL_DATA=<folder with housing.data> make boston

Splits are `numpy.random.default_rng(seed).permutation(506)`, the first 80 % to train, as for the other libraries. Each
finished cell is a line of cells.jsonl, so an interrupted run goes on where it stopped; delete the file to start anew.
"""

import json
import os
import sys
from pathlib import Path
from time import perf_counter

# One thread a process, two processes: two threads each would be slower on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from joblib import Parallel, delayed

import hetcal

HERE = Path(__file__).parent
CELLS = HERE / "cells.jsonl"
SEEDS = range(10)
FIGURES = ("rmse", "ce", "crps", "nll", "coverage_90", "width_90", "interval_score_90", "seconds")


def load_boston() -> tuple[np.ndarray, np.ndarray]:
    folder = os.environ.get("HETCAL_DATA")
    path = Path(folder or ".") / "housing.data"
    if not folder or not path.exists():
        sys.exit(f"HETCAL_DATA must name a folder that holds housing.data, got {folder!r}")
    rows = np.loadtxt(path)
    return rows[:, :-1], rows[:, -1]


def run_cell(X: np.ndarray, y: np.ndarray, method: str, seed: int) -> dict:
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: int(0.8 * len(y))], order[int(0.8 * len(y)) :]
    start = perf_counter()
    model = hetcal.make(method, random_state=seed).fit(X[train], y[train])
    mean, std = model.predict(X[test], return_std=True)
    seconds = perf_counter() - start
    return {"method": method, "seed": seed, "seconds": seconds, **hetcal.evaluate(y[test], mean, std)}


def main() -> None:
    X, y = load_boston()
    done = [json.loads(line) for line in CELLS.read_text().splitlines()] if CELLS.exists() else []
    finished = {(cell["method"], cell["seed"]) for cell in done}
    todo = [(method, seed) for seed in SEEDS for method in hetcal.METHODS if (method, seed) not in finished]
    jobs = (delayed(run_cell)(X, y, method, seed) for method, seed in todo)
    for cell in Parallel(n_jobs=2, return_as="generator_unordered")(jobs):
        with CELLS.open("a") as file:
            file.write(json.dumps(cell) + "\n")
        done.append(cell)
        print(f"{len(done)} of {len(SEEDS) * len(hetcal.METHODS)} cells", end="\r", flush=True)
    print(table(done))


def table(cells: list[dict]) -> str:
    """Mean and standard error over the splits, as Markdown."""
    lines = ["| method | " + " | ".join(FIGURES) + " |", "|---" * (len(FIGURES) + 1) + "|"]
    for method in hetcal.METHODS:
        rows = [cell for cell in cells if cell["method"] == method]
        columns = [np.array([row[name] for row in rows]) for name in FIGURES]
        figures = [f"{c.mean():.3f} ± {c.std(ddof=1) / len(c) ** 0.5:.3f}" for c in columns]
        lines.append(f"| {method} | " + " | ".join(figures) + " |")
    floor = np.mean([cell["ce_noise_floor"] for cell in cells])
    return "\n".join([*lines, "", f"CE of a perfect model on as many rows: {floor:.3f}"])


if __name__ == "__main__":
    main()

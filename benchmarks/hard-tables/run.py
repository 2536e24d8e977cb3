"""Tables on which a method may fail badly: one synthetic table for each kind of failure, several methods side by side.

    python benchmarks/hard-tables/run.py --out cells            # all tables and methods, one file per cell
    python benchmarks/hard-tables/run.py --quick --only towns   # fewer rows, one table

A cell that is already in the folder is not computed again, so that a run can be stopped and resumed. The table is
printed in Markdown: RMSE, CRPS, calibration error with its noise floor, and coverage of the 90 % intervals.
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict

import hetcal
from hetcal import HCRegressor
from hetcal._files import atomic_write

N_TEST = 1000
MOST_GPR_ROWS = 1000
QUICK_STEPS = 20
METRICS = ("rmse", "crps", "ce", "ce_noise_floor", "coverage_90")


@dataclass
class HardTable:
    """Rows in a frame, the first `n_train` of them for training."""

    X: pd.DataFrame
    y: np.ndarray
    n_train: int
    groups: np.ndarray | None = None

    def parts(self) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]:
        n = self.n_train
        return self.X[:n], self.y[:n], self.X[n:], self.y[n:]


def numbers(rng: np.random.Generator, n: int, columns: int = 5) -> pd.DataFrame:
    return pd.DataFrame(rng.normal(size=(n, columns)), columns=[f"x{i}" for i in range(columns)])


def ratings(rng: np.random.Generator, n: int) -> HardTable:
    """Twelve combinations of labels, ratings from 1 to 5: a few dozen different rows."""
    product, region = rng.integers(4, size=n + N_TEST), rng.integers(3, size=n + N_TEST)
    y = np.clip(np.round(2 + 0.5 * product + 0.3 * region + rng.normal(size=len(product))), 1, 5)
    X = pd.DataFrame({"product": np.array(list("abcd"))[product], "region": np.array(list("xyz"))[region]})
    return HardTable(X, y, n)


def towns(rng: np.random.Generator, n: int) -> HardTable:
    """Thirty towns with an exact value each."""
    town, value = rng.integers(30, size=n + N_TEST), rng.normal(size=30)
    return HardTable(pd.DataFrame({"town": [f"town {i:02}" for i in town]}), value[town], n)


def hundred_rows(rng: np.random.Generator, n: int) -> HardTable:
    """A hundred rows of a linear law."""
    X = numbers(rng, 100 + N_TEST)
    return HardTable(X, X.to_numpy() @ [1, -1, 0.5, 0, 0] + 0.3 * rng.normal(size=len(X)), 100)


def heavy_tail(rng: np.random.Generator, n: int) -> HardTable:
    """A log-normal input that carries the signal."""
    X = numbers(rng, n + N_TEST).assign(x0=rng.lognormal(sigma=1.5, size=n + N_TEST))
    return HardTable(X, X["x0"].to_numpy() + 0.3 * rng.normal(size=len(X)), n)


def smooth(rng: np.random.Generator, n: int, r2: float) -> HardTable:
    X = numbers(rng, n + N_TEST)
    signal = np.sin(X["x0"]) + X["x1"] * X["x2"] / 2 + X["x3"]
    noise = signal.std() * np.sqrt(1 / r2 - 1) * rng.normal(size=len(X))
    return HardTable(X, (signal + noise).to_numpy(copy=True), n)


def small_noise(rng: np.random.Generator, n: int) -> HardTable:
    """A smooth law with R2 = 0.99."""
    return smooth(rng, n, 0.99)


def tiny_noise(rng: np.random.Generator, n: int) -> HardTable:
    """A smooth law with R2 = 0.999."""
    return smooth(rng, n, 0.999)


def large_group(rng: np.random.Generator, n: int) -> HardTable:
    """Groups with an effect of their own, one of which has 80 % of the rows; the test rows are of new groups."""
    small = np.arange(n // 5) // 10 + 1
    groups = np.concatenate([np.zeros(n - len(small), int), small, small.max() + 1 + np.arange(N_TEST) // 10])
    X = numbers(rng, len(groups))
    effect = 0.5 * rng.normal(size=groups.max() + 1)
    return HardTable(X, X["x0"].to_numpy() + effect[groups] + 0.3 * rng.normal(size=len(groups)), n, groups[:n])


def trend(rng: np.random.Generator, n: int) -> HardTable:
    """Two years of days with a trend and a season; the next quarter is tested."""
    day = pd.date_range("2023-01-01", periods=731 + 91)
    t = np.arange(len(day))
    y = 3 * t / 731 + 0.5 * np.sin(2 * np.pi * t / 365.25) + 0.3 * rng.normal(size=len(t))
    return HardTable(pd.DataFrame({"day": day}), y, 731)


def mistyped_target(rng: np.random.Generator, n: int) -> HardTable:
    """1e5 was added to one value of y."""
    table = smooth(rng, n, 0.9)
    table.y[0] += 1e5
    return table


def skewed_target(rng: np.random.Generator, n: int) -> HardTable:
    """A target like the use of energy: skewed, with a heavy tail that few inputs explain."""
    X = numbers(rng, n + N_TEST, 20)
    location = 4 + 0.3 * X["x0"] + 0.2 * np.sin(2 * X["x1"])
    tail = rng.exponential(size=len(X)) * (rng.random(len(X)) < 0.2 + 0.1 * (X["x2"] > 0))
    return HardTable(X, np.exp(location + 0.2 * rng.normal(size=len(X)) + 0.7 * tail).round(-1).to_numpy(), n)


def many_labels(rng: np.random.Generator, n: int) -> HardTable:
    """Six columns of 40 labels each, 600 rows."""
    codes, effects = rng.integers(40, size=(600 + N_TEST, 6)), 0.5 * rng.normal(size=(6, 40))
    X = pd.DataFrame({f"c{j}": [f"label {i:02}" for i in codes[:, j]] for j in range(6)})
    return HardTable(X, effects[np.arange(6), codes].sum(axis=1) + 0.5 * rng.normal(size=len(X)), 600)


def many_columns(rng: np.random.Generator, n: int) -> HardTable:
    """1,000 columns, of which ten matter, and 200 rows."""
    X = numbers(rng, 200 + N_TEST, 1000)
    return HardTable(X, X.to_numpy()[:, :10].sum(axis=1) / np.sqrt(10) + 0.5 * rng.normal(size=len(X)), 200)


def constant_column(rng: np.random.Generator, n: int) -> HardTable:
    """A column that is constant in training and varies in the test rows."""
    X = numbers(rng, n + N_TEST)
    y = X["x0"].to_numpy() + 0.3 * rng.normal(size=len(X))
    X["sensor"] = np.where(np.arange(len(X)) < n, 20.0, rng.normal(20, 50, size=len(X)))
    return HardTable(X, y, n)


TABLES: dict[str, tuple[Callable[..., HardTable], int]] = {  # generator, training rows
    "ratings": (ratings, 5000),
    "towns": (towns, 1000),
    "hundred-rows": (hundred_rows, 100),
    "heavy-tail": (heavy_tail, 1000),
    "small-noise": (small_noise, 1000),
    "tiny-noise": (tiny_noise, 1000),
    "large-group": (large_group, 1000),
    "trend": (trend, 731),
    "mistyped-target": (mistyped_target, 1000),
    "skewed-target": (skewed_target, 3000),
    "many-labels": (many_labels, 600),
    "many-columns": (many_columns, 200),
    "constant-column": (constant_column, 1000),
}
METHODS = ("default", "hnn", "ridge", "boosting", "gpr", "mean")


def encode(X: pd.DataFrame, like: pd.DataFrame) -> np.ndarray:
    """The table for methods that need numbers: labels one-hot, dates as days and seasons, all standardized."""
    parts = []
    for name in like:
        if like[name].dtype.kind == "M":
            days = (X[name] - like[name].min()).dt.days.to_numpy()
            turns = 2 * np.pi * days / 365.25
            parts.append(np.column_stack([days / 365.25, np.sin(turns), np.cos(turns)]))
        elif like[name].dtype.kind == "f":
            parts.append(((X[name] - like[name].mean()) / (like[name].std() or 1.0)).to_numpy()[:, None])
        else:
            parts.append((X[name].to_numpy()[:, None] == np.unique(like[name])).astype(float))
    return np.hstack(parts)


def predict(method: str, table: HardTable, seed: int, **settings: Any) -> tuple[Any, ...]:
    """Arguments of `evaluate` after y: a predictive distribution, or a mean and a standard deviation."""
    X, y, X_test, _ = table.parts()
    if method in ("default", *hetcal.METHODS):
        chosen = {"random_state": seed, **settings}
        model = HCRegressor(**chosen) if method == "default" else hetcal.make(method, **chosen)
        return (model.fit(X, y, groups=table.groups).predict_dist(X_test),)
    x, x_test = encode(X, X), encode(X_test, X)
    if method == "gpr":
        rows = np.random.default_rng(seed).permutation(len(y))[:MOST_GPR_ROWS]
        kernel = ConstantKernel() * RBF(np.sqrt(x.shape[1])) + WhiteKernel(0.1)
        gpr = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed).fit(x[rows], y[rows])
        return tuple(gpr.predict(x_test, return_std=True))
    regressors = {
        "ridge": RidgeCV(np.logspace(-3, 4, 15)),
        "boosting": HistGradientBoostingRegressor(random_state=seed),
        "mean": DummyRegressor(),
    }
    residuals = y - cross_val_predict(regressors[method], x, y, cv=5)
    std = max(float(np.sqrt(np.mean(residuals**2))), 1e-9)
    return regressors[method].fit(x, y).predict(x_test), np.full(len(x_test), std)


def run_cell(name: str, method: str, seed: int, quick: bool) -> dict[str, Any]:
    make_table, n = TABLES[name]
    table = make_table(np.random.default_rng(seed), min(n, 200) if quick else n)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that does not converge shows in the figures
        predicted = predict(method, table, seed, **({"max_steps": QUICK_STEPS} if quick else {}))
    result = hetcal.evaluate(table.parts()[3], *predicted)
    figures = {metric: float(result[metric]) for metric in METRICS}
    return {"table": name, "method": method, "seed": seed, **figures, "seconds": time.perf_counter() - started}


def ce_of_estimated_sigma(name: str, repetitions: int = 200) -> float:
    """Expected CE of a Gaussian law of which all but sigma is known, which the training rows estimate.

    It limits every method; the noise floor accounts for the test rows only.
    """
    make_table, n = TABLES[name]
    table, rng = make_table(np.random.default_rng(0), n), np.random.default_rng(0)
    n_test = len(table.y) - table.n_train
    stds = np.sqrt(rng.chisquare(table.n_train, repetitions) / table.n_train)
    found = [hetcal.metrics.ce(rng.normal(size=n_test), np.zeros(n_test), np.full(n_test, std)) for std in stds]
    return float(np.mean(found))


def markdown(cells: list[dict[str, Any]]) -> str:
    """One line per table, one column per method: means over the seeds."""
    methods = [method for method in METHODS if any(cell["method"] == method for cell in cells)]
    lines = [f"| table | sigma estimated | {' | '.join(methods)} |", "|---|---|" + "---|" * len(methods)]
    for name in TABLES:
        texts = []
        for method in methods:
            some = [cell for cell in cells if (cell["table"], cell["method"]) == (name, method)]
            mean = {metric: np.mean([cell[metric] for cell in some]) for metric in METRICS} if some else {}
            template = "{rmse:.3g} / {crps:.3g} / {ce:.2g} ({ce_noise_floor:.2g}) / {coverage_90:.0%}"
            texts.append(template.format(**mean) if some else "")
        if any(texts):
            lines.append(f"| {name} | {ce_of_estimated_sigma(name):.2g} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the cells; a temporary one without it")
    parser.add_argument("--only", choices=TABLES, action="append", help="a table; may be repeated")
    parser.add_argument("--method", choices=METHODS, action="append", help="a method; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds of tables and methods")
    parser.add_argument("--quick", action="store_true", help="one seed, at most 200 rows (all of trend), 20 steps")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cells = []
        for name in options.only or TABLES:
            for method in options.method or METHODS:
                for seed in range(1 if options.quick else options.seeds):
                    path = folder / f"{name}-{method}-{seed}{'-quick' if options.quick else ''}.json"
                    if not path.exists():
                        cell = run_cell(name, method, seed, options.quick)
                        atomic_write(path, json.dumps(cell, indent=1).encode())
                    cells.append(json.loads(path.read_text()))
    print("RMSE / CRPS / CE (floor) / coverage of the 90 % intervals\n")
    print(markdown(cells))


if __name__ == "__main__":
    main()

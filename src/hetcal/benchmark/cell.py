"""One cell of a study: split, fit, predict, judge. The only file of the benchmark that needs torch."""

import platform
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit

from hetcal import datasets
from hetcal._checks import must
from hetcal.benchmark.protocol import Cell, Protocol, check_keys, check_word
from hetcal.benchmark.results import LEVELS, Result
from hetcal.metrics import calibration_curve, evaluate
from hetcal.regressor import METHODS, HCRegressor, make

Rows = NDArray[np.intp]
VERSIONS = ("hetcal", "torch", "numpy", "scikit-learn")


def check_settings(protocol: Protocol) -> None:
    """Methods and settings of a protocol must be known, before hours are spent."""
    names = set(HCRegressor().get_params()) - {"random_state", "progress"}
    for study in protocol.studies:
        for method in study.methods:
            check_word(protocol.text, "method", method, METHODS)
        check_keys(protocol.text, "setting", study.vary, names)
    for method, settings in protocol.methods.items():
        check_word(protocol.text, "method", method, METHODS)
        check_keys(protocol.text, "setting", settings, names)
    check_keys(protocol.text, "setting", protocol.settings, names)


def run_cell(protocol: Protocol, cell: Cell) -> Result:
    """Fit the method on the training part of the split and judge it on the test part."""
    torch.set_num_threads(1)  # processes run side by side, and one thread gives the same bits with any --jobs
    X, y, groups = load_rows(cell.dataset)
    rule = protocol.study(cell.study).split
    train, test = split_rows(rule, len(y), groups, cell.seed, protocol.test_fraction)
    train = train[: protocol.max_train_rows]

    model = model_of(protocol, cell)
    start = perf_counter()
    model.fit(X[train], y[train], groups=groups[train] if groups is not None and rule == "grouped" else None)
    fitted = perf_counter()
    mean, std = model.predict(X[test], return_std=True)
    predicted = perf_counter()

    history = model.history_
    return {
        **identity(protocol, cell),
        "title": METHODS[cell.method].title,
        "settings": settings_of(model),
        "split": {"rule": rule, "n_train": len(train), "n_test": len(test)},
        "metrics": {**evaluate(y[test], mean, std), "seconds": predicted - start},
        "coverage": calibration_curve(y[test], mean, std, LEVELS).coverage.tolist(),
        "std_quantiles": np.quantile(std, LEVELS).tolist(),
        "training": {"epochs": len(history), "best_epoch": history.best_epoch, "stopped": history.stopped},
        "seconds": {"fit": fitted - start, "predict": predicted - fitted},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}},
        "error": None,
    }


def model_of(protocol: Protocol, cell: Cell) -> HCRegressor:
    return make(cell.method, **{"random_state": cell.seed, **protocol.settings_of(cell)})


def settings_of(model: HCRegressor) -> dict[str, Any]:
    """All settings, those that the protocol leaves to hetcal too: a result is only as good as what is known of it."""
    return {name: value for name, value in model.get_params().items() if name != "progress"}


def load_rows(name: str) -> tuple[Any, NDArray[np.float64], Rows | None]:
    """Features (to be indexed by rows), target and groups of a real or synthetic data set."""
    if name in datasets.SYNTHETIC:
        synthetic = datasets.SYNTHETIC[name]()
        return synthetic.X, synthetic.y, None
    data = datasets.load(name)
    return data.X.iloc, data.y, data.groups


def identity(protocol: Protocol, cell: Cell) -> dict[str, Any]:
    """What tells a result from others; also all there is of a cell that failed."""
    return {
        "protocol": protocol.hash,
        "study": cell.study,
        "dataset": cell.dataset,
        "method": cell.method,
        "seed": cell.seed,
        "varied": dict(cell.varied),
    }


def split_rows(rule: str, n: int, groups: Rows | None, seed: int, test_fraction: float) -> tuple[Rows, Rows]:
    """Training and test rows: at random as in the paper, whole groups to one side, or inside the training rows."""
    if rule in ("random", "inner"):
        order = np.random.default_rng(seed).permutation(n)
        n_train = int((1 - test_fraction) * n)
        if rule == "inner":  # the test rows are not looked at
            order, n_train = order[:n_train], int((1 - test_fraction) * n_train)
        return order[:n_train], order[n_train:]
    if groups is None:
        raise must("data set", "have groups for a grouped split", None, "leave it out of the grouped study")
    splitter = GroupShuffleSplit(n_splits=1, test_size=test_fraction, random_state=seed)
    train, test = next(splitter.split(np.zeros(n), groups=groups))
    return np.random.default_rng(seed).permutation(train), test

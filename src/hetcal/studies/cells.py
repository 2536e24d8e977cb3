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
from hetcal.methods import METHODS, make
from hetcal.metrics import calibration_curve, evaluate
from hetcal.recalibration import RECALIBRATORS
from hetcal.regressor import HCRegressor
from hetcal.studies.protocol import Cell, Protocol, check_keys, check_word
from hetcal.studies.results import LEVELS, Result

Rows = NDArray[np.intp]
# The recalibrators that give a whole distribution; conformal prediction gives intervals only.
RECALIBRATED = {name: RECALIBRATORS[name] for name in ("isotonic", "std")}
CALIBRATION_FRACTION = 0.2
VERSIONS = ("hetcal", "torch", "numpy", "scikit-learn")


def check_settings(protocol: Protocol) -> None:
    """Methods and settings of a protocol must be known, before hours are spent."""
    names = set(HCRegressor().get_params()) - {"random_state", "progress"}
    for study in protocol.studies:
        for method in study.methods:
            name, recalibrator = parts_of(method)
            check_word(protocol.text, "method", name, METHODS)
            if recalibrator:
                check_word(protocol.text, "recalibrator", recalibrator, RECALIBRATED)
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
    recalibrator = parts_of(cell.method)[1]
    # A recalibrated model trains on fewer rows: that is the price of recalibration.
    n_kept = int((1 - CALIBRATION_FRACTION) * len(train)) if recalibrator else len(train)
    train, calibration = train[:n_kept], train[n_kept:]
    start = perf_counter()
    model.fit(X[train], y[train], groups=groups[train] if groups is not None and rule == "grouped" else None)
    judged: Any = model
    if recalibrator:
        judged = RECALIBRATED[recalibrator](model).fit(X[calibration], y[calibration])
    fitted = perf_counter()
    prediction = judged.predict_dist(X[test])
    predicted = perf_counter()

    history = model.history_
    return {
        **identity(protocol, cell),
        "title": title_of(cell.method),
        "settings": settings_of(model),
        "split": {"rule": rule, "n_train": len(train), "n_test": len(test)},
        "metrics": {**evaluate(y[test], prediction), "seconds": predicted - start},
        "coverage": calibration_curve(y[test], prediction, levels=LEVELS).coverage.tolist(),
        "std_quantiles": np.quantile(prediction.std, LEVELS).tolist(),
        "training": {"epochs": len(history), "best_epoch": history.best_epoch, "stopped": history.stopped},
        "seconds": {"fit": fitted - start, "predict": predicted - fitted},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}},
        "error": None,
    }


def parts_of(method: str) -> tuple[str, str]:
    """Method and recalibrator: "random_sigma+isotonic" names both, most methods have none."""
    name, _, recalibrator = method.partition("+")
    return name, recalibrator


def title_of(method: str) -> str:
    name, recalibrator = parts_of(method)
    return METHODS[name].title + (f" + {recalibrator}" if recalibrator else "")


def model_of(protocol: Protocol, cell: Cell) -> HCRegressor:
    return make(parts_of(cell.method)[0], **{"random_state": cell.seed, **protocol.settings_of(cell)})


def settings_of(model: HCRegressor) -> dict[str, Any]:
    """All settings, those that the protocol leaves to hetcal too: a result is only as good as what is known of it."""
    settings = {name: value for name, value in model.get_params().items() if name != "progress"}
    return {name: value.__name__ if isinstance(value, type) else value for name, value in settings.items()}


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

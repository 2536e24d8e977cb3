"""One fit of a study: split the rows, fit, predict the held-out rows, and measure. Comparisons measure in the same way.

Of the files that `hetcal bench` uses, only this one and `run` import torch.
"""

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hetcal import datasets
from hetcal._checks import Floats, must
from hetcal.methods import METHODS, make
from hetcal.metrics import CURVE_LEVELS, evaluate
from hetcal.metrics.evidence import Evidence
from hetcal.metrics.inputs import read_prediction
from hetcal.recalibration import RECALIBRATORS
from hetcal.regressor import HCRegressor
from hetcal.splitting import Split, split_rows
from hetcal.studies.own_tables import Description, ReadRows, describe_table, find_file
from hetcal.studies.peers import PEERS, Peer
from hetcal.studies.protocol import Cell, Protocol, check_keys, check_word, split_method
from hetcal.studies.results import Result
from hetcal.tabular.columns import Table, read_table
from hetcal.tabular.rows import check_groups

# Of the training rows, if a method is recalibrated.
CALIBRATION_FRACTION = 0.2
VERSIONS = ("hetcal", "torch", "numpy", "scikit-learn")
# Parameters of HCRegressor that a study sets itself.
SET_BY_STUDY = {"random_state", "progress"}


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a data set: features, target and, if rows belong together, the number of their group."""

    X: Table
    y: Floats
    groups: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Any) -> "Part":
        return Part(self.X.take(rows), self.y[rows], None if self.groups is None else self.groups[rows])


Load = Callable[[str], tuple[Part, Description]]


@dataclass(frozen=True, eq=False)
class Measured:
    """The predictions of one fitted model for held-out rows, in numbers.

    Attributes:
        rows: Number of held-out rows.
        metrics: All values of `evaluate`, and `seconds`: the time to fit and predict.
        coverage: Observed coverage at `CURVE_LEVELS`.
        evidence: What the verdict is based on.
        std_quantiles: Quantiles of the predictive standard deviation, at the probabilities `CURVE_LEVELS`.
        fit_seconds, predict_seconds: The two parts of `seconds`.
    """

    rows: int
    metrics: dict[str, Any]
    coverage: Floats
    evidence: Evidence
    std_quantiles: Floats
    fit_seconds: float
    predict_seconds: float


def fit_model(model: Any, train: Part, recalibrator: str | None, calibration: Part) -> Any:
    """Fit a model, and recalibrate it by rows that it was not fitted on, if a recalibrator is named."""
    model.fit(train.X, train.y, groups=train.groups)
    return RECALIBRATORS[recalibrator](model).fit(calibration.X, calibration.y) if recalibrator else model


def measure(fit: Callable[[], Any], test: Part) -> Measured:
    """Call `fit`, which returns a fitted model, let it predict the held-out rows, and measure predictions and time."""
    start = perf_counter()
    model = fit()
    fitted = perf_counter()
    predicted = model.predict_dist(test.X)
    end = perf_counter()
    truth, prediction = read_prediction(test.y, predicted)
    evidence = Evidence.of(truth, prediction, test.groups)
    return Measured(
        rows=len(test),
        metrics={**evaluate(test.y, predicted), "seconds": end - start},
        coverage=evidence.coverage,
        evidence=evidence,
        std_quantiles=np.quantile(prediction.std, CURVE_LEVELS),
        fit_seconds=fitted - start,
        predict_seconds=end - fitted,
    )


def run_cell(protocol: Protocol, cell: Cell, load: Load | None = None) -> Result:
    """Fit the method of a cell on the training part of its split, and measure it on the test part.

    `load` returns a data set by its name, with the description of its table.
    """
    torch.set_num_threads(1)  # cells run in parallel; with one thread the result does not depend on --jobs
    data, table = (load or partial(load_described, protocol, None))(cell.dataset)
    rule = protocol.study(cell.study).split
    if rule != "grouped":
        data = replace(data, groups=None)
    train_rows, test_rows = split_by_rule(rule, len(data), data.groups, cell.seed, protocol.test_fraction)
    train, test = data.take(train_rows[: protocol.max_train_rows]), data.take(test_rows)

    model = make_model(protocol, cell)
    if isinstance(model, Peer):
        model.import_packages()  # not part of the seconds
    _, recalibrator = split_method(cell.method)
    # A recalibrated model is trained on fewer rows, which is the cost of recalibration.
    n_train = int((1 - CALIBRATION_FRACTION) * len(train)) if recalibrator else len(train)
    train, calibration = train.take(slice(n_train)), train.take(slice(n_train, None))

    measured = measure(lambda: fit_model(model, train, recalibrator, calibration), test)
    history = getattr(model, "history_", None)  # peers have none
    ended = history and {"epochs": len(history), "best_epoch": history.best_epoch, "stopped": history.stopped}
    packages = model.packages if isinstance(model, Peer) else ()
    return {
        **identify(protocol, cell),
        "title": method_title(cell.method),
        "settings": model_settings(model),
        "table": table,
        "split": {"rule": rule, "n_train": len(train), "n_test": len(test)},
        "metrics": measured.metrics,
        "coverage": measured.coverage.tolist(),
        "std_quantiles": measured.std_quantiles.tolist(),
        "training": ended,
        "seconds": {"fit": measured.fit_seconds, "predict": measured.predict_seconds},
        "peak_memory_mb": peak_memory_mb(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in (*VERSIONS, *packages)}},
        "error": None,
    }


def peak_memory_mb() -> float | None:
    """The most memory that this process has had, Python and its libraries included; unknown on Windows."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def identify(protocol: Protocol, cell: Cell) -> dict[str, Any]:
    """What distinguishes a result from others; a failed cell has only this and its error."""
    return {
        "protocol": protocol.hash,
        "study": cell.study,
        "dataset": cell.dataset,
        "method": cell.method,
        "seed": cell.seed,
        "varied": dict(cell.varied),
    }


# The rows.


def load_described(protocol: Protocol, read: ReadRows | None, dataset: str) -> tuple[Part, Description]:
    """A data set, and what is recorded of its table, which is described first: a later change is then noticed."""
    table = describe_table(protocol, dataset)
    return load_part(dataset, protocol, read), table


def load_part(dataset: str, protocol: Protocol | None = None, read: ReadRows | None = None) -> Part:
    """All rows of a real or synthetic data set, or of one of the protocol's own tables."""
    if protocol is not None and dataset in protocol.tables:
        if read is None:
            raise must("read", "be given for tables of one's own", read, "run the protocol with: hetcal bench run")
        X, y, labels = read(find_file(protocol, dataset), protocol.tables[dataset])
        return Part(X, y, check_groups(labels, len(y)))
    if dataset in datasets.SYNTHETIC:
        synthetic = datasets.SYNTHETIC[dataset]()
        return Part(read_table(synthetic.X), synthetic.y)
    data = datasets.load(dataset)
    return Part(read_table(data.X), data.y, data.groups)


def split_by_rule(rule: str, n: int, groups: NDArray[np.int64] | None, seed: int, test_fraction: float) -> Split:
    """Training and test rows: at random as in the paper, by whole groups, or inside the training rows."""
    if rule == "grouped":
        if groups is None:
            raise must("data set", "have groups for a grouped split", None, "omit it from the grouped study")
        return split_rows(n, test_fraction, seed, groups)
    train, test = split_rows(n, test_fraction, seed)
    if rule == "inner":  # the test rows remain unseen
        n_train = int((1 - test_fraction) * len(train))
        return train[:n_train], train[n_train:]
    return train, test


# The models.


def make_model(protocol: Protocol, cell: Cell) -> HCRegressor | Peer:
    """The model of a cell; the settings of a protocol are those of `HCRegressor` and are not passed to peers."""
    name, _ = split_method(cell.method)
    if name in PEERS:
        return PEERS[name](random_state=cell.seed)
    return make(name, **{"random_state": cell.seed, **protocol.settings_of(cell)})


def model_settings(model: HCRegressor | Peer) -> dict[str, Any]:
    """All settings, including the defaults of hetcal, so that a result records how it was obtained."""
    settings = {name: value for name, value in model.get_params().items() if name != "progress"}
    return {name: value.__name__ if isinstance(value, type) else value for name, value in settings.items()}


def method_title(method: str) -> str:
    """
    >>> method_title("random_sigma+isotonic")
    'Random sigma + isotonic'
    """
    name, recalibrator = split_method(method)
    title = PEERS[name].title if name in PEERS else METHODS[name].title
    return title + (f" + {recalibrator}" if recalibrator else "")


def setting_names(*fixed: str) -> set[str]:
    """The settings of `HCRegressor` that a user may choose: all except `fixed` and those that the study sets."""
    return set(HCRegressor().get_params()) - SET_BY_STUDY - set(fixed)


def check_protocol(protocol: Protocol) -> None:
    """Check the names of methods and settings before any model is trained."""
    known = setting_names()
    for study in protocol.studies:
        for method in study.methods:
            name, recalibrator = split_method(method)
            check_word(protocol.text, "method", name, {**METHODS, **PEERS})
            if recalibrator:
                check_word(protocol.text, "recalibrator", recalibrator, RECALIBRATORS)
            if study.vary and name in PEERS:
                advice = "its settings are not ours; give it a study of its own"
                raise must(f"methods of {study.name!r}", "not include a peer where settings vary", name, advice)
        check_keys(protocol.text, "setting", study.vary, known)
    for method, settings in protocol.methods.items():
        check_word(protocol.text, "method", method, METHODS)
        check_keys(protocol.text, "setting", settings, known)
    check_keys(protocol.text, "setting", protocol.settings, known)

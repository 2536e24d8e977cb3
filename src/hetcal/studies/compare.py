"""Cross-validate several methods on one table, and recommend one of them.

All methods are evaluated on the same folds, so that their differences can be taken fold by fold, where the variation
between folds cancels. `hetcal.studies.recommendation` decides which of these differences are noise.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from hetcal._checks import check_choice, check_number, check_vector, must, underscored
from hetcal.methods import DEFAULT, METHODS, PAPER, make
from hetcal.metrics import CURVE_LEVELS, ce_noise_floor
from hetcal.metrics.evidence import Evidence
from hetcal.metrics.verdict import judge_evidence
from hetcal.recalibration import RECALIBRATORS
from hetcal.regressor import HCRegressor
from hetcal.splitting import RowNumbers, Split, split_folds, split_forward, split_rows
from hetcal.studies.cells import (
    CALIBRATION_FRACTION,
    Measured,
    Part,
    fit_model,
    measure,
    method_title,
    setting_names,
)
from hetcal.studies.jobs import check_backend, run_jobs
from hetcal.studies.peers import BASELINES, PEERS, installed_peers
from hetcal.studies.recommendation import recommend
from hetcal.studies.statistics import COMPARED, estimate
from hetcal.tabular.rows import check_groups, number_equal_rows, numbers_repeat

FoldMethod = tuple[int, str]  # number of the fold, name of the method
Progress = Callable[[float, int, str], Any]

# All methods except those whose sigma does not depend on X.
INFORMATIVE = tuple(name for name in METHODS if name not in ("constant_sigma", "random_sigma"))
# The methods to choose among by default, in `choose_method` and in `hetcal compare`: the default, the two cheapest
# methods, and the best of the others on most tables. Dropout-HC takes longer, and among the paper's methods it had the
# lowest CRPS on none of 13 tables and splits (benchmarks/paper).
AUTO = (DEFAULT, "hnn", "quantile_hc", "ensemble_hc")
METHOD_GROUPS = {
    "all": INFORMATIVE,
    "hc": tuple(name for name in METHODS if name.endswith("_hc")),
    "paper": PAPER,
    "auto": AUTO,
    "baselines": tuple(BASELINES),
}
AUTO_FOLDS, AUTO_ROWS = 3, 3_000


def method_names(methods: str | Sequence[str]) -> tuple[str, ...]:
    """Names of methods, each once, from a list or from a text with commas.

    "all", "hc", "paper", "auto", "baselines" and "peers" (those that are installed) name several methods, and hyphens
    may replace underscores.

    >>> method_names("paper, ensemble-hc")
    ('mc_dropout', 'hnn', 'dropout_hc', 'quantile_hc', 'ensemble_hc')
    """
    known = {**{name: (name,) for name in (*METHODS, *PEERS)}, **METHOD_GROUPS, "peers": installed_peers()}
    parts = [part.strip() for part in methods.split(",")] if isinstance(methods, str) else methods
    names = [name for part in parts for name in known[check_choice("methods", underscored(part), known)]]
    if not names:
        raise must("methods", "name at least one method", methods, "give names, or 'all'")
    for name in set(names) & PEERS.keys():
        PEERS[name].import_packages()  # a missing library is reported now, not by every fold
    return tuple(dict.fromkeys(names))


def choose_method(
    X: Any,
    y: ArrayLike,
    *,
    seed: int = 0,
    groups: Sequence[Any] | None = None,
    settings: dict[str, Any] | None = None,
    recalibrate: str | None = None,
    jobs: int | None = None,
    backend: str | None = None,
    progress: Progress | None = None,
) -> tuple[str, dict[str, Any]]:
    """Choose a method of `AUTO` for a table; return it with the comparison: three folds, at most 3,000 rows.

    With few rows or few groups there are two folds. See `compare` for the arguments and `recommend` for the rule.
    """
    n = len(check_vector("y", y))
    if n < 4:
        raise must("y", "have at least 4 values to choose a method", f"{n} values", "name a method, such as 'hnn'")
    labels = check_groups(groups, n)
    folds = min(AUTO_FOLDS, n // 2, n if labels is None else labels.max() + 1)
    comparison = compare(
        X,
        y,
        methods=AUTO,
        folds=int(folds),
        seed=seed,
        groups=groups,
        settings=settings,
        recalibrate=recalibrate,
        max_rows=AUTO_ROWS,
        jobs=jobs,
        backend=backend,
        progress=progress,
    )
    return comparison["recommendation"]["method"], comparison


def compare(
    X: Any,
    y: ArrayLike,
    *,
    methods: str | Sequence[str],
    folds: int = 5,
    seed: int = 0,
    groups: Sequence[Any] | None = None,
    times: ArrayLike | None = None,
    settings: dict[str, Any] | None = None,
    recalibrate: str | None = None,
    max_rows: int | None = None,
    jobs: int | None = None,
    backend: str | None = None,
    target: str = "y",
    group_name: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Cross-validate methods on the same folds, with the same settings.

    Args:
        X, y: (n, d) frame, array or `hetcal.tabular.columns.Table`, and (n,) finite numbers.
        methods: Names in `METHODS` or `PEERS`, or a text for `method_names`.
        folds: Number of folds; each row is held out once, equal rows together if possible.
        seed: Seed of folds and fits; apart from the seconds, the result is the same with any number of `jobs`.
        groups: (n,) labels of rows that belong together; a group is never split between folds.
        times: (n,) dates or numbers, without `groups`: each fold is later than its training rows.
        settings: Parameters of `HCRegressor` for every method of hetcal; peers have none.
        recalibrate: "conformal", "isotonic" or "std", by a fifth of the training rows, which are not trained on.
        max_rows: Largest number of rows to use, drawn with the seed: whole groups, if at least `folds` of them fit.
        jobs, backend: How many fits at once, with one thread each, and where; see `run_jobs` and `check_backend`.
        target, group_name: Names of y and of the groups in the result.
        progress: Called as `progress(done, total, label)` after each fit; if serial also within fits.

    Returns:
        JSON values: `target`, `rows`, `held_out_rows`, `folds`, `seed`, `groups`, `recalibration` (None, or `method`
        and `rows` of the first fold), `ce_noise_floor` (of a perfect model on one fold), `methods` (`describe_method`)
        and `recommendation` (`recommend`). The training rows of two folds overlap, so standard errors are too small
        (Bengio and Grandvalet, 2004, No unbiased estimator of the variance of K-fold CV).

    Raises:
        ValueError: An argument is invalid (then nothing is trained), or every method failed.
    """
    names, backend = method_names(methods), check_backend(backend, jobs)
    task = plan(X, y, groups, settings or {}, folds, seed, max_rows, recalibrate, times)
    fits = run_fits(task, [(fold, name) for fold in range(folds) for name in names], jobs, backend, progress)
    repeat_warnings(fits.values())
    described = describe_methods(fits, names, folds, recalibrate)
    return {
        "target": target,
        "rows": len(task.data),
        "held_out_rows": task.held_out_rows,
        "folds": folds,
        "seed": int(seed),
        "groups": None if groups is None else group_name or "groups",
        "recalibration": recalibrate and {"method": recalibrate, "rows": len(calibration_split(task, 0)[1])},
        "ce_noise_floor": float(np.mean([ce_noise_floor(len(test)) for _, test in task.splits])),
        "methods": described,
        "recommendation": recommend(described, task.held_out_rows),
    }


# The rows.


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """What all fits of a comparison share."""

    data: Part
    splits: list[Split]
    settings: dict[str, Any]
    seed: int
    recalibrate: str | None = None
    report: Callable[[int, int], Any] | None = None  # how far a fit in this process has come

    @property
    def held_out_rows(self) -> int:
        return sum(len(test) for _, test in self.splits)


def plan(
    X: Any,
    y: ArrayLike,
    groups: Any,
    settings: dict[str, Any],
    folds: int,
    seed: int,
    max_rows: int | None,
    recalibrate: str | None = None,
    times: ArrayLike | None = None,
) -> CrossValidation:
    """Check the arguments, read the table and split its rows."""
    if recalibrate is not None:
        check_choice("recalibrate", recalibrate, RECALIBRATORS)
    known = setting_names("estimator", "objective")  # these two distinguish the methods
    for name in settings:
        check_choice("setting", name, known)
    check_number("folds", folds, 2, integer=True)
    check_number("seed", seed, 0, 2**32 - 1, integer=True)
    truth = check_vector("y", y)
    # Read once, as a regressor reads it. A column of labels such as "7", "12" and "12a" is text because of one of them,
    # and not every fold contains that one.
    table = HCRegressor()._read(X, reset=True)
    if len(table) != len(truth):
        raise must(
            "X", f"have one row per value of y ({len(truth)})", f"{len(table)} rows", "give both the same length"
        )
    labels = check_groups(groups, len(truth))
    drawn = draw_rows(len(truth), labels, max_rows, folds, seed)
    data = Part(table, truth, labels).take(drawn)
    splits = split_into_folds(data, folds, seed) if times is None else split_forward(np.asarray(times)[drawn], folds)
    return CrossValidation(data, splits, settings, seed, recalibrate)


def split_into_folds(data: Part, folds: int, seed: int) -> list[Split]:
    """Divide the rows into folds; groups and, without groups, equal rows stay in one fold."""
    if data.groups is not None:
        return split_folds(len(data), folds, seed, data.groups)
    numbers = number_equal_rows(data.X, data.y)
    different = len(np.unique(numbers))
    is_divided = different == len(data) or different < folds or numbers_repeat(numbers)
    return split_folds(len(data), folds, seed, None if is_divided else numbers)


def draw_rows(n: int, labels: NDArray[np.int64] | None, max_rows: int | None, folds: int, seed: int) -> RowNumbers:
    """All rows, or a random sample of at most `max_rows`."""
    if max_rows is None or n <= check_number("max_rows", max_rows, 1, integer=True):
        return np.arange(n)
    random = np.random.default_rng(seed)
    if labels is not None:
        order = random.permutation(labels.max() + 1)
        kept = order[np.cumsum(np.bincount(labels)[order]) <= max_rows]
        if len(kept) >= folds:
            return np.flatnonzero(np.isin(labels, kept))
        # The groups are few and large: draw rows from all of them. The folds still do not split a group.
    return np.sort(random.choice(n, max_rows, replace=False))


# The fits, in this process or in others.


@dataclass(frozen=True, eq=False)
class FoldFit:
    """A method on the held-out rows of one fold, and the warnings of its fit."""

    measured: Measured
    warnings: list[tuple[type[Warning], str]]


def run_fits(
    task: CrossValidation, todo: list[FoldMethod], jobs: int | None, backend: str, progress: Progress | None
) -> dict[FoldMethod, FoldFit | str]:
    """Run every fit; return each, or the reason why it failed, in the order of `todo`."""
    fits: dict[FoldMethod, FoldFit | str] = {}
    function = partial(fit_here, task, todo, progress) if backend == "serial" else partial(fit_fold, task)
    for outcome in run_jobs(function, todo, jobs, backend):
        # The last line of a traceback is the message.
        fits[outcome.job] = outcome.result if outcome.error is None else outcome.error.splitlines()[-1]
        if progress is not None:
            progress(len(fits), len(todo), fit_label(task, outcome.job))
    return {fit: fits[fit] for fit in todo}


def fit_label(task: CrossValidation, fit: FoldMethod) -> str:
    fold, name = fit
    return f"{method_title(name)}, fold {fold + 1} of {len(task.splits)}"


def fit_here(
    task: CrossValidation, todo: list[FoldMethod], progress: Progress | None, fit: FoldMethod
) -> FoldFit | str:
    """As `fit_fold`, with progress within the fit."""
    import_module("torch._dynamo")  # slow, and deferred by the optimizer; not part of the seconds of the first fit
    number = todo.index(fit)

    def within(done: int, planned: int) -> None:
        if progress is not None and done < planned:
            progress(number + done / planned, len(todo), fit_label(task, fit))

    return fit_fold(replace(task, report=within), fit)


def fit_fold(task: CrossValidation, fit: FoldMethod) -> FoldFit | str:
    """Fit a method on the training rows of a fold and measure it on the others, or return why that failed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # processes run in parallel; with one thread the result does not depend on `jobs`
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            measured = measure_fold(task, fit)
        return FoldFit(measured, [(warning.category, str(warning.message)) for warning in seen])
    except Exception as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    finally:
        torch.set_num_threads(threads)


def measure_fold(task: CrossValidation, fit: FoldMethod) -> Measured:
    fold, method = fit
    train, calibration = calibration_split(task, fold)
    if train.groups is not None and len(np.unique(train.groups)) < 2:
        train = replace(train, groups=None)  # all training rows belong together
    if method in PEERS:
        model: Any = PEERS[method](random_state=task.seed)
    else:
        model = make(method, **task.settings, random_state=task.seed, progress=task.report or False)
    test = task.data.take(task.splits[fold][1])
    measured = measure(lambda: fit_model(model, train, task.recalibrate, calibration), test)
    if not math.isfinite(measured.metrics["crps"]):
        raise ValueError("its CRPS exceeds the range of floats")
    return measured


def calibration_split(task: CrossValidation, fold: int) -> tuple[Part, Part]:
    """The training rows of a fold, without those that recalibrate, and these; a group is on one side."""
    train = task.data.take(task.splits[fold][0])
    if task.recalibrate is None:
        return train, train.take(slice(0))
    groups = train.groups if train.groups is not None and len(np.unique(train.groups)) > 1 else None
    kept, held_out = split_rows(len(train), CALIBRATION_FRACTION, task.seed, groups)
    return train.take(np.sort(kept)), train.take(np.sort(held_out))


def repeat_warnings(fits: Iterable[FoldFit | str]) -> None:
    """Issue each warning once, no matter how many fits and processes issued it."""
    finished = (fit for fit in fits if isinstance(fit, FoldFit))
    for category, text in dict.fromkeys(warning for fit in finished for warning in fit.warnings):
        warnings.warn(text, category, stacklevel=3)


# The methods.


def describe_methods(
    fits: dict[FoldMethod, FoldFit | str], names: Sequence[str], folds: int, recalibrate: str | None
) -> list[dict[str, Any]]:
    """Every method of a comparison; an error if all of them failed."""
    methods = [describe_method(name, [fits[fold, name] for fold in range(folds)], recalibrate) for name in names]
    if all(method["failed"] for method in methods):
        raise ValueError(f"no method could be trained; {methods[0]['title']}, {methods[0]['failed']}")
    return methods


def describe_method(name: str, fits: Sequence[FoldFit | str], recalibrate: str | None = None) -> dict[str, Any]:
    """A method in a comparison, from its fits on all folds.

    Returns:
        `name`, `title`, `failed` (None, or the reason), `metrics` (see `describe_figure`; `seconds` is the time to fit
        and predict), `curve` (coverage of all held-out rows by level) and `verdict` (`Verdict.as_dict` for all held-out
        rows). A method that failed has neither curve nor verdict.
    """
    errors = [f"fold {fold} of {len(fits)}: {text}" for fold, text in enumerate(fits, 1) if isinstance(text, str)]
    title = method_title(f"{name}+{recalibrate}" if recalibrate else name)
    method = {"name": name, "title": title, "failed": errors[0] if errors else None}
    if errors:
        return {**method, "metrics": {}, "curve": None, "verdict": None}
    folds = [fit.measured for fit in fits if isinstance(fit, FoldFit)]
    evidence = Evidence.pool([fold.evidence for fold in folds])
    return {
        **method,
        "metrics": {figure: describe_figure([fold.metrics[figure] for fold in folds]) for figure in COMPARED},
        "curve": {"levels": CURVE_LEVELS.tolist(), "coverage": evidence.coverage.tolist()},
        "verdict": judge_evidence(evidence).as_dict(),
    }


def describe_figure(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard error and values of the folds; None if JSON has no number for it, such as for an infinite NLL."""
    mean = estimate(values)
    return {
        "mean": json_number(mean.mean),
        "standard_error": json_number(mean.error),
        "values": [json_number(value) for value in values],
    }


def json_number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

"""Which method suits this table? Cross-validation of several methods on the same folds, and a recommendation in words.

What this file hides: that all methods are judged on the same rows, so that their differences are taken fold by fold,
where the luck of a fold cancels out; and what of such a difference is noise.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold, KFold

from hetcal import metrics
from hetcal._checks import check_choice, check_number, check_vector, must
from hetcal.estimators import ESTIMATORS
from hetcal.exceptions import TrainingWarning
from hetcal.methods import METHODS, PAPER, make
from hetcal.regressor import HCRegressor
from hetcal.studies.jobs import Outcome, run_jobs
from hetcal.tabular.columns import Table, check_unique_columns, read_table
from hetcal.tabular.rows import check_groups

Rows = NDArray[np.intp]
Cell = tuple[int, str]  # number of the fold, name of the method
Progress = Callable[[int, int, str], Any]

# Every method whose sigma knows something.
INFORMATIVE = tuple(name for name in METHODS if name not in ("constant_sigma", "random_sigma"))
GROUPS = {"all": INFORMATIVE, "hc": tuple(name for name in METHODS if name.endswith("_hc")), "paper": PAPER}
# What `choose` chooses among: the two cheapest, and the one with the lowest CRPS on most tables. Dropout-HC takes
# longer, and of the paper's methods it had the lowest CRPS on none of 13 tables and splits (benchmarks/paper).
AUTO = ("hnn", "quantile_hc", "ensemble_hc")
AUTO_FOLDS, AUTO_ROWS = 3, 3_000

METRICS: dict[str, Callable[..., float]] = {
    "crps": metrics.crps,
    "rmse": metrics.rmse,
    "ce": metrics.ce,
    "nll": metrics.nll,
    "coverage_90": metrics.coverage,
    "interval_width_90": metrics.interval_width,
    "interval_score_90": metrics.interval_score,
}
LEVELS = np.arange(1, 100) / 100
# Settings that tell methods apart, or that the comparison sets itself.
NOT_SHARED = {"estimator", "objective", "random_state", "progress"}
# Slow imports that every fit needs, some of which torch and frames put off until they are used.
PRELOAD = (__name__, "pandas", "torch._dynamo")

# A difference is noise up to so many of its standard errors; a cheaper method may cost so much CRPS; a calibration
# error up to so many floors is near it; with fewer rows the text says so.
NOISE_ERRORS, PRICE, NEAR_FLOOR, FEW_ROWS = 2.0, 0.02, 1.5, 300


def method_names(methods: str | Sequence[str]) -> tuple[str, ...]:
    """Names of methods from a list or a text with commas; "all", "hc" and "paper" stand for many. Each is there once.

    >>> method_names("paper, ensemble_hc")
    ('mc_dropout', 'hnn', 'dropout_hc', 'quantile_hc', 'ensemble_hc')
    """
    parts = [part.strip() for part in methods.split(",")] if isinstance(methods, str) else methods
    names: list[str] = []
    for part in parts:
        names += GROUPS.get(part) or [check_choice("methods", part, [*METHODS, *GROUPS])]
    if not names:
        raise must("methods", "name at least one method", methods, "give names, or 'all'")
    return tuple(dict.fromkeys(names))


def choose(
    X: Any,
    y: ArrayLike,
    *,
    seed: int = 0,
    groups: Sequence[Any] | None = None,
    settings: dict[str, Any] | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[str, dict[str, Any]]:
    """The method of `AUTO` that suits a table, and the comparison it rests on: three folds of at most 3,000 rows.

    Few rows, or few groups, have two folds. See `compare` for the arguments and `recommend` for the rule.
    """
    n = len(check_vector("y", y))
    if n < 4:
        raise must("y", "have at least 4 values to choose a method by", f"{n} values", "name a method, such as 'hnn'")
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
        max_rows=AUTO_ROWS,
        jobs=jobs,
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
    settings: dict[str, Any] | None = None,
    max_rows: int | None = None,
    jobs: int = 1,
    target: str = "y",
    group_name: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Cross-validate methods on the same folds, with the same settings.

    Args:
        X: (n, d) frame or array, or a `Table`.
        y: (n,) finite numbers.
        methods: Names in `METHODS`, or a text for `method_names`.
        folds: Parts of the rows; each is held out once.
        seed: Draws folds, and starts every training. The same seed gives the same result, with any `jobs`, but for
            the seconds.
        groups: (n,) labels of rows that belong together; no group is split between folds.
        settings: Parameters of `HCRegressor` for every method.
        max_rows: At most so many rows, drawn by the seed: whole groups, if at least as many as `folds` fit.
        jobs: Processes side by side, with one thread each; 1 stays in this process.
        target, group_name: What the result calls y and the groups.
        progress: Called as `progress(done, total, label)` after each fit.

    Returns:
        Plain JSON values: `target`, `rows`, `folds`, `seed`, `groups`, `ce_noise_floor` (of a perfect model on the rows
        of one fold), `methods` and `recommendation` (see `recommend`). Each method has `name`, `title`, `failed` (None,
        or why), `metrics` (mean, standard error and values of the folds; `seconds` are those of fit and predict; None
        where it is not finite) and `curve` (coverage of all held-out rows by level; None if it failed).

        Training rows of two folds overlap, so that their results are not independent: standard errors are somewhat too
        small (Bengio and Grandvalet, 2004, No unbiased estimator of the variance of K-fold cross-validation).

    Raises:
        ValueError: An argument makes no sense (nothing is trained then), or every method failed.
    """
    names = method_names(methods)
    check_settings(settings or {})
    check_number("folds", folds, 2, integer=True)
    check_number("seed", seed, 0, 2**32 - 1, integer=True)
    check_number("jobs", jobs, 1, integer=True)
    truth = check_vector("y", y)
    X = with_fixed_kinds(X)
    if len(X) != len(truth):
        raise must("X", f"have one row per value of y ({len(truth)})", f"{len(X)} rows", "give both the same length")
    labels = check_groups(groups, len(truth))

    rows = draw_rows(len(truth), labels, max_rows, folds, seed)
    labels = None if labels is None else labels[rows]
    parts = split(len(rows), labels, folds, seed)
    task = Task(take(X, rows), truth[rows], labels, parts, settings or {}, seed)
    cells = [(fold, name) for fold in range(folds) for name in names]
    results: dict[Cell, Judged | str] = {}
    for outcome in run(task, cells, jobs):
        fold, name = outcome.job
        # An error that comes as a traceback says at its end what is the matter.
        results[outcome.job] = outcome.result if outcome.error is None else outcome.error.splitlines()[-1]
        if progress is not None:
            progress(len(results), len(cells), f"{METHODS[name].title}, fold {fold + 1} of {folds}")
    tell_warnings(results[cell] for cell in cells)

    judged = [summarize(name, [results[fold, name] for fold in range(folds)]) for name in names]
    if all(method["failed"] for method in judged):
        raise ValueError(f"no method could be trained; {judged[0]['title']}, {judged[0]['failed']}")
    floor = float(np.mean([metrics.ce_noise_floor(len(test)) for _, test in parts]))
    return {
        "target": target,
        "rows": len(rows),
        "folds": folds,
        "seed": int(seed),
        "groups": None if groups is None else group_name or "groups",
        "ce_noise_floor": floor,
        "methods": judged,
        "recommendation": recommend(judged, floor, len(rows)),
    }


def check_settings(settings: dict[str, Any]) -> None:
    known = set(HCRegressor().get_params()) - NOT_SHARED
    for name in settings:
        check_choice("setting", name, known)


def with_fixed_kinds(X: Any) -> Any:
    """A frame whose text columns are categories, or an array as it is.

    A column of labels such as "7", "12" and "12a" is text by one of them, which not every fold has.
    """
    if not nw.dependencies.is_into_dataframe(X):
        return X
    frame, table = nw.from_native(check_unique_columns(X), eager_only=True), read_table(X)
    texts = [name for name in frame.columns if table.kind(str(name)) == "text"]
    return frame.with_columns(nw.col(*texts).cast(nw.Categorical)).to_native() if texts else X


# Which rows.


def draw_rows(n: int, labels: NDArray[np.int64] | None, max_rows: int | None, folds: int, seed: int) -> Rows:
    """All rows, or at most `max_rows` of them."""
    if max_rows is None or n <= check_number("max_rows", max_rows, 1, integer=True):
        return np.arange(n)
    random = np.random.default_rng(seed)
    if labels is not None:
        order = random.permutation(labels.max() + 1)
        kept = order[np.cumsum(np.bincount(labels)[order]) <= max_rows]
        if len(kept) >= folds:
            return np.flatnonzero(np.isin(labels, kept))
        # Few, large groups: rows of all of them. The folds keep together what is left of a group.
    return np.sort(random.choice(n, max_rows, replace=False))


def split(n: int, labels: NDArray[np.int64] | None, folds: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Training and held-out rows of every fold."""
    if n < 2 * folds:
        raise must("folds", f"be at most half the number of rows ({n})", folds, "give more rows, or fewer folds")
    if labels is None:
        return list(KFold(folds, shuffle=True, random_state=seed).split(np.empty(n)))
    n_groups = len(np.unique(labels))
    if n_groups < folds:
        raise must("folds", f"be at most the number of groups ({n_groups})", folds, "choose fewer folds")
    return list(GroupKFold(folds, shuffle=True, random_state=seed).split(np.empty(n), groups=labels))


# One fit, here or in another process.


@dataclass(frozen=True, eq=False)
class Task:
    """What all fits of a comparison share."""

    X: Any
    y: NDArray[np.float64]
    labels: NDArray[np.int64] | None
    parts: list[tuple[Rows, Rows]]
    settings: dict[str, Any]
    seed: int


@dataclass(frozen=True, eq=False)
class Judged:
    """Figures of one method on the held-out rows of one fold."""

    figures: dict[str, float]
    pit: NDArray[np.float64]
    warnings: list[tuple[type[Warning], str]]


def run(task: Task, cells: list[Cell], jobs: int) -> Iterator[Outcome[Cell]]:
    """Outcomes as they come. One job at a time needs no process: a caller's script then needs no main guard."""
    if jobs > 1:
        yield from run_jobs(partial(judge, task), cells, jobs, PRELOAD)
    else:
        import_module("torch._dynamo")  # slow, and put off by the optimizer: no part of the seconds of the first fit
        for cell in cells:
            yield Outcome(cell, judge(task, cell))


def judge(task: Task, cell: Cell) -> Judged | str:
    """Fit a method on the training rows of a fold and judge it on the others, or say in a sentence what went wrong."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # processes run side by side, and one thread gives the same bits with any number of jobs
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            # Training ends in peace when it is interrupted; a comparison must not go on to the next fit.
            warnings.filterwarnings("error", "training was interrupted", TrainingWarning)
            figures, u = fit_and_judge(task, cell)
        return Judged(figures, u, [(warning.category, str(warning.message)) for warning in seen])
    except TrainingWarning as warning:
        raise KeyboardInterrupt from warning
    except Exception as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    finally:
        torch.set_num_threads(threads)


def fit_and_judge(task: Task, cell: Cell) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Every metric, and the probability integral transform of the held-out rows."""
    fold, method = cell
    train, test = task.parts[fold]
    groups = None if task.labels is None else task.labels[train]
    if groups is not None and len(np.unique(groups)) < 2:
        groups = None  # all training rows belong together
    model = make(method, **task.settings, random_state=task.seed)
    start = perf_counter()
    prediction = model.fit(take(task.X, train), task.y[train], groups=groups).predict_dist(take(task.X, test))
    seconds = perf_counter() - start
    figures = {name: metric(task.y[test], prediction) for name, metric in METRICS.items()}
    if not math.isfinite(figures["crps"]):
        raise ValueError("its CRPS passes the range of floats")
    return {**figures, "seconds": seconds}, metrics.pit(task.y[test], prediction)


def take(X: Any, rows: Rows) -> Any:
    if isinstance(X, Table):
        return X.take(rows)
    if nw.dependencies.is_into_dataframe(X):
        return nw.from_native(X, eager_only=True)[rows].to_native()
    return np.asarray(X)[rows]


def tell_warnings(results: Iterable[Judged | str]) -> None:
    """Each warning once, however many fits and processes gave it."""
    judged = (result for result in results if isinstance(result, Judged))
    for category, text in dict.fromkeys(warning for result in judged for warning in result.warnings):
        warnings.warn(text, category, stacklevel=3)


# From figures to words.


def summarize(name: str, results: list[Judged | str]) -> dict[str, Any]:
    """All that a comparison says of a method."""
    errors = [f"fold {fold} of {len(results)}: {text}" for fold, text in enumerate(results, 1) if isinstance(text, str)]
    judged = [result for result in results if isinstance(result, Judged)]
    method: dict[str, Any] = {"name": name, "title": METHODS[name].title, "failed": None, "metrics": {}, "curve": None}
    if errors:
        return {**method, "failed": errors[0]}
    for metric in judged[0].figures:
        method["metrics"][metric] = over_folds([result.figures[metric] for result in judged])
    distance = np.abs(2 * np.concatenate([result.pit for result in judged]) - 1)  # inside every level above it
    inside = np.searchsorted(np.sort(distance), LEVELS, side="right") / len(distance)
    return {**method, "curve": {"levels": LEVELS.tolist(), "coverage": inside.tolist()}}


def over_folds(values: list[float]) -> dict[str, Any]:
    """Mean and standard error over the folds; None for what JSON has no number for, such as an infinite NLL."""
    if not np.isfinite(values).all():
        kept = [float(value) if math.isfinite(value) else None for value in values]
        return {"mean": None, "standard_error": None, "values": kept}
    mean, error = mean_and_error(np.array(values))
    return {"mean": mean, "standard_error": error, "values": [float(value) for value in values]}


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    scale = np.abs(values).max() or 1.0  # so that squares stay in the range of floats
    scaled = values / scale
    return float(scaled.mean() * scale), float(scaled.std(ddof=1) / math.sqrt(len(values)) * scale)


def recommend(methods: Sequence[dict[str, Any]], floor: float, rows: int) -> dict[str, str]:
    """Method and reason, from the `methods` of a comparison, not all of which failed.

    The CRPS decides, a proper score: calibration and sharpness in one figure, in the units of y. The lowest mean wins,
    unless a method that asks fewer networks per prediction is as good: at most 2 % higher, and by no more than two
    standard errors of the difference over the folds. Both, because with few folds a standard error may be anything, and
    with many it finds differences nobody cares for. Cost is a count of networks, not measured time, so that the same
    seed recommends the same method.
    """
    lowest, *others = sorted((method for method in methods if not method["failed"]), key=mean_crps)
    best = min(
        [lowest, *(m for m in others if excess(m, lowest) <= PRICE and is_noise(m, lowest))],
        key=lambda method: (networks_asked(method["name"]), mean_crps(method)),
    )
    score = f"{mean_crps(best):.3g} ± {best['metrics']['crps']['standard_error']:.2g}"
    if best is not lowest:
        above = f"{percent(excess(best, lowest))} above the lowest ({lowest['title']}), within fold noise"
        asked = f"{networks_asked(best['name'])} instead of {networks_asked(lowest['name'])}"
        reason = f"CRPS {score}, {above}, but cheaper: a prediction takes {asked} passes through a network"
    elif others:
        noise = "within fold noise" if is_noise(others[0], lowest) else "more than fold noise"
        below = percent(-excess(lowest, others[0]))
        reason = f"lowest CRPS, {score}, {below} below {others[0]['title']}, {noise}"
    else:
        reason = f"CRPS {score}, with no other method to compare"
    text = f"{best['title']}: {reason}; {in_words(best, floor)}."
    failed = [method["title"] for method in methods if method["failed"]]
    if failed:
        text += f" Not judged, because of an error: {', '.join(failed)}."
    if rows < FEW_ROWS:
        text += f" With only {rows} rows, another seed may well rank the methods differently."
    return {"method": best["name"], "text": text}


def mean_crps(method: dict[str, Any]) -> float:
    return float(method["metrics"]["crps"]["mean"])


def excess(method: dict[str, Any], other: dict[str, Any]) -> float:
    """Share by which the CRPS is higher than that of the other."""
    return (mean_crps(method) - mean_crps(other)) / (mean_crps(other) or 1.0)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 else "less than 0.1 %"


def is_noise(method: dict[str, Any], lowest: dict[str, Any]) -> bool:
    """Is the difference, taken fold by fold, within its standard errors?"""
    crps_of = [np.array(m["metrics"]["crps"]["values"]) for m in (method, lowest)]
    mean, error = mean_and_error(crps_of[0] - crps_of[1])
    return mean <= NOISE_ERRORS * error


def networks_asked(method: str) -> int:
    """Passes through a network for one prediction, by default: the samples of a spread, the members, or one.

    >>> networks_asked("dropout_hc"), networks_asked("ensemble_hc"), networks_asked("hnn")
    (100, 8, 1)
    """
    estimator = METHODS[method].estimator
    options = inspect.signature(ESTIMATORS[estimator] if isinstance(estimator, str) else estimator).parameters
    return next((options[name].default for name in ("prediction_samples", "members") if name in options), 1)


def in_words(method: dict[str, Any], floor: float) -> str:
    """The calibration of a method beside that of a perfect one."""
    ce, covered = (method["metrics"][name]["mean"] for name in ("ce", "coverage_90"))
    if ce <= NEAR_FLOOR * floor:
        return f"its calibration error {ce:.2g} is near the noise floor {floor:.2g}"
    above = f"its calibration error {ce:.2g} is above the noise floor {floor:.2g}"
    return f"{above}, and its 90 % intervals cover {100 * covered:.1f} %"

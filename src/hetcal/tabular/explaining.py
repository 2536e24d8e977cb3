"""What the predictions of a model depend on: the importance of every column, and the course over the first few.

A column is important if its values, exchanged among the rows, make the CRPS worse (Breiman, 2001, Random forests) or
change sigma. Both come from the same predictions. The error bars are standard errors over the rows, so that they say
how far another sample of rows may lie; those of `sklearn.inspection.permutation_importance` are over the repetitions
on the same rows only, and its `partial_dependence` has no intervals.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetcal._checks import Floats, check_number, must
from hetcal.metrics.inputs import check_one_target, predict_distribution
from hetcal.tabular.columns import Table, read_table

LEVEL_OF_COURSES = 0.9
# Bounds of the cost: a prediction of the default takes about a tenth of a second per 1,000 rows.
MOST_SAMPLED, FEWEST_SAMPLED, MOST_PREDICTED, MOST_REPEATS = 1000, 100, 30_000, 5
ROWS_OF_COURSE, POINTS_OF_COURSE, LABELS_OF_COURSE = 100, 11, 8


@dataclass(frozen=True)
class ColumnImportance:
    """How much predictions depend on a column.

    Attributes:
        name: The column.
        crps, crps_error: By how much the mean CRPS grows if the column is permuted, in the units of y, and the standard
            error of this number.
        sigma, sigma_error: By how much sigma changes then: the mean of abs(log(new / old)), about the relative change,
            and its standard error.
    """

    name: str
    crps: float
    crps_error: float
    sigma: float
    sigma_error: float


@dataclass(frozen=True)
class Course:
    """Partial dependence: mean and interval, averaged over the rows, if a column has the same value in all of them.

    `kind` is "numbers", "dates" or "text"; `values` are numbers, days since 1970, or labels.
    """

    name: str
    kind: str
    values: list[Any]
    mean: list[float]
    lower: list[float]
    upper: list[float]


@dataclass(frozen=True)
class Explanation:
    """What predictions depend on; `print(explanation)` shows a table.

    Attributes:
        importances: Of all columns, those that change sigma most first.
        courses: The partial dependence of the first few of them.
        rows: Number of rows that were sampled.
        repeats: Number of permutations of each column.
        crps: CRPS of these rows.
        level: Level of the intervals in `courses`.
    """

    importances: list[ColumnImportance]
    courses: list[Course]
    rows: int
    repeats: int
    crps: float
    level: float = LEVEL_OF_COURSES

    def as_dict(self) -> dict[str, Any]:
        """All attributes as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        width = max(6, *(len(one.name) for one in self.importances))
        lines = [f"{'column':<{width}}  {'change of sigma':>16}  {'growth of the CRPS':>22}"]
        for one in self.importances:
            change = f"{100 * one.sigma:.1f} ± {100 * one.sigma_error:.1f} %"
            growth = f"{one.crps:.3g} ± {one.crps_error:.2g}"
            lines.append(f"{one.name:<{width}}  {change:>16}  {growth:>22}")
        return "\n".join(lines)


def explain(
    model: Any, X: Any, y: ArrayLike, *, courses: int = 3, max_rows: int = MOST_SAMPLED, random_state: int = 0
) -> Explanation:
    """Explain what the predictions of a fitted model depend on, for rows that it was not trained on.

    Columns that carry the same information share their importance: if one of them is permuted, the model still has the
    other.

    Args:
        model: Any fitted regressor with `predict_dist(X)` or `predict(X, return_std=True)`.
        X: (n, d) frame or array, as for the model.
        y: (n,) true values.
        courses: Number of columns whose partial dependence is computed.
        max_rows: Upper limit on the rows, which are drawn at random. With many columns fewer are drawn.
        random_state: Seed of the sample and the permutations.

    >>> from sklearn.linear_model import BayesianRidge
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = BayesianRidge().fit(X, 3 * X[:, 0])
    >>> explanation = explain(model, X, 3 * X[:, 0])
    >>> [(one.name, round(one.crps, 1)) for one in explanation.importances if one.crps > 0.1]
    [('x0', 3.3)]
    """
    check_number("courses", courses, 0, integer=True)
    check_number("max_rows", max_rows, 2, integer=True)
    check_one_target("y", y)
    columns, truth = Columns.of(X), np.asarray(y, dtype=np.float64).reshape(-1)
    if len(truth) != len(columns):
        raise must("y", f"have one value per row of X ({len(columns)})", f"{len(truth)} values", "give both one length")
    generator = np.random.default_rng(random_state)
    n = min(max(MOST_PREDICTED // len(columns.names), FEWEST_SAMPLED), max_rows, len(truth))
    sample = np.sort(generator.choice(len(truth), n, replace=False))
    columns, truth = columns.take(sample), truth[sample]
    repeats = int(np.clip(MOST_PREDICTED // (n * len(columns.names)), 1, MOST_REPEATS))
    crps, log_sigma = score_rows(model, columns, truth)
    importances = []
    for name in columns.names:
        orders = [generator.permutation(n) for _ in range(repeats)]
        again = score_rows(model, columns.repeat(repeats).permute(name, orders), np.tile(truth, repeats))
        growth = (again[0].reshape(repeats, n) - crps).mean(axis=0)
        change = np.abs(again[1].reshape(repeats, n) - log_sigma).mean(axis=0)
        importances.append(ColumnImportance(name, *mean_and_error(growth), *mean_and_error(change)))
    importances.sort(key=lambda one: (-one.sigma, -one.crps))
    few = columns.take(np.arange(min(n, ROWS_OF_COURSE)))
    drawn = [compute_course(model, columns, few, one.name) for one in importances[:courses]]
    return Explanation(importances, drawn, n, repeats, float(crps.mean()))


def score_rows(model: Any, columns: "Columns", truth: Floats) -> tuple[Floats, Floats]:
    """CRPS and logarithm of sigma of each row."""
    prediction = predict_distribution(model, columns.native)
    with np.errstate(divide="ignore"):
        # A grade may be certain; a change from a sigma of 0 would have no size.
        least = max(1e-4 * float(truth.std()), 1e-300)
        log_sigma = np.log(np.maximum(np.asarray(prediction.std, dtype=np.float64).reshape(-1), least))
    return np.asarray(prediction.crps(truth), dtype=np.float64).reshape(-1), log_sigma


def mean_and_error(values: Floats) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def compute_course(model: Any, columns: "Columns", few: "Columns", name: str) -> Course:
    """Mean and interval over a few rows, at quantiles of a column or at its most frequent labels."""
    kind, points = columns.points(name)
    n = len(few)
    rows = np.concatenate([np.full(n, position) for position in points])
    prediction = predict_distribution(model, few.repeat(len(points)).replace(name, columns, rows).native)
    ends = np.asarray(prediction.interval(LEVEL_OF_COURSES)).reshape(len(points), n, 2).mean(axis=1)
    mean = np.asarray(prediction.mean, dtype=np.float64).reshape(len(points), n).mean(axis=1)
    values = columns.table.columns[name][points]
    if kind == "dates":
        values = values.astype("datetime64[us]").astype(np.int64) / 86_400e6
    return Course(name, kind, values.tolist(), mean.tolist(), ends[:, 0].tolist(), ends[:, 1].tolist())


@dataclass(frozen=True, eq=False)
class Columns:
    """A frame, array or table that stays of its type while rows are taken and columns replaced."""

    native: Any
    table: Table  # the same, as columns

    @classmethod
    def of(cls, X: Any) -> "Columns":
        if isinstance(X, Table):
            return cls(X, X)
        if not nw.dependencies.is_into_dataframe(X):
            X = np.asarray(X)
            if X.ndim != 2:
                raise must("X", "have rows and columns", f"array of shape {X.shape}", "give an (n, d) array or frame")
            return cls(X, read_table(X, texts=range(X.shape[1])))
        return cls(X, read_table(X, texts=range(len(X.columns))))

    def __len__(self) -> int:
        return len(self.table)

    @property
    def names(self) -> Sequence[str]:
        return list(self.table.columns)

    def take(self, rows: NDArray[Any]) -> "Columns":
        table = self.table.take(rows)
        if isinstance(self.native, Table):
            return Columns(table, table)
        if isinstance(self.native, np.ndarray):
            return Columns(self.native[rows], table)
        return Columns(nw.from_native(self.native, eager_only=True)[rows.tolist()].to_native(), table)

    def repeat(self, times: int) -> "Columns":
        return self.take(np.tile(np.arange(len(self)), times))

    def permute(self, name: str, orders: Sequence[NDArray[Any]]) -> "Columns":
        """Exchange the values of a column among the rows of each repetition."""
        n = len(orders[0])
        return self.replace(name, self, np.concatenate([order + i * n for i, order in enumerate(orders)]))

    def replace(self, name: str, source: "Columns", rows: NDArray[Any]) -> "Columns":
        """Replace a column by that of these rows of another table of the same type."""
        position = self.names.index(name)
        table = Table({**self.table.columns, name: source.table.columns[name][rows]})
        if isinstance(self.native, Table):
            return Columns(table, table)
        if isinstance(self.native, np.ndarray):
            changed = self.native.copy()
            changed[:, position] = source.native[rows, position]
            return Columns(changed, table)
        frame, other = (nw.maybe_reset_index(nw.from_native(one.native, eager_only=True)) for one in (self, source))
        given = frame.columns[position]
        series = nw.maybe_reset_index(other[given][rows.tolist()])
        return Columns(frame.with_columns(series.alias(given)).to_native(), table)

    def points(self, name: str) -> tuple[str, NDArray[Any]]:
        """Kind of a column, and rows that hold its quantiles or its most frequent labels."""
        kind, values = self.table.kind(name), self.table.columns[name]
        known = np.flatnonzero(~self.table.missing(name))
        if not len(known):
            return kind, np.array([0])
        if kind == "text":
            _, first, counts = np.unique(values[known].astype(str), return_index=True, return_counts=True)
            return kind, known[first[np.argsort(-counts, kind="stable")[:LABELS_OF_COURSE]]]
        order = known[np.argsort(values[known], kind="stable")]
        shares = np.linspace(0.05, 0.95, POINTS_OF_COURSE)
        chosen = order[np.rint(shares * (len(order) - 1)).astype(int)]
        return kind, chosen[np.unique(values[chosen], return_index=True)[1]]

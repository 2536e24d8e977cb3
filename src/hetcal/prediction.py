"""Predictions: a distribution for each row, given by its mean, its standard deviation and its family.

`Prediction` is what estimators return and objectives accept. It works on torch tensors (differentiably, in training)
and on NumPy arrays (in the units of y, for users). This file imports neither torch nor anything that does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from hetcal._checks import Floats, check_choice, check_levels
from hetcal.families import GAUSSIAN, Family

# Rows at the start and at the end that a notebook shows of a prediction.
SHOWN_ROWS = 5


class ShownInNotebooks:
    """The first and last rows of a prediction as a table, which a notebook shows for it."""

    def _repr_html_(self: Any) -> str | None:
        if np.ndim(self.mean) == 0:
            return None  # then a notebook shows the text
        n = len(self.mean)
        rows = [*range(n)] if n <= 2 * SHOWN_ROWS else [*range(SHOWN_ROWS), *range(n - SHOWN_ROWS, n)]
        columns = predicted_columns(self.take(rows).numpy())
        lines = [html_line("th", ["", *columns])]
        for row, values in zip(rows, zip(*columns.values(), strict=True), strict=True):
            if row == n - SHOWN_ROWS and n > 2 * SHOWN_ROWS:
                lines.append(html_line("td", ["…"] * (1 + len(columns))))
            lines.append(html_line("td", [str(row), *map(shown_number, values)]))
        return f"<table>{''.join(lines)}</table><p>{type(self).__name__} of {n:,} row{'s' * (n != 1)}</p>"


def html_line(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def shown_number(value: float) -> str:
    """Five digits; a power of ten only for numbers that would be long without it.

    >>> shown_number(25812.34), shown_number(-0.0123456), shown_number(1e300)
    ('25812', '-0.012346', '1e+300')
    """
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.5g}"
    return np.format_float_positional(value, 5, unique=False, fractional=False, trim="-")


@dataclass(frozen=True)
class Prediction(ShownInNotebooks):
    """A distribution for each row: y = mean + std * z with z from the family, Gaussian by default.

    Args:
        mean: (n,), or (n, k) for k targets; tensors or NumPy arrays.
        std: Predictive standard deviation, like `mean`.
        epistemic_std: The part of `std` that more data would reduce, or None if the estimator cannot separate it.
        aleatoric_std: The part of `std` that is noise of y, or None; the squares of both parts add up to that of `std`.
        family: Shape of the distribution; see `hetcal.families`.

    >>> prediction = Prediction(mean=np.array([0.0, 10.0]), std=np.array([1.0, 2.0]))
    >>> prediction.interval(0.95).round(2)
    array([[-1.96,  1.96],
           [ 6.08, 13.92]])
    """

    mean: Any
    std: Any
    epistemic_std: Any = None
    aleatoric_std: Any = None
    family: Family = GAUSSIAN

    def interval(self, level: ArrayLike) -> Any:
        r"""Central prediction interval, eq. 2 of the paper; `level` is the nominal coverage, never alpha.

        .. math:: [\mu + F^{-1}((1 - level) / 2) \, \sigma, \; \mu + F^{-1}((1 + level) / 2) \, \sigma]

        with F the distribution function of the family; for the Gaussian :math:`\Phi`, and :math:`\mu \mp z \sigma`.

        Returns:
            (n, 2) with lower and upper end for one level, (n, 2, L) for a list of L levels; with k targets (n, k, 2)
            and (n, k, 2, L).
        """
        p = (1 + check_levels("level", level)) / 2
        return self.mean_plus(self.family.quantile(np.stack([1 - p, p])), axes=1 + p.ndim)

    def quantile(self, q: ArrayLike) -> Any:
        r"""Quantiles :math:`\mu + F^{-1}(q) \sigma`: (n,) for one q, (n, L) for L of them; with k targets (n, k, L)."""
        levels = check_levels("q", q)
        return self.mean_plus(self.family.quantile(levels), axes=levels.ndim)

    def z(self, y: Any) -> Any:
        r"""The standardized residual :math:`(y - \mu) / \sigma`, distributed as the family."""
        return (y - self.mean) / self.std

    def log_prob(self, y: Any) -> Any:
        r"""Log density at y, :math:`\log f(\frac{y - \mu}{\sigma}) - \log \sigma` with f that of the family."""
        log_std = self.std.log() if hasattr(self.std, "log") else np.log(self.std)
        return self.family.log_density(self.z(y)) - log_std

    def cdf(self, y: Any) -> Any:
        r"""Distribution function at y, :math:`F(\frac{y - \mu}{\sigma})`; for NumPy arrays only."""
        return self.family.cdf(self.z(y))

    def crps(self, y: Any) -> Any:
        """Continuous ranked probability score of each row, in the units of y (see `hetcal.families`)."""
        return self.std * self.family.crps(self.z(y))

    def with_family(self, family: Family) -> Self:
        """The same mean and standard deviation with another family."""
        return replace(self, family=family)

    def take(self, rows: Any) -> "Prediction":
        """The prediction of some of the rows."""
        parts = [None if values is None else values[rows] for values in self.columns]
        return from_columns(parts, self.family)

    def target(self, j: int) -> "Prediction":
        """The prediction of one of k targets: (n,) instead of (n, k)."""
        parts = [None if values is None else values[:, j] for values in self.columns]
        return from_columns(parts, self.family.target(j))

    def scaled(self, scale: Any, shift: Any = 0.0) -> "Prediction":
        """The prediction of `scale * y + shift`, scale > 0."""
        spreads = [None if values is None else values * scale for values in self.columns[1:]]
        return from_columns([self.mean * scale + shift, *spreads], self.family)

    def numpy(self) -> "Prediction":
        """The same prediction on NumPy float64 arrays, detached from any graph."""
        parts = [None if values is None else as_floats(values) for values in self.columns]
        return from_columns(parts, self.family.numpy())

    @property
    def columns(self) -> tuple[Any, ...]:
        """Mean, std, epistemic and aleatoric std."""
        return self.mean, self.std, self.epistemic_std, self.aleatoric_std

    def mean_plus(self, z: Any, axes: int) -> Any:
        """mean + z * std, where the last `axes` axes of z come after the axes of the mean."""
        behind = (...,) + (None,) * axes
        like_mean = self.mean.new_tensor(z) if hasattr(self.mean, "new_tensor") else z
        return self.mean[behind] + like_mean * self.std[behind]


def as_floats(values: Any) -> Floats:
    """A tensor, detached from its graph, or an array, as a NumPy float64 array."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)


def from_columns(columns: Iterable[Any], family: Family) -> Prediction:
    """The prediction with these `Prediction.columns`."""
    mean, std, epistemic_std, aleatoric_std = columns
    return Prediction(mean, std, epistemic_std, aleatoric_std, family)


def join_predictions(parts: Sequence[Prediction], concatenate: Callable[[list[Any]], Any]) -> Prediction:
    """The predictions of consecutive rows as one; `concatenate` is that of torch or of NumPy."""
    columns = zip(*(part.columns for part in parts), strict=True)
    joined = [None if column[0] is None else concatenate(list(column)) for column in columns]
    return from_columns(joined, parts[0].family)


def column_names(
    levels: Iterable[float], q: Iterable[float] = (), lower: Iterable[float] = (), upper: Iterable[float] = ()
) -> list[str]:
    """The names of `predicted_columns` for one target.

    >>> column_names([0.9, 0.975], q=[0.5], upper=[0.29])
    ['mean', 'std', 'lower_90', 'upper_90', 'lower_97.5', 'upper_97.5', 'quantile_0.5', 'upper_bound_29']
    """
    ends = [f"{end}_{100 * level:.10g}" for level in levels for end in ("lower", "upper")]
    bounds = [f"lower_bound_{100 * level:.10g}" for level in lower]
    bounds += [f"upper_bound_{100 * level:.10g}" for level in upper]
    return ["mean", "std", *ends, *(f"quantile_{p:.10g}" for p in q), *bounds]


def predicted_columns(
    prediction: Any,
    levels: Sequence[float] = (0.9,),
    q: Sequence[float] = (),
    lower: Sequence[float] = (),
    upper: Sequence[float] = (),
) -> dict[str, Floats]:
    """Columns of a table: mean, std, the ends of intervals, quantiles and one-sided bounds, in this order.

    With k targets, each has its columns, and their names end in the number of the target: mean_0, ..., mean_1, ...
    """
    if np.ndim(prediction.mean) == 2:
        parts = {
            j: predicted_columns(prediction.target(j), levels, q, lower, upper) for j in range(prediction.mean.shape[1])
        }
        return {f"{name}_{j}": values for j, part in parts.items() for name, values in part.items()}
    columns = [prediction.mean, prediction.std]
    for level in levels:
        columns += list(prediction.interval(level).T)
    columns += [prediction.quantile(p) for p in (*q, *(1 - level for level in lower), *upper)]
    return dict(zip(column_names(levels, q, lower, upper), columns, strict=True))


class DistributionMixin:
    """The predictions of a regressor that has `predict_dist`: mean, standard deviation, intervals and quantiles."""

    predict_dist: Callable[[Any], Any]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predicted mean, (n,) or (n, k) for k targets; with `return_std=True` the pair of mean and std."""
        prediction = self.predict_dist(X)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    def predict_interval(self, X: Any, level: ArrayLike = 0.9) -> Floats:
        """Central prediction intervals, (n, 2) for one level, (n, 2, L) for L levels; (n, k, 2, ...) for k targets."""
        check_levels("level", level)
        return np.asarray(self.predict_dist(X).interval(level))

    def predict_quantiles(self, X: Any, q: ArrayLike = (0.05, 0.5, 0.95)) -> Floats:
        """Quantiles, (n,) for one probability, (n, L) for a list of L probabilities; (n, k, ...) for k targets."""
        check_levels("q", q)
        return np.asarray(self.predict_dist(X).quantile(q))

    def predict_bound(self, X: Any, level: ArrayLike = 0.95, side: str = "upper") -> Floats:
        """One-sided bounds: with probability `level`, y is at most the upper bound, or at least the lower one.

        Returns:
            (n,) for one level, (n, L) for a list of L levels; (n, k, ...) for k targets.
        """
        levels = check_levels("level", level)
        is_upper = check_choice("side", side, ("upper", "lower")) == "upper"
        return self.predict_quantiles(X, levels if is_upper else 1 - levels)

    def predict_frame(self, X: Any, levels: ArrayLike = 0.9) -> Any:
        """The predictions as a frame of the same library as X (pandas for an array), with the index of X.

        Its columns are `mean`, `std`, and for each level the ends of the interval, such as `lower_90` and `upper_90`.
        With k targets, names end in the number of the target: `mean_0`.
        """
        import narwhals.stable.v2 as nw  # only here, because metrics and plots need no frames

        chosen = np.atleast_1d(check_levels("levels", levels)).tolist()
        columns = predicted_columns(self.predict_dist(X), chosen)
        if not nw.dependencies.is_into_dataframe(X):
            return nw.from_dict(columns, backend="pandas").to_native()
        given = nw.from_native(X, eager_only=True)
        frame: Any = nw.from_dict(columns, backend=given.implementation).to_native()
        index = nw.maybe_get_index(given)
        if index is not None:
            frame.index = index
        return frame

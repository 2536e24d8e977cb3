"""What all peers share: reading a table, encoding it as numbers, and the import of a library that may be missing."""

from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from hetcal._checks import Floats
from hetcal.prediction import DistributionMixin
from hetcal.tabular.columns import Table, read_table

# The quantiles that a peer without a parametric distribution is asked for: every percent, and the ends of the 99 %
# interval, which is the widest one of the calibration error.
QUANTILE_LEVELS = np.array([0.005, *(percent / 100 for percent in range(1, 100)), 0.995])


class Peer(DistributionMixin, BaseEstimator):
    """A regressor of another library, with its defaults and one thread.

    A subclass sets `title`, `packages` and `takes_missing`, and implements `_fit` and `_predict` for matrices.

    Args:
        random_state: Seed of the library's own random numbers.
    """

    title: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]  # to import; their names with hyphens are those to install
    takes_missing: ClassVar[bool] = True  # whether NaN may remain in the matrix; otherwise means replace it

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    @classmethod
    def import_packages(cls) -> None:
        """Import the library, so that `fit` does not spend time on it, or say how to install it."""
        for package in cls.packages:
            try:
                import_module(package)
            except ImportError as error:
                advice = "install it with: pip install 'hetcal[peers]'"
                raise ImportError(f"the method {cls.title} needs {package} ({error}); {advice}") from error

    def fit(self, X: Any, y: ArrayLike, groups: NDArray[Any] | None = None) -> Self:
        """Fit to a frame, array or `Table`; most libraries have no use for `groups`."""
        self.import_packages()
        table = X if isinstance(X, Table) else read_table(X)
        self.encoder_ = MatrixEncoder(fill=not self.takes_missing).fit(table)
        self._fit(self.encoder_.transform(table), np.asarray(y, dtype=np.float64), groups)
        return self

    def predict_dist(self, X: Any) -> Any:
        """The predictive distribution, in the units of y."""
        table = X if isinstance(X, Table) else read_table(X)
        return self._predict(self.encoder_.transform(table))

    def _fit(self, x: Floats, y: Floats, groups: NDArray[Any] | None) -> None:
        raise NotImplementedError

    def _predict(self, x: Floats) -> Any:
        raise NotImplementedError


class MatrixEncoder:
    """A table as a matrix: numbers unchanged, dates as days, labels one-hot (a label unknown to `fit` is all zeros).

    Args:
        fill: Whether the mean of the training rows replaces missing numbers, which otherwise remain NaN.
    """

    def __init__(self, fill: bool) -> None:
        self.fill = fill

    def fit(self, table: Table) -> Self:
        texts = [name for name, kind in table.kinds.items() if kind == "text"]
        self.labels = {name: np.unique(table.columns[name].astype(str)) for name in texts}
        self.means = {}
        for name in table.columns:
            if name not in self.labels:
                known = as_numbers(table, name)[~table.missing(name)]
                self.means[name] = known.mean() if len(known) else 0.0
        return self

    def transform(self, table: Table) -> Floats:
        parts = []
        for name in [*self.means, *self.labels]:
            if name in self.labels:
                parts.append((table.columns[name].astype(str)[:, None] == self.labels[name]).astype(np.float64))
            else:
                numbers = as_numbers(table, name)
                filled = np.where(np.isnan(numbers), self.means[name], numbers) if self.fill else numbers
                parts.append(filled[:, None])
        return np.hstack(parts)


def as_numbers(table: Table, name: str) -> Floats:
    """A column of numbers, or of dates in days since 1970; missing values are NaN."""
    values = table.columns[name]
    if table.kind(name) == "dates":
        days = values.astype("datetime64[us]").astype(np.int64) / 86_400e6
        return np.where(table.missing(name), np.nan, days)
    return values

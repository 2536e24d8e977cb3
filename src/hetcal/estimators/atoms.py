r"""Targets with atoms: values that many rows share, such as grades, counts, a cap at 50 or mostly zeros.

A latent t follows a continuous distribution and y = g(t), where g maps whole intervals of t to one value each. If the
intervals cover the line, every y is an atom ("grid"); if only the outermost values are atoms ("ends"), y = t between
them. `fit_atoms` finds the values and the intervals from predictions of rows that were held out.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hetcal._checks import Floats, must
from hetcal.distributions import EDGE, RandomizedPIT, blocks, draws_of_rows

# A grid has at most so many values, and at least so many rows for each of them on average.
MOST_VALUES, ROWS_PER_VALUE = 300, 4
# The smallest or largest value is an atom if more than this share of the rows has it, and at least so many rows.
SHARE_AT_END, ROWS_AT_END = 0.02, 5
BISECTIONS = 50


@dataclass(frozen=True, eq=False)
class AtomicPrediction(RandomizedPIT):
    r"""The distribution of y = g(t) with t from another prediction: the members of `Prediction`, on NumPy arrays.

    .. math:: g(t) = values_j \text{ if } lower_j < t \le upper_j, \qquad g(t) = t \text{ in no such interval}

    Quantiles are :math:`g(F_t^{-1}(q))`, so intervals end on atoms and cover at least their level, ends included. Mean,
    standard deviation and CRPS are exact if the intervals cover the line, and otherwise computed from 200 equally
    probable quantiles. Calibration metrics use the randomized PIT; see `RandomizedPIT` and docs/metrics.md.

    Args:
        base: The prediction of t, for one target.
        values: (m,) ascending.
        lower, upper: (m,) ends of disjoint ascending intervals; the first may be -inf, the last inf.
        draws: (n,) the uniform numbers of the randomized PIT; by default those of the first n rows.

    >>> from hetcal.prediction import Prediction
    >>> base = Prediction(np.array([0.0, 1.2]), np.ones(2))
    >>> coin = AtomicPrediction(base, values=[0.0, 1.0], lower=[-np.inf, 0.5], upper=[0.5, np.inf])
    >>> coin.quantile(0.5), coin.mean.round(2), coin.cdf(np.zeros(2)).round(2)
    (array([0., 1.]), array([0.31, 0.76]), array([0.69, 0.24]))
    """

    base: Any
    values: Any
    lower: Any
    upper: Any
    draws: Any = None

    def __post_init__(self) -> None:
        for name in ("values", "lower", "upper"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if self.draws is None:
            object.__setattr__(self, "draws", draws_of_rows(self._row_count()))

    @property
    def is_grid(self) -> bool:
        """Whether every value is an atom."""
        outer = self.lower[0] == -np.inf and self.upper[-1] == np.inf
        return bool(outer and (self.lower[1:] == self.upper[:-1]).all())

    @property
    def epistemic_std(self) -> Any:
        """The part of `std` that more data would reduce, with the share of the variance that it has for t."""
        return None if self.base.epistemic_std is None else self.std * (self.base.epistemic_std / self.base.std)

    @property
    def aleatoric_std(self) -> Any:
        return None if self.base.aleatoric_std is None else self.std * (self.base.aleatoric_std / self.base.std)

    def quantile(self, q: ArrayLike) -> Floats:
        t = self.base.quantile(q)
        j = np.minimum(np.searchsorted(self.upper, t), len(self.upper) - 1)
        return np.where((self.lower[j] < t) & (t <= self.upper[j]), self.values[j], t)

    def cdf(self, y: Any) -> Floats:
        """Distribution function at y, the probability of values up to y."""
        return self._base_cdf(*self._bounds(y, "right"))

    def cdf_below(self, y: Any) -> Floats:
        """The probability of values less than y."""
        return self._base_cdf(*self._bounds(y, "left"))

    def log_prob(self, y: Any) -> Floats:
        """The logarithm of the probability of y at an atom, and of the density elsewhere.

        The two are not comparable with each other. Instead of 0, the probability of an atom and the density of a value
        that is impossible are 1e-12.
        """
        y, highest = self._bounds(y, "right")
        mass = np.maximum(self.cdf(y) - self.cdf_below(y), EDGE)
        is_free = (highest == y) & ~np.isin(y, self.values) & ~np.isin(y, self.upper)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return np.where(is_free, self.base.log_prob(y), np.log(mass))

    def crps(self, y: Any) -> Floats:
        """Continuous ranked probability score of the distribution with its atoms."""
        if not self.is_grid:
            return super().crps(y)
        y, steps = np.asarray(y, dtype=np.float64), np.diff(self.values)
        scores = np.abs(y - np.clip(y, self.values[0], self.values[-1]))  # beyond the outermost atoms
        for rows in blocks(len(y)):
            upto = self.take(rows)._probabilities().cumsum(axis=1)[:, :-1]
            passed = np.clip(y[rows, None] - self.values[:-1], 0, steps)
            scores[rows] += (passed * upto**2 + (steps - passed) * (1 - upto) ** 2).sum(axis=1)
        return scores

    def nodes(self) -> tuple[Any, Any]:
        return (self.values[None], self._probabilities()) if self.is_grid else super().nodes()

    def take(self, rows: Any) -> "AtomicPrediction":
        return AtomicPrediction(self.base.take(rows), self.values, self.lower, self.upper, self.draws[rows])

    def numpy(self) -> "AtomicPrediction":
        return AtomicPrediction(self.base.numpy(), self.values, self.lower, self.upper, self.draws)

    def _bounds(self, y: Any, side: Any) -> tuple[Floats, Floats]:
        """For each y the highest t whose g(t) is at most y (side "right") or less than y (side "left")."""
        y = np.broadcast_to(np.asarray(y, dtype=np.float64), len(self.draws))
        passed = np.searchsorted(self.values, y, side=side)
        above_last_atom = np.maximum(y, np.append(-np.inf, self.upper)[passed])
        return y, np.minimum(above_last_atom, np.append(self.lower, np.inf)[passed])

    def _base_cdf(self, y: Floats, t: Floats) -> Floats:
        """Distribution function of t; y takes the place of an infinite t, which a base need not know."""
        inner = self.base.cdf(np.where(np.isfinite(t), t, y))
        return np.where(np.isfinite(t), inner, t > 0)

    def _probabilities(self) -> Floats:
        """(n, m) probability of each atom of a grid."""
        n = len(self.draws)
        edges = [np.zeros(n), *(self.base.cdf(np.full(n, edge)) for edge in self.upper[:-1]), np.ones(n)]
        return np.diff(np.stack(edges, axis=1), axis=1)


@dataclass(frozen=True, eq=False)
class Atoms:
    """What `fit_atoms` learned: the values and their latent intervals, as of `AtomicPrediction`."""

    values: Floats
    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        ends = np.ravel(np.column_stack([self.lower, self.upper]))
        if not (len(self.values) and (np.diff(self.values) > 0).all() and (np.diff(ends) >= 0).all()):
            raise must("atoms", "have ascending values and disjoint ascending intervals", self, "see AtomicPrediction")

    def apply(self, prediction: Any) -> AtomicPrediction:
        return AtomicPrediction(prediction, self.values, self.lower, self.upper)


def find_atoms(y: Floats, weights: Floats | None = None) -> tuple[str, Floats] | None:
    """The kind of atoms that a target has, "grid" or "ends", and their values; None if it has none.

    A grid has from 2 to 300 distinct values and at least 4 rows for each of them on average. Otherwise the smallest or
    the largest value is an atom if more than 2 % of the rows have it, and at least 5. A weight of 2 counts as two rows.

    >>> find_atoms(np.array([3.0, 4.0, 3.0, 4.0, 4.0, 3.0, 3.0, 4.0]))
    ('grid', array([3., 4.]))
    """
    values, which = np.unique(y, return_inverse=True)
    counts = np.bincount(which, weights)
    values, counts = values[counts > 0], counts[counts > 0]
    rows = counts.sum()
    if len(values) < 2:
        return None
    if len(values) <= min(MOST_VALUES, rows / ROWS_PER_VALUE):
        return "grid", values
    is_atom = (counts[[0, -1]] > SHARE_AT_END * rows) & (counts[[0, -1]] >= ROWS_AT_END)
    return ("ends", values[[0, -1]][is_atom]) if is_atom.any() else None


def fit_atoms(base: Any, y: Floats, weights: Floats | None = None) -> Atoms | None:
    """Learn the atoms of a target from predictions of held-out rows; None if they would not lower the CRPS.

    The latent intervals of a grid end halfway between neighboring values. At an end of the range, the interval ends
    where the predictions have on average as much of their mass beyond as there are rows with the outermost value, but
    not outside the range of y.

    Args:
        base: The predictions of the rows, without atoms.
        y: (n,) their true values.
        weights: (n,) a weight of 2 counts as two rows.
    """
    found = find_atoms(y, weights)
    if found is None:
        return None
    kind, values = found
    if kind == "grid":
        middles = values[:-1] + np.diff(values) / 2
        atoms = Atoms(values, np.append(-np.inf, middles), np.append(middles, np.inf))
    else:
        shares = (np.average(part, weights=weights) for part in (y <= y.min(), y < y.max()))
        low, high = (find_edge(base, y, weights, share) for share in shares)
        is_atom = np.isin([y.min(), y.max()], values)
        atoms = Atoms(values, np.array([-np.inf, high])[is_atom], np.array([low, np.inf])[is_atom])
    gain = np.average(base.crps(y) - atoms.apply(base).crps(y), weights=weights)
    return atoms if gain > 0 else None


def find_edge(base: Any, y: Floats, weights: Floats | None, share: float) -> float:
    """The value up to which the predictions have on average this share of their mass, by bisection within y's range."""
    low, high = float(y.min()), float(y.max())
    for _ in range(BISECTIONS):
        middle = low + (high - low) / 2
        is_low = np.average(base.cdf(np.full(len(y), middle)), weights=weights) < share
        low, high = (middle, high) if is_low else (low, middle)
    return low + (high - low) / 2

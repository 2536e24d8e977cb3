r"""Calibration without losing rows: what the members of an ensemble predict for rows that they have not seen.

Every row is held out by some members and trained on by the others, so all rows train and all rows calibrate. Inputs are
locations and scales of held-out rows and their targets, as NumPy arrays; nothing here knows networks. In order of use:

1. `choose_floor`: the least sigma of a group whose sigma may be too small;
2. `choose_stack`: weights of groups of members, by the CRPS of the pooled held-out predictions;
3. `choose_widening`: how much the intervals widen for rows on which the groups disagree;
4. `fit_shape`: the quantile function of the standardized residuals, which replaces the normal one;
5. `pool_factor`: a pool of many members errs less than the few that have not seen a row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import erf, ndtri, softmax

from hetcal._checks import Floats
from hetcal.families import GAUSSIAN, SCORES, Empirical

# Fractions of the root-mean-square error that `choose_floor` tries, and factors of sigma that each is judged with. None
# is 0: where similar rows have equal targets, all trees may agree exactly, and 1 / sigma would have no bound.
FLOORS = (0.01, 0.03, 0.1, 0.3)
FACTORS = np.geomspace(0.3, 3.0, 9)
# Powers of 1 / sigma that `choose_stack` tries.
POWERS = (0.0, 1.0)
# The CRPS may be higher by this share with weights by certainty, unless whole groups are held out. New rows may repeat
# training rows, more often than held-out rows do (their copies are held out, too); certainty is then worth more.
CERTAINTY_PREFERENCE = 0.01
# Strength of the pull toward equal weights in `stack_groups`, relative to the CRPS, times sqrt(n).
EQUAL_WEIGHTS_PULL = 0.1
# Multiples of the variance between groups that `choose_widening` tries.
WIDENINGS = (0.0, 2.0, 6.0)
# A shape counts as much as this many rows of a normal shape, so that few rows do not make it erratic.
NORMAL_ROWS = 20
# Residuals beyond this many half widths of the central 95 % are moved there: a mistyped y must not shape all rows.
MOST_HALF_WIDTHS = 10
# The pool is not believed to be better than held-out predictions by more than this factor.
LEAST_FACTOR = 0.5
# Rounds of drawing the latent residuals of a target with atoms, and of fitting their shape.
ATOM_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out predictions, (groups, n, targets): each row by the member of each group that has not seen it.

    Attributes:
        mean, std: The predictions.
        seconds: For some rows, the predictions of second members that have not seen them either, one for each division
            of the rows into parts.
        are_groups: Whether whole groups of rows were held out; new rows are then of new groups.
    """

    mean: Floats
    std: Floats
    seconds: Sequence["SecondOpinion"] = ()
    are_groups: bool = False


@dataclass(frozen=True, eq=False)
class SecondOpinion:
    """Predictions of some rows, (groups, rows, targets), by other members that have not seen them either.

    They are of all groups whose members have the same parts: such members miss the same rows and err alike, so that
    only together do they show how much a second opinion helps.
    """

    groups: Sequence[int]
    rows: NDArray[np.intp]
    mean: Floats
    std: Floats


def choose_floor(mean: Floats, std: Floats, y: Floats, weights: Floats) -> Floats:
    r"""The floor f of each target, (targets,), with the least CRPS of one group, :math:`\sigma^2 + f^2`.

    Where all trees of a forest agree, their spread is 0, and yet they may all be wrong.
    """
    error = y - mean
    unit = np.sqrt(np.average(error**2, axis=0, weights=weights))

    def score(fraction: float) -> Floats:
        floored = np.maximum(np.sqrt(std**2 + (fraction * unit) ** 2), 1e-300)
        z = error / floored
        scores = [np.average(floored * f * GAUSSIAN.crps(z / f), axis=0, weights=weights) for f in FACTORS]
        return np.min(scores, axis=0)

    return np.take(FLOORS, np.argmin([score(fraction) for fraction in FLOORS], axis=0)) * unit


@dataclass(frozen=True, eq=False)
class Stack:
    r"""How the groups are pooled, for each row by itself.

    .. math:: \mu = \sum_g w_g(x) \mu_g, \quad s = \sum_g w_g(x) \sigma_g, \quad
              w_g(x) \propto w_g \, \sigma_g(x)^{-\gamma}

    Attributes:
        group_weights: w, (groups,).
        power: :math:`\gamma`. With 1, a group counts more for the rows about which it is more certain.
        widening: The multiple c of the variance between groups in :math:`\sigma^2 = s^2 + c \, b`.
        n_widening: The number of groups, the first ones, whose disagreement b widens.
    """

    group_weights: Floats
    power: float
    widening: float = 0.0
    n_widening: int = 0

    def pool(self, mean: Floats, std: Floats) -> tuple[Floats, Floats, Floats]:
        """Location, scale and widened scale, (n, targets), of predictions (groups, n, targets)."""
        shares = self.group_weights[:, None, None] * std**-self.power
        shares /= shares.sum(0)
        location, scale = (shares * mean).sum(0), (shares * std).sum(0)
        if not self.widening:
            return location, scale, scale
        first = slice(self.n_widening)
        return location, scale, np.sqrt(scale**2 + self.widening * between_groups(mean[first], shares[first]))


def choose_stack(mean: Floats, std: Floats, y: Floats, weights: Floats, preference: float = 0.0) -> Stack:
    """The weights of the groups and the power of 1 / sigma with the least CRPS, each with the shape that suits it.

    With a power of 1 the CRPS may be higher by the share `preference`.
    """

    def score(stack: Stack) -> float:
        location, scale, _ = stack.pool(mean, std)
        total = 0.0
        for r, unit in zip(((y - location) / scale).T, scale.T, strict=True):
            center, spread, shape = fit_shape(r, weights).standardized()
            total += float(np.average(spread * unit * shape.crps((r - center) / spread), weights=weights))
        return total / (1 + preference * stack.power)

    return min((Stack(stack_groups(mean, std, y, weights, power), power) for power in POWERS), key=score)


def stack_groups(mean: Floats, std: Floats, y: Floats, weights: Floats, power: float = 0.0) -> Floats:
    r"""Weights of the groups, (groups,), with the least CRPS of the pooled Gaussian.

    .. math:: \min_w \; \overline{\mathrm{CRPS}}\left(N(\mu, \sigma^2), y\right), \qquad
              \mu = \sum_g w_g(x) \mu_g, \quad \sigma = \sum_g w_g(x) \sigma_g, \quad
              w_g(x) \propto e^{a_g} (\sigma_g / \bar\sigma_g)^{-\gamma}

    plus a small penalty on :math:`G \sum_g (w_g - 1/G)^2`, which pulls toward equal weights and yet lets a group of
    no use have almost none; here :math:`w_g \propto e^{a_g}`, and :math:`\bar\sigma_g` is the geometric mean. To
    average locations and scales is to average quantile functions, which keeps the shape (Vincent, 1912); a mixture
    would widen it.
    """
    share = weights / weights.sum() / y.shape[1]
    log_std = np.log(std)
    usual = (log_std.sum(2) @ share)[:, None, None]
    certainty = -power * (log_std - usual)

    def score(a: Floats) -> tuple[float, Floats]:
        w = np.exp(a[:, None, None] - a.max() + certainty)
        w /= w.sum(0)
        location, scale = (w * mean).sum(0), (w * std).sum(0)
        z = (y - location) / scale
        crps = GAUSSIAN.crps(z)
        by_mean = -erf(z / math.sqrt(2))
        by_std = crps + z * by_mean
        slope = (w * (by_mean * (mean - location) + by_std * (std - scale))).sum(2) @ share / base
        usual_w = softmax(a)
        excess = pull * (usual_w - 1 / len(a)) * len(a)
        penalty = float(excess @ (usual_w - 1 / len(a)))
        return float(share @ (scale * crps).sum(1)) / base + penalty, slope + 2 * usual_w * (excess - usual_w @ excess)

    pull, base = 0.0, 1.0
    base = score(np.zeros(len(mean)))[0] or 1.0
    pull = EQUAL_WEIGHTS_PULL / math.sqrt(len(y))
    a = minimize(score, np.zeros(len(mean)), jac=True, method="L-BFGS-B").x + power * usual[:, 0, 0]
    return np.asarray(softmax(a))


def between_groups(mean: Floats, shares: Floats) -> Floats:
    r"""What groups disagree about, :math:`\sum_g w_g (\mu_g - \mu)^2` with their own center, (n, targets).

    `shares` are weights for each row, (groups, n, targets), whose sum may be less than 1.
    """
    center = (shares * mean).sum(0) / shares.sum(0)
    return np.asarray((shares * (mean - center) ** 2).sum(0))


def choose_widening(stack: Stack, mean: Floats, std: Floats, y: Floats, weights: Floats, n_widening: int) -> Stack:
    """The stack with the multiple of the variance between the first groups that has the least CRPS.

    Each candidate is judged with the constant factor of sigma that suits it, because the shape is fitted afterwards.
    """

    def score(candidate: Stack) -> float:
        location, _, scale = candidate.pool(mean, std)
        z = (y - location) / scale
        factor = np.sqrt(np.average(z**2, axis=0, weights=weights)).clip(1e-6)
        factors = factor * np.array([0.4, 0.6, 0.8, 1.0])[:, None]
        scores = [np.average(scale * f * GAUSSIAN.crps(z / f), axis=0, weights=weights) for f in factors]
        return float(np.min(scores, axis=0).mean())

    return min((replace(stack, widening=c, n_widening=n_widening) for c in WIDENINGS), key=score)


def fit_shape(residuals: Floats, weights: Floats) -> Empirical:
    """The quantile function of standardized residuals, (n,), smoothed.

    At a few knots in normal scores (more for more rows) a straight line is fitted to the sorted residuals near the
    knot. Between the knots and beyond them, where there are hardly any residuals, it is linear in the normal score.
    """
    order = np.argsort(residuals)
    r, w = residuals[order], weights[order] / weights.sum()
    n = 1 / float(w @ w)
    scores = ndtri(np.cumsum(w) - w / 2)
    r = without_gross_outliers(r, scores)
    limit = min(3.0, max(1.0, float(ndtri(1 - 2.5 / max(n, 10)))))
    knots = np.linspace(-limit, limit, int(np.clip(math.sqrt(n) / 2, 5, 41)))
    spacing = knots[1] - knots[0]
    values = np.array([local_line(scores, r, w, knot, 0.6 * spacing) for knot in knots])
    center = float(w @ r)
    spread = math.sqrt(float(w @ (r - center) ** 2))
    values = np.maximum.accumulate((n * values + NORMAL_ROWS * (center + spread * knots)) / (n + NORMAL_ROWS))
    # Strictly increasing, so that it has an inverse and a density.
    values += 1e-4 * max(spread, 1e-9 * max(1.0, abs(center))) * knots
    # The slope over two pieces, because the outermost one rests on few rows.
    slopes = (values[[2, -1]] - values[[0, -3]]) / (2 * spacing)
    beyond = slopes[0] * np.minimum(SCORES + limit, 0) + slopes[1] * np.maximum(SCORES - limit, 0)
    return Empirical(np.interp(SCORES, knots, values) + beyond)


def without_gross_outliers(r: Floats, scores: Floats) -> Floats:
    """Sorted residuals, those far beyond the central 95 % moved nearer; `scores` are their normal scores."""
    low, middle, high = np.interp([-2.0, 0.0, 2.0], scores, r)
    reach = MOST_HALF_WIDTHS * (high - low) / 2
    return r.clip(middle - reach, middle + reach) if reach > 0 else r


def local_line(x: Floats, y: Floats, weights: Floats, at: float, width: float) -> float:
    """Value at one point of the straight line that fits y(x) best near it, with Gaussian weights."""
    near = weights * np.exp(-(((x - at) / width) ** 2) / 2)
    total = near.sum()
    if total <= 0:
        return float(np.interp(at, x, y))
    center, height = near @ x / total, near @ y / total
    variance = near @ (x - center) ** 2
    slope = near @ ((x - center) * (y - height)) / variance if variance > 1e-12 * total else 0.0
    return float(height + slope * (at - center))


def fit_shape_of_cells(lower: Floats, upper: Floats, residuals: Floats, weights: Floats) -> Empirical:
    """The shape of a target with atoms, whose latent residual is only known to lie between `lower` and `upper`.

    Latent residuals are drawn from the present shape inside their cells (seeded), and the shape is fitted to them, a
    few times. Where a cell is narrower than the scale, that spreads the rows of an atom over it; where it is wider, the
    row says little, and the shape stays as it is.
    """
    uniform = np.random.default_rng(0).random(len(residuals))
    shape = fit_shape(residuals, weights)
    for _ in range(ATOM_ROUNDS):
        low, high = shape.cdf(lower), shape.cdf(upper)
        drawn = shape.quantile(np.clip(low + uniform * (high - low), 1e-9, 1 - 1e-9))
        shape = fit_shape(np.where(lower < upper, drawn, residuals), weights)
    return shape


def pool_factor(held_out: HeldOut, stack: Stack, y: Floats, weights: Floats, parts: int) -> Floats:
    r"""Ratio of the errors of the whole pool to those of held-out predictions, (targets,).

    A held-out prediction has one member per group, the pool averages k = `parts` of them. Where second members have
    not seen a row either, two are averaged: with :math:`r_1, r_2` the standardized residuals of one and of two,

    .. math:: \rho^2 = 1 - 2 (1 - 1/k) \sum_d \left(1 - \left(\overline{|r_2|} / \overline{|r_1|}\right)^2\right)

    because the variance that averaging removes is v / 2 for two members and (1 - 1/k) v for k of them. The sum is over
    the divisions d of the rows into parts, of which members err independently. The largest residuals are cut to their
    quantile of 98 %: two members help more there, and the mean would be theirs.
    """
    removed = np.zeros(y.shape[1])
    for opinion in held_out.seconds:
        residuals = sizes_of_residuals(held_out, stack, y, opinion)
        limits = np.quantile(residuals, 0.98, axis=(0, 1))
        first, both, second = np.tensordot(weights[opinion.rows], np.minimum(residuals, limits), (0, 1))
        tiny = 1e-300  # errors of exactly 0 have the ratio 1
        removed += 1 - ((both + tiny) / ((first + second) / 2 + tiny)) ** 2
    return np.sqrt(np.clip(1 - 2 * (1 - 1 / parts) * removed, LEAST_FACTOR**2, 1.0))


def sizes_of_residuals(held_out: HeldOut, stack: Stack, y: Floats, opinion: SecondOpinion) -> Floats:
    """Absolute standardized residuals by the first members, by both, and by the second ones: (3, rows, targets)."""
    mean, std = held_out.mean[:, opinion.rows], held_out.std[:, opinion.rows]  # copies
    first = stack.pool(mean, std)
    mean[opinion.groups], std[opinion.groups] = opinion.mean, opinion.std
    second = stack.pool(mean, std)
    both = [(one + other) / 2 for one, other in zip(first, second, strict=True)]
    return np.stack([np.abs(y[opinion.rows] - location) / scale for location, _, scale in (first, both, second)])

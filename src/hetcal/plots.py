"""Plots of predictions, for users (paper, figures 1 and 2).

A function of `(y, mean, std)` also accepts `(y, prediction)`, like the metrics, but for one target at a time. Every
function draws on `ax`, or on new axes, and returns the axes. Methods differ in line style and marker as well as in
color, so that a grayscale print stays legible. No global setting of matplotlib is changed.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetcal._checks import check_number, check_vector, must
from hetcal.metrics import (
    calibration_curve,
    ce,
    ce_noise_floor,
    equal_count_bins,
    rmse,
    sharpness,
)
from hetcal.metrics.history import History
from hetcal.metrics.inputs import Mean, Std, read_prediction
from hetcal.prediction import Prediction

try:
    from matplotlib import pyplot
    from matplotlib.axes import Axes
except ImportError as error:
    raise ImportError("hetcal.plots needs matplotlib; install it with: pip install 'hetcal[plots]'") from error

Style = dict[str, Any]

# The style of each curve on the same axes: different dashes, different markers, filled and hollow in turn.
LOOKS: tuple[Style, ...] = (
    {"color": "#1f4e79", "linestyle": "-", "marker": "o"},
    {"color": "#c55a11", "linestyle": "--", "marker": "s", "markerfacecolor": "white"},
    {"color": "#3a7d44", "linestyle": "-.", "marker": "^"},
    {"color": "#7a3e9d", "linestyle": ":", "marker": "D", "markerfacecolor": "white"},
    {"color": "#000000", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#8c6d1f", "linestyle": (0, (8, 3)), "marker": "P", "markerfacecolor": "white"},
)
BARS: Style = {"fmt": "_", "color": "0.3", "ecolor": "0.65", "elinewidth": 1.5, "markersize": 5}
INSIDE: Style = {"linestyle": "none", "marker": "o", "color": "#1f4e79", "markersize": 4, "markerfacecolor": "white"}
OUTSIDE: Style = {"linestyle": "none", "marker": "X", "color": "#c00000", "markersize": 6, "markeredgecolor": "black"}
DOTS: Style = {"linestyle": "none", "marker": ".", "color": "0.6", "markersize": 4, "rasterized": True}
BINS: Style = {"linestyle": ":", "marker": "s", "color": "#c55a11", "markersize": 7, "markeredgecolor": "black"}
STAR: Style = {"linestyle": "none", "marker": "*", "color": "black", "markersize": 13, "markeredgecolor": "white"}
MAX_DOTS = 2_000


def plot_calibration(
    y: ArrayLike,
    mean: Mean,
    std: Std = None,
    *,
    label: str | None = None,
    confidence: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Observed against nominal coverage (paper, figure 2): overconfident below the diagonal, underconfident above it.

    A calibrated model stays inside the gray band at all levels at once with probability `confidence`. Call the function
    again with the same `ax` to compare methods on the same rows; the first call draws the diagonal and the band.
    """
    curve = calibration_curve(y, mean, std, confidence=confidence)
    ax = _axes(ax, figsize=(5, 5))
    nth = _count(ax, "hetcal-coverage")
    if nth == 0:
        noise = f"noise of a calibrated model\n({100 * confidence:g} %, all levels at once)"
        ax.fill_between(curve.levels, curve.lower, curve.upper, color="0.85", linewidth=0, label=noise)
        ax.plot([0, 1], [0, 1], color="0.35", linewidth=1, label="calibrated")
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.set(xlabel="Nominal coverage (level of the interval)", ylabel="Observed coverage (share of rows inside)")
    floor = ce_noise_floor(np.size(y))
    name = f"{label or 'model'} (CE {ce(y, mean, std):.3f}, floor {floor:.3f})"
    marks = slice(9 - 2 * nth % 10, None, 10)  # shifted from curve to curve, so that no marker hides another
    ax.plot(curve.levels, curve.coverage, **_look(nth), markevery=marks, label=name, gid="hetcal-coverage")
    ax.legend(loc="best", fontsize="small")
    return ax


def plot_intervals(
    y: ArrayLike,
    mean: Mean,
    std: Std = None,
    *,
    level: float = 0.9,
    max_rows: int = 100,
    ax: Axes | None = None,
) -> Axes:
    """Prediction intervals and true values, sorted by the mean; true values outside their interval are crosses.

    More than `max_rows` rows are thinned evenly along the mean. For a transformed or recalibrated prediction the
    median is shown instead of the mean, because it lies inside every interval.
    """
    truth, prediction = read_prediction(y, mean, std)
    check_number("max_rows", max_rows, 1, integer=True)
    center, name = prediction.quantile(0.5), "mean" if isinstance(prediction, Prediction) else "median"
    n, shown = len(truth), _thin(np.argsort(center, kind="stable"), max_rows)
    truth, center, place = truth[shown], center[shown], np.arange(len(shown))
    lower, upper = prediction.take(shown).interval(level).T
    inside = (lower <= truth) & (truth <= upper)  # as drawn, ends included
    arms = np.maximum([center - lower, upper - center], 0)  # rounding may put an end on the wrong side

    ax = _axes(ax, figsize=(8, 4))
    ax.errorbar(place, center, yerr=arms, label=f"{name} and {100 * level:g} % interval", **BARS)
    for where, rows, style in (("inside", inside, INSIDE), ("outside", ~inside, OUTSIDE)):
        ax.plot(place[rows], truth[rows], label=f"true value {where} ({rows.sum()} of {len(shown)})", **style)
    of_all = "Rows" if len(shown) == n else f"{len(shown)} of {n} rows"
    ax.set(xlabel=f"{of_all}, sorted by predicted {name}", ylabel="Target (units of y)")
    ax.legend(loc="upper left", fontsize="small")
    return ax


def plot_std_distribution(std: ArrayLike, *, label: str | None = None, ax: Axes | None = None) -> Axes:
    """Histogram of predictive standard deviations (paper, figure 1); call it again with the same `ax` to compare."""
    std = check_vector("std", std, positive=True)
    ax = _axes(ax, figsize=(6, 4))
    low, high = (std.min(), std.max()) if np.ptp(std) > 0 else (0.9 * std[0], 1.1 * std[0])
    edges = np.linspace(low, high, int(np.clip(np.sqrt(len(std)), 5, 50)) + 1)
    density, _ = np.histogram(std, edges, density=True)
    name = f"{label or 'model'} (median {np.median(std):.3g})"
    look = {key: value for key, value in _look(_count(ax, "hetcal-std")).items() if not key.startswith("marker")}
    ax.stairs(density, edges, **look, linewidth=1.8, label=name, gid="hetcal-std")
    ax.set(xlabel="Standard deviation (units of y)", ylabel="Density of rows (1 / units of y)")
    ax.legend(loc="upper right", fontsize="small")
    return ax


def plot_residual_vs_std(y: ArrayLike, mean: Mean, std: Std = None, *, ax: Axes | None = None) -> Axes:
    """Absolute residual against std, with the RMSE in ten bins of the std: does a larger std mean a larger error?

    For a calibrated model the RMSE follows the line of one std, and about 95 % of the rows lie below that of two.
    """
    truth, prediction = read_prediction(y, mean, std)
    mu, sigma = prediction.mean, prediction.std
    ax = _axes(ax, figsize=(6, 4.5))
    shown = _thin(np.argsort(sigma, kind="stable"), MAX_DOTS)
    name = "row" if len(shown) == len(truth) else f"row ({len(shown)} of {len(truth)} shown)"
    ax.plot(sigma[shown], np.abs(truth - mu)[shown], label=name, **DOTS)

    ends = np.array([0.0, 1.05 * sigma.max()])
    ax.plot(ends, ends, color="black", linestyle="-", linewidth=1.2, label="1 standard deviation")
    ax.plot(ends, 2 * ends, color="black", linestyle="--", linewidth=1.2, label="2 standard deviations")
    bins = [(sharpness(truth[b], mu[b], sigma[b]), rmse(truth[b], mu[b])) for b in equal_count_bins(sigma, 10)]
    ax.plot(*np.array(bins).T, label="RMSE per bin of std", **BINS)
    ax.set(xlim=(0.95 * sigma.min(), ends[1]), ylim=(0, None))
    ax.set(xlabel="Standard deviation (units of y)", ylabel="Absolute residual (units of y)")
    ax.legend(loc="upper left", fontsize="small")
    return ax


def plot_history(history: History, *, ax: Axes | None = None) -> Axes:
    """Objective by epoch, from 0, on the training rows and on the validation rows if any; the best epoch is marked."""
    parts = {"training": history.train.get("objective", ()), "validation": history.validation.get("objective", ())}
    drawn = {name: np.asarray(values, dtype=np.float64) for name, values in parts.items() if len(values)}
    if "training" not in drawn:
        raise must("history", "hold at least one epoch of train['objective']", dict(history.train), "fit a model first")
    judged = drawn.get("validation", drawn["training"])
    best = check_number("best_epoch", history.best_epoch, 0, len(judged) - 1, integer=True)

    ax = _axes(ax, figsize=(6, 4))
    for nth, (name, values) in enumerate(drawn.items()):
        ax.plot(np.arange(len(values)), values, label=name, **{**_look(nth), "marker": None})
    ax.axvline(best, color="0.5", linewidth=1, linestyle=":")
    ax.plot([best], judged[[best]], label=f"best epoch ({best})", **STAR)
    ax.set(xlabel="Epoch", ylabel="Objective (mean loss per row)")
    ax.legend(loc="upper right", fontsize="small")
    return ax


def _axes(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    return ax if ax is not None else pyplot.subplots(figsize=figsize, layout="constrained")[1]


def _count(ax: Axes, gid: str) -> int:
    """Number of curves of this kind that are already on the axes."""
    return sum(artist.get_gid() == gid for artist in ax.get_children())


def _look(nth: int) -> dict[str, Any]:
    return {**LOOKS[nth % len(LOOKS)], "markersize": 5}


def _thin(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Select at most `most` of the rows, evenly spaced, including the first and the last."""
    places = np.linspace(0, len(rows) - 1, min(len(rows), most)).round().astype(np.intp)
    return np.asarray(rows[places])

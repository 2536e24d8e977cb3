"""The paper's figures from the results of a protocol.

Figure 1: the calibration error by a varied setting (the dropout rate), and the distribution of sigma.
Figure 2: observed against nominal coverage of all methods, with the noise band of a calibrated model.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetcal._checks import must
from hetcal._files import atomic_write
from hetcal.metrics import CURVE_LEVELS, calibration_band, ce_noise_floor
from hetcal.studies.protocol import Cell, Study
from hetcal.studies.results import Result, Results, estimate_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The data sets of the paper's figures. Another figure shows all data sets.
PAPER_SETS = ("boston", "crime")
PAPER_RATE = 0.2


def draw_figures(results: Results, folder: Path) -> list[Path]:
    """Draw all figures that the results allow, each as PNG and SVG, and return the paths of the files."""
    paths = []
    for name, figure in figures_of(results):
        for suffix in ("png", "svg"):
            paths.append(folder / f"{name}.{suffix}")
            atomic_write(paths[-1], picture_bytes(figure, suffix))
    if not paths:
        raise must("folder", "hold finished cells", str(results.folder), "run the protocol first")
    return paths


def picture_bytes(figure: "Figure", suffix: str) -> bytes:
    """Write without date and random names, so that the same results give the same bytes."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "hetcal"}):
        figure.savefig(buffer, format=suffix, dpi=150, metadata={"Date": None} if suffix == "svg" else None)
    return buffer.getvalue()


def figures_of(results: Results) -> "Iterator[tuple[str, Figure]]":
    for study in results.protocol.studies:
        shown = [
            name for name in study.datasets if any(cell.dataset == name for cell in finished_cells(results, study))
        ]
        if not shown:
            continue
        if study.vary:
            yield "figure-1", draw_dependence(results, study, shown)
            continue
        if study.split == "random":
            of_paper = [name for name in shown if name in PAPER_SETS] or shown[:2]
            yield "figure-2", draw_calibration(results, study, of_paper, columns=2)
        yield f"calibration-{study.name}", draw_calibration(results, study, shown, columns=4)


def finished_cells(results: Results, study: Study) -> list[Cell]:
    """Finished cells that are still part of the study."""
    return [cell for cell in study.cells() if cell in results.done]


def draw_dependence(results: Results, study: Study, names: Sequence[str]) -> "Figure":
    """Left: CE by the varied setting, with a band of one standard error. Right: sigma at the paper's dropout rate."""
    from hetcal.plots import plot_std_distribution

    setting, values = next(iter(study.vary.items()))
    figure, axes = grid(len(names), 2, size=(5.2, 3.8))
    for dataset, (left, right) in zip(names, axes, strict=True):
        for method in study.methods:
            groups = {value: results.select(study.name, dataset, method, **{setting: value}) for value in values}
            groups = {value: group for value, group in groups.items() if group}
            if groups:
                draw_line(left, list(groups), list(groups.values()))
                nearest = groups[min(groups, key=lambda value: abs(value - PAPER_RATE))]
                stds = np.concatenate([result["std_quantiles"] for result in nearest])
                plot_std_distribution(stds, label=nearest[0]["title"], ax=right)
                right.set_title(f"{dataset}: sigma at {setting} = {nearest[0]['settings'][setting]:g}")
                n_test = nearest[0]["split"]["n_test"]
        left.axhline(ce_noise_floor(n_test), color="0.5", linestyle=":", label="noise floor")
        left.set(title=f"{dataset}: calibration error", xlabel=setting, ylabel="CE", ylim=(0, None))
        left.legend(fontsize="small")
    return figure


def draw_line(ax: "Axes", values: Sequence[float], groups: Sequence[Sequence[Result]]) -> None:
    from hetcal.plots import LOOKS

    estimates = [estimate for group in groups if (estimate := estimate_figure(group, "ce"))]
    mean, error = np.array([(estimate.mean, estimate.error) for estimate in estimates]).T
    look = LOOKS[len(ax.lines) % len(LOOKS)]
    ax.plot(values, mean, **look, markersize=5, label=groups[0][0]["title"])
    ax.fill_between(values, mean - error, mean + error, color=look["color"], alpha=0.2, linewidth=0)


def draw_calibration(results: Results, study: Study, names: Sequence[str], columns: int) -> "Figure":
    """Observed against nominal coverage, mean over the splits; the band is that of a calibrated model on one split."""
    from hetcal.plots import LOOKS

    rows = -(-len(names) // columns)
    figure, axes = grid(rows, min(columns, len(names)), size=(3.9, 3.9))
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for dataset, ax in zip(names, axes.flat, strict=False):
        for look, method in zip(LOOKS, study.methods, strict=False):
            group = results.select(study.name, dataset, method)
            if group:
                label = f"{group[0]['title']} (CE {np.mean([result['metrics']['ce'] for result in group]):.2f})"
                coverage = np.mean([result["coverage"] for result in group], axis=0)
                ax.plot(CURVE_LEVELS, coverage, **look, markersize=4, markevery=10, label=label)
                n_test = group[0]["split"]["n_test"]
        lower, upper = calibration_band(n_test, CURVE_LEVELS)
        ax.fill_between(CURVE_LEVELS, lower, upper, color="0.87", linewidth=0, zorder=0)
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, zorder=0)
        ax.set(title=f"{dataset} ({n_test} test rows)", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.set(xlabel="Expected level", ylabel="Achieved level")
        ax.legend(fontsize="x-small", loc="upper left")
    return figure


def grid(rows: int, columns: int, size: tuple[float, float]) -> "tuple[Figure, Any]":
    """A figure that needs no screen, and its axes as a (rows, columns) array."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib; install it with: pip install 'hetcal[plots]'") from error
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)

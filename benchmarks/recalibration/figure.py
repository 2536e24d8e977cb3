"""Four ways to look at the same predictions, from cells.csv: python benchmarks/recalibration/figure.py

Draws figure.png: calibration error beside what it cannot see. Bars are means over the splits, lines standard errors.
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from hetcal.studies.cells import method_title

HERE = Path(__file__).parent
METRICS = {
    "ce": "calibration error",
    "ence": "ENCE: error against sigma, bin by bin",
    "crps": "CRPS",
    "interval_score_90": "interval score, 90 %",
}
KINDS = {"constant": "#8c8c8c", "random": "#8c8c8c", "mc": "#c55a11", "dropout": "#1f4e79", "ensemble": "#1f4e79"}


def main() -> None:
    cells = pd.read_csv(HERE / "cells.csv", keep_default_na=False)
    datasets = list(dict.fromkeys(cells.dataset))
    methods = list(dict.fromkeys(cells.method))[::-1]
    figure = Figure(figsize=(4.2 * len(METRICS), 3.6 * len(datasets)), layout="constrained")
    axes = figure.subplots(len(datasets), len(METRICS), squeeze=False)
    for row, dataset in zip(axes, datasets, strict=True):
        for ax, (metric, title) in zip(row, METRICS.items(), strict=True):
            groups = [cells[(cells.dataset == dataset) & (cells.method == method)] for method in methods]
            means = [group[metric].mean() for group in groups]
            errors = [group[metric].std() / len(group) ** 0.5 for group in groups]
            colors = [KINDS[method.split("_")[0]] for method in methods]
            ax.barh(range(len(methods)), means, xerr=errors, color=colors, error_kw={"ecolor": "black", "capsize": 2})
            ax.set_yticks(range(len(methods)), [method_title(method) for method in methods] if metric == "ce" else [])
            ax.set_title(f"{dataset}: {title}", fontsize="medium")
            if metric == "ce":
                floor = cells[cells.dataset == dataset].ce_noise_floor.iloc[0]
                ax.axvline(floor, color="black", linestyle=":", label="a perfect model")
                ax.legend(fontsize="small")
    figure.savefig(HERE / "figure.png", dpi=110)


if __name__ == "__main__":
    main()

"""Draw four metrics of the same predictions, from cells.csv: python benchmarks/recalibration/figure.py

figure.png shows the calibration error next to metrics that also reflect how informative sigma is. Bars are means over
the splits, lines are standard errors.
"""

import argparse
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
COLORS = {
    "constant_sigma": "#8c8c8c",
    "random_sigma": "#8c8c8c",
    "mc_dropout": "#c55a11",
    "dropout_hc": "#1f4e79",
    "ensemble_hc": "#1f4e79",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "figure.png", help="picture to write")
    out = parser.parse_args().out
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
            colors = [COLORS[method.partition("+")[0]] for method in methods]
            ax.barh(range(len(methods)), means, xerr=errors, color=colors, error_kw={"ecolor": "black", "capsize": 2})
            ax.set_yticks(range(len(methods)), [method_title(method) for method in methods] if metric == "ce" else [])
            ax.set_title(f"{dataset}: {title}", fontsize="medium")
            if metric == "ce":
                floor = cells[cells.dataset == dataset].ce_noise_floor.iloc[0]
                ax.axvline(floor, color="black", linestyle=":", label="a perfect model")
                ax.legend(fontsize="small")
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()

"""Compare the paper's claims with our figures: read summary.csv and cells.csv, print a table for each claim.

python benchmarks/paper/claims.py
"""

from pathlib import Path

import pandas as pd

from hetcal.studies.protocol import read_protocol

HERE = Path(__file__).parent
BASELINES, CALIBRATED = ["mc_dropout", "hnn"], ["dropout_hc", "quantile_hc"]


def main() -> None:
    summary = pd.read_csv(HERE / "summary.csv", keep_default_na=False)
    cells = pd.read_csv(HERE / "cells.csv", keep_default_na=False)
    paper = read_protocol(HERE / "protocol.toml").reference
    table = summary[summary.study == "table-1"]
    print("## Lower CE than both baselines (random splits)\n")
    compare(table)
    print("\n## CE and RMSE of the better HC method, compared with the paper's\n")
    beside_the_paper(table, paper)
    print("\n## Robust to the dropout rate\n")
    rates(summary[summary.study == "figure-1"])
    print("\n## The tail of sigma: its 95 % quantile over its median, by split\n")
    tails(cells[cells.study == "table-1"])
    print("\n## Grouped splits\n")
    compare(summary[summary.study == "grouped"])


def compare(table: pd.DataFrame) -> None:
    """The CE of each HC method against the better baseline, with the difference in standard errors."""
    print("| data set | floor | best baseline | Dropout-HC | Quantile-HC |\n|---|---:|---:|---|---|")
    for dataset, rows in table.groupby("dataset", sort=False):
        rows = rows.set_index("method")
        best = rows.loc[BASELINES].sort_values("ce").iloc[0]
        words = []
        for method in CALIBRATED:
            row = rows.loc[method]
            side, error = "lower" if row.ce < best.ce else "higher", (best.ce_se**2 + row.ce_se**2) ** 0.5
            by = f", {abs(best.ce - row.ce) / error:.1f} s.e." if error else ""  # one split has no standard error
            words.append(f"{row.ce:.3f} ({side}{by})")
        print(f"| {dataset} | {best.ce_noise_floor:.3f} | {best.name} {best.ce:.3f} | " + " | ".join(words) + " |")


def beside_the_paper(table: pd.DataFrame, paper: dict) -> None:
    """The lower CE and the lower RMSE of the two HC methods; the paper's RMSE is the lowest of all four methods."""
    print("| data set | floor | CE | the paper's CE | RMSE | the paper's best RMSE |\n|---|---:|---:|---:|---:|---:|")
    for dataset, rows in table.groupby("dataset", sort=False):
        rows = rows[rows.method.isin(CALIBRATED)]
        published = paper[dataset]
        ce = min(published[method]["ce"] for method in CALIBRATED)
        rmse = min(figures["rmse"] for figures in published.values())
        floor = rows.ce_noise_floor.mean()
        print(f"| {dataset} | {floor:.3f} | {rows.ce.min():.3f} | {ce:.3f} | {rows.rmse.min():.4g} | {rmse:.4g} |")


def rates(table: pd.DataFrame) -> None:
    print("| data set | method | lowest CE | highest CE | at rates |\n|---|---|---:|---:|---|")
    for (dataset, method), rows in table.groupby(["dataset", "method"], sort=False):
        rate = rows.varied.str.removeprefix("dropout=")
        low, high = rows.ce.idxmin(), rows.ce.idxmax()
        print(f"| {dataset} | {method} | {rows.ce[low]:.3f} | {rows.ce[high]:.3f} | {rate[low]} and {rate[high]} |")


def tails(cells: pd.DataFrame) -> None:
    print("| data set | MC Dropout | Dropout-HC | splits with the heavier tail in Dropout-HC |\n|---|---:|---:|---:|")
    for dataset, rows in cells.groupby("dataset", sort=False):
        wide = rows.pivot(index="seed", columns="method", values="std_95_to_median")
        heavier = (wide["dropout_hc"] > wide["mc_dropout"]).sum()
        means = wide[["mc_dropout", "dropout_hc"]].mean()
        print(f"| {dataset} | {means.iloc[0]:.2f} | {means.iloc[1]:.2f} | {heavier} of {len(wide)} |")


if __name__ == "__main__":
    main()

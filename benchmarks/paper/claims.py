"""The paper's claims against our figures: reads summary.csv and cells.csv, prints a paragraph of numbers per claim.

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
    print("\n## Targets: CE of the better HC method, and its RMSE\n")
    targets(table, paper)
    print("\n## Robust to the dropout rate\n")
    rates(summary[summary.study == "figure-1"])
    print("\n## The tail of sigma: its 95 % quantile over its median, by split\n")
    tails(cells[cells.study == "table-1"])
    print("\n## Grouped splits\n")
    compare(summary[summary.study == "grouped"])


def compare(table: pd.DataFrame) -> None:
    """Does each HC method have the lower CE, and by how many standard errors of the difference?"""
    print("| data set | floor | best baseline | Dropout-HC | Quantile-HC |\n|---|---:|---:|---|---|")
    for dataset, rows in table.groupby("dataset", sort=False):
        rows = rows.set_index("method")
        best = rows.loc[BASELINES].sort_values("ce").iloc[0]
        words = []
        for method in CALIBRATED:
            row = rows.loc[method]
            z = (best.ce - row.ce) / (best.ce_se**2 + row.ce_se**2) ** 0.5
            words.append(f"{row.ce:.3f} ({'lower' if row.ce < best.ce else 'higher'}, {abs(z):.1f} s.e.)")
        print(f"| {dataset} | {best.ce_noise_floor:.3f} | {best.name} {best.ce:.3f} | " + " | ".join(words) + " |")


def targets(table: pd.DataFrame, paper: dict) -> None:
    print("| data set | CE | allowed | met | RMSE | paper's best | met |\n|---|---:|---:|---|---:|---:|---|")
    for dataset, rows in table.groupby("dataset", sort=False):
        rows = rows[rows.method.isin(CALIBRATED)]
        published = paper[dataset]
        allowed = max(min(published[m]["ce"] for m in CALIBRATED), 1.5 * rows.ce_noise_floor.mean())
        best_rmse = min(published[m]["rmse"] for m in published)
        met = [
            "yes" if ours <= limit else "no" for ours, limit in ((rows.ce.min(), allowed), (rows.rmse.min(), best_rmse))
        ]
        print(
            f"| {dataset} | {rows.ce.min():.3f} | {allowed:.3f} | {met[0]} "
            f"| {rows.rmse.min():.4g} | {best_rmse:.4g} | {met[1]} |"
        )


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

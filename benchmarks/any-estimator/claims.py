"""Compare each estimator with and without HC, from cells.csv: python benchmarks/any-estimator/claims.py

Does putting an estimator's sigma into the likelihood lower its calibration error, and how do CRPS and RMSE change? Both
members of a pair share data set and split, so differences are taken split by split, with the standard error of their
mean.
"""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

from hetcal.methods import METHODS

PAIRS = {
    "mc_dropout": "dropout_hc",
    "concrete_dropout": "concrete_hc",
    "bayes": "bayes_hc",
    "quantile": "quantile_hc",
    "sqr": "sqr_hc",
    "ensemble_spread": "ensemble_spread_hc",
    "deep_ensemble": "ensemble_hc",
}
# A CE above this multiple of its noise floor is called miscalibrated.
MISCALIBRATED = 1.5


def read(path: Path) -> dict[tuple[str, str], dict[int, dict[str, float]]]:
    """(data set, method) -> split -> metrics."""
    figures: dict[tuple[str, str], dict[int, dict[str, float]]] = defaultdict(dict)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            metrics = {name: float(row[name]) for name in ("ce", "ce_noise_floor", "crps", "rmse")}
            figures[row["dataset"], row["method"]][int(row["seed"])] = metrics
    return figures


def change(without: dict, with_hc: dict, metric: str) -> tuple[float, float]:
    """Mean and standard error of the difference over the splits."""
    differences = [with_hc[seed][metric] - without[seed][metric] for seed in without if seed in with_hc]
    return mean(differences), stdev(differences) / len(differences) ** 0.5


def main() -> None:
    figures = read(Path(__file__).parent / "cells.csv")
    datasets = list(dict.fromkeys(dataset for dataset, _ in figures))
    print("| estimator | data set | CE (floor) without -> with HC | CRPS | RMSE | CE lower | RMSE |")
    print("|---|---|---|---|---|---|---|")
    lowered, miscalibrated, rmse_kept = [], [], []
    for without, with_hc in PAIRS.items():
        for dataset in datasets:
            a, b = figures[dataset, without], figures[dataset, with_hc]
            before, after = (
                {m: mean(row[m] for row in rows.values()) for m in ("ce", "crps", "rmse")} for rows in (a, b)
            )
            floor = mean(row["ce_noise_floor"] for row in a.values())
            ce, ce_error = change(a, b, "ce")
            rmse, rmse_error = change(a, b, "rmse")
            needs_it = before["ce"] > MISCALIBRATED * floor
            verdict = "yes" if ce < -ce_error else "no" if ce > ce_error else "within noise"
            kept = "not worse" if rmse <= rmse_error else "worse"
            miscalibrated.append(needs_it)
            lowered.append(needs_it and ce < 0)
            rmse_kept.append(rmse <= rmse_error)
            print(
                f"| {METHODS[without].title} | {dataset} | {before['ce']:.3f} -> {after['ce']:.3f} ({floor:.3f}) "
                f"| {before['crps']:.4g} -> {after['crps']:.4g} | {before['rmse']:.4g} -> {after['rmse']:.4g} "
                f"| {verdict if needs_it else verdict + ' (was calibrated)'} | {kept} |"
            )
    print()
    print(f"Miscalibrated without HC (CE above {MISCALIBRATED} floors): {sum(miscalibrated)} of {len(miscalibrated)}.")
    print(f"Of these, CE is lower with HC: {sum(lowered)}.")
    print(f"RMSE not worse by more than one standard error of the difference: {sum(rmse_kept)} of {len(rmse_kept)}.")


if __name__ == "__main__":
    main()

"""The default with as many training rows as a published figure had; its splits are others, so this is for orientation.

python benchmarks/peers/anchors.py                # both data sets, three splits
python benchmarks/peers/anchors.py --splits 1

The figures are those of TabICLv2, a foundation model for tables (arXiv 2603.26611).
"""

import argparse
from time import perf_counter

import numpy as np
import torch

from hetcal import HCRegressor, datasets, evaluate

# data set -> training rows, published CRPS
ANCHORS = {"white-wine": (750, 0.324), "superconductivity": (15_000, 3.37)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| data set | training rows | splits | CRPS | published | CE | floor | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, (rows, published) in ANCHORS.items():
        found = [fit_and_measure(name, rows, seed) for seed in range(options.splits)]
        crps, ce, floor, seconds = np.mean(found, axis=0)
        error = f" ± {np.std([one[0] for one in found], ddof=1) / len(found) ** 0.5:.1g}" if len(found) > 1 else ""
        figures = f"{crps:.3g}{error} | {published} | {ce:.3f} | {floor:.3f} | {seconds:.0f}"
        print(f"| {name} | {rows} | {len(found)} | {figures} |", flush=True)


def fit_and_measure(name: str, rows: int, seed: int) -> tuple[float, float, float, float]:
    """CRPS, CE, noise floor and seconds of the fit; all other rows are test rows."""
    data = datasets.SYNTHETIC[name]() if name in datasets.SYNTHETIC else datasets.load(name)
    X, y = np.asarray(data.X), data.y
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:rows], order[rows:]
    start = perf_counter()
    model = HCRegressor(random_state=seed).fit(X[train], y[train])
    seconds = perf_counter() - start
    figures = evaluate(y[test], model.predict_dist(X[test]))
    return figures["crps"], figures["ce"], figures["ce_noise_floor"], seconds


if __name__ == "__main__":
    main()

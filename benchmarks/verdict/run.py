"""Simulate the probability of every outcome of the verdict, by kind of model and number of rows.

    python benchmarks/verdict/run.py            # 2,000 samples per line, about a minute
    python benchmarks/verdict/run.py --samples 100

Prints the table of docs/metrics.md. Every row has its own predictive mean and standard deviation; each line states how
the standardized errors are drawn.
"""

import argparse

import numpy as np

from hetcal.metrics import judge
from hetcal.metrics.verdict import LABELS

ROWS = (30, 60, 120, 400, 4_000)
# Mean and standard deviation of the standardized errors (y - mean) / std.
MODELS = {
    "calibrated": (0.0, 1.0),
    "sigma too small by a factor of 1.3 (true coverage 79 %)": (0.0, 1.3),
    "sigma too large by a factor of 1.3 (true coverage 97 %)": (0.0, 1 / 1.3),
    "mean too low by 0.3 sigma": (0.3, 1.0),
}


def outcomes(mean: float, std: float, rows: int, samples: int) -> dict[str, float]:
    """Share of samples with each status."""
    generator = np.random.default_rng(rows)
    found = []
    for _ in range(samples):
        center, sigma = generator.uniform(-1, 1, rows), np.exp(generator.normal(0, 0.5, rows))
        found.append(judge(center + sigma * generator.normal(mean, std, rows), center, sigma).status)
    return {status: found.count(status) / samples for status in LABELS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2_000)
    samples = parser.parse_args().samples
    print("| model | rows | " + " | ".join(LABELS.values()) + " |")
    print("|---|---:|" + "---:|" * len(LABELS))
    for name, (mean, std) in MODELS.items():
        for rows in ROWS:
            shares = outcomes(mean, std, rows, samples)
            cells = " | ".join(f"{100 * share:.1f} %" for share in shares.values())
            print(f"| {name} | {rows:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()

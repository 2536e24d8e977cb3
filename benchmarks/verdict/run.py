"""Simulate the probability of every outcome of the verdict, by kind of model and number of rows.

    python benchmarks/verdict/run.py            # 2,000 samples per line, a few minutes
    python benchmarks/verdict/run.py --samples 100

Prints the tables of docs/metrics.md. Every row has its own predictive mean and standard deviation; each line states how
the standardized errors are drawn. In the second table rows come in groups, and a part of the variance of the errors is
shared by the rows of a group (ICC, intraclass correlation).
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


# Groups, rows per group, and ICC.
GROUPS = ((40, 10, 0.0), (40, 10, 0.5), (10, 40, 0.2), (40, 100, 0.5))


def outcomes(mean: float, std: float, rows: int, samples: int) -> dict[str, float]:
    """Share of samples with each status."""
    generator = np.random.default_rng(rows)
    found = []
    for _ in range(samples):
        center, sigma = generator.uniform(-1, 1, rows), np.exp(generator.normal(0, 0.5, rows))
        found.append(judge(center + sigma * generator.normal(mean, std, rows), center, sigma).status)
    return {status: found.count(status) / samples for status in LABELS}


def grouped_outcomes(
    mean: float, std: float, groups: int, size: int, icc: float, samples: int, told: bool
) -> dict[str, float]:
    """Share of samples with each status, if the errors of a group have the correlation `icc`."""
    generator = np.random.default_rng(groups)
    codes = np.repeat(np.arange(groups), size)
    found = []
    for _ in range(samples):
        center, sigma = generator.uniform(-1, 1, len(codes)), np.exp(generator.normal(0, 0.5, len(codes)))
        shared, own = generator.normal(size=groups)[codes], generator.normal(size=len(codes))
        error = mean + std * (np.sqrt(icc) * shared + np.sqrt(1 - icc) * own)
        found.append(judge(center + sigma * error, center, sigma, groups=codes if told else None).status)
    return {status: found.count(status) / samples for status in LABELS}


def show(line: str, shares: dict[str, float]) -> None:
    print(f"| {line} | " + " | ".join(f"{100 * share:.1f} %" for share in shares.values()) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2_000)
    parser.add_argument("--only", choices=("independent", "grouped"))
    chosen = parser.parse_args()
    heads = " | ".join(LABELS.values()) + " |\n"
    if chosen.only != "grouped":
        print("| model | rows | " + heads + "|---|---:|" + "---:|" * len(LABELS))
        for name, (mean, std) in MODELS.items():
            for rows in ROWS:
                show(f"{name} | {rows:,}", outcomes(mean, std, rows, chosen.samples))
    if chosen.only != "independent":
        print("| model | groups x rows | ICC | groups given | " + heads + "|---|---:|---:|---|" + "---:|" * len(LABELS))
        for name, (mean, std) in MODELS.items():
            for groups, size, icc in GROUPS:
                for told in (False, True) if name == "calibrated" else (True,):
                    shares = grouped_outcomes(mean, std, groups, size, icc, chosen.samples, told)
                    show(f"{name} | {groups} x {size} | {icc} | {'yes' if told else 'no'}", shares)


if __name__ == "__main__":
    main()

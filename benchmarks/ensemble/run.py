"""Compare eight members trained as one batched network with eight fits one after the other.

python benchmarks/ensemble/run.py

Five hidden layers of 128, batches of 128 rows, the same number of epochs for all, with everything that `training.train`
does besides the steps: validation, history, copies of the best weights.
"""

import statistics
from time import perf_counter

import torch

from hetcal.estimators import Ensemble, VarianceHead
from hetcal.networks import MLP
from hetcal.objectives import nll_loss
from hetcal.training import train

MEMBERS, REPEATS = 8, 3
CASES = [(400, 13, 30), (2000, 120, 10), (10_000, 20, 3)]  # rows, columns, epochs


def seconds(make, x: torch.Tensor, y: torch.Tensor, epochs: int) -> float:
    estimator = make()
    start = perf_counter()
    train(estimator, nll_loss, x, y, max_epochs=epochs, patience=epochs)
    return perf_counter() - start


def main() -> None:
    print("| threads | rows x columns | one single fit, s | 8 members, s | 8 members / 8 single fits |")
    print("|---|---|---|---|---|")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for rows, columns, epochs in CASES:
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(rows, columns, generator=generator)
            y = x[:, 0] + 0.3 * torch.randn(rows, generator=generator)
            singles, ensembles = [], []
            for _ in range(REPEATS):  # they take turns, because the machine is shared
                singles.append(seconds(lambda d=columns: VarianceHead(MLP(d, 2)), x, y, epochs))
                ensembles.append(seconds(lambda d=columns: Ensemble(MLP(d, 2), members=MEMBERS), x, y, epochs))
            single, together = statistics.median(singles), statistics.median(ensembles)
            ratio = together / (MEMBERS * single)
            print(f"| {threads} | {rows:,} x {columns} | {single:.2f} | {together:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()

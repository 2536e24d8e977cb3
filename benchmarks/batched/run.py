"""Compare training the splits of a study one after the other with training them as one batched network, on one core.

python benchmarks/batched/run.py

Ten networks (five hidden layers of 128, batches of 128 rows) take one training step each: as ten networks with an
optimizer each, and as one network whose weights have a leading axis of ten. Dropout-HC has ten passes per step.
"""

import statistics
from itertools import pairwise
from time import perf_counter

import torch
from torch import nn

SPLITS, ROWS, INPUTS, WIDTH, DEPTH = 10, 128, 13, 128, 5
SIZES = [INPUTS, *[WIDTH] * DEPTH, 1]


class Stack(nn.Module):
    """`count` networks with stacked weights; `count` = 1 is an ordinary network."""

    def __init__(self, count: int) -> None:
        super().__init__()
        pairs = list(pairwise(SIZES))
        self.weights = nn.ParameterList(torch.randn(count, a, b) * (2 / a) ** 0.5 for a, b in pairs)
        self.biases = nn.ParameterList(torch.zeros(count, 1, b) for _, b in pairs)

    def forward(self, h: torch.Tensor) -> torch.Tensor:  # (count, rows, inputs) -> (count, rows)
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if place < DEPTH:
                h = h.relu()
        return h[..., 0]


def stepper(count: int, rows: int):
    network = Stack(count)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    x, y = torch.randn(count, rows, INPUTS), torch.randn(count, rows)

    def step() -> None:
        optimizer.zero_grad()
        (network(x) - y).square().mean().backward()
        optimizer.step()

    return step


def median_seconds(steps, repeats: int = 5) -> float:
    """The median time of taking all the steps once."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        for step in steps:
            step()
        times.append(perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| job | ten networks in turn, ms | one batched network, ms | ratio |\n|---|---:|---:|---:|")
    for name, passes in (("one pass (HNN, Quantile-HC)", 1), ("ten passes (Dropout-HC)", 10)):
        singles = [stepper(1, passes * ROWS) for _ in range(SPLITS)]
        batched = stepper(SPLITS, passes * ROWS)
        for warm_up in [*singles, batched]:
            warm_up()
        # They take turns, so that other work on the machine affects both alike.
        rounds = [(median_seconds(singles), median_seconds([batched])) for _ in range(8)]
        in_turn, together = (1000 * statistics.median(times) for times in zip(*rounds, strict=True))
        print(f"| {name} | {in_turn:.1f} | {together:.1f} | {in_turn / together:.2f} |")


if __name__ == "__main__":
    main()

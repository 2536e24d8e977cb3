"""Measure the speed of hetcal and its alternatives side by side, on one thread; only the ratios carry over.

Five hidden layers of 128, 10,000 x 20 rows, batches of 128. Candidates take turns, A, B, A, B, ..., and the best time
of each counts: on a shared machine the minimum is what the code needs, the rest is the load of other jobs.

    python benchmarks/speed/run.py            # a few minutes
    python benchmarks/speed/run.py --quick    # fewer repeats

The other libraries are optional; one that is not installed is skipped with a message. They require torchvision, which
would install another torch, so they are installed in a separate virtual environment, without their dependencies (see
peers.py):

    python -m venv ../peers
    ../peers/bin/pip install -c constraints.txt -e . uncertainty-toolbox lightning einops h5py pandas seaborn
    ../peers/bin/pip install --no-deps lightning-uq-box torch-uncertainty
    ../peers/bin/python benchmarks/speed/run.py
"""

import argparse
import gc
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from importlib.util import find_spec
from itertools import count
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from peers import PeerMissingError, lightning_uq_box_fit, torch_uncertainty_fit
from torch import Tensor, nn

from hetcal.estimators import MCDropout, VarianceHead, predict
from hetcal.metrics import evaluate
from hetcal.networks import MLP
from hetcal.objectives import gaussian_nll
from hetcal.training import train

ROWS, INPUTS, WIDTH, DEPTH, DROPOUT, BATCH = 10_000, 20, 128, 5, 0.2, 128
PASSES, PREDICTION_PASSES = 10, 100
EPOCHS = 5
STEPS = 40  # per run of a training step
STD_FLOOR = 1e-3
METRIC_ROWS, TOOLBOX_ROWS = 1_000_000, 20_000
LEARNING_RATE, WEIGHT_DECAY, MAX_GRADIENT_NORM, GRADIENT_CLIP = 1e-3, 1e-2, 1.0, 3.0
# The shapes that training and prediction multiply, in both orders, and one so large that overhead is negligible.
GEMM_SHAPES = [(1280, 128, 128), (1024, 128, 128), (128, 128, 1024), (128, 128, 1280), (1024, 1024, 1024)]

Run = Callable[[], Any]
Prepare = Callable[[], Run]
Times = dict[str, float]


@dataclass
class Line:
    """A line of the table; a column may be empty."""

    job: str
    time: str
    against: str = ""
    ratio: str = ""


@dataclass
class Repeats:
    """Number of turns of each kind of candidate."""

    step: int = 15
    predict: int = 4
    evaluate: int = 5
    toolbox: int = 2
    fit: int = 4

    @classmethod
    def quick(cls) -> "Repeats":
        return cls(step=5, predict=2, evaluate=2, toolbox=1, fit=2)


class Peak:
    """The fastest float32 product of the whole run, in flop per second; it is measured in every turn."""

    def __init__(self) -> None:
        self.flops = 0.0
        self.shape = GEMM_SHAPES[0]

    def measure(self) -> None:
        for m, k, n in GEMM_SHAPES:
            a, b, out = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
            calls = max(1, round(1e9 / (2 * m * k * n)))  # some milliseconds at a time
            for _ in range(3):
                start = perf_counter()
                for _ in range(calls):
                    torch.mm(a, b, out=out)
                flops = calls * 2 * m * k * n / (perf_counter() - start)
                if flops > self.flops:
                    self.flops, self.shape = flops, (m, k, n)


def best_times(candidates: dict[str, Prepare], repeats: int, peak: Peak) -> Times:
    """Best seconds of each candidate; they take turns, and the preparation of a turn is not timed."""
    best = dict.fromkeys(candidates, math.inf)
    for _ in range(repeats):
        peak.measure()
        for name, prepare in candidates.items():
            run = prepare()
            gc.collect()
            start = perf_counter()
            run()
            best[name] = min(best[name], perf_counter() - start)
    return best


def make_rows() -> tuple[Tensor, Tensor]:
    """Standardized inputs and a noisy nonlinear target; the speed does not depend on their values."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, INPUTS, generator=generator)
    y = x[:, 0].sin() + 0.3 * x[:, 1] * torch.randn(ROWS, generator=generator)
    return x, (y - y.mean()) / y.std()


def make_network(n_outputs: int) -> MLP:
    return MLP(INPUTS, n_outputs, width=WIDTH, depth=DEPTH, dropout=DROPOUT, generator=torch.Generator().manual_seed(0))


def dropout_hc() -> MCDropout:
    return MCDropout(make_network(1), samples=PASSES, prediction_samples=PREDICTION_PASSES, std_floor=STD_FLOOR, seed=0)


def prepare_training(estimator: nn.Module, x: Tensor, y: Tensor, epochs: int) -> Run:
    """Everything that `hetcal.training.train` does in this number of epochs, without validation."""

    def run() -> None:
        history = train(
            estimator,
            gaussian_nll,
            x,
            y,
            validation_fraction=0.0,
            learning_rate=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
            batch_size=BATCH,
            max_epochs=epochs,
            gradient_clip=GRADIENT_CLIP,
        )
        if len(history) != epochs:
            raise RuntimeError(f"{len(history)} epochs instead of {epochs}")

    return run


# Training: one step of Dropout-HC.


def training_flops() -> float:
    """Floating-point operations of one step: all passes forward and twice backward; the first layer only once."""
    hidden_and_output = 2 * PASSES * BATCH * WIDTH * ((DEPTH - 1) * WIDTH + 1)
    first = 2 * BATCH * INPUTS * WIDTH
    return 3 * hidden_and_output + 2 * first


def many_steps(step: Run, steps: int) -> Run:
    """A run of several steps, after a few to warm up the optimizer's state and the allocator."""
    for _ in range(3):
        step()

    def run() -> None:
        for _ in range(steps):
            step()

    return run


def prepare_hetcal_step(x: Tensor, y: Tensor, steps: int) -> Run:
    """One epoch of this number of batches, with everything that `train` does in and around a step."""
    return prepare_training(dropout_hc(), x[: steps * BATCH], y[: steps * BATCH], epochs=1)


def prepare_loop_step(x: Tensor, y: Tensor, steps: int) -> Run:
    """The straightforward code: a loop over the passes with `nn.Dropout`, eq. 1, torch's default AdamW, one batch."""
    network = make_network(1).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    x, y = x[:BATCH], y[:BATCH]

    def step() -> None:
        passes = torch.stack([network(x)[:, 0] for _ in range(PASSES)])  # (passes, n)
        mean, variance = passes.mean(0), passes.var(0) + STD_FLOOR**2
        loss = ((y - mean) ** 2 / (2 * variance) + variance.log() / 2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()

    return many_steps(step, steps)


def measure_step(x: Tensor, y: Tensor, repeats: int, peak: Peak) -> Times:
    candidates = {
        "hetcal": partial(prepare_hetcal_step, x, y, STEPS),
        "loop": partial(prepare_loop_step, x, y, STEPS),
    }
    return {name: value / STEPS for name, value in best_times(candidates, repeats, peak).items()}


def step_lines(best: Times, peak: Peak) -> list[Line]:
    job = f"Dropout-HC training step, {PASSES} passes"
    loop = f"loop over passes: {milliseconds(best['loop'])}"
    return [
        Line(job, milliseconds(best["hetcal"]), loop, f"{best['loop'] / best['hetcal']:.2f} x"),
        at_peak(job, best["hetcal"], training_flops(), peak),
    ]


# Prediction: Monte Carlo dropout.


def prediction_flops() -> float:
    """Floating-point operations of the full network, dropped units included; the first layer only once."""
    return 2 * ROWS * WIDTH * (PREDICTION_PASSES * ((DEPTH - 1) * WIDTH + 1) + INPUTS)


def prepare_hetcal_prediction(x: Tensor) -> Run:
    """A new estimator each time: drawing the masks and thinning the weights, which it caches, is part of the job."""
    return partial(predict, dropout_hc(), x)


def prepare_loop_prediction(x: Tensor) -> Run:
    """The straightforward code: dropout left on, all rows at once, pass after pass."""
    network = make_network(1).train()

    @torch.no_grad()
    def run() -> tuple[Tensor, Tensor]:
        passes = torch.stack([network(x)[:, 0] for _ in range(PREDICTION_PASSES)])  # (passes, n)
        return passes.mean(0), passes.std(0)

    return run


def measure_prediction(x: Tensor, repeats: int, peak: Peak) -> Times:
    candidates = {"hetcal": partial(prepare_hetcal_prediction, x), "loop": partial(prepare_loop_prediction, x)}
    return best_times(candidates, repeats, peak)


def prediction_lines(best: Times, peak: Peak) -> list[Line]:
    job = f"MC prediction, {PREDICTION_PASSES} passes over {ROWS:,} rows"
    loop = f"loop over passes: {seconds(best['loop'])}"
    return [
        Line(job, seconds(best["hetcal"]), loop, f"{best['loop'] / best['hetcal']:.2f} x"),
        at_peak(job, best["hetcal"], prediction_flops(), peak),
    ]


# Metrics.


def make_predictions(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True values, mean and standard deviation of a nearly calibrated model."""
    generator = np.random.default_rng(0)
    mean, std = generator.normal(size=n), generator.uniform(0.5, 2, size=n)
    return mean + 1.1 * std * generator.normal(size=n), mean, std


def prepare_evaluation(predictions: tuple[np.ndarray, ...], used: "count[int]") -> Run:
    """`evaluate` on a new number of rows each time, because it caches what it simulates for a number of rows."""
    n = len(predictions[0]) - next(used)
    return partial(evaluate, *(values[:n] for values in predictions))


def prepare_toolbox(predictions: tuple[np.ndarray, ...]) -> Run:
    from uncertainty_toolbox.metrics import get_all_metrics

    y, mean, std = predictions
    return partial(get_all_metrics, mean, std, y, verbose=False)


def measure_metrics(repeats: int, toolbox_repeats: int, peak: Peak) -> Times:
    large, small = make_predictions(METRIC_ROWS), make_predictions(TOOLBOX_ROWS)
    evaluate(*make_predictions(1_000))
    best = best_times({"large": partial(prepare_evaluation, large, count())}, repeats, peak)
    candidates = {"small": partial(prepare_evaluation, small, count())}
    if find_spec("uncertainty_toolbox"):
        candidates["toolbox"] = partial(prepare_toolbox, small)
    else:
        skip("uncertainty-toolbox is not installed")
    return {**best, **best_times(candidates, toolbox_repeats, peak)}


def metric_lines(best: Times) -> list[Line]:
    lines = [Line(f"`evaluate`, {METRIC_ROWS:,} rows", seconds(best["large"]))]
    if "toolbox" in best:
        toolbox = f"uncertainty-toolbox `get_all_metrics`: {seconds(best['toolbox'])}"
        ratio = f"{best['toolbox'] / best['small']:.0f} x"
        lines.append(Line(f"`evaluate`, {TOOLBOX_ROWS:,} rows", milliseconds(best["small"]), toolbox, ratio))
    return lines


# A whole fit, here and in other libraries.


def prepare_hetcal_fit(make_estimator: Callable[[], nn.Module], x: Tensor, y: Tensor) -> Run:
    return prepare_training(make_estimator(), x, y, EPOCHS)


def variance_head() -> VarianceHead:
    """A variance output, and dropout as a regularizer: the arithmetic of MC dropout in the other libraries."""
    return VarianceHead(make_network(2), std_floor=STD_FLOOR, seed=0)


def peer_fits(x: Tensor, y: Tensor) -> dict[str, Prepare]:
    """The fits of the libraries that are installed; for the others, a message."""
    settings = {
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "learning_rate": LEARNING_RATE,
        "weight_decay": WEIGHT_DECAY,
        "max_gradient_norm": MAX_GRADIENT_NORM,
    }

    def lightning_uq_box(fused: bool | None) -> Run:
        return lightning_uq_box_fit(make_network(2), x, y, fused=fused, **settings)

    def torch_uncertainty() -> Run:
        return torch_uncertainty_fit(make_network(2)[:-1], WIDTH, x, y, **settings)

    candidates: dict[str, Prepare] = {
        "lightning-uq-box": partial(lightning_uq_box, None),
        "lightning-uq-box with fused AdamW": partial(lightning_uq_box, True),
        "torch-uncertainty": torch_uncertainty,
    }
    installed, missing = {}, set()
    for name, prepare in candidates.items():
        try:
            prepare()
            installed[name] = prepare
        except PeerMissingError as error:
            missing.add(str(error))
    for reason in sorted(missing):
        skip(reason)
    return installed


OUR_FITS: dict[str, Callable[[], nn.Module]] = {
    "the same job: variance head and dropout, 1 pass per step": variance_head,
    f"Dropout-HC, {PASSES} passes per step": dropout_hc,
}


def measure_fits(x: Tensor, y: Tensor, repeats: int, peak: Peak) -> Times:
    ours = {name: partial(prepare_hetcal_fit, make, x, y) for name, make in OUR_FITS.items()}
    return best_times({**ours, **peer_fits(x, y)}, repeats, peak)


def fit_lines(best: Times) -> list[Line]:
    """Each of our fits against each fit of another library that ran."""
    peers = [name for name in best if name not in OUR_FITS]
    lines = []
    for name in OUR_FITS:
        job = f"fit, {EPOCHS} epochs; {name}"
        if not peers:
            lines.append(Line(job, in_fit(best[name])))
        for peer in peers:
            ratio = f"{best[peer] / best[name]:.2f} x"
            lines.append(Line(job, in_fit(best[name]), f"{peer}, 1 pass per step: {in_fit(best[peer])}", ratio))
    return lines


# The table.


def milliseconds(value: float) -> str:
    return f"{1e3 * value:.2f} ms"


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def in_fit(value: float) -> str:
    """Seconds of a fit, and per step: with batches, metrics and the trainer's own work."""
    return f"{value:.2f} s ({1e3 * value / (EPOCHS * math.ceil(ROWS / BATCH)):.2f} ms per step)"


def at_peak(job: str, value: float, flops: float, peak: Peak) -> Line:
    """A job against its arithmetic alone at the peak of this run."""
    arithmetic = flops / peak.flops
    show = milliseconds if value < 0.1 else seconds
    return Line(job, show(value), f"arithmetic at peak: {show(arithmetic)}", f"{arithmetic / value:.0%} of peak")


def skip(reason: str) -> None:
    print(f"skipped: {reason}; run.py --help shows the commands that install the other libraries\n")


def print_table(lines: list[Line]) -> None:
    print("| job | hetcal | against | ratio |")
    print("|---|---|---|---|")
    for line in lines:
        print(f"| {line.job} | {line.time} | {line.against} | {line.ratio} |")


NOTES = f"""
- All candidates: {ROWS:,} x {INPUTS} rows, {DEPTH} hidden layers of {WIDTH}, dropout {DROPOUT:g}, batches of {BATCH}.
- A training step of hetcal is the mean over one epoch of {STEPS} batches, with all that `train` does in it.
- The share of the peak counts the arithmetic of the full network. Prediction in hetcal omits the units that a mask
  drops, so its share may exceed 100 %. Its time includes drawing the masks and thinning the weights.
- A fit has no validation rows. All use AdamW (learning rate {LEARNING_RATE:g}, weight decay {WEIGHT_DECAY:g}) and clip
  gradients, hetcal at {GRADIENT_CLIP:g} times their usual norm and the others at norm {MAX_GRADIENT_NORM:g}.
- MC dropout in the other libraries takes one stochastic pass per step and learns a variance output by the likelihood.
  The same job in hetcal is the variance head with dropout and one pass. Dropout-HC takes {PASSES} passes per step,
  {PASSES} times the arithmetic; it is listed to show its cost.
- The other libraries train by Lightning's `Trainer.fit` on a DataLoader without workers; logger, checkpoints, progress
  bar and model summary are off. The time excludes the construction of the trainer and includes the metrics that a
  library computes while it trains.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--repeats", type=int, help="as many for every candidate")
    options = parser.parse_args()
    repeats = Repeats.quick() if options.quick else Repeats()
    if options.repeats:
        repeats = Repeats(*[options.repeats] * len(fields(Repeats)))

    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, NumPy {np.__version__}, Python {platform.python_version()}, one thread.\n")
    x, y = make_rows()
    peak, wall_start, processor_start = Peak(), perf_counter(), process_time()
    step = measure_step(x, y, repeats.step, peak)
    prediction = measure_prediction(x, repeats.predict, peak)
    metrics = measure_metrics(repeats.evaluate, repeats.toolbox, peak)
    fits = measure_fits(x, y, repeats.fit, peak)
    share = (process_time() - processor_start) / (perf_counter() - wall_start)

    shape = " x ".join(map(str, peak.shape))
    gemm = Line(f"GEMM peak of this run, float32, {shape}", f"{peak.flops / 1e9:.0f} GFLOP/s")
    lines = step_lines(step, peak) + prediction_lines(prediction, peak) + metric_lines(metrics) + fit_lines(fits)
    print_table([gemm, *lines])
    print(NOTES)
    print(f"The run had {share:.0%} of a core. If this is much below 100 %, other jobs interfered with the times.")


if __name__ == "__main__":
    main()

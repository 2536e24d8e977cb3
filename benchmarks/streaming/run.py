"""Measure peak memory and rows per second of `hetcal predict` on a long file, for CSV and Parquet.

python benchmarks/streaming/run.py
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from hetcal.cli.app import app

COLUMNS = 11  # as many as red wine has
PIECE = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 2_000_000], help="lengths of the files")
    parser.add_argument("--method", default="hnn", help="of hetcal.METHODS")
    parser.add_argument("--set", action="append", default=[], help="setting of the model, as in `hetcal fit`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.rows, options.method, options.set)


def measure(folder: Path, sizes: list[int], method: str, settings: list[str]) -> None:
    table(2_000, seed=0).assign(y=lambda frame: frame["x0"] + np.random.default_rng(1).normal(size=2_000)).to_csv(
        folder / "train.csv", index=False
    )
    model = folder / "model.hetcal"
    chosen = [word for setting in settings for word in ("--set", setting)]
    fit = ["fit", folder / "train.csv", "--target", "y", "--out", model, "--method", method, *chosen, "--quiet"]
    app([str(word) for word in fit], standalone_mode=False)  # in this process, as it is not measured
    print(f"method {method}, {COLUMNS} columns of numbers\n")
    print(f"{'file':<12}{'rows':>12}{'in MB':>10}{'seconds':>10}{'rows / s':>12}{'peak MB':>10}")
    for rows in sizes:
        for suffix in ("csv", "parquet"):
            source, out = folder / f"new.{suffix}", folder / f"predictions.{suffix}"
            write(source, rows)
            seconds, peak = run(["predict", model, source, "--out", out, "--force", "--quiet"])
            size, speed = source.stat().st_size / 1e6, rows / seconds
            print(f"{suffix:<12}{rows:>12,}{size:>10.0f}{seconds:>10.1f}{speed:>12,.0f}{peak:>10.0f}", flush=True)
            source.unlink()
            out.unlink()


def table(rows: int, seed: int) -> pd.DataFrame:
    values = np.random.default_rng(seed).normal(size=(rows, COLUMNS))
    return pd.DataFrame(values, columns=[f"x{j}" for j in range(COLUMNS)])


def write(path: Path, rows: int) -> None:
    """Write the file chunk by chunk, so that this process stays small too."""
    pieces = [min(PIECE, rows - start) for start in range(0, rows, PIECE)]
    if path.suffix == ".csv":
        for number, count in enumerate(pieces):
            mode, header = ("w", True) if number == 0 else ("a", False)
            table(count, number).to_csv(path, index=False, mode=mode, header=header)
        return
    with pq.ParquetWriter(path, pa.Schema.from_pandas(table(1, 0), preserve_index=False)) as writer:
        for number, count in enumerate(pieces):
            writer.write_table(pa.Table.from_pandas(table(count, number), preserve_index=False))


def run(arguments: list[object]) -> tuple[float, float]:
    """Run hetcal in its own process; return its seconds and its peak resident memory in MB."""
    # A process in between, because the peak of children is that of the largest child so far.
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    start = perf_counter()
    command = [sys.executable, "-m", "hetcal.cli", *map(str, arguments)]
    ended = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
    kibibytes = float(ended.stdout.split()[-1])
    return perf_counter() - start, kibibytes * 1024 / 1e6


if __name__ == "__main__":
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "this system does not report the peak of memory"
    main()

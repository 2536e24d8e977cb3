"""What Ray costs for small jobs: a tiny study on a Ray cluster of this machine, and in this process."""

import tempfile
import warnings
from pathlib import Path
from time import perf_counter

from hetcal.ray import connect
from hetcal.studies.protocol import parse_protocol
from hetcal.studies.run import run_protocol

BACKENDS = ("ray", "serial", "processes")
STUDY = """\
title = "Tiny"

[settings]
width = 8
depth = 2
max_epochs = 2

[[study]]
name = "table"
datasets = ["heteroscedastic", "skewed"]
methods = ["hnn", "quantile_hc"]
seeds = 2
"""


def main() -> None:
    warnings.simplefilter("ignore")
    print("| eight small cells | seconds |\n|---|---:|")
    start = perf_counter()
    if "ray" in BACKENDS:
        connect()
        print(f"| start of a Ray cluster on this machine | {perf_counter() - start:.1f} |")
    for backend in BACKENDS:
        with tempfile.TemporaryDirectory() as folder:
            start = perf_counter()
            run_protocol(parse_protocol(STUDY), Path(folder), jobs=2, backend=backend)
            print(f"| {backend} | {perf_counter() - start:.1f} |")


if __name__ == "__main__":
    main()

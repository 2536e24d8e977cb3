"""A tiny study to run, and results made by hand to show."""

import json
from pathlib import Path

import numpy as np

from hetcal.methods import METHODS
from hetcal.metrics import CURVE_LEVELS
from hetcal.studies.cells import identify
from hetcal.studies.protocol import Cell, Protocol, parse_protocol
from hetcal.studies.results import CELLS, Results, open_folder, read_results, write_result
from hetcal.studies.table import CSV_FIGURES

TINY = """\
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


def cell_files(folder: Path) -> list[Path]:
    return sorted((folder / CELLS).rglob("*.json"))


def fingerprint(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every cell's file: they change when a file is written again."""
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in cell_files(folder)}


def without_seconds(folder: Path) -> dict[str, dict]:
    """The content of every cell's file, without what differs between runs."""
    contents = {}
    for path in cell_files(folder):
        content = json.loads(path.read_text())
        del content["seconds"], content["metrics"]["seconds"], content["peak_memory_mb"], content["checksum"]
        contents[str(path.relative_to(folder))] = content
    return contents


def make_result(protocol: Protocol, cell: Cell, **metrics: float) -> dict:
    """The result of a cell, as a run would write it, with these metrics and 1 for all others."""
    rule = protocol.study(cell.study).split
    return {
        **identify(protocol, cell),
        "title": METHODS[cell.method].title,
        "settings": protocol.settings_of(cell),
        "split": {"rule": rule, "n_train": 80, "n_test": 20},
        "metrics": {**dict.fromkeys(CSV_FIGURES, 1.0), "ce_noise_floor": 0.25, **metrics},
        "coverage": CURVE_LEVELS.tolist(),
        "std_quantiles": np.linspace(1, 2, 99).tolist(),
        "training": {"epochs": 3, "best_epoch": 1, "stopped": "patience"},
        "peak_memory_mb": 512.0,
        "versions": {"hetcal": "0.1.0"},
        "error": None,
    }


def make_results(folder: Path, text: str, metrics_of) -> Results:
    """A folder as a run would write it: `metrics_of(cell)` gives the metrics, an error as text, or None for no file."""
    protocol = parse_protocol(text)
    open_folder(folder, protocol)
    for cell in protocol.cells():
        metrics = metrics_of(cell)
        if isinstance(metrics, str):
            write_result(folder, cell, {**identify(protocol, cell), "error": metrics})
        elif metrics is not None:
            write_result(folder, cell, make_result(protocol, cell, **metrics))
    return read_results(folder)

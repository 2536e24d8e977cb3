"""Results on disk: one finished cell, one file, whole and checked.

A folder of results holds a copy of its protocol and one JSON file per cell, with a checksum over its content. Nothing
is locked and nothing is appended to, so a run may be killed at any time, and two may even share a folder.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hetcal._checks import must
from hetcal._files import atomic_write
from hetcal.studies.protocol import Cell, Protocol, read_protocol

Result = dict[str, Any]
PROTOCOL_FILE = "protocol.toml"
QUICK_FILE = "quick.toml"
CELLS = "cells"
# Levels of `coverage` and probabilities of `std_quantiles` in a result.
LEVELS = np.arange(1, 100) / 100
CELL_KEYS = ("study", "dataset", "method", "seed")


@dataclass
class Results:
    """What a folder holds: finished and failed results by cell, and the files that are damaged."""

    folder: Path
    protocol: Protocol
    done: dict[Cell, Result] = field(default_factory=dict)
    failed: dict[Cell, Result] = field(default_factory=dict)
    damaged: list[Path] = field(default_factory=list)

    def select(self, study: str, dataset: str, method: str, **varied: Any) -> list[Result]:
        """Finished results of one place in a study's grid, by seed; the varied settings may be given in part."""
        cells = [
            cell
            for cell in self.done
            if (cell.study, cell.dataset, cell.method) == (study, dataset, method)
            and varied.items() <= dict(cell.varied).items()
        ]
        return [self.done[cell] for cell in sorted(cells, key=lambda cell: cell.seed)]


@dataclass(frozen=True)
class Figure:
    """Mean and standard error of a metric over `n` splits."""

    mean: float
    error: float
    n: int


def summarize(results: Sequence[Result], metric: str) -> Figure | None:
    """Mean over the splits with its standard error (0 for a single split); None without results."""
    values = np.array([result["metrics"][metric] for result in results], dtype=np.float64)
    if not len(values):
        return None
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return Figure(float(values.mean()), error, len(values))


def open_folder(folder: Path, protocol: Protocol) -> Results:
    """Take a folder into use for a protocol: make it, check that nothing else lives there, and read what is done."""
    existing = read_protocol_of(folder)
    if existing is not None and existing.hash != protocol.hash:
        raise must(
            "folder",
            f"hold results of this protocol (hash {protocol.hash})",
            str(folder),
            f"it holds those of {existing.title!r} (hash {existing.hash}); choose another --out",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / (QUICK_FILE if protocol.is_quick else PROTOCOL_FILE), protocol.text)
    except OSError as error:
        raise must("folder", "be writable", str(folder), f"{error.strerror}; choose another --out") from None
    return read_cells(folder, protocol)


def read_results(folder: Path) -> Results:
    """All results of a folder that a run has left."""
    protocol = read_protocol_of(folder)
    if protocol is None:
        raise must("folder", "hold the results of a run", str(folder), "make them with: hetcal bench run PROTOCOL")
    return read_cells(folder, protocol)


def read_protocol_of(folder: Path) -> Protocol | None:
    for name in (PROTOCOL_FILE, QUICK_FILE):
        if (folder / name).exists():
            protocol = read_protocol(folder / name)
            return protocol if name == PROTOCOL_FILE else protocol.made_quick()
    return None


def read_cells(folder: Path, protocol: Protocol) -> Results:
    results = Results(folder, protocol)
    for path in sorted((folder / CELLS).rglob("*.json")):
        try:
            result = decode(path.read_text(encoding="utf-8"))
            cell = Cell(**{name: result[name] for name in CELL_KEYS}, varied=tuple(result["varied"].items()))
        except (ValueError, KeyError, TypeError, AttributeError):
            results.damaged.append(path)
            continue
        if result["protocol"] != protocol.hash:
            raise must(
                "folder",
                f"hold results of one protocol ({protocol.hash})",
                str(folder),
                f"{path.name} of {cell} is of protocol {result['protocol']}; move the file away",
            )
        (results.failed if result["error"] else results.done)[cell] = result
    return results


def write_result(folder: Path, cell: Cell, result: Result) -> None:
    path = folder / CELLS / cell.path
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, encode(result))


def encode(result: Result) -> str:
    return json.dumps({**result, "checksum": checksum(result)}, indent=1)


def decode(text: str) -> Result:
    """The result in a file; ValueError if it is not what was written, by a single digit."""
    result: Result = json.loads(text)
    if result.pop("checksum") != checksum(result):
        raise ValueError("checksum")
    return result


def checksum(result: Result) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()

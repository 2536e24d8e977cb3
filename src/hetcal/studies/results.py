"""Results on disk: one file per finished cell, complete and verified by a checksum.

A folder of results contains a copy of its protocol and one JSON file per cell. Nothing is locked and no file is
appended to, so a run can be killed at any time, and two runs can even share a folder.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from hetcal._checks import must
from hetcal._files import atomic_write
from hetcal.studies.protocol import Cell, Protocol, Study, Varied, read_protocol
from hetcal.studies.statistics import Estimate, estimate

Result = dict[str, Any]
PROTOCOL_FILE = "protocol.toml"
QUICK_FILE = "quick.toml"
CELLS = "cells"
CELL_KEYS = ("study", "dataset", "method", "seed")


@dataclass
class Results:
    """The content of a folder: finished and failed results by cell, and damaged files."""

    folder: Path
    protocol: Protocol
    done: dict[Cell, Result] = field(default_factory=dict)
    failed: dict[Cell, Result] = field(default_factory=dict)
    damaged: list[Path] = field(default_factory=list)

    def select(self, study: str, dataset: str, method: str, **varied: Any) -> list[Result]:
        """Finished results of a method on a data set, ordered by seed; not all varied settings need to be given."""
        cells = [
            cell
            for cell in self.done
            if (cell.study, cell.dataset, cell.method) == (study, dataset, method)
            and varied.items() <= dict(cell.varied).items()
        ]
        return [self.done[cell] for cell in sorted(cells, key=lambda cell: cell.seed)]

    def by_method(self, study: Study) -> Iterator[tuple[str, Varied, dict[str, list[Result]]]]:
        """Data set, varied settings, and the finished results of every method that has any."""
        variants = sorted({cell.varied for cell in self.done if cell.study == study.name})
        for dataset, varied in product(study.datasets, variants):
            groups = {method: self.select(study.name, dataset, method, **dict(varied)) for method in study.methods}
            if any(groups.values()):
                yield dataset, varied, groups


def estimate_figure(results: Sequence[Result], figure: str) -> Estimate | None:
    """Mean and standard error of a figure over the splits; None without results."""
    return estimate([result["metrics"][figure] for result in results]) if results else None


def open_folder(folder: Path, protocol: Protocol) -> Results:
    """Create or reuse a folder for a protocol, and read its finished cells; results of another protocol are refused."""
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
    """All results in the folder of a run."""
    protocol = read_protocol_of(folder)
    if protocol is None:
        raise must("folder", "hold the results of a run", str(folder), "create them with: hetcal bench run PROTOCOL")
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
            result = decode_result(path.read_text(encoding="utf-8"))
            cell = Cell(**{name: result[name] for name in CELL_KEYS}, varied=tuple(result["varied"].items()))
        except (ValueError, KeyError, TypeError, AttributeError):
            results.damaged.append(path)
            continue
        if result["protocol"] != protocol.hash:
            raise must(
                "folder",
                f"hold results of one protocol ({protocol.hash})",
                str(folder),
                f"{path.name} of {cell} is of protocol {result['protocol']}; move the file to another folder",
            )
        (results.failed if result["error"] else results.done)[cell] = result
    return results


def write_result(folder: Path, cell: Cell, result: Result) -> None:
    path = folder / CELLS / cell.path
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, encode_result(result))


def encode_result(result: Result) -> str:
    return json.dumps({**result, "checksum": checksum(result)}, indent=1)


def decode_result(text: str) -> Result:
    """Read the result from the text of a file; raise ValueError if even one digit differs from what was written."""
    result: Result = json.loads(text)
    if result.pop("checksum") != checksum(result):
        raise ValueError("checksum")
    return result


def checksum(result: Result) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()

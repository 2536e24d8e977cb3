"""Model files for the tests: small ones by hetcal, and crafted ones with right checksums round hostile content."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetcal import HCRegressor
from hetcal.model_files.archive import MEMBERS, MODEL, SUMMARY, WEIGHTS, frame, read, sha256

SMALL = {"width": 4, "depth": 1, "max_epochs": 1, "random_state": 0}


def fit_small(kind: Any = HCRegressor, **settings: Any) -> Any:
    """A model that is fitted in a blink: two columns, one of them with missing values."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(30, 2))
    X[::7, 1] = np.nan
    y = generator.normal(size=30) if kind is HCRegressor else np.where(X[:, 0] > 0, "yes", "no")
    return kind(**{**SMALL, **settings}).fit(X, y)


@dataclass
class Parts:
    """What a model file is made of, to be tampered with before `forge` puts it together."""

    kind: str
    model: dict[str, Any]
    summary: dict[str, Any]
    weights: bytes

    @classmethod
    def of(cls, path: Any) -> "Parts":
        contents = read(path)
        model, summary = contents.model.model_dump(), contents.summary.model_dump()
        return cls(contents.model.kind, model, summary, contents.weights)

    def members(self) -> dict[str, bytes]:
        return {MODEL: dumps(self.model), SUMMARY: dumps(self.summary), WEIGHTS: self.weights}

    def change(self, keys: str, value: Any) -> "Parts":
        """Set a key of the model's document, `settings.width` say; numbers are places in lists."""
        *path, last = [int(key) if key.isdigit() else key for key in keys.split("/")]
        inner: Any = self.model
        for key in path:
            inner = inner[key]
        inner[last] = value
        return self


Craft = Callable[[Parts], bytes]


def dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def manifest_of(files: dict[str, bytes], kind: str = "regressor", **changes: Any) -> dict[str, Any]:
    sums = {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in files.items()}
    return {"format": "hetcal model", "format_version": 1, "kind": kind, "members": sums, **changes}


def forge(members: dict[str, bytes], manifest: Any = None, kind: str = "regressor") -> bytes:
    """A container as hetcal writes it, all checksums right, whatever is in it."""
    text = dumps(manifest_of(members, kind)) if manifest is None else manifest
    everything = {MEMBERS[0]: text if isinstance(text, bytes) else dumps(text), **members}
    headers, end = frame(everything)
    return b"".join([*(header + data for header, data in zip(headers, everything.values(), strict=True)), end])


def tensors(**arrays: tuple[str, list[int], list[int]]) -> bytes:
    """The header of safetensors as claimed: name = (dtype, shape, offsets); the bytes behind it are zeros."""
    entries = {
        key: {"dtype": dtype, "shape": shape, "data_offsets": ends} for key, (dtype, shape, ends) in arrays.items()
    }
    header = dumps({key.replace("__", "."): entry for key, entry in entries.items()})
    header += b" " * (-len(header) % 8)
    size = min(max([ends[1] for _, _, ends in arrays.values()], default=0), 10_000)
    return struct.pack("<Q", len(header)) + header + bytes(size)

"""Model files for the tests: small ones by hetcal, and crafted ones with a right checksum around hostile content."""

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hetcal import HCRegressor

SMALL = {"width": 4, "depth": 1, "max_epochs": 1, "random_state": 0}
KEY = "hetcal model"
START = b'{"__metadata__":{"hetcal model":"{\\"sha256\\":\\"'
CHECKSUM = slice(8 + len(START), 8 + len(START) + 64)


def fit_small(kind: Any = HCRegressor, **settings: Any) -> Any:
    """A model that is fitted in a moment, of one network: two columns, one of them with missing values."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(30, 2))
    X[::7, 1] = np.nan
    y = generator.normal(size=30) if kind is HCRegressor else np.where(X[:, 0] > 0, "yes", "no")
    return kind(**{"estimator": "mc_dropout", "learning_rate": 0.002, **SMALL, **settings}).fit(X, y)


@dataclass
class Parts:
    """What a model file is made of, to be tampered with before `file` puts it together."""

    manifest: dict[str, Any]
    tensors: dict[str, Any]  # as in the header
    data: bytes

    @classmethod
    def of(cls, path: str | Path) -> "Parts":
        file = Path(path).read_bytes()
        header, data = split(file)
        entries = json.loads(header)
        return cls(json.loads(entries.pop("__metadata__")[KEY]), entries, data)

    @property
    def model(self) -> dict[str, Any]:
        return self.manifest["model"]

    def change(self, keys: str, value: Any) -> "Parts":
        """Set a key of the model's document, `settings/width` say; numbers are places in lists."""
        *path, last = [int(key) if key.isdigit() else key for key in keys.split("/")]
        inner: Any = self.model
        for key in path:
            inner = inner[key]
        inner[last] = value
        return self

    def manifest_text(self, **texts: str) -> str:
        """The manifest as JSON, some of its values as the text that is given."""
        values = {key: dumps(value) for key, value in self.manifest.items()} | texts
        return "{" + ",".join(f"{dumps(key)}:{text}" for key, text in values.items()) + "}"

    def header(self, manifest: str | None = None, **further: Any) -> bytes:
        """The header, with another text as manifest, or with further metadata."""
        text = self.manifest_text() if manifest is None else manifest
        return pad(dumps({"__metadata__": {KEY: text, **further}, **self.tensors}).encode())

    def file(self, manifest: str | None = None) -> bytes:
        return seal(self.header(manifest), self.data)


Craft = Callable[[Parts], bytes]


def split(file: bytes) -> tuple[bytes, bytes]:
    end = 8 + struct.unpack("<Q", file[:8])[0]
    return file[8:end], file[end:]


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pad(header: bytes) -> bytes:
    return header + b" " * (-len(header) % 8)


def seal(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with this header and data, whatever they are, and the right checksum; it may claim another length."""
    file = struct.pack("<Q", len(header) if length is None else length) + header + data
    if not header.startswith(START):
        return file  # no place for a checksum
    digest = hashlib.sha256(file[: CHECKSUM.start] + file[CHECKSUM.stop :]).hexdigest()
    return file[: CHECKSUM.start] + digest.encode() + file[CHECKSUM.stop :]

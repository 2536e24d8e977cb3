"""Model files that somebody made on purpose: a name for each, and how its bytes come from the parts of a true file.

Where the attack lies deeper than the checksums, they are right (`tests.model_files.samples.forge`).
"""

import io
import pickle
import random
import struct
import warnings
import zipfile
import zlib
from copy import deepcopy
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from hetcal.model_files.archive import CENTRAL, LOCAL, MANIFEST, MODEL, SUMMARY, WEIGHTS
from tests.contracts.crafted_documents import (
    CHANGES,
    CLASS_CHANGES,
    DEEP,
    DOCUMENTS,
    SUMMARY_CHANGES,
    changed,
    changed_summary,
)
from tests.model_files.samples import Craft, Parts, dumps, forge, manifest_of, tensors


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def payloads(path: Path) -> dict[str, bytes]:
    """The payload as the common formats keep it; each runs when its own loader reads it."""
    files = {name: io.BytesIO() for name in ("joblib", "torch", "numpy")}
    joblib.dump(Payload(path), files["joblib"])
    torch.save(Payload(path), files["torch"])
    np.save(files["numpy"], np.array([Payload(path)], dtype=object), allow_pickle=True)
    return {"pickle": pickle.dumps(Payload(path)), **{name: file.getvalue() for name, file in files.items()}}


def with_payload(payload: bytes) -> dict[str, Craft]:
    """The payload as the whole file, before, behind and inside a true one, and as each of its members."""
    text = payload.decode("latin-1")
    return {
        "whole file": lambda parts: payload,
        "before a true file": lambda parts: payload + forge(parts.members()),
        "behind a true file": lambda parts: forge(parts.members()) + payload,
        "as manifest": lambda parts: forge(parts.members(), payload),
        "as model": lambda parts: forge({**parts.members(), MODEL: payload}),
        "as summary": lambda parts: forge({**parts.members(), SUMMARY: payload}),
        "as weights": lambda parts: forge({**parts.members(), WEIGHTS: payload}),
        "as data.pkl beside": lambda parts: forge({**parts.members(), "data.pkl": payload}),
        "as an estimator's name": lambda parts: forge(parts.change("settings/estimator", text).members()),
        "as an option": lambda parts: forge(parts.change("settings/estimator_options", {"rate": text}).members()),
        "behind the tensors": lambda parts: forge({**parts.members(), WEIGHTS: parts.weights + payload}),
    }


# --- Weights ---------------------------------------------------------------------------------------------------------
def filled(value: float) -> Craft:
    """The true weights with one number replaced, the last bias."""

    def craft(parts: Parts) -> bytes:
        header = 8 + int.from_bytes(parts.weights[:8], "little")
        numbers = np.frombuffer(parts.weights[header:], dtype="<f4").copy()
        numbers[-1] = value
        return forge({**parts.members(), WEIGHTS: parts.weights[:header] + numbers.tobytes()})

    return craft


def weights(data: bytes) -> Craft:
    return lambda parts: forge({**parts.members(), WEIGHTS: data})


def respelled(old: bytes, new: bytes) -> Craft:
    """The true weights with another word of the same length in their header."""

    def craft(parts: Parts) -> bytes:
        assert len(old) == len(new)
        assert old in parts.weights
        return forge({**parts.members(), WEIGHTS: parts.weights.replace(old, new, 1)})

    return craft


TRUE = {
    "network__0__bias": ("F32", [4], [0, 16]),
    "network__0__weight": ("F32", [4, 3], [16, 64]),
    "network__3__bias": ("F32", [1], [64, 68]),
    "network__3__weight": ("F32", [1, 4], [68, 84]),
}
TENSORS: dict[str, Craft] = {
    "NaN": filled(float("nan")),
    "infinity": filled(float("inf")),
    "no tensors": weights(tensors()),
    "no bytes": weights(b""),
    "three bytes": weights(b"abc"),
    "header longer than the file": weights(struct.pack("<Q", 10_000) + b"{}"),
    "header of 2**63 bytes": weights(struct.pack("<Q", 2**63) + b"{}"),
    "header of 20 megabytes": weights(struct.pack("<Q", 20 * 2**20) + b"{" + b" " * (20 * 2**20 - 2) + b"}"),
    "header is no JSON": weights(struct.pack("<Q", 8) + b"\x80\x04pickle"),
    "header is deep": weights(struct.pack("<Q", len(DEEP)) + DEEP),
    "a tensor missing": weights(tensors(**dict(list(TRUE.items())[:3]))),
    "a tensor more": weights(tensors(**TRUE, further=("F32", [1], [84, 88]))),
    "a tensor of no size": weights(tensors(**TRUE, further=("F32", [2**40, 0], [84, 84]))),
    "a tensor of 60 axes": weights(tensors(**TRUE, further=("F32", [1] * 60, [84, 88]))),
    "shape transposed": weights(tensors(**{**TRUE, "network__0__weight": ("F32", [3, 4], [16, 64])})),
    "shape flat": weights(tensors(**{**TRUE, "network__0__weight": ("F32", [12], [16, 64])})),
    "shape beyond its bytes": weights(tensors(**{**TRUE, "network__0__weight": ("F32", [10**6, 10**6], [16, 64])})),
    "shape that overflows": weights(tensors(**{**TRUE, "network__0__weight": ("F32", [2**62, 2**62], [16, 64])})),
    "shape below zero": weights(tensors(**{**TRUE, "network__0__weight": ("F32", [-4, -3], [16, 64])})),
    "offsets out of range": weights(tensors(**{**TRUE, "network__3__weight": ("F32", [1, 4], [10**12, 10**12 + 16])})),
    "offsets overlap": weights(tensors(**{**TRUE, "network__3__weight": ("F32", [1, 4], [0, 16])})),
    "offsets backwards": weights(tensors(**{**TRUE, "network__3__weight": ("F32", [1, 4], [84, 68])})),
    "offsets with a hole": weights(tensors(**{**TRUE, "network__3__weight": ("F32", [1, 4], [100, 116])})),
    "type integer": respelled(b"F32", b"I32"),
    "type double": weights(tensors(**{**TRUE, "network__0__weight": ("F64", [2, 3], [16, 64])})),
    "type unknown": respelled(b"F32", b"X32"),
    "name of another layer": respelled(b"network.3.bias", b"network.9.bias"),
    "name of a dunder": respelled(b"network.3.bias", b"__class__.bias"),
    "bytes behind the tensors": lambda parts: forge({**parts.members(), WEIGHTS: parts.weights + b"\0" * 8}),
}


# --- Containers ------------------------------------------------------------------------------------------------------
def all_members(parts: Parts) -> dict[str, bytes]:
    return {MANIFEST: dumps(manifest_of(parts.members())), **parts.members()}


def zipped(
    parts: Parts, *, method: int = zipfile.ZIP_STORED, rename: dict[str, str] | None = None, **further: bytes
) -> bytes:
    """The members of a true file in an archive that Python's zipfile wrote, under other names if asked."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore")  # a name twice
        for name, data in [*all_members(parts).items(), *further.items()]:
            archive.writestr((rename or {}).get(name, name), data)
    return file.getvalue()


def as_link(parts: Parts) -> bytes:
    """Weights that are a symbolic link."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in all_members(parts).items():
            entry = zipfile.ZipInfo(name)
            if name == WEIGHTS:
                entry.external_attr = 0o120777 << 16
            archive.writestr(entry, b"/etc/passwd" if name == WEIGHTS else data)
    return file.getvalue()


def deflated(data: bytes, claimed: int) -> bytes:
    """An archive whose only member, the manifest, is compressed and claims a size."""
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    content = packed.compress(data) + packed.flush()
    name, crc = MANIFEST.encode(), zlib.crc32(content)
    return LOCAL.pack(b"PK\3\4", 20, 0, 8, 0, 0x21, crc, len(content), claimed, len(name), 0) + name + content


def patched(struct_format: struct.Struct, signature: bytes, field: int, value: Any, count: int = 1) -> Craft:
    """A true file with one field of its ZIP headers replaced, of the last header of that kind or of more."""

    def craft(parts: Parts) -> bytes:
        data = bytearray(forge(parts.members()))
        place = len(data)
        for _ in range(count):
            place = bytes(data).rindex(signature, 0, place)
            fields = list(struct_format.unpack_from(data, place))
            fields[field] = value
            struct_format.pack_into(data, place, *fields)
        return bytes(data)

    return craft


def inserted(extra: bytes, *, behind: bool) -> Craft:
    """A true file with bytes between its members that a ZIP reader would skip, or with a comment at its end."""

    def craft(parts: Parts) -> bytes:
        data = forge(parts.members())
        if behind:
            return data[:-2] + struct.pack("<H", len(extra)) + extra
        place = data.index(b"PK\1\2")
        return data[:place] + extra + data[place:]

    return craft


BOMB = 2 * 10**7
CONTAINERS: dict[str, Craft] = {
    "empty": lambda parts: b"",
    "one byte": lambda parts: b"P",
    "zeros": lambda parts: bytes(5000),
    **{f"random bytes {seed}": lambda parts, seed=seed: random.Random(seed).randbytes(3000) for seed in range(3)},
    "random bytes behind the signature": lambda parts: b"PK\3\4" + random.Random(3).randbytes(3000),
    "random bytes behind the first header": lambda parts: (
        forge(parts.members())[:43] + random.Random(4).randbytes(3000)
    ),
    "a CSV": lambda parts: b"a,b,price\n1,2,3\n" * 100,
    "a picture": lambda parts: b"\x89PNG\r\n\x1a\n" + bytes(1000),
    "a JSON file": lambda parts: dumps(parts.model),
    "only the weights": lambda parts: parts.weights,
    "gzip of a true file": lambda parts: zlib.compress(forge(parts.members()), wbits=31),
    "an empty archive": lambda parts: b"PK\5\6" + bytes(18),
    "packed again": zipped,
    "deflated": lambda parts: zipped(parts, method=zipfile.ZIP_DEFLATED),
    "bzip2": lambda parts: zipped(parts, method=zipfile.ZIP_BZIP2),
    "lzma": lambda parts: zipped(parts, method=zipfile.ZIP_LZMA),
    **{
        f"member {name!r}": lambda parts, name=name: zipped(parts, rename={WEIGHTS: name})
        for name in (
            "../weights.safetensors",
            "/etc/weights",
            "..\\weights",
            "C:\\weights",
            "a/../../b",
            "weights\0.py",
        )
    },
    "member in the manifest '../../x'": lambda parts: forge({**parts.members(), "../../x": b"x"}),
    "member in the place of another": lambda parts: forge(
        {"../model": parts.members()[MODEL], SUMMARY: dumps(parts.summary), WEIGHTS: parts.weights}
    ),
    "first member '../manifest'": lambda parts: zipped(parts, rename={MANIFEST: "../manifest."}),
    "a link": as_link,
    "a member more": lambda parts: zipped(parts, **{"setup.py": b"import os"}),
    "a member more, in the manifest": lambda parts: forge({**parts.members(), "setup.py": b"import os"}),
    "a member twice": lambda parts: zipped(parts, rename={SUMMARY: MODEL}),
    **{
        f"without {name}": lambda parts, name=name: forge({k: v for k, v in parts.members().items() if k != name})
        for name in (MODEL, SUMMARY, WEIGHTS)
    },
    "members in another order": lambda parts: forge(dict(reversed(parts.members().items()))),
    "a bomb": lambda parts: deflated(bytes(BOMB), BOMB),
    "a bomb that tells less": lambda parts: deflated(bytes(BOMB), 100),
    "a bomb of all members": lambda parts: zipped(
        Parts(parts.kind, parts.model, parts.summary, bytes(BOMB)), method=zipfile.ZIP_DEFLATED
    ),
    "members overlap": patched(CENTRAL, b"PK\1\2", 16, 0, count=4),
    "wrong CRC in a local header": patched(LOCAL, b"PK\3\4", 6, 0),
    "wrong CRC in the directory": patched(CENTRAL, b"PK\1\2", 7, 0),
    "encrypted": patched(LOCAL, b"PK\3\4", 2, 1),
    "encrypted in the directory": patched(CENTRAL, b"PK\1\2", 3, 1, count=4),
    "method deflated": patched(LOCAL, b"PK\3\4", 3, 8),
    "size in a local header": patched(LOCAL, b"PK\3\4", 8, 2**32 - 1, count=4),
    "size in the directory": patched(CENTRAL, b"PK\1\2", 9, 2**32 - 1, count=4),
    "attributes of a link": patched(CENTRAL, b"PK\1\2", 15, 0o120777 << 16),
    "another date": patched(LOCAL, b"PK\3\4", 5, 0x5921, count=4),
    "a ZIP64 end": inserted(
        b"PK\6\6" + struct.pack("<Q2H2L4Q", 44, 45, 45, 0, 0, 2**40, 2**40, 2**60, 2**60), behind=False
    ),
    "an extra member before the directory": inserted(LOCAL.pack(b"PK\3\4", *[0] * 10), behind=False),
    "a comment": inserted(b"hello", behind=True),
    "twice": lambda parts: 2 * forge(parts.members()),
}


def cases(payload_path: Path) -> dict[str, tuple[str, Craft]]:
    """All of them: name -> which true file they come from, and how."""
    regressor = {f"container: {name}": craft for name, craft in CONTAINERS.items()}
    regressor |= {f"document: {name}": craft for name, craft in DOCUMENTS.items()}
    regressor |= {f"weights: {name}": craft for name, craft in TENSORS.items()}
    regressor |= {f"model {i}: {keys}={value!r}"[:99]: changed(keys, value) for i, (keys, value) in enumerate(CHANGES)}
    regressor |= {
        f"summary {i}: {key}={value!r}"[:99]: changed_summary(key, value)
        for i, (key, value) in enumerate(SUMMARY_CHANGES)
    }
    for kind, payload in payloads(payload_path).items():
        regressor |= {f"{kind}: {name}": craft for name, craft in with_payload(payload).items()}
    classifier = {
        f"classes {i}: {keys}={value!r}"[:99]: changed(keys, value) for i, (keys, value) in enumerate(CLASS_CHANGES)
    }
    return {
        **{name: ("regressor", craft) for name, craft in regressor.items()},
        **{name: ("classifier", craft) for name, craft in classifier.items()},
    }


def craft(case: tuple[str, Craft], parts: dict[str, Parts]) -> bytes:
    return case[1](deepcopy(parts[case[0]]))

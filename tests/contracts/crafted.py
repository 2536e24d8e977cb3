"""Model files that somebody made on purpose: a name for each, and how its bytes come from the parts of a true file.

Where the attack lies deeper than the checksum, it is right (`tests.model_files.samples.seal`).
"""

import io
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from tests.contracts.crafted_documents import (
    CHANGES,
    CLASS_CHANGES,
    DEEP,
    DOCUMENTS,
    MEMBER_CHANGES,
    SUMMARY_CHANGES,
    changed,
    changed_summary,
)
from tests.model_files.samples import KEY, START, Craft, Parts, dumps, pad, seal


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def payloads(path: Path) -> dict[str, bytes]:
    """The payload as the common formats keep it; each runs when its own loader reads it."""
    files = {name: io.BytesIO() for name in ("joblib", "torch", "numpy", "npz")}
    joblib.dump(Payload(path), files["joblib"])
    torch.save(Payload(path), files["torch"])
    np.save(files["numpy"], np.array([Payload(path)], dtype=object), allow_pickle=True)
    np.savez(files["npz"], a=np.array([Payload(path)], dtype=object))
    return {"pickle": pickle.dumps(Payload(path)), **{name: file.getvalue() for name, file in files.items()}}


def with_payload(payload: bytes) -> dict[str, Craft]:
    """The payload as the whole file, before, behind and inside a true one, and in every place that holds something."""
    text = payload.decode("latin-1")
    return {
        "whole file": lambda parts: payload,
        "before a true file": lambda parts: payload + parts.file(),
        "behind a true file": lambda parts: parts.file() + payload,
        "as header": lambda parts: seal(payload, parts.data),
        "as the rest of the header": lambda parts: seal(START + bytes(64) + payload, parts.data),
        "as manifest": lambda parts: parts.file(text),
        "as model": lambda parts: parts.file(parts.manifest_text(model=dumps(text))),
        "as summary": lambda parts: parts.file(parts.manifest_text(summary=dumps(text))),
        "as further metadata": lambda parts: seal(parts.header(pickle=text), parts.data),
        "as the data of the tensors": lambda parts: seal(parts.header(), payload),
        "as a further tensor": lambda parts: added(parts, "data.pkl", "U8", [len(payload)], payload),
        "as the name of a tensor": lambda parts: added(parts, text, "U8", [0], b""),
        "as an estimator's name": lambda parts: parts.change("settings/estimator", text).file(),
        "as an option": lambda parts: parts.change("settings/estimator_options", {"rate": text}).file(),
        "behind the tensors": lambda parts: seal(parts.header(), parts.data + payload),
        "as padding": lambda parts: seal(parts.header() + payload, parts.data),
    }


# --- Tensors ---------------------------------------------------------------------------------------------------------
def filled(value: float) -> Craft:
    """The true weights with one number replaced, the last one."""

    def craft(parts: Parts) -> bytes:
        numbers = np.frombuffer(parts.data, dtype="<f4").copy()
        numbers[-1] = value
        return seal(parts.header(), numbers.tobytes())

    return craft


def laid_out(parts: Parts, tensors: dict[str, tuple[str, list[int], bytes]]) -> bytes:
    """A file with these tensors, name = (dtype, shape, data), in the order and at the offsets that hetcal writes."""
    header, data = {}, b""
    for name, (dtype, shape, content) in sorted(tensors.items(), key=lambda item: (-ITEM_BYTES[item[1][0]], item[0])):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return Parts(parts.manifest, header, data).file()


def true_tensors(parts: Parts) -> dict[str, tuple[str, list[int], bytes]]:
    return {
        name: (entry["dtype"], entry["shape"], parts.data[slice(*entry["data_offsets"])])
        for name, entry in parts.tensors.items()
    }


def added(parts: Parts, name: str, dtype: str, shape: list[int], data: bytes) -> bytes:
    """A true file with a tensor more."""
    return laid_out(parts, {**true_tensors(parts), name: (dtype, shape, data)})


def replaced(dtype: str, shape: list[int]) -> Craft:
    """A true file with the last tensor read as another type."""
    return lambda parts: added(parts, LAST, dtype, shape, parts.data[-16:])


def entry(name: str, **changes: Any) -> Craft:
    """A true file with the entry of a tensor changed; None removes a key."""

    def craft(parts: Parts) -> bytes:
        parts.tensors[name] = {k: v for k, v in (parts.tensors[name] | changes).items() if v is not None}
        return parts.file()

    return craft


def entries(change: Callable[[dict[str, Any]], Any]) -> Craft:
    """A true file with other entries of tensors."""
    return lambda parts: Parts(parts.manifest, change(parts.tensors), parts.data).file()


def header(old: str, new: str) -> Craft:
    """A true file with something else written in its header, in the last place that reads so."""

    def craft(parts: Parts) -> bytes:
        text = parts.header().decode().rstrip(" ")
        before, _, behind = text.rpartition(old)
        assert before
        return seal(pad(f"{before}{new}{behind}".encode()), parts.data)

    return craft


def renamed(name: str) -> Craft:
    return lambda parts: laid_out(parts, {name if key == LAST else key: v for key, v in true_tensors(parts).items()})


def swapped(parts: Parts) -> bytes:
    """The first two tensors in the other order, in the header and in the data."""
    (a, first), (b, second), *others = parts.tensors.items()
    start, middle, end = first["data_offsets"][0], *second["data_offsets"]
    second = {**second, "data_offsets": [start, end - middle]}
    first = {**first, "data_offsets": [end - middle, end]}
    data = parts.data[middle:end] + parts.data[start:middle] + parts.data[end:]
    return Parts(parts.manifest, {b: second, a: first, **dict(others)}, data).file()


NOT_FINITE = float("nan"), float("inf")
ITEM_BYTES = dict.fromkeys(("F64", "I64", "U64", "C64"), 8)
ITEM_BYTES |= dict.fromkeys(("F32", "I32", "U32"), 4) | dict.fromkeys(("F16", "BF16", "I16", "U16"), 2)
ITEM_BYTES |= dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1) | {"F4": 0.5}
FIRST, MIDDLE, BEFORE, LAST = (f"network.{name}" for name in ("0.bias", "0.weight", "3.bias", "3.weight"))
TENSORS: dict[str, Craft] = {
    "NaN": filled(float("nan")),
    "infinity": filled(float("inf")),
    "3e38": filled(3e38),
    "none": lambda parts: Parts(parts.manifest, {}, b"").file(),
    "none, but data": entries(lambda tensors: {}),
    "one missing": entries(lambda tensors: {key: tensors[key] for key in (FIRST, MIDDLE, BEFORE)}),
    "one missing with its data": lambda parts: Parts(
        parts.manifest, {key: parts.tensors[key] for key in (FIRST, MIDDLE, BEFORE)}, parts.data[:68]
    ).file(),
    "one more": lambda parts: added(parts, "network.9", "F32", [1], bytes(4)),
    "one more that is empty": lambda parts: added(parts, "network.9", "F32", [2**40, 0], b""),
    "one more of 60 axes": lambda parts: added(parts, "network.9", "F32", [1] * 60, bytes(4)),
    "one more of 100,000 axes": lambda parts: added(parts, "network.9", "F32", [1] * 100_000, bytes(4)),
    "one more without a name": lambda parts: added(parts, "", "F32", [1], bytes(4)),
    "50,000 more": entries(lambda tensors: tensors | {f"n{i}": {**tensors[FIRST], "shape": []} for i in range(50_000)}),
    "50,000 more that are empty": lambda parts: laid_out(
        parts, true_tensors(parts) | {f"n{i}": ("F32", [0], b"") for i in range(50_000)}
    ),
    "shape with its axes swapped": replaced("F32", [4, 1]),
    "shape transposed": entry(MIDDLE, shape=[3, 4]),
    "shape flat": entry(MIDDLE, shape=[12]),
    "shape beyond its bytes": entry(MIDDLE, shape=[10**6, 10**6]),
    "shape that overflows": entry(MIDDLE, shape=[2**62, 2**62]),
    "shape beyond 64 bits": entry(MIDDLE, shape=[2**64, 3]),
    "shape below zero": entry(MIDDLE, shape=[-4, -3]),
    "shape of floats": entry(MIDDLE, shape=[4.0, 3.0]),
    "shape of text": entry(MIDDLE, shape=["4", "3"]),
    "shape is a number": entry(MIDDLE, shape=12),
    "shape missing": entry(MIDDLE, shape=None),
    "offsets out of range": entry(LAST, data_offsets=[10**12, 10**12 + 16]),
    "offsets beyond 64 bits": entry(LAST, data_offsets=[2**64, 2**64 + 16]),
    "offsets below zero": entry(LAST, data_offsets=[-16, 0]),
    "offsets overlap": entry(LAST, data_offsets=[0, 16]),
    "offsets overlap in part": entry(LAST, data_offsets=[64, 80]),
    "offsets backwards": entry(LAST, data_offsets=[84, 68]),
    "offsets with a gap": lambda parts: entry(LAST, data_offsets=[84, 100])(
        Parts(**vars(parts) | {"data": bytes(100)})
    ),
    "offsets with a gap at the start": entries(
        lambda tensors: {
            key: {**value, "data_offsets": [end + 8 for end in value["data_offsets"]]} for key, value in tensors.items()
        }
    ),
    "offsets three": entry(LAST, data_offsets=[68, 84, 84]),
    "offsets one": entry(LAST, data_offsets=[84]),
    "offsets of floats": entry(LAST, data_offsets=[68.0, 84.0]),
    "offsets missing": entry(LAST, data_offsets=None),
    **{f"type {name}": entry(MIDDLE, dtype=name) for name in ("I32", "U32", "X32", "f32", "float32", "", 32, None)},
    **{
        f"type {name} of the right size": replaced(name, [int(16 / size)])
        for name, size in ITEM_BYTES.items()
        if name != "F32"
    },
    "an entry is null": entries(lambda tensors: {**tensors, "network.9": None}),
    "an entry is text": entries(lambda tensors: {**tensors, "network.9": "import os"}),
    "an entry is deep": header('"shape":[4]', f'"shape":{DEEP}'),
    "an entry with a further key": entry(LAST, run="import os"),
    "an entry in another order": entries(
        lambda tensors: {key: dict(reversed(value.items())) for key, value in tensors.items()}
    ),
    "an entry with a key twice": header('"dtype":"F32"', '"dtype":"I64","dtype":"F32"'),
    "an entry twice": header("}}", '},"' + LAST + '":{"dtype":"F32","shape":[1,4],"data_offsets":[68,84]}}'),
    "the header in another order": entries(lambda tensors: dict(reversed(tensors.items()))),
    "the data in another order": swapped,
    **{
        f"name {name!r}"[:40]: renamed(name)
        for name in ("network.9.weight", "__class__", "../weights", "/etc/passwd", "C:\\weights", "w\0.py", "é" * 10**5)
    },
    "name of the metadata": header(f'"{LAST}"', '"__metadata__"'),
    "name in escapes": header("network.0.bias", "network.\\u0030.bias"),
    "bytes behind them": lambda parts: seal(parts.header(), parts.data + bytes(8)),
    "a byte behind them": lambda parts: seal(parts.header(), parts.data + b"\0"),
    "a byte too few": lambda parts: seal(parts.header(), parts.data[:-1]),
    "no data": lambda parts: seal(parts.header()),
}


TREE_TABLES = ("forest_members.trees", "boosted_members.mean_trees", "boosted_members.std_trees")
# What held-out rows never lead to.
CALIBRATION = [
    *(
        (name, value)
        for name in ("group_weights", "widening", "factor", "linear_members.std", "shape")
        for value in NOT_FINITE
    ),
    *(
        (name, -1.0)
        for name in ("group_weights", "widening", "factor", "linear_members.std", "forest_members.trees.values")
    ),
    ("factor", 0.0),
    ("linear_members.std", 0.0),
    ("shape", 0.0),  # it increases
    *(
        (f"{trees}.{name}", value)
        for trees in TREE_TABLES
        for name in ("feature", "right", "roots")
        for value in (-1, 10**6, 2**31 - 1)
    ),
    ("forest_members.trees.roots", 0),  # a forest without trees
    # Back to the first tree, without end; the true file has no trees of sigma.
    *((f"{trees}.right", 0) for trees in TREE_TABLES[:2]),
    *((f"{trees}.{name}", value) for trees in TREE_TABLES for name in ("threshold", "values") for value in NOT_FINITE),
    *((f"boosted_members.{name}", value) for name in ("mean_start", "std_start") for value in NOT_FINITE),
]


def calibrated(name: str, value: float) -> Craft:
    """A true file with one value in a tensor of the calibration."""

    def craft(parts: Parts) -> bytes:
        dtype, shape, data = true_tensors(parts)[name]
        numbers = np.full(shape, value, dtype={"F64": "<f8", "F32": "<f4", "I32": "<i4"}[dtype])
        assert numbers.nbytes == len(data)
        return added(parts, name, dtype, shape, numbers.tobytes())

    return craft


# --- Containers ------------------------------------------------------------------------------------------------------
def archived(parts: Parts, method: int = zipfile.ZIP_STORED, name: str = "model.hetcal") -> bytes:
    """A true file in a ZIP archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, parts.file())
    return file.getvalue()


def foreign(metadata: Any) -> Craft:
    """The true tensors with other metadata."""
    return lambda parts: seal(pad(dumps({"__metadata__": metadata, **parts.tensors}).encode()), parts.data)


def metadata(before: str = "", behind: str = "") -> Craft:
    """A true file with more text in its metadata, before or behind the manifest."""

    def craft(parts: Parts) -> bytes:
        value = dumps(parts.manifest_text())
        text = f'{{"__metadata__":{{{before}"{KEY}":{value}{behind}}},{dumps(parts.tensors)[1:]}'
        return seal(pad(text.encode()), parts.data)

    return craft


def respelled(change: Callable[[bytes], bytes]) -> Craft:
    """A true file with its whole header, padding included, written differently."""
    return lambda parts: seal(change(parts.header()), parts.data)


def claimed(length: int) -> Craft:
    """A true file that claims another length of its header; the checksum is right."""
    return lambda parts: seal(parts.header(), parts.data, length)


def claimed_more(by: int) -> Craft:
    return lambda parts: claimed(len(parts.header()) + by)(parts)


def metadata_last(parts: Parts) -> bytes:
    return seal(pad(dumps({**parts.tensors, "__metadata__": {KEY: parts.manifest_text()}}).encode()), parts.data)


def unpadded(parts: Parts) -> bytes:
    while not parts.header().endswith(b" "):  # a header that needs no padding would be right without
        parts.change("columns/0/name", parts.model["columns"][0]["name"] + "x")
    return seal(parts.header().rstrip(b" "), parts.data)


LONG = "x" * 900_000
CONTAINERS: dict[str, Craft] = {
    "empty": lambda parts: b"",
    "one byte": lambda parts: b"\x08",
    "zeros": lambda parts: bytes(5000),
    **{f"random bytes {seed}": lambda parts, seed=seed: random.Random(seed).randbytes(3000) for seed in range(3)},
    "random bytes as header": lambda parts: seal(random.Random(3).randbytes(3000)),
    "random bytes behind the start": lambda parts: seal(START + bytes(64) + random.Random(4).randbytes(3000)),
    "random text behind the start": lambda parts: seal(START + b"0" * 64 + b"A" * 3000),
    "nothing but the start": lambda parts: seal(START),
    "nothing but the start and a checksum": lambda parts: seal(START + bytes(64)),
    "a CSV": lambda parts: b"a,b,price\n1,2,3\n" * 100,
    "a picture": lambda parts: b"\x89PNG\r\n\x1a\n" + bytes(1000),
    "a JSON file": lambda parts: dumps(parts.manifest).encode(),
    "the header alone": lambda parts: parts.header(),
    "gzip of a true file": lambda parts: zlib.compress(parts.file(), wbits=31),
    "an empty archive": lambda parts: b"PK\5\6" + bytes(18),
    "an archive": archived,
    "an archive, deflated": lambda parts: archived(parts, zipfile.ZIP_DEFLATED),
    "an archive, bzip2": lambda parts: archived(parts, zipfile.ZIP_BZIP2),
    "an archive, lzma": lambda parts: archived(parts, zipfile.ZIP_LZMA),
    "an archive of '../model'": lambda parts: archived(parts, name="../model.hetcal"),
    "an archive with a true file before it": lambda parts: parts.file() + archived(parts),
    "the weights without metadata": lambda parts: seal(pad(dumps(parts.tensors).encode()), parts.data),
    "foreign metadata": foreign({"format": "pt"}),
    "foreign metadata, 900 kB": foreign({"format": LONG}),
    "metadata empty": foreign({}),
    **{f"metadata {value!r}"[:40]: foreign(value) for value in (None, 5, "hetcal model", ["hetcal model"], {KEY: {}})},
    **{f"manifest {value!r}"[:40]: foreign({KEY: value}) for value in (None, 5, True, ["x"], {"sha256": "0" * 64})},
    "manifest is the object itself": lambda parts: foreign({KEY: parts.manifest})(parts),
    "the manifest under another key": lambda parts: foreign({"hetcal modem": parts.manifest_text()})(parts),
    "the key in escapes": header("hetcal model", "hetcal\\u0020model"),
    "metadata beside the manifest": metadata(behind=',"format":"pt"'),
    "metadata beside the manifest, 900 kB": metadata(behind=f',"format":"{LONG}"'),
    "metadata before the manifest": metadata(before='"format":"pt",'),
    "metadata that are not text": metadata(behind=',"format":{"a":1}'),
    "metadata without end": metadata(behind=f',"format":{DEEP}'),
    "the manifest twice": lambda parts: metadata(behind=f',"{KEY}":{dumps(parts.manifest_text())}')(parts),
    "another manifest behind": metadata(behind=f',"{KEY}":"{{}}"'),
    "metadata twice": header('"}', f'"}},"__metadata__":{{"{KEY}":"{{}}"}}'),
    "metadata twice, the second null": header('"}', '"},"__metadata__":null'),
    "metadata behind the tensors": metadata_last,
    "spaces before the header": respelled(lambda text: b" " * 8 + text),
    "spaces in the header": respelled(lambda text: text.replace(b'"shape":', b'"shape": ')),
    "spaces behind the header": respelled(lambda text: text + b" " * 8),
    "900 kB of spaces behind the header": respelled(lambda text: text + b" " * 900_000),
    "no padding": unpadded,
    "a space of padding too many": respelled(lambda text: text + b" "),
    **{
        f"padding of {character!r}": respelled(lambda text, character=character: text + character * 8)
        for character in (b"\n", b"\t", b"\0", b"}", b"x")
    },
    "a byte order mark": respelled(lambda text: b"\xef\xbb\xbf" + text),
    "UTF-16": respelled(lambda text: text.decode().encode("utf-16-le")),
    "a comment": respelled(lambda text: pad(text.rstrip(b" ") + b"/* */")),
    "a second header": respelled(lambda text: text + text),
    "the header in a list": respelled(lambda text: b"[" + text + b"]"),
    "the header not closed": respelled(lambda text: pad(text.rstrip(b" ")[:-1])),
    "the header deep": lambda parts: seal(START + bytes(64) + DEEP.encode()),
    **{f"header of {length} bytes": claimed(length) for length in (0, 1, 8, 2**31, 2**32, 2**63, 2**64 - 1)},
    **{f"header longer by {by} bytes": claimed_more(by) for by in (-8, -1, 1, 8, 84, 85, 92, 10**6)},
    "header of 20 megabytes": respelled(lambda text: text + b" " * 20 * 2**20),
    "header of 20 megabytes that are not there": claimed(20 * 2**20),
    "header of 16 megabytes that are not there": claimed(16 * 2**20),
    "twice": lambda parts: 2 * parts.file(),
    "within its own data": lambda parts: seal(parts.header(), parts.file()),
    "reversed": lambda parts: parts.file()[::-1],
    "length in big-endian": lambda parts: struct.pack(">Q", len(parts.header())) + parts.file()[8:],
    "without a length": lambda parts: parts.file()[8:],
}


def cases(payload_path: Path) -> dict[str, tuple[str, Craft]]:
    """All of them: name -> which true file they come from, and how."""
    regressor = {f"container: {name}": craft for name, craft in CONTAINERS.items()}
    regressor |= {f"document: {name}": craft for name, craft in DOCUMENTS.items()}
    regressor |= {f"tensors: {name}": craft for name, craft in TENSORS.items()}
    regressor |= {f"model {i}: {keys}={value!r}"[:99]: changed(keys, value) for i, (keys, value) in enumerate(CHANGES)}
    regressor |= {
        f"summary {i}: {key}={value!r}"[:99]: changed_summary(key, value)
        for i, (key, value) in enumerate(SUMMARY_CHANGES)
    }
    for kind, payload in payloads(payload_path).items():
        regressor |= {f"{kind}: {name}": craft for name, craft in with_payload(payload).items()}
    members = {
        f"members {i}: {keys}={value!r}"[:99]: changed(keys, value) for i, (keys, value) in enumerate(MEMBER_CHANGES)
    }
    members |= {f"calibration: {name}={value}": calibrated(name, value) for name, value in CALIBRATION}
    classifier = {
        f"classes {i}: {keys}={value!r}"[:99]: changed(keys, value) for i, (keys, value) in enumerate(CLASS_CHANGES)
    }
    return {
        **{name: ("regressor", craft) for name, craft in regressor.items()},
        **{name: ("members", craft) for name, craft in members.items()},
        **{name: ("classifier", craft) for name, craft in classifier.items()},
    }


def craft(case: tuple[str, Craft], parts: dict[str, Parts]) -> bytes:
    return case[1](deepcopy(parts[case[0]]))

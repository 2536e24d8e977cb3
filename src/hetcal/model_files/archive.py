"""A model file as bytes: one safetensors file whose metadata hold the documents. It contains no code.

The metadata have one key, `hetcal model`. Its value is JSON, `schema.Manifest`: the checksum, the version of the
format, and the documents of the model and of its summary. Any tool for safetensors can show them.

Each content has exactly one encoding. `encode_header` fixes the order, the offsets and the JSON, for any version of the
safetensors library. The reader encodes what it has parsed and compares the bytes: foreign metadata, duplicate keys,
spaces, padding, and another order of documents or tensors all make a difference. The library itself refuses gaps,
overlaps and further bytes.

Sizes are checked before memory is allocated. This module does not import torch, so `hetcal info` does not need it.
"""

import hashlib
import json
import os
import reprlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
from pydantic import ValidationError
from pydantic_core import from_json

from hetcal._checks import printable
from hetcal._files import atomic_write, check_may_write
from hetcal.exceptions import ModelFileError
from hetcal.model_files.schema import FORMAT_VERSION, Manifest, ModelDocument, SummaryDocument

HEADER_LIMIT = 16 * 2**20  # a parsed header takes many times its size
FILE_LIMIT = 2**32
METADATA, KEY = "__metadata__", "hetcal model"
# Every model file has these bytes after the eight bytes of the header's length. The checksum follows at a fixed
# position, so that it can be verified before anything is parsed. Later versions of the format must keep both.
START = f'{{"{METADATA}":{{"{KEY}":"{{\\"sha256\\":\\"'.encode()
CHECKSUM = slice(8 + len(START), 8 + len(START) + 64)
# Bytes of an item. Tensors with large items come first, so that all are aligned; then they are sorted by name.
DTYPES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}

SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 60


@dataclass(frozen=True)
class TensorInfo:
    dtype: str  # one of DTYPES
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Contents:
    """A model file that has passed all checks; `weights` is the file itself, which is safetensors."""

    model: ModelDocument
    summary: SummaryDocument
    tensors: dict[str, TensorInfo]
    weights: bytes


def write_model_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a packed model file atomically: if saving is killed, the old file stays intact.

    A killed save may leave `.<name>.<eight hex digits>.part` in the folder. hetcal does not delete such files, because
    another save may still be writing one; the user may.
    """
    check_may_write(Path(path), force=True)
    atomic_write(Path(path), data)


def pack_model_file(model: ModelDocument, summary: SummaryDocument, weights: bytes, name: str) -> bytes:
    """Return the bytes of a model file; `weights` are safetensors with any metadata, and `name` is for errors."""
    stored = sort_tensors(weights)
    content = {"sha256": "0" * 64, "format_version": FORMAT_VERSION, "model": model, "summary": summary}
    header = encode_header(Manifest.model_validate(content), stored)
    parts = [len(header).to_bytes(8, "little"), header, *(tensor["data"] for tensor in stored.values())]
    data = b"".join(parts)
    check_start(data[: CHECKSUM.start], len(data), name)  # refuses to write what could not be read
    return data[: CHECKSUM.start] + checksum_of(data) + data[CHECKSUM.stop :]


def read_model_file(path: str | os.PathLike[str]) -> Contents:
    """Read and check a model file from any source, without torch.

    Raises:
        ModelFileError: One line that states what is wrong with the file.
        OSError: The file cannot be opened.
    """
    name, mode = one_line(os.fspath(path)), os.stat(path).st_mode
    if not stat.S_ISREG(mode):  # opening a pipe would wait forever
        found = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise refused(name, "be a hetcal model file", found, "give the path of the file itself")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        check_start(file.read(CHECKSUM.start), size, name)
        file.seek(0)
        return parse_model_file(file.read(size), name)


def check_start(start: bytes, size: int, name: str) -> None:
    """Refuse, by its first bytes and its size, a file that is not a model file or is too large."""
    if start[8:] != START:
        found = f"{size} bytes that begin with {start[:12]!r}" if start else "an empty file"
        if start.startswith(b"PK\3\4"):
            found = "a ZIP archive, such as an Excel file, or a model that an unreleased hetcal wrote"
        raise refused(name, "be a hetcal model file", found, "give a file written by model.save or `hetcal fit`")
    length = int.from_bytes(start[:8], "little")
    for what, count, limit in [("a header", length, HEADER_LIMIT), ("a size", size, FILE_LIMIT)]:
        if count > limit:
            advice = "use a smaller model, or copy the file again if it is damaged"
            raise refused(name, f"have {what} of at most {limit} bytes", f"{count} bytes", advice)


def parse_model_file(data: bytes, name: str) -> Contents:
    """The contents of a file that passed `check_start`."""
    if data[CHECKSUM] != checksum_of(data):
        advice = "copy it again from its source, unchanged"
        raise refused(name, "be unchanged since it was saved", "bytes that do not match its SHA-256", advice)
    # Damaged files are refused up to here; what is refused below was written in that way.
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    manifest = decode_manifest(header, name)
    advice = "save the model again with hetcal"
    try:
        stored = sort_tensors(data)
    except (safetensors.SafetensorError, KeyError) as error:
        found = str(error).removeprefix("Error while deserializing: ")[:100]
        raise refused(name, "be safetensors with dtypes that hetcal writes", found, advice) from None
    if header != encode_header(manifest, stored):
        raise refused(name, "have the header that hetcal writes for its content", "a different one", advice)
    tensors = {key: TensorInfo(tensor["dtype"], tuple(tensor["shape"])) for key, tensor in stored.items()}
    return Contents(manifest.model, manifest.summary, tensors, data)


def checksum_of(data: bytes) -> bytes:
    """SHA-256 of the whole file except the digits of the checksum itself."""
    digest = hashlib.sha256(data[: CHECKSUM.start])
    digest.update(memoryview(data)[CHECKSUM.stop :])
    return digest.hexdigest().encode()


def sort_tensors(weights: bytes) -> dict[str, Any]:
    """Sort the tensors of a safetensors file as in a model file: dtype, shape and data by name."""
    return dict(sorted(safetensors.deserialize(weights), key=lambda item: (-DTYPES[item[1]["dtype"]], item[0])))


def encode_header(manifest: Manifest, stored: Mapping[str, Any]) -> bytes:
    """Return the header of a file with this content: the only one that the reader accepts."""
    entries: dict[str, Any] = {METADATA: {KEY: to_json(manifest.model_dump())}}
    start = 0
    for key, tensor in stored.items():
        end = start + len(tensor["data"])
        entries[key] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [start, end]}
        start = end
    header = to_json(entries).encode()
    return header + b" " * (-len(header) % 8)


def to_json(value: Any) -> str:
    """Encode as JSON from which numbers are restored bit for bit."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode_manifest(header: bytes, name: str) -> Manifest:
    rule, advice = "follow the schema of model files", "save the model again with hetcal"
    try:
        content = from_json(from_json(header)[METADATA][KEY], allow_inf_nan=False)
    except (KeyError, TypeError, ValueError):
        raise refused(name, rule, "a header without a manifest in JSON", advice) from None
    # Older versions of released files, once there are any, are converted here. Compare their header before that.
    version = content.get("format_version") if isinstance(content, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        found = f"format {SHORT.repr(version)}, written by a newer hetcal"
        raise refused(name, f"be of format {FORMAT_VERSION}", found, "upgrade hetcal")
    if type(version) is int and 0 < version < FORMAT_VERSION:  # columns were scaled differently, or keys are missing
        found = f"format {version}, which an unreleased hetcal wrote"
        raise refused(name, f"be of format {FORMAT_VERSION}", found, "fit the model again")
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise refused(name, rule, explain(error), advice) from None


def explain(error: ValidationError) -> str:
    """Describe the first error in a document: its position, the value if it is short, and the reason."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])[:100] or "the document"
    value = "" if isinstance(first["input"], dict) else f"={SHORT.repr(first['input'])}"
    return f"{where}{value} ({first['msg'].removeprefix('Value error, ')})"


def refused(name: str, rule: str, found: str, advice: str) -> ModelFileError:
    return ModelFileError(f"{name} must {rule}, got {one_line(found)}; {advice}")


def one_line(text: Any) -> str:
    """Make a text printable and short enough for a message."""
    shown = printable(str(text)[:1000])
    return shown if len(shown) <= 300 else shown[:297] + "..."

"""One file for a fitted model: bytes <-> checked documents and weights. Nothing in it can run.

A ZIP archive with four members, stored and not compressed, so that any tool can look inside. It has one spelling only:
order, dates and attributes are fixed, and so is the way each document is written. So the reader parses no archive: the
manifest comes first and says how long every member is; the rest is then read from where it must be, and compared with
what this file would have written. Compressed, encrypted, linked, renamed, overlapping, further or missing members,
claims about sizes, appended bytes and flipped bits all differ from that.

Sizes are known before memory is taken. No torch here: `hetcal info` reads models without.
"""

import hashlib
import json
import os
import reprlib
import stat
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import safetensors
from pydantic import ValidationError
from pydantic_core import from_json

from hetcal._checks import printable
from hetcal._files import atomic_write, check_may_write
from hetcal.exceptions import ModelFileError
from hetcal.model_files.schema import FORMAT, FORMAT_VERSION, MODELS, Document, Manifest, Model, Summary

MANIFEST, MODEL, SUMMARY, WEIGHTS = MEMBERS = ("manifest.json", "model.json", "summary.json", "weights.safetensors")
# Parsed, these take many times their size.
DOCUMENT_LIMIT = 16 * 2**20
HEADER_LIMIT = 8 * 2**20  # of the weights
MANIFEST_LIMIT = 2**16
FILE_LIMIT = 2**32 - 1  # of a ZIP archive without extensions

LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")
ZIP_VERSION = 20
UNIX = 3 << 8
FIRST_OF_1980 = 0x21  # the least date of a ZIP archive
PLAIN_FILE = 0o100644 << 16

SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 60
AnyDocument = TypeVar("AnyDocument", bound=Document)


@dataclass(frozen=True)
class TensorInfo:
    dtype: str  # as in safetensors: "F32", "I64", ...
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Contents:
    """A model file that was checked; `weights` are safetensors, `tensors` what they hold by name."""

    model: Model
    summary: Summary
    weights: bytes
    tensors: dict[str, TensorInfo]


def write(path: str | os.PathLike[str], model: Model, summary: Summary, weights: bytes) -> None:
    """Write a model file, atomically: a save that is killed leaves the old file whole.

    What a killed save leaves beside it, `.<name>.<eight hex digits>.part`, may be deleted; nothing else does it, since
    another save may be writing there.
    """
    check_may_write(Path(path), force=True)
    atomic_write(Path(path), pack(model, summary, weights, one_line(os.fspath(path))))


def pack(model: Model, summary: Summary, weights: bytes, name: str) -> bytes:
    """The bytes of a model file; `name` is for errors."""
    members = {MODEL: encode(model), SUMMARY: encode(summary), WEIGHTS: weights}
    sums = {member: {"bytes": len(data), "sha256": sha256(data)} for member, data in members.items()}
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, "kind": model.kind, "members": sums}
    members = {MANIFEST: encode(Manifest.model_validate(content)), **members}
    check_sizes({member: len(data) for member, data in members.items()}, name)
    headers, end = frame(members)
    return (
        b"".join(part for header, data in zip(headers, members.values(), strict=True) for part in (header, data)) + end
    )


def read(path: str | os.PathLike[str]) -> Contents:
    """Read and check a model file, without torch and without trust.

    Raises:
        ModelFileError: One line that says what is wrong with it.
        OSError: It cannot be opened.
    """
    name, mode = one_line(os.fspath(path)), os.stat(path).st_mode
    if not stat.S_ISREG(mode):  # opening a pipe would wait for ever
        found = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise refused(name, "be a hetcal model file", found, "give the path of the file itself")
    with open(path, "rb") as file:
        return parse(file, os.fstat(file.fileno()).st_size, name)


def parse(file: BinaryIO, size: int, name: str) -> Contents:
    """The contents of an open file of that many bytes."""
    changed = "be unchanged since it was saved", "copy it again from its source, as it is"
    start = file.read(LOCAL.size + len(MANIFEST))
    if not start.startswith(b"PK\3\4") or start[LOCAL.size :] != MANIFEST.encode():
        found = f"{size} bytes that begin with {start[:12]!r}" if start else "an empty file"
        raise refused(name, "be a hetcal model file", found, "give a file written by model.save or `hetcal fit`")
    crc, _, length = LOCAL.unpack_from(start)[6:9]
    if length > MANIFEST_LIMIT:
        raise refused(name, changed[0], f"a manifest of {length} bytes", changed[1])
    members = {MANIFEST: file.read(length)}
    if zlib.crc32(members[MANIFEST]) != crc:
        raise refused(name, changed[0], f"a damaged {MANIFEST}", changed[1])
    manifest = decode_manifest(members[MANIFEST], name)

    sizes = {MANIFEST: length, **{member: manifest.members[member].bytes for member in MEMBERS[1:]}}
    check_sizes(sizes, name)
    expected = file_size(sizes)
    if size != expected:
        raise refused(name, changed[0], f"{size} bytes instead of {expected}", changed[1])
    found_frame = start
    for member in MEMBERS[1:]:
        found_frame += file.read(LOCAL.size + len(member))
        members[member] = file.read(sizes[member])
        if sha256(members[member]) != manifest.members[member].sha256:
            raise refused(name, changed[0], f"another SHA-256 of {member}", changed[1])
    found_frame += file.read(size)
    headers, end = frame(members)
    if found_frame != b"".join([*headers, end]):
        raise refused(name, changed[0], "another ZIP header than hetcal writes", changed[1])

    model = decode(MODELS[manifest.kind], members[MODEL], MODEL, name)
    summary = decode(Summary, members[SUMMARY], SUMMARY, name)
    return Contents(model, summary, members[WEIGHTS], tensors_of(members[WEIGHTS], name))


def decode_manifest(text: bytes, name: str) -> Manifest:
    try:
        content = from_json(text)
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = f"a {MANIFEST} that does not say {FORMAT!r}"
        raise refused(name, "be a hetcal model file", found, "give a file written by model.save or `hetcal fit`")
    # The place for older versions, once there are any: they are rewritten here, before the schema sees them.
    version = content.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:
        found = f"format {SHORT.repr(version)}, written by a newer hetcal"
        raise refused(name, f"be of format {FORMAT_VERSION}", found, "upgrade hetcal")
    manifest = decode(Manifest, text, MANIFEST, name)
    if set(manifest.members) != set(MEMBERS[1:]):
        found = f"the members {SHORT.repr(list(manifest.members))}"
        raise refused(name, f"hold {', '.join(MEMBERS[1:])}", found, "save the model again")
    return manifest


def encode(document: Document) -> bytes:
    """A document as JSON: numbers come back bit for bit, and it is the only spelling that `decode` takes."""
    return json.dumps(document.model_dump(), ensure_ascii=False, allow_nan=False).encode()


def decode(kind: type[AnyDocument], text: bytes, member: str, name: str) -> AnyDocument:
    """The document, if it keeps to its schema and is written as `encode` writes it (say, no key twice)."""
    rule, advice = f"keep to the schema of {member}", "save the model again with hetcal"
    try:
        document = kind.model_validate(from_json(text, allow_inf_nan=False))
    except ValidationError as error:
        raise refused(name, rule, explain(error), advice) from None
    except ValueError as error:
        raise refused(name, rule, f"no JSON ({error})", advice) from None
    if encode(document) != text:
        raise refused(name, rule, "JSON that hetcal would write otherwise", advice)
    return document


def explain(error: ValidationError) -> str:
    """The first thing that is wrong with a document: where, the value if it is a small one, and why."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])[:100] or "the document"
    value = "" if isinstance(first["input"], dict) else f"={SHORT.repr(first['input'])}"
    return f"{where}{value} ({first['msg'].removeprefix('Value error, ')})"


def tensors_of(weights: bytes, name: str) -> dict[str, TensorInfo]:
    """What the weights hold; safetensors checks that offsets and shapes agree and cover every byte."""
    advice = "save the model again with hetcal"
    header = int.from_bytes(weights[:8], "little")
    if header > HEADER_LIMIT:
        raise refused(name, f"have a header of at most {HEADER_LIMIT} bytes in {WEIGHTS}", f"{header} bytes", advice)
    try:
        found = safetensors.deserialize(weights)
    except safetensors.SafetensorError as error:
        raise refused(name, f"hold safetensors in {WEIGHTS}", str(error)[:100], advice) from None
    return {key: TensorInfo(value["dtype"], tuple(value["shape"])) for key, value in found}


def check_sizes(sizes: dict[str, int], name: str) -> None:
    for member, size in sizes.items():
        limit = FILE_LIMIT if member == WEIGHTS else DOCUMENT_LIMIT
        if size > limit:
            raise refused(name, f"have at most {limit} bytes in {member}", f"{size} bytes", "use a smaller model")
    if file_size(sizes) > FILE_LIMIT:
        raise refused(name, f"have at most {FILE_LIMIT} bytes", f"{file_size(sizes)} bytes", "use a smaller model")


def file_size(sizes: dict[str, int]) -> int:
    return sum(LOCAL.size + CENTRAL.size + 2 * len(member) + size for member, size in sizes.items()) + END.size


def frame(members: dict[str, bytes]) -> tuple[list[bytes], bytes]:
    """The ZIP archive round the members: what stands before each of them, and behind the last."""
    headers, directory, offset = [], b"", 0
    for member, data in members.items():
        name, crc = member.encode(), zlib.crc32(data)
        # Flags, method (stored), time and date; the extra field, comment and disk number are empty.
        same = (ZIP_VERSION, 0, 0, 0, FIRST_OF_1980, crc, len(data), len(data), len(name), 0)
        headers.append(LOCAL.pack(b"PK\3\4", *same) + name)
        directory += CENTRAL.pack(b"PK\1\2", UNIX | ZIP_VERSION, *same, 0, 0, 0, PLAIN_FILE, offset) + name
        offset += len(headers[-1]) + len(data)
    count = len(members)
    return headers, directory + END.pack(b"PK\5\6", 0, 0, count, count, len(directory), offset, 0)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def refused(name: str, rule: str, found: str, advice: str) -> ModelFileError:
    return ModelFileError(f"{name} must {rule}, got {one_line(found)}; {advice}")


def one_line(text: Any) -> str:
    """Text for a message: printable, and not longer than a message may be."""
    shown = printable(str(text)[:1000])
    return shown if len(shown) <= 300 else shown[:297] + "..."

"""The bytes of a table, from a file or standard input: decompressed if they are gzip, their format detected.

Text is read only once, so that pipes work: the head that was examined is passed on in front of the rest.
"""

import contextlib
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

HEAD_BYTES = 1 << 20
GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
ARROW = b"ARROW1"
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
KNOWN_BINARIES = {
    b"PK\x03\x04": "an Excel (.xlsx) or zip file",
    b"\xd0\xcf\x11\xe0": "an old Excel (.xls) or Word file",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"FEA1": "a Feather file of the old version 1",
    b"PARE": "an encrypted Parquet file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a Zstandard file",
    b"7z\xbc\xaf": "a 7z file",
    GZIP: "a gzip file inside a gzip file",
}
SAFETENSORS = b'{"__metadata__":'  # after the eight bytes of a length
KNOWN_TEXTS = {b"%pdf-": "a PDF file", b"<!doctype html": "a web page", b"<html": "a web page"}


@dataclass
class TableSource:
    """The bytes of a table. `form` is "text", "parquet" or "arrow"; `stream` starts at the beginning, with the head."""

    name: str
    form: str
    head: bytes
    is_whole: bool  # whether the head is the whole file
    stream: BinaryIO
    file: BinaryIO | None = None  # the file on the disk, compressed or not

    @property
    def share(self) -> float | None:
        """The share of the file that was read; unknown for a pipe."""
        if self.file is None or not self.file.seekable():
            return None
        return self.file.tell() / max(os.fstat(self.file.fileno()).st_size, 1)


class Rejoined(io.RawIOBase):
    """The head, which has already been read, followed by the rest."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self.head = memoryview(head)
        self.rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        part = self.head[: len(buffer)] if self.head else self.rest.read(len(buffer))
        self.head = self.head[len(part) :]
        buffer[: len(part)] = part
        return len(part)


def name_of(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


@contextlib.contextmanager
def reading_errors(name: str) -> Iterator[None]:
    """Report errors while bytes are read, in one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{name} does not exist; check the name and the folder") from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{name} is a folder; give the name of a file in it") from None
    except EOFError:
        raise ValueError(f"{name} is truncated: its gzip data end too early; copy or write it again") from None
    except (gzip.BadGzipFile, zlib.error):
        raise ValueError(f"{name} is damaged: its gzip data cannot be decompressed; copy or write it again") from None
    except OSError as error:
        raise OSError(f"{name} cannot be read: {error.strerror or error}") from None


@contextlib.contextmanager
def open_source(path: str | Path) -> Iterator[TableSource]:
    """Open a file or standard input ("-"); refuse what cannot be a table."""
    name = name_of(path)
    with contextlib.ExitStack() as stack:
        with reading_errors(name):
            if str(path) == "-":
                if sys.stdin is None:
                    raise OSError("it is closed")
                file: BinaryIO = sys.stdin.buffer
            else:
                file = stack.enter_context(Path(path).open("rb"))
            raw, head = file, file.read(HEAD_BYTES)
            is_gzip = head.startswith(GZIP)
            if is_gzip:
                packed = stack.enter_context(gzip.GzipFile(fileobj=rejoin(head, file)))
                file = stack.enter_context(io.BufferedReader(packed))
                head = file.read(HEAD_BYTES)
        form = find_form(name, head)
        if form != "text" and (is_gzip or str(path) == "-" or not file.seekable()):
            raise ValueError(
                f"{name} holds {'gzipped ' if is_gzip else ''}Parquet or Feather data, which can be read only from an "
                "uncompressed file; give the name of such a file, or CSV"
            )
        yield TableSource(name, form, head, len(head) < HEAD_BYTES, stack.enter_context(rejoin(head, file)), raw)


def rejoin(head: bytes, rest: BinaryIO) -> BinaryIO:
    return io.BufferedReader(Rejoined(head, rest), 1 << 16)


def find_form(name: str, head: bytes) -> str:
    """Text, Parquet or Arrow, by the first bytes; anything else is refused, with the advice to export it."""
    if not head:
        raise ValueError(f"{name} is empty; give a file with a header and rows")
    known = KNOWN_TEXTS
    if CONTROL.search(head[:64]):  # a header may begin with the letters of a format, but text has no control characters
        if head.startswith(PARQUET):
            return "parquet"
        if head.startswith(ARROW):
            return "arrow"
        known = KNOWN_TEXTS | KNOWN_BINARIES | {head[:8] + SAFETENSORS: "a hetcal model or another safetensors file"}
    start = head[:32]
    what = next(
        (what for magic, what in known.items() if start.startswith(magic) or start.lower().startswith(magic)), None
    )
    if what:
        raise ValueError(f"{name} is {what}, not a readable table; export the table as CSV")
    return "text"

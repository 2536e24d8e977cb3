"""Where the bytes of a raw file come from: the user's folder, our cache, or the network, and never unchecked.

Nothing is unpacked to disk and nothing is parsed here. What arrives is kept in memory within a limit, compared with the
published size and SHA-256, and only then written to the cache, whole. The only file that knows pooch.
"""

import contextlib
import gzip
import hashlib
import io
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from hetcal._checks import must
from hetcal._files import atomic_write

# The largest archive of the catalog has 12 MB; more than this from a server is a fault or an attack.
ARCHIVE_LIMIT = 2**25


@dataclass(frozen=True)
class Source:
    """An address that gives the raw file itself or, with `member`, a zip archive that has it under that exact name."""

    address: str
    member: str = ""

    def __str__(self) -> str:
        return f"{self.member!r} in {self.address}" if self.member else self.address


@dataclass(frozen=True)
class RawFile:
    """A published file: the name we keep it under, its exact size and SHA-256, and where it is to be had."""

    name: str
    bytes: int
    sha256: str
    sources: tuple[Source, ...]


class _RefusedError(Exception):
    """These bytes are not the published file; the text says why."""


def fetch(raw: RawFile) -> bytes:
    """The published bytes of a raw file, from the folder in `HETCAL_DATA` if that is set, else from cache or network.

    A file that is not the published one, byte for byte, is never returned. In our own cache it is removed and loaded
    anew; in the user's folder it is named and left alone.
    """
    folder = os.environ.get("HETCAL_DATA")
    if folder:
        return _from_user_folder(raw, Path(folder).expanduser())
    cache = _pooch().os_cache("hetcal")
    for path in _stored(raw, cache):
        try:
            return _read(raw, path)
        except _RefusedError:
            path.unlink(missing_ok=True)  # another process may have been faster
    cache.mkdir(parents=True, exist_ok=True)
    content = _download(raw, cache)
    atomic_write(cache / raw.name, content)
    return content


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError("downloading data sets needs pooch; install it with: pip install 'hetcal[data]'") from error
    return pooch


def _from_user_folder(raw: RawFile, folder: Path) -> bytes:
    for path in _stored(raw, folder):
        try:
            return _read(raw, path)
        except _RefusedError as error:
            raise must(
                "HETCAL_DATA",
                f"name a folder with the published {raw.name!r}",
                str(folder),
                f"{path} {error}; replace that file (it was not touched)",
            ) from None
    raise must(
        "HETCAL_DATA",
        f"name a folder that holds {raw.name!r}",
        str(folder),
        f"put the file into {folder}, from {' or '.join(map(str, raw.sources))}, or unset HETCAL_DATA to download it",
        FileNotFoundError,
    )


def _stored(raw: RawFile, folder: Path) -> list[Path]:
    return [path for path in (folder / raw.name, folder / f"{raw.name}.gz") if path.is_file()]


def _read(raw: RawFile, path: Path) -> bytes:
    """One byte more than published is enough to refuse a file, however large it is or unpacks to."""
    if path.name == raw.name:
        with path.open("rb") as file:
            return _checked(raw, file.read(raw.bytes + 1))
    try:
        with gzip.open(path) as packed:
            return _checked(raw, packed.read(raw.bytes + 1))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise _RefusedError("is not a whole gzip file") from None


def _checked(raw: RawFile, content: bytes) -> bytes:
    if len(content) != raw.bytes:
        size = f"more than {raw.bytes}" if len(content) > raw.bytes else str(len(content))
        raise _RefusedError(f"has {size} bytes instead of {raw.bytes}")
    if hashlib.sha256(content).hexdigest() != raw.sha256:
        raise _RefusedError(f"does not have the SHA-256 {raw.sha256}")
    return content


def _download(raw: RawFile, cache: Path) -> bytes:
    """Try the addresses in turn; if none gives the published file, say what each did and what the user can do."""
    reasons, last = [], None
    for source in raw.sources:
        try:
            received = _receive(raw, source)
            return _checked(raw, _member(raw, received, source.member) if source.member else received)
        # Whatever goes wrong with one server, in whatever library, the next one may still have the file.
        except Exception as error:
            response = getattr(error, "response", None)
            status = f"HTTP status {response.status_code}" if response is not None else type(error).__name__
            reasons.append(f"{source} ({error if isinstance(error, _RefusedError) else status})")
            last = error
    raise must(
        "file",
        "be in the cache or come from the network",
        raw.name,
        f"try again later, or put it into {cache}, or into a folder that HETCAL_DATA names; tried {'; '.join(reasons)}",
        FileNotFoundError,
    ) from last


class _LimitedBuffer(io.BytesIO):
    """Memory for a download that ends the transfer instead of filling up."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.limit:
            raise _RefusedError(f"sends more than {self.limit} bytes")
        return super().write(data)


def _receive(raw: RawFile, source: Source) -> bytes:
    buffer = _LimitedBuffer(ARCHIVE_LIMIT if source.member else raw.bytes)
    with contextlib.ExitStack() as stack:
        # disable=None: a bar on terminals and in notebooks, silence in log files
        bar = tqdm(total=raw.bytes, desc=raw.name, unit="B", unit_scale=True, disable=None, leave=False)
        options = {
            "progressbar": stack.enter_context(bar),
            "chunk_size": 2**16,
            # pooch leaves the connection open when a transfer fails
            "hooks": {"response": lambda response, **_: stack.enter_context(contextlib.closing(response))},
        }
        _pooch().HTTPDownloader(**options)(source.address, buffer, None)
    return buffer.getvalue()


def _member(raw: RawFile, archive: bytes, name: str) -> bytes:
    """Stream one member, by its exact name and within the published size; no other member is ever looked at."""
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        try:
            member = members.getinfo(name)
        except KeyError:
            raise _RefusedError("has no such member") from None
        # Python unpacks bzip2 and LZMA members without regard to a limit.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _RefusedError("is packed in an unusual way")
        with members.open(member) as file:
            return file.read(raw.bytes + 1)

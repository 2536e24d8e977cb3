"""Raw files from the user's folder, from our cache or from the network, always verified.

pooch manages the cache: it compares the SHA-256, downloads a file that is missing or wrong, and moves it into place.
The transfer itself is `_download`, because pooch does not provide four properties:

- No more is received than the published size. pooch compares checksums only when everything is already on the disk.
- The file comes from the first of several addresses that has it, and the error states what went wrong with each.
- It may be a member of a zip archive whose own checksum is unknown; no other member is unpacked.
- The cache holds only published files. pooch keeps a wrong file if no address answers, and a partial one if killed.
"""

import contextlib
import gzip
import hashlib
import io
import os
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from hetcal._checks import must
from hetcal.datasets.entry import Address, RawFile

# The largest archive of the catalog has 12 MB; more than this from a server is a fault or an attack.
ARCHIVE_LIMIT = 2**25


class _RefusedError(Exception):
    """These bytes are not the published file; the message gives the reason."""


def fetch(raw: RawFile) -> bytes:
    """Return the published bytes of a raw file, from the folder `HETCAL_DATA` if that is set, otherwise from the cache.

    A file that is not the published one, byte for byte, is never returned. In our own cache it is removed and
    downloaded again; in the user's folder it is reported and not changed.
    """
    folder = os.environ.get("HETCAL_DATA")
    if folder:
        return _from_user_folder(raw, Path(folder).expanduser())
    try:
        import pooch
    except ImportError as error:
        raise ImportError("downloading data sets needs pooch; install it with: pip install 'hetcal[data]'") from error
    cache = pooch.create(pooch.os_cache("hetcal"), base_url="", registry={raw.name: raw.sha256})
    logger = pooch.get_logger()
    with contextlib.ExitStack() as stack:
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel("WARNING")  # it would announce every download on standard error
        path = Path(cache.fetch(raw.name, downloader=partial(_download, raw)))
    return _read(raw, path)


def _from_user_folder(raw: RawFile, folder: Path) -> bytes:
    for path in (folder / raw.name, folder / f"{raw.name}.gz"):
        if not path.is_file():
            continue
        try:
            return _read(raw, path)
        except _RefusedError as error:
            rule = f"name a folder with the published {raw.name!r}"
            advice = f"{path} {error}; replace that file (it was not changed)"
            raise must("HETCAL_DATA", rule, str(folder), advice) from None
    addresses = " or ".join(map(str, raw.addresses))
    advice = f"put the file into {folder}, from {addresses}, or unset HETCAL_DATA to download it"
    raise must("HETCAL_DATA", f"name a folder that holds {raw.name!r}", str(folder), advice, FileNotFoundError)


def _read(raw: RawFile, path: Path) -> bytes:
    """Read at most one byte more than published, which is enough to refuse a file of any size, packed or unpacked."""
    try:
        with path.open("rb") if path.name == raw.name else gzip.open(path) as file:
            return _checked(raw, file.read(raw.bytes + 1))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise _RefusedError("is not a complete gzip file") from None


def _checked(raw: RawFile, content: bytes) -> bytes:
    if len(content) != raw.bytes:
        size = f"more than {raw.bytes}" if len(content) > raw.bytes else str(len(content))
        raise _RefusedError(f"has {size} bytes instead of {raw.bytes}")
    if hashlib.sha256(content).hexdigest() != raw.sha256:
        raise _RefusedError(f"does not have the SHA-256 {raw.sha256}")
    return content


def _download(raw: RawFile, _: str, temporary: str, cache: Any) -> None:
    """Write the published file to `temporary`, for pooch to move it into the cache; it is received in memory."""
    Path(temporary).unlink()  # pooch has created it; if this process is killed during the transfer, nothing may remain
    reasons, last = [], None
    for address in raw.addresses:
        try:
            content = _checked(raw, _receive(raw, address))
        # After any error with one server, from any library, the next one may still have the file.
        except Exception as error:
            response = getattr(error, "response", None)
            status = f"HTTP status {response.status_code}" if response is not None else type(error).__name__
            reasons.append(f"{address} ({error if isinstance(error, _RefusedError) else status})")
            last = error
        else:
            Path(temporary).write_bytes(content)
            return
    (cache.abspath / raw.name).unlink(missing_ok=True)  # if there was one, it was wrong
    raise must(
        "file",
        "be in the cache or come from the network",
        raw.name,
        f"try again later, or put it into {cache.abspath}, or into a folder that HETCAL_DATA names; "
        f"tried {'; '.join(reasons)}",
        FileNotFoundError,
    ) from last


class _LimitedBuffer(io.BytesIO):
    """Memory for a download that ends the transfer instead of growing beyond a limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.limit:
            raise _RefusedError(f"sends more than {self.limit} bytes")
        return super().write(data)


def _receive(raw: RawFile, address: Address) -> bytes:
    from pooch import HTTPDownloader

    buffer = _LimitedBuffer(ARCHIVE_LIMIT if address.member else raw.bytes)
    # disable=None: a bar on terminals and in notebooks, silence in log files
    bar = tqdm(total=raw.bytes, desc=raw.name, unit="B", unit_scale=True, disable=None, leave=False)
    with contextlib.ExitStack() as stack:
        # pooch leaves the connection open when a transfer fails.
        hooks = {"response": lambda response, **_: stack.enter_context(contextlib.closing(response))}
        HTTPDownloader(stack.enter_context(bar), chunk_size=2**16, hooks=hooks)(address.url, buffer, None)
    return _member(raw, buffer, address.member) if address.member else buffer.getvalue()


def _member(raw: RawFile, archive: io.BytesIO, name: str) -> bytes:
    """Unpack one member, by its exact name and within the published size; no other member is read."""
    with zipfile.ZipFile(archive) as members:
        try:
            member = members.getinfo(name)
        except KeyError:
            raise _RefusedError("has no such member") from None
        # Python unpacks bzip2 and LZMA members without a limit.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _RefusedError("is compressed with an unsupported method")
        with members.open(member) as file:
            return file.read(raw.bytes + 1)

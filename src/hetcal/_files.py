"""Atomic writing of files: after any failure, a file is either the complete old one or the complete new one."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MOST_BYTES_OF_A_NAME = 240  # not 255, because the name of the temporary file is longer


@contextlib.contextmanager
def atomic_open(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for writing; it appears under its name, complete, when the block ends without an exception.

    A crash, a kill or a full disk leaves the old file (or none), never half a file. The temporary file is in the same
    folder, because a move between file systems is a copy and can be interrupted. The new file has the permissions of
    the old one; a symbolic link stays one, and the file that it points to is replaced.
    """
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    file = temporary.open("xb")
    try:
        if path.exists():
            shutil.copymode(path, temporary)  # before anything is written, which others may not be allowed to read
        yield file
        file.flush()
        os.fsync(file.fileno())
        file.close()
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # on a full disk, closing tries again to write the rest
            file.close()
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file so that a crash, a kill or a full disk leaves the old one (or none), never half a file."""
    data = content.encode() if isinstance(content, str) else content
    with atomic_open(path) as file:
        file.write(data)


def check_may_write(path: str | Path, force: bool) -> None:
    """Refuse a path that cannot be written, or a file that the user may want to keep, before any work is done.

    Raises:
        OSError: The message states what is wrong and what to do.
    """
    target = Path(path)
    if target.is_symlink():
        target = Path(os.path.realpath(target))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} of {target.name} does not exist; create it first")
    if target.exists() and not target.is_file():
        raise OSError(f"{path} is a device or a pipe, not a file; give the name of a file")
    if target.exists() and not force:
        raise FileExistsError(f"{path} already exists; use --force to replace it")
    if len(os.fsencode(target.name)) > MOST_BYTES_OF_A_NAME:
        raise OSError(f"the name of {target.name[:40]}... is too long; give a shorter one")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"the folder {target.parent} is not writable; choose another folder")


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power failure, where the system allows a folder to be synchronized."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

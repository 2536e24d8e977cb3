"""Everything that writes goes through here: a file is either the old one or the new one, whole, whatever happens."""

import os
import secrets
from pathlib import Path


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file so that a crash, a kill or a full disk leaves the old one (or none), never half a file.

    The temporary file lies in the same folder, because a move between file systems is a copy and can be cut short.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

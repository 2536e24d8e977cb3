"""A file is the old one or the new one, whole, whatever happens while it is written."""

import os
import resource
import signal
import subprocess
import sys

import pytest

from hetcal._files import atomic_write
from tests.processes import wait_until

OLD, NEW = b"old" * 1_000_000, b"new" * 1_000_001


@pytest.mark.parametrize(
    ("content", "expected"), [("5 ± 1 °C\n", "5 ± 1 °C\n".encode()), (b"\x00\r\n", b"\x00\r\n")], ids=["text", "bytes"]
)
def test_writes_and_replaces(tmp_path, content, expected):
    """Text is UTF-8, bytes are untouched, and nothing but the file is left in the folder."""
    path = tmp_path / "file"
    for _ in range(2):
        atomic_write(path, content)
        assert path.read_bytes() == expected
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("existing", [True, False], ids=["old", "none"])
def test_full_disk_keeps_the_old_file(tmp_path, existing):
    """A write that the system breaks off after 1000 bytes (as a full disk does) leaves the old file or none."""
    path = tmp_path / "file"
    if existing:
        path.write_bytes(OLD)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            atomic_write(path, NEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == ({"file": OLD} if existing else {})


def test_any_exception_leaves_no_temporary_file(tmp_path):
    """Content that cannot be written, and a target that cannot be replaced."""
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with pytest.raises(TypeError):
        atomic_write(path, 5)
    assert path.read_bytes() == OLD
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        atomic_write(tmp_path / "folder", NEW)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_reader_and_a_kill_see_whole_files_only(tmp_path):
    """While a process writes two contents in turn, and after it was killed with -9, the file is one of the two."""
    path = tmp_path / "file"
    code = (
        "import sys; from pathlib import Path; from hetcal._files import atomic_write\n"
        f"while True: atomic_write(Path(sys.argv[1]), b'old' * {len(OLD) // 3}), "
        f"atomic_write(Path(sys.argv[1]), b'new' * {len(NEW) // 3})"
    )
    for changes in (3, 10, 30):
        process = subprocess.Popen([sys.executable, "-c", code, path])
        try:
            wait_until(path.exists, process)
            content = path.read_bytes()
            while changes:
                before, content = content, path.read_bytes()
                assert content in (OLD, NEW)
                assert process.poll() is None
                changes -= content != before
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert path.read_bytes() in (OLD, NEW)

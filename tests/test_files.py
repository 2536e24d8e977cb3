"""A file is the old one or the new one, whole, whatever happens while it is written."""

import os
import resource
import signal
import subprocess
import sys

import pytest

from hetcal._files import atomic_open, atomic_write, check_may_write
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


def test_nothing_appears_until_all_is_written(tmp_path):
    """Within the block the old file is still there; afterwards the new one."""
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with atomic_open(str(path)) as file:
        file.write(b"a")
        file.flush()
        assert path.read_bytes() == OLD
        file.write(b"b")
    assert path.read_bytes() == b"ab"


def test_new_file_has_the_permissions_of_any_new_file(tmp_path):
    atomic_write(tmp_path / "file", NEW)
    (tmp_path / "other").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o664])
def test_replaced_file_keeps_its_permissions(tmp_path, mode):
    """A private file does not become readable for others, not even while it is written."""
    path = tmp_path / "file"
    path.write_bytes(OLD)
    path.chmod(mode)
    with atomic_open(path) as file:
        assert {entry.stat().st_mode & 0o777 for entry in tmp_path.iterdir()} == {mode}
        file.write(NEW)
    assert path.stat().st_mode & 0o777 == mode
    assert path.read_bytes() == NEW


@pytest.mark.parametrize("existing", [True, False], ids=["old", "none"])
def test_symbolic_link_stays_one(tmp_path, existing):
    """The file that it points to, through a second link in another folder, is replaced, or created."""
    (tmp_path / "folder").mkdir()
    file, link, second = tmp_path / "folder" / "file", tmp_path / "link", tmp_path / "folder" / "second"
    second.symlink_to("file")
    link.symlink_to("folder/second")
    if existing:
        file.write_bytes(OLD)
        file.chmod(0o600)
    check_may_write(link, force=True)
    atomic_write(link, NEW)
    assert link.is_symlink()
    assert second.is_symlink()
    assert not file.is_symlink()
    assert file.read_bytes() == link.read_bytes() == NEW
    assert (file.stat().st_mode & 0o777 == 0o600) or not existing
    assert sorted(os.listdir(tmp_path / "folder")) == ["file", "second"]


def test_symbolic_link_into_a_missing_folder(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "no" / "file")
    with pytest.raises(FileNotFoundError, match=r"the folder .*no of file does not exist; create it first"):
        check_may_write(tmp_path / "link", force=True)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_in_the_block_keeps_the_old_file(tmp_path, error):
    """Whatever ends the block, the exception comes through, the old file stays and no temporary file is left."""
    path = tmp_path / "file"
    path.write_bytes(OLD)

    def break_off():
        with atomic_open(path) as file:
            file.write(NEW)
            raise error

    with pytest.raises(error):
        break_off()
    assert path.read_bytes() == OLD
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_that_cannot_be_synchronized_is_no_error(tmp_path, monkeypatch):
    """Some file systems refuse to open or to synchronize a folder; the file is whole all the same."""
    monkeypatch.setattr("hetcal._files.os.open", lambda *_: (_ for _ in ()).throw(PermissionError))
    atomic_write(tmp_path / "file", NEW)
    assert (tmp_path / "file").read_bytes() == NEW


def test_what_may_be_written(tmp_path, monkeypatch):
    """A new name in a folder, and an old one with force; everything else is refused in one sentence."""
    path, pipe = tmp_path / "file", tmp_path / "pipe"
    check_may_write(path, force=False)
    path.touch()
    os.mkfifo(pipe)
    check_may_write(str(path), force=True)
    refusals = [
        (path, False, FileExistsError, f"{path} already exists; use --force to replace it"),
        (tmp_path, True, IsADirectoryError, f"{tmp_path} is a folder; give the name of a file in it"),
        (
            tmp_path / "no" / "file",
            True,
            FileNotFoundError,
            f"the folder {tmp_path / 'no'} of file does not exist; create it first",
        ),
        (pipe, True, OSError, f"{pipe} is a device or a pipe, not a file; give the name of a file"),
    ]
    for target, force, error, message in refusals:
        with pytest.raises(error) as raised:
            check_may_write(target, force)
        assert str(raised.value) == message
    monkeypatch.setattr("hetcal._files.os.access", lambda folder, mode: False)
    with pytest.raises(PermissionError) as raised:
        check_may_write(path, force=True)
    assert str(raised.value) == f"the folder {tmp_path} is not writable; choose another folder"


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

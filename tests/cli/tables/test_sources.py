"""Bytes from files, pipes and gzip; what cannot be a table is refused in one sentence that names it."""

import gzip
import io
import os
import subprocess
import sys
import threading

import pandas as pd
import pytest

from hetcal.cli.tables.sources import HEAD_BYTES, open_source, rejoin
from tests.cli.tables.frames import read_frame

CSV = b"a,b\n1,2\n3,4\n"
FRAME = pd.DataFrame({"a": [1.0, 3.0], "b": [2.0, 4.0]}, index=[2, 3])


def test_gzip_is_known_by_its_bytes(tmp_path):
    """Neither the lack of .gz nor a wrong .gz matters; several members in one file are one table."""
    for name, content in [
        ("a.csv", gzip.compress(CSV, mtime=0)),
        ("a.csv.gz", CSV),
        ("a.parquet", CSV),
        ("b", gzip.compress(CSV[:6], mtime=0) + gzip.compress(CSV[6:], mtime=0)),
    ]:
        (tmp_path / name).write_bytes(content)
        pd.testing.assert_frame_equal(read_frame(tmp_path / name), FRAME)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_standard_input(packed):
    """A pipe is read once: the head that was examined, larger than the buffer of a pipe, is not lost."""
    rows = HEAD_BYTES // 50
    content = b"a;b\n" + (b"1,5;2" + b" " * 50 + b"\n") * rows
    if packed:
        content = gzip.compress(content)
    code = (
        "from hetcal.cli.tables import read_file; table = read_file('-').table; "
        "print({name: float(values.sum()) for name, values in table.columns.items()})"
    )
    process = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True, timeout=120)
    shown = str({"a": 1.5 * rows, "b": 2.0 * rows}).encode() + b"\n"
    assert (process.returncode, process.stdout, process.stderr) == (0, shown, b"")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "standard input is empty; give a file with a header and rows"),
        (
            b"PAR1\x15\x04\x15",
            "standard input holds Parquet or Feather data, which can be read only from an uncompressed file; "
            "give the name of such a file, or CSV",
        ),
        (
            b"a,b\n1\n",
            "row 2 of standard input has 1 cells, but row 1 has 2; repair it, put cells that hold the separator",
        ),
    ],
    ids=["empty", "parquet", "ragged"],
)
def test_standard_input_refused(monkeypatch, content, message):
    """Faults of a pipe are reported for standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        read_frame("-")
    assert str(raised.value).startswith(message)
    assert not sys.stdin.buffer.closed


def test_closed_standard_input(monkeypatch):
    """A process without standard input says so."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OSError, match=r"^standard input cannot be read: it is closed$"):
        read_frame("-")


def test_named_pipe(tmp_path):
    """The <(command) of a shell is read like a file."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[CSV])
    writer.start()
    pd.testing.assert_frame_equal(read_frame(path), FRAME)
    writer.join()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG image"),
        (b"PK\x03\x04\x14\0\x06\0\x08\0", "an Excel (.xlsx) or zip file"),
        (b'\x30\x0a\0\0\0\0\0\0{"__metadata__":{"hetcal model":"', "a hetcal model or another safetensors file"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "an old Excel (.xls) or Word file"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF file"),
        (b"<!DOCTYPE html>\n<html>", "a web page"),
        (b"FEA1\0\0\0\0", "a Feather file of the old version 1"),
        (gzip.compress(gzip.compress(CSV, mtime=0), mtime=0), "a gzip file inside a gzip file"),
    ],
)
def test_other_files(tmp_path, content, what):
    """A known format is named, with advice."""
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        read_frame(path)
    assert str(raised.value) == f"{path} is {what}, not a readable table; export the table as CSV"


def test_unknown_binary(tmp_path):
    """Bytes that are not text."""
    path = tmp_path / "table.csv"
    path.write_bytes(b"\x01\x02\0\xff" * 100)
    with pytest.raises(ValueError, match=r"^\S+table.csv is a binary file, not a readable table; export"):
        read_frame(path)


@pytest.mark.parametrize("name", ["PAR1", "PARENT", "ARROW1", "BZh", "FEA1", "7z", "PK"])
def test_headers_that_begin_like_a_format(tmp_path, name):
    """Text is text, whatever its first letters are."""
    path = tmp_path / "table.csv"
    path.write_text(f"{name},b\n1,2\n")
    assert list(read_frame(path)) == [name, "b"]


def test_no_file(tmp_path, monkeypatch):
    """A missing file, a folder, and a file that cannot be read are named as given."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as raised:
        read_frame("no.csv")
    assert str(raised.value) == "no.csv does not exist; check the name and the folder"
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        read_frame("folder")
    assert str(raised.value) == "folder is a folder; give the name of a file in it"
    with pytest.raises(OSError, match=r"^x+ cannot be read: File name too long$"):
        read_frame("x" * 1000)


def test_damaged_gzip(tmp_path):
    """Truncated or changed, in the head or far behind it: never a shorter table, never another one."""
    path = tmp_path / "table.csv.gz"
    for rows in (3, HEAD_BYTES // 500):
        whole = gzip.compress(b"a,b\n" + (b"1," + b"x" * 1000 + b"\n") * rows)
        path.write_bytes(whole[:-12])
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            read_frame(path)
        assert str(raised.value) == f"{path} is truncated: its gzip data end too early; copy or write it again"
        path.write_bytes(whole[:-6] + b"\0\0" + whole[-4:])  # in the checksum
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            read_frame(path)
        assert str(raised.value) == f"{path} is damaged: its gzip data cannot be decompressed; copy or write it again"


def test_gzipped_parquet(tmp_path):
    """Parquet needs random access, which gzip does not allow."""
    path = tmp_path / "table.parquet.gz"
    path.write_bytes(gzip.compress(b"PAR1\x15\0\0\0"))
    with pytest.raises(ValueError, match="holds gzipped Parquet or Feather data, which can be read only from an unc"):
        read_frame(path)


@pytest.mark.parametrize("size", [1, 7, 1 << 16, 1 << 20])
def test_rejoined(size):
    """Head and rest are the whole, however they are read."""
    whole = bytes(range(256)) * 1000
    stream = rejoin(whole[:1001], io.BytesIO(whole[1001:]))
    parts = list(iter(lambda: stream.read(size), b"")) if size > 1 else [stream.read(1), stream.read()]
    assert b"".join(parts) == whole


def test_head_and_stream(tmp_path):
    """The head is at most a megabyte; the stream starts at the beginning."""
    path = tmp_path / "table.csv"
    path.write_bytes(b"a\n" * HEAD_BYTES)
    with open_source(path) as source:
        assert (len(source.head), source.is_whole) == (HEAD_BYTES, False)
        assert source.stream.read() == b"a\n" * HEAD_BYTES

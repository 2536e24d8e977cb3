"""Only the published bytes come back, whatever folder, cache or server hold. The server is a real one, not a mock."""

import gzip
import hashlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import tracemalloc
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pooch
import pytest

from hetcal.datasets.download import ARCHIVE_LIMIT, fetch
from hetcal.datasets.entry import Address, RawFile

CONTENT = np.random.default_rng(0).bytes(200_000)
CORRUPT = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
BOMB_BYTES = 2**26


def pack(members, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def raw_file(*addresses):
    checksum = hashlib.sha256(CONTENT).hexdigest()
    return RawFile(name="data.csv", bytes=len(CONTENT), sha256=checksum, addresses=addresses)


class Server(ThreadingHTTPServer):
    """Serves `pages`; counts the requests; a page of the name `stall` stops half-way until `go_on` is set."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages, self.requests = {"good": CONTENT}, []
        self.half_sent, self.go_on = threading.Event(), threading.Event()

    def address(self, page):
        return f"http://127.0.0.1:{self.server_port}/{page}"

    def raw(self, *pages, member=""):
        """A raw file to be had from these pages, in this order."""
        return raw_file(*(Address(url=self.address(page), member=member) for page in pages))


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        page = self.path.strip("/")
        self.server.requests.append(page)
        if page not in self.server.pages:
            self.send_error(404)
            return
        content = self.server.pages[page]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = len(content) // 2
        try:
            self.wfile.write(content[:half])
            if page == "stall":
                self.wfile.flush()
                self.server.half_sent.set()
                self.server.go_on.wait(60)
            if page != "broken_off":
                self.wfile.write(content[half:])
        except ConnectionError:
            pass  # the client has had enough


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.go_on.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty home without HETCAL_DATA; a proxy, if there is one, is kept away from the local server."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.delenv("HETCAL_DATA", raising=False)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    folder = pooch.os_cache("hetcal")
    assert tmp_path in folder.parents
    return folder


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_downloaded_once(server, cache):
    """The file is kept under its own name, nothing else is left, and the second call needs no network."""
    assert fetch(server.raw("good")) == CONTENT
    assert files(cache) == ["data.csv"]
    assert (cache / "data.csv").read_bytes() == CONTENT
    assert fetch(server.raw("good")) == CONTENT
    assert server.requests == ["good"]


@pytest.mark.parametrize(
    ("page", "content", "reason"),
    [
        ("corrupt", CORRUPT, "does not have the SHA-256 [0-9a-f]{64}"),
        ("short", CONTENT[:-1], "has 199999 bytes instead of 200000"),
        ("long", CONTENT + b"x", "sends more than 200000 bytes"),
        ("broken_off", CONTENT, "ChunkedEncodingError"),
        ("absent", None, "HTTP status 404"),
        ("empty", b"", "has 0 bytes instead of 200000"),
        ("web_page", b"<html>Moved</html>", "has 18 bytes instead of 200000"),
    ],
)
def test_bad_answers_are_refused(server, cache, page, content, reason):
    """No bad answer reaches the cache, the reason is told, and the next address is tried."""
    if content is not None:
        server.pages[page] = content
    with pytest.raises(FileNotFoundError, match=rf"{server.address(page)} \({reason}\)"):
        fetch(server.raw(page))
    assert files(cache) == []
    assert fetch(server.raw(page, "good")) == CONTENT
    assert server.requests == [page, page, "good"]


def test_first_good_address_wins(server):
    assert fetch(server.raw("good", "never_asked")) == CONTENT
    assert server.requests == ["good"]


def test_offline_message(cache):
    """Without network and cache the user learns the file, the addresses and the folder to put it into."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = f"http://127.0.0.1:{port}"
    raw = raw_file(Address(url=f"{server}/a.zip", member="train.csv"), Address(url=f"{server}/b.csv"))
    with pytest.raises(FileNotFoundError) as caught:
        fetch(raw)
    assert str(caught.value) == (
        "file must be in the cache or come from the network, got file='data.csv'; try again later, or put it into "
        f"{cache}, or into a folder that HETCAL_DATA names; tried 'train.csv' in http://127.0.0.1:{port}/a.zip "
        f"(ConnectionError); http://127.0.0.1:{port}/b.csv (ConnectionError)"
    )
    assert caught.value.__cause__ is not None


def test_what_the_user_puts_into_the_cache_is_taken(cache):
    """The advice of the offline message works."""
    cache.mkdir(parents=True)
    (cache / "data.csv").write_bytes(CONTENT)
    assert fetch(raw_file()) == CONTENT


@pytest.mark.parametrize("stored", [CORRUPT, CONTENT[:1000], b"", CONTENT + b"x"])
def test_bad_cache_is_replaced(server, cache, stored):
    cache.mkdir(parents=True)
    (cache / "data.csv").write_bytes(stored)
    assert fetch(server.raw("good")) == CONTENT
    assert (cache / "data.csv").read_bytes() == CONTENT


def test_bad_cache_is_removed_even_offline(server, cache):
    cache.mkdir(parents=True)
    (cache / "data.csv").write_bytes(CORRUPT)
    with pytest.raises(FileNotFoundError, match="HTTP status 404"):
        fetch(server.raw("absent"))
    assert files(cache) == []


def test_hostile_members_are_never_touched(server, cache, tmp_path):
    """Only the wanted member is read; nothing is unpacked to any folder."""
    absolute = str(tmp_path / "absolute")
    hostile = {"../x": b"x", absolute: b"x", "..\\x": b"x", "C:\\x": b"x", "data.csv/": b"", "big": bytes(10**6)}
    server.pages["zip"] = pack({**hostile, "member.csv": CONTENT})
    assert fetch(server.raw("zip", member="member.csv")) == CONTENT
    assert files(tmp_path) == [str((cache / "data.csv").relative_to(tmp_path))]


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (lambda: pack({"../data.csv": CONTENT, "/data.csv": CONTENT, "a/data.csv": CONTENT}), "has no such member"),
        (lambda: pack({"DATA.CSV": CONTENT}), "has no such member"),
        (lambda: pack({"data.csv": CORRUPT}), "does not have the SHA-256 [0-9a-f]{64}"),
        (lambda: pack({"data.csv": CONTENT[:9]}), "has 9 bytes instead of 200000"),
        (lambda: pack({"data.csv": CONTENT}, zipfile.ZIP_BZIP2), "is compressed with an unsupported method"),
        (lambda: pack({"data.csv": CONTENT}, zipfile.ZIP_LZMA), "is compressed with an unsupported method"),
        (lambda: pack({"data.csv": CONTENT})[:-30], "BadZipFile"),
        (lambda: pack({"data.csv": CONTENT}).replace(CONTENT[5000:5100], bytes(100)), "BadZipFile"),
        (lambda: CONTENT, "BadZipFile"),
    ],
    ids=["paths", "case", "corrupt", "short", "bzip2", "lzma", "truncated", "damaged", "no_zip"],
)
def test_bad_archives_are_refused(server, cache, archive, reason):
    server.pages["zip"] = archive()
    with pytest.raises(FileNotFoundError, match=rf"'data.csv' in {server.address('zip')} \({reason}\)"):
        fetch(server.raw("zip", member="data.csv"))
    assert files(cache) == []


def test_bombs_stay_small(server, tmp_path, monkeypatch):
    """64 MB of zeros, packed in 65 kB as zip and as gzip, are refused within a few megabytes of memory."""
    server.pages["zip"] = pack({"data.csv": bytes(BOMB_BYTES)})
    (tmp_path / "data.csv.gz").write_bytes(gzip.compress(bytes(BOMB_BYTES)))
    fetch(server.raw("good"))  # so that the imports are not counted
    pooch.os_cache("hetcal").joinpath("data.csv").unlink()
    tracemalloc.start()
    try:
        with pytest.raises(FileNotFoundError, match="has more than 200000 bytes instead of 200000"):
            fetch(server.raw("zip", member="data.csv"))
        monkeypatch.setenv("HETCAL_DATA", str(tmp_path))
        with pytest.raises(ValueError, match="has more than 200000 bytes instead of 200000"):
            fetch(server.raw())
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()


def test_endless_archive_is_cut_off(server):
    server.pages["zip"] = bytes(ARCHIVE_LIMIT + 1)
    with pytest.raises(FileNotFoundError, match=f"sends more than {ARCHIVE_LIMIT} bytes"):
        fetch(server.raw("zip", member="data.csv"))


def run(raw, **options):
    code = f"from hetcal.datasets.download import *; assert len(fetch({raw!r})) == {raw.bytes}"
    return subprocess.Popen([sys.executable, "-W", "error", "-c", code], **options)


def test_killed_half_way(server, cache):
    """A killed process leaves no half file, and the next one starts as if nothing had been."""
    server.pages["stall"] = CONTENT
    process = run(server.raw("stall"))
    assert server.half_sent.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert files(cache) == []
    assert fetch(server.raw("good")) == CONTENT


def test_two_processes_at_once(server, cache):
    """Both are in the middle of the same download; both get the file, and one whole copy is left."""
    server.pages["stall"] = CONTENT
    processes = [run(server.raw("stall")) for _ in range(2)]
    while len(server.requests) < 2 and all(process.poll() is None for process in processes):
        server.half_sent.wait(0.01)
    server.go_on.set()
    assert [process.wait(60) for process in processes] == [0, 0]
    assert files(cache) == ["data.csv"]
    assert (cache / "data.csv").read_bytes() == CONTENT


def test_progress_bar_on_terminals_only(server, capfd):
    """A terminal sees a bar with the file's name; a log file sees nothing, and pooch is as talkative as before."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    level = pooch.get_logger().level
    fetch(server.raw("good"))
    assert capfd.readouterr() == ("", "")
    assert pooch.get_logger().level == level
    pooch.os_cache("hetcal").joinpath("data.csv").unlink()
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 80))  # in no space tqdm draws nothing
    assert run(server.raw("good"), stderr=end).wait(60) == 0
    os.set_blocking(terminal, False)
    shown = os.read(terminal, 10_000)
    os.close(end)
    os.close(terminal)
    assert b"data.csv: " in shown


@pytest.mark.parametrize("packed", [False, True])
def test_users_folder(server, tmp_path, monkeypatch, packed):
    """HETCAL_DATA gives plain and gzipped files, without pooch, without network, without a cache."""
    monkeypatch.setenv("HETCAL_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pooch", None)
    name, content = ("data.csv.gz", gzip.compress(CONTENT)) if packed else ("data.csv", CONTENT)
    (tmp_path / name).write_bytes(content)
    assert fetch(server.raw("good")) == CONTENT
    assert server.requests == []
    assert files(tmp_path) == [name]


def test_users_folder_may_start_with_tilde(server, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "data.csv").write_bytes(CONTENT)
    monkeypatch.setenv("HETCAL_DATA", "~")
    assert fetch(server.raw()) == CONTENT


@pytest.mark.parametrize("folder", ["", "absent", "file"])
def test_users_folder_without_the_file(server, tmp_path, monkeypatch, folder):
    """Nothing is downloaded behind the user's back; the message names file, folder and addresses."""
    (tmp_path / "file").write_bytes(b"not a folder")
    path = tmp_path / folder
    monkeypatch.setenv("HETCAL_DATA", str(path))
    with pytest.raises(FileNotFoundError) as caught:
        fetch(server.raw("good", "other", member="a.csv"))
    assert "HETCAL_DATA must name a folder that holds 'data.csv', got HETCAL_DATA=" in str(caught.value)
    assert str(caught.value).endswith(
        f"; put the file into {path}, from 'a.csv' in {server.address('good')} or 'a.csv' in "
        f"{server.address('other')}, or unset HETCAL_DATA to download it"
    )
    assert server.requests == []
    assert files(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("data.csv", CORRUPT, "does not have the SHA-256"),
        ("data.csv", CONTENT[:50], "has 50 bytes instead of 200000"),
        ("data.csv.gz", gzip.compress(CORRUPT, mtime=0), "does not have the SHA-256"),
        ("data.csv.gz", gzip.compress(CONTENT, mtime=0)[:-100], "is not a complete gzip file"),
        ("data.csv.gz", CONTENT, "is not a complete gzip file"),
    ],
)
def test_bad_file_of_the_user_is_refused_and_kept(server, tmp_path, monkeypatch, name, content, reason):
    """The user's file is named and never deleted, and nothing is downloaded instead."""
    monkeypatch.setenv("HETCAL_DATA", str(tmp_path))
    (tmp_path / name).write_bytes(content)
    expected = (
        rf"^HETCAL_DATA must name a folder with the published 'data.csv', got .*; {re.escape(str(tmp_path / name))} "
    )
    with pytest.raises(ValueError, match=expected + reason + r".*; replace that file \(it was not changed\)$"):
        fetch(server.raw("good"))
    assert (tmp_path / name).read_bytes() == content
    assert server.requests == []


def test_empty_variable_counts_as_unset(server, monkeypatch):
    monkeypatch.setenv("HETCAL_DATA", "")
    assert fetch(server.raw("good")) == CONTENT


def test_without_pooch(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=re.escape("needs pooch; install it with: pip install 'hetcal[data]'")):
        fetch(server.raw("good"))

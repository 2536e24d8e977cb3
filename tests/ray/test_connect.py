"""What is refused before there is any cluster, in one sentence and within bounded time."""

import re
import socket
import sys
import time

import pytest

from hetcal.ray.cluster import call_within, connect, explain_failure
from tests.ray.conftest import free_port
from tests.studies.samples import TINY


@pytest.fixture(autouse=True)
def _no_connection(monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # another test of this process may have one


def test_no_cluster():
    for address in (f"127.0.0.1:{free_port()}", f"ray://127.0.0.1:{free_port()}"):
        message = f"address must name a running Ray cluster, got address='{address}'; [Errno 111] Connection refused; "
        with pytest.raises(ConnectionError, match=f"^{re.escape(message)}start one with `ray start --head`, or omit"):
            connect(address)


@pytest.mark.parametrize("address", ["somewhere", "host:", ":6379", "host:port"])
def test_bad_addresses(address):
    with pytest.raises(ValueError, match=r"^address must be auto, host:port or ray://host:port, got address='"):
        connect(address)


def test_a_call_that_hangs():
    failure = call_within(0.01, lambda: time.sleep(1))
    assert str(failure) == "no answer within 0.01 seconds"
    assert isinstance(explain_failure("auto", failure), ConnectionError)
    assert call_within(10, lambda: None) is None


def test_a_lost_client_server(monkeypatch):
    """Ray sometimes loses the server that it has just forked for a client; the next attempt gets another one."""
    lost, attempts = RuntimeError("Starting Ray client server failed. See ray_client_server_23000.err"), []

    def init(address, **options):
        attempts.append(address)
        raise failures[len(attempts) - 1]

    monkeypatch.setattr("ray.init", init)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"ray://127.0.0.1:{listener.getsockname()[1]}"
        for failures, message in (([lost, lost, OSError("wrong token")], "wrong token"), ([lost] * 9, str(lost))):
            attempts.clear()
            with pytest.raises(ConnectionError, match=re.escape(message)):
                connect(address)
            assert attempts == [address] * min(4, len(failures))


def test_options(hetcal, tmp_path):
    (tmp_path / "study.toml").write_text(TINY)
    run = ("bench", "run", "study.toml", "--out", "out")
    for options, message in (
        (("--address", "auto"), "address must be given with --backend ray only, got address='auto'; add --backend ray"),
        (
            ("--backend", "rya"),
            "backend must be one of ['processes', 'ray', 'serial'], got backend='rya'; did",
        ),
        (("--backend", "ray", "--address", f"127.0.0.1:{free_port()}"), "address must name a running Ray cluster, got"),
    ):
        code, out, err = hetcal(*run, *options)
        assert (code, out) == (2, "")
        assert err.startswith(f"hetcal: {message}")
        assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_without_ray(hetcal, tmp_path, monkeypatch):
    """Everything else works, and the error says what to install."""
    (tmp_path / "study.toml").write_text(TINY)
    for name in [name for name in sys.modules if name.startswith("hetcal.ray")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = hetcal("bench", "run", "study.toml", "--out", "out", "--backend", "ray")
    assert (code, err) == (2, "hetcal: hetcal.ray needs Ray; install it with: pip install 'hetcal[ray]'\n")
    assert hetcal("bench", "run", "study.toml", "--out", "out", "--only", "skewed", "--backend", "serial")[0] == 0

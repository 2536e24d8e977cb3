import os
import secrets
import signal
import sys
import warnings
from pathlib import Path

os.environ["SCIPY_ARRAY_API"] = "1"  # before scikit-learn is imported: with it none of its checks is skipped
# Before Ray is imported: a token of this test run keeps others out of its clusters.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
# Ray gives its workers a low priority, with which they would wait for the other test process on every CPU.
os.environ.update(RAY_worker_niceness="0")

import pytest
import torch

from tests.warm_python import WarmPython

torch.set_num_threads(1)  # two test processes run side by side
# A shell ignores Ctrl-C for what it starts in the background, and so would the processes of these tests.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def warm_python():
    """Processes of their own, as `sys.executable` starts them, in which torch is already imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # as `hetcal` does before it imports torch
        patch.delenv("PYTHONUNBUFFERED", raising=False)  # few users have it
        warm = WarmPython()
    yield warm
    warm.close()


@pytest.fixture(scope="module")
def few_members():
    """The default has half as many members for few rows, as many as for more rows: for tests that fit it often."""
    from hetcal.training import parts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PARTS_OF_FEWER_ROWS", parts.PARTS)
        yield


@pytest.fixture
def raw_file():
    """The path of a raw file in the folder that HETCAL_DATA names; skips the test if it is not there."""

    def find(*names):
        if not os.environ.get("HETCAL_DATA"):
            pytest.skip("HETCAL_DATA is not set; it names a folder with the raw files of the data sets")
        paths = [Path(os.environ["HETCAL_DATA"]).expanduser() / name for name in names]
        found = next((path for path in paths if path.is_file()), None)
        if found is None:
            pytest.skip(f"the folder that HETCAL_DATA names has no {' or '.join(names)}")
        return found

    return find


@pytest.fixture
def load_raw(raw_file):
    """`hetcal.datasets.load` from the folder that HETCAL_DATA names; skips the test if the raw file is not there."""
    from hetcal.datasets import load
    from hetcal.datasets.entry import read_entry

    def load_if_there(name):
        file = read_entry(name).file.name
        raw_file(file, f"{file}.gz")
        return load(name)

    return load_if_there


@pytest.fixture
def hetcal(capfd, monkeypatch, tmp_path):
    """`hetcal` with these arguments, in this process and an empty folder: exit code, stdout, stderr."""
    from hetcal.cli import app as cli

    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["hetcal", *map(str, arguments)])
        capfd.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # shown as the command shows them, not raised
            with pytest.raises(SystemExit) as ended:
                cli.main()
        return ended.value.code, *capfd.readouterr()

    return call

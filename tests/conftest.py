import os
import sys
import warnings
from pathlib import Path

os.environ["SCIPY_ARRAY_API"] = "1"  # before scikit-learn is imported: with it none of its checks is skipped

import pytest
import torch

torch.set_num_threads(1)  # two test processes run side by side

RAW = Path(os.environ.get("HETCAL_DATA") or Path(__file__).parents[2] / "shared" / "data" / "raw")


@pytest.fixture
def load_raw(monkeypatch):
    """`hetcal.datasets.load` from the raw files of this machine; skips the test where they are not to be had."""
    from hetcal.datasets import load
    from hetcal.datasets.entry import read_entry

    monkeypatch.setenv("HETCAL_DATA", str(RAW))

    def load_if_there(name):
        file = read_entry(name).file.name
        if not ((RAW / file).is_file() or (RAW / f"{file}.gz").is_file()):
            pytest.skip(f"{file} is not here; set HETCAL_DATA to a folder with the raw files")
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

import os
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

"""Names from outside are fit to be shown, values fit for JSON, and paths reveal nothing."""

from pathlib import PurePosixPath, PureWindowsPath

import numpy as np
import pytest

from hetcal.report.text import clean, commands, finite, listed_value, listing, without_folders


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("hetcal fit /home/ada/train.csv --out=/tmp/m.hetcal", "hetcal fit train.csv --out=m.hetcal"),
        ("fit '/home/ada l/my data/train.csv'", "fit 'train.csv'"),
        ("fit C:\\Users\\ada\\train.csv ~/x/y.csv", "fit train.csv y.csv"),
        ("fit data/train.csv --set a=b/c", "fit data/train.csv --set a=b/c"),
        ("rows / columns, km/h, https://example.org/a", "rows / columns, km/h, https://example.org/a"),
    ],
)
def test_no_folder_of_this_machine(given, shown):
    """Absolute paths lose their folders, relative ones and other slashes stay."""
    assert without_folders(given) == shown
    assert commands([given]) == [shown]


def test_listing():
    """Values become plain JSON: numbers stay, paths keep their last part, all else is text."""
    given = {
        "rows": np.int64(3),
        "rate": np.float32(0.5),
        "nothing": None,
        "quick": True,
        "not a number": float("nan"),
        "file": PurePosixPath("/home/ada/train.csv"),
        "other": PureWindowsPath("C:\\Users\\ada\\x.csv"),
        "columns": ["a", "b"],
        "options": {"samples": 10},
    }
    values = {fact["label"]: fact["value"] for fact in listing(given)}
    assert values == {
        "rows": 3,
        "rate": 0.5,
        "nothing": None,
        "quick": True,
        "not a number": "nan",
        "file": "train.csv",
        "other": "x.csv",
        "columns": "a, b",
        "options": "samples=10",
    }
    assert type(values["rows"]) is int
    assert listing(None) == []


def test_clean():
    """What cannot be written to a UTF-8 file, or turns the text round, is replaced; what is too long is cut."""
    assert clean("a\x00\x1b\ud800\u202eb\tc") == "a����b\tc"
    assert len(clean("x" * 10_000)) == 120
    clean("".join(map(chr, range(0x10000))), 0x10000).encode()


def test_finite():
    assert [finite(value) for value in (1, np.inf, np.nan)] == [1.0, None, None]
    assert listed_value(np.bool_(True)) is True

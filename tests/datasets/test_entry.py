"""The catalog is complete, says what it means, and is nothing but the folder's TOML files."""

import re
import shutil
from pathlib import Path

import pytest

from hetcal.datasets import available, entry
from hetcal.datasets.entry import parse_entry, read_entry

CATALOG = Path(str(entry.CATALOG))
TEXT = (CATALOG / "parkinsons.toml").read_text()
UCI = "https://archive.ics.uci.edu/"


@pytest.mark.parametrize("name", available())
def test_entry_is_complete(name):
    """License, citation, checksum and addresses are there, and every named column exists where the entry lists them."""
    found = read_entry(name)
    assert all(text.strip() for text in (found.title, found.license, found.citation, found.target))
    assert found.url.startswith(UCI)
    assert re.fullmatch("[0-9a-f]{64}", found.file.sha256)
    assert found.file.bytes > 0
    assert Path(found.file.name).name == found.file.name
    used = [found.target, *found.dropped, *found.categories]
    assert len(set(used)) == len(used)
    assert not found.reader.columns or set(used) <= set(found.reader.columns)
    assert len(set(found.reader.columns)) == len(found.reader.columns)
    assert (found.groups.column != "") == (found.groups.rule in ("same_value", "same_day"))


@pytest.mark.parametrize("name", available())
def test_addresses(name):
    """The archive's current address first, then the older one; Boston has left the current archive."""
    addresses = read_entry(name).file.addresses
    paths = [address.url.removeprefix(UCI) for address in addresses]
    assert all(address.url.startswith(UCI) for address in addresses)
    kinds = ["static/public/", "ml/machine-learning-databases/"][1 if name == "boston" else 0 :]
    assert [path.startswith(kind) for path, kind in zip(paths, kinds, strict=True)] == [True] * len(kinds)
    assert [bool(address.member) for address in addresses] == [path.endswith(".zip") for path in paths]


def test_nothing_but_entries_is_shipped():
    """No data set lies in the package."""
    assert {path.suffix for path in CATALOG.iterdir()} == {".toml"}
    assert sum(path.stat().st_size for path in CATALOG.iterdir()) < 30_000


def test_folder_is_the_list(tmp_path, monkeypatch):
    """A new file is a new data set, with no other registration."""
    shutil.copy(CATALOG / "boston.toml", tmp_path / "new-set.toml")
    (tmp_path / "notes.txt").touch()
    monkeypatch.setattr(entry, "CATALOG", tmp_path)
    assert available() == ["new-set"]
    assert read_entry("new-set").target == "MEDV"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dropped =", "droped =", r"x.toml: key must be one of .*, got key='droped'; did you mean 'dropped'\?"),
        ("separator =", "seperator =", r"reader in x.toml: key must be one of .*; did you mean 'separator'\?"),
        ("member =", "membre =", r"addresses in file in x.toml: key must be one of .*; did you mean 'member'\?"),
        ("license =", "#", "x.toml must have the key 'license', got .*; add it"),
        ("sha256 =", "#", "file in x.toml must have the key 'sha256', got .*; add it"),
        ("bytes = 911261", "bytes = '911261'", "bytes in file in x.toml must be a valid integer, got .*='911261'"),
        ("bytes = 911261", "bytes = 911261.0", "bytes in file in x.toml must be a valid integer, got .*=911261.0"),
        ('["subject#", "motor_UPDRS"]', '"motor_UPDRS"', "dropped in x.toml must be an array, got .*; correct"),
        ('["subject#", "motor_UPDRS"]', "[1]", "dropped in x.toml must be a valid string, got .*=1; correct"),
        ("[reader]", "[[reader]]", "reader in x.toml must be a table, got .*; correct the entry"),
        (
            "same_value",
            "same_values",
            "rule in groups in x.toml must be 'none', .* or 'same_day', got .*; correct",
        ),
    ],
)
def test_typing_errors_do_not_pass(old, new, message):
    assert old in TEXT
    with pytest.raises(ValueError, match=f"^{message}"):
        parse_entry(TEXT.replace(old, new), "x.toml")


@pytest.mark.parametrize(
    ("given", "nearest"), [("bostn", "boston"), ("Red_Wine", "red-wine"), ("auto_mpg", "auto-mpg")]
)
def test_nearest_name(given, nearest):
    with pytest.raises(ValueError, match=rf"name must be one of \['auto-mpg'.*; did you mean '{nearest}'\?"):
        read_entry(given)


@pytest.mark.parametrize("given", ["../catalog/boston", "boston.toml", "/etc/passwd", "", None])
def test_names_are_not_paths(given):
    with pytest.raises(ValueError, match="name must be one of"):
        read_entry(given)

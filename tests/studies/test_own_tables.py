"""Tables of the user's own: the file that a study uses is the one that was meant, and a change is noticed."""

import hashlib
import os
import re

import pytest

from hetcal.studies.cells import load_part
from hetcal.studies.own_tables import describe_table, find_file, locate_tables
from hetcal.studies.protocol import parse_protocol
from tests.studies.samples import TINY

TEXT = TINY.replace('"skewed"', '"mine"') + '[tables.mine]\nfile = "data/mine.csv"\ntarget = "y"\n'


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A protocol whose table may be beside it or in the folder that HETCAL_TABLES names."""
    beside, named = tmp_path / "beside", tmp_path / "named"
    for folder in (beside, named):
        (folder / "data").mkdir(parents=True)
    monkeypatch.setenv("HETCAL_TABLES", str(named))
    return parse_protocol(TEXT, beside), beside, named


def test_beside_the_protocol_first(places):
    protocol, beside, named = places
    for folder in (named, beside):
        (folder / "data" / "mine.csv").write_text("x,y\n1,2\n")
        assert find_file(protocol, "mine") == folder / "data" / "mine.csv"


def test_no_such_file(places, monkeypatch):
    """The message names every place that was searched; a folder of that name is not a file."""
    protocol, beside, named = places
    (named / "data" / "mine.csv").mkdir()
    start = "file of tables.mine must exist, got file of tables.mine='data/mine.csv'; it is not in"
    end = "; put it there, or set HETCAL_TABLES to its folder"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(f'{start} {beside} or {named}{end}')}$"):
        find_file(protocol, "mine")
    monkeypatch.delenv("HETCAL_TABLES")
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(f'{start} {beside}{end}')}$"):
        find_file(protocol, "mine")


def test_what_a_result_depends_on(places):
    """The bytes of the file and the roles of the columns, not its place; nothing for the data sets of hetcal."""
    protocol, beside, named = places
    (named / "data" / "mine.csv").write_text("x,y\n1,2\n")
    described = {"sha256": hashlib.sha256(b"x,y\n1,2\n").hexdigest(), "target": "y", "group": None}
    assert describe_table(protocol, "mine") == described
    (beside / "data" / "mine.csv").write_text("x,y\n1,2\n")
    assert describe_table(protocol, "mine") == described
    (beside / "data" / "mine.csv").write_text("x,y\n1,3\n")
    assert describe_table(protocol, "mine")["sha256"] != described["sha256"]
    assert describe_table(protocol, "heteroscedastic") is None


def test_located_tables_are_found_from_anywhere(places, tmp_path, monkeypatch):
    """A process that was started in another folder, or before HETCAL_TABLES was set, reads the same file."""
    _, beside, _ = places
    (beside / "data" / "mine.csv").write_text("x,y\n1,2\n")
    monkeypatch.chdir(tmp_path)
    relative = parse_protocol(TEXT, beside.relative_to(tmp_path))
    located = locate_tables(relative, ["heteroscedastic", "mine"])
    os.chdir("/")
    assert find_file(located, "mine") == beside / "data" / "mine.csv"
    assert located.hash == relative.hash


def test_no_reader(places):
    message = "read must be given for tables of one's own, got read=None; run the protocol with: hetcal bench run"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_part("mine", places[0])

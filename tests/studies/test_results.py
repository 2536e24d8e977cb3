"""Results on disk: what was written is read, and a damaged file is never mistaken for a result."""

import json
import re
import statistics

import pytest
from numpy.testing import assert_allclose

from hetcal.studies.protocol import parse_protocol
from hetcal.studies.results import (
    decode_result,
    encode_result,
    estimate_figure,
    open_folder,
    read_cells,
    read_results,
    write_result,
)
from hetcal.studies.statistics import Estimate
from tests.studies.samples import TINY, cell_files, make_result, make_results

PROTOCOL = parse_protocol(TINY)
CELL, OTHER = PROTOCOL.cells()[:2]


def test_round_trip(tmp_path):
    """Finished, failed and missing cells are read as they were written, and every file names its protocol."""
    metrics = {cell: {"ce": number / 7} for number, cell in enumerate(PROTOCOL.cells())}
    metrics[CELL], metrics[OTHER] = "ValueError: why", None
    results = make_results(tmp_path, TINY, metrics.get)
    assert results.protocol.text == TINY
    assert results.damaged == []
    assert results.failed.keys() == {CELL}
    assert results.failed[CELL]["error"] == "ValueError: why"
    assert results.done.keys() == set(PROTOCOL.cells()[2:])
    assert all(results.done[cell]["metrics"]["ce"] == metrics[cell]["ce"] for cell in results.done)
    files = cell_files(tmp_path)
    assert len(files) == 7
    assert {json.loads(path.read_text())["protocol"] for path in files} == {PROTOCOL.hash}


def test_varied_settings_come_back(tmp_path):
    """Numbers keep their kind, so that a finished variant is recognized."""
    text = TINY + 'vary = { dropout = [0.1, 0.30000000000000004], depth = [1], objective = ["squared_error"] }'
    results = make_results(tmp_path, text, lambda cell: {})
    assert results.done.keys() == set(results.protocol.cells())
    assert len(results.select("table", "skewed", "hnn")) == 4
    assert [result["seed"] for result in results.select("table", "skewed", "hnn", dropout=0.1)] == [0, 1]
    assert results.select("table", "skewed", "hnn", dropout=0.2) == []


def test_no_damage_goes_unnoticed():
    """A truncated file is an error. So is a changed byte, unless the content is the same (1E-7 for 1e-7)."""
    result = {**make_result(PROTOCOL, CELL), "coverage": [0.1, 2.5e-7], "std_quantiles": []}
    content = encode_result(result).encode()
    assert decode_result(content.decode()) == result
    for place in range(len(content)):
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
            decode_result(content[:place].decode())
    unnoticed = 0
    for place, bit in ((place, 1 << bit) for place in range(len(content)) for bit in (0, 4, 5)):
        changed = bytes([*content[:place], content[place] ^ bit, *content[place + 1 :]])
        try:
            assert decode_result(changed.decode()) == result
            unnoticed += 1
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
    assert unnoticed < len(content) / 10


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"5", b"null", b"{}", b"\xff\xfe", b'{"checksum": "x"}', None])
def test_damaged_files_are_named_not_read(tmp_path, content):
    """Whatever the file contains (None: one digit is changed), the rest of the folder is read."""
    results = make_results(tmp_path, TINY, lambda cell: {"ce": 0.125})
    path = cell_files(tmp_path)[0]
    path.write_bytes(path.read_bytes().replace(b"0.125", b"0.126") if content is None else content)
    results = read_results(tmp_path)
    assert results.damaged == [path]
    assert len(results.done) == 7


def test_half_written_files_are_no_results(tmp_path):
    """Temporary files that a killed process leaves are ignored."""
    make_results(tmp_path, TINY, lambda cell: {})
    for path in cell_files(tmp_path)[:3]:
        path.rename(path.with_name(f".{path.name}.0123abcd.part"))
    results = read_results(tmp_path)
    assert (len(results.done), results.damaged) == (5, [])


def test_two_protocols_in_one_folder(tmp_path):
    """Refused with both hashes, and nothing in the folder is changed."""
    open_folder(tmp_path, PROTOCOL)
    other = parse_protocol(TINY.replace("width = 8", "width = 9"))
    message = (
        f"folder must hold results of this protocol (hash {other.hash}), got folder={str(tmp_path)!r}; it holds those "
        f"of 'Tiny' (hash {PROTOCOL.hash}); choose another --out"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        open_folder(tmp_path, other)
    assert (tmp_path / "protocol.toml").read_text() == TINY


def test_a_file_of_another_protocol(tmp_path):
    """A file that was copied into the folder is not a result of this study."""
    other = parse_protocol(TINY.replace("width = 8", "width = 9"))
    open_folder(tmp_path, PROTOCOL)
    write_result(tmp_path, CELL, make_result(other, CELL))
    message = (
        f"folder must hold results of one protocol ({PROTOCOL.hash}), got folder={str(tmp_path)!r}; seed-0.json of "
        f"heteroscedastic hnn is of protocol {other.hash}; move the file to another folder"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_results(tmp_path)


def test_a_folder_is_made_and_keeps_the_newest_protocol(tmp_path):
    """The protocol of an extended study replaces the old one, so that tables include the new cells."""
    folder = tmp_path / "new" / "folder"
    assert open_folder(folder, PROTOCOL).done == {}
    write_result(folder, CELL, make_result(PROTOCOL, CELL))
    grown = parse_protocol(TINY.replace("seeds = 2", "seeds = 3"))
    assert open_folder(folder, grown).done.keys() == {CELL}
    assert read_results(folder).protocol == grown


def test_a_quick_look_is_remembered(tmp_path):
    """The folder of a quick run is recognized as such, and the full study is refused there."""
    full = parse_protocol(TINY + "[quick]\nseeds = 1\nmax_epochs = 1\n")
    open_folder(tmp_path, full.made_quick())
    assert read_results(tmp_path).protocol == full.made_quick()
    with pytest.raises(ValueError, match=rf"hash {full.hash}.*hash {full.made_quick().hash}.*; choose another --out"):
        open_folder(tmp_path, full)


@pytest.mark.parametrize(("name", "reason"), [("file", "File exists"), ("file/below", "Not a directory")])
def test_unwritable_folder(tmp_path, name, reason):
    (tmp_path / "file").write_text("not a folder")
    folder = tmp_path / name
    message = f"folder must be writable, got folder={str(folder)!r}; {reason}; choose another --out"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        open_folder(folder, PROTOCOL)


@pytest.mark.parametrize("name", ["", "absent"])
def test_folder_without_results(tmp_path, name):
    folder = tmp_path / name
    advice = "create them with: hetcal bench run PROTOCOL"
    message = f"folder must hold the results of a run, got folder={str(folder)!r}; {advice}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_results(folder)


def test_damaged_copy_of_the_protocol(tmp_path):
    """The message names the file, which the user did not write."""
    path = tmp_path / "protocol.toml"
    path.write_text("title = ")
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: Invalid value \(at end of document\)$"):
        read_results(tmp_path)


def test_select_is_ordered_by_seed(tmp_path):
    """Files are read in the order of their names, in which 10 comes before 2."""
    make_results(tmp_path, TINY.replace("seeds = 2", "seeds = 11"), lambda cell: {})
    results = read_cells(tmp_path, PROTOCOL)
    assert [result["seed"] for result in results.select("table", "skewed", "hnn")] == list(range(11))


def test_mean_and_standard_error():
    """Computed in another way. A single split has no standard error, and without splits there is no estimate."""
    values = [0.5, 0.25, 0.75, 0.125]
    figure = estimate_figure([make_result(PROTOCOL, CELL, ce=value) for value in values], "ce")
    assert figure.n == 4
    assert_allclose(figure.mean, statistics.fmean(values), rtol=1e-15)
    assert_allclose(figure.error, statistics.stdev(values) / 2, rtol=1e-15)
    assert estimate_figure([make_result(PROTOCOL, CELL, ce=0.5)], "ce") == Estimate(0.5, 0.0, 1)
    assert estimate_figure([], "ce") is None

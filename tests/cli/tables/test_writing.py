"""Written tables: exact numbers, harmless text, and a file that is completely the old or the new one."""

import csv
import gzip
import io
import os
import resource
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetcal.cli.tables import open_writer, read_chunks
from hetcal.cli.tables.writing import FORMULA, SUFFIXES
from hetcal.tabular.columns import MISSING_LABEL
from tests.cli.tables.frames import read_frame

thorough = settings(max_examples=20, deadline=None, derandomize=True, database=None)
floats = st.floats(allow_infinity=False)
texts = st.text(st.sampled_from("ab é😀\"',;|\t\r\n=+-@ 01.e\ufeff"), max_size=6)


def write(path, *frames, **options):
    with open_writer(path, **options) as writer:
        for frame in frames:
            writer.write(frame)


def cells(path):
    """All cells of a CSV file as Python's csv module reads them."""
    return list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(numbers=st.lists(st.tuples(floats, floats), min_size=1, max_size=50))
@thorough
def test_numbers_come_back_bit_for_bit(tmp_path_factory, suffix, numbers):
    """Every float64 but infinity, missing ones too, in every format, written in two chunks."""
    path = tmp_path_factory.getbasetemp() / f"numbers{suffix}"
    frame = pd.DataFrame(numbers, columns=["a", "b"])
    write(path, frame[:1], frame[1:], force=True)
    again = read_frame(path, kinds={"a": "numbers", "b": "numbers"})
    canonical = np.where(np.isnan(frame), np.nan, frame)  # there are many NaN
    assert again.to_numpy().tobytes() == canonical.astype(float).tobytes()


@given(values=st.lists(texts, min_size=1, max_size=50))
@thorough
def test_texts_come_back(tmp_path_factory, values):
    """With separators, quotation marks and line ends, except for the mark in front of formulas."""
    path = tmp_path_factory.getbasetemp() / "texts.csv"
    write(path, pd.DataFrame({"a": values, "n": 1.0}), force=True)
    (chunk,) = read_chunks(path, {"n": "numbers"}, keep=["a"])
    for value, found in zip(values, chunk.kept["a"], strict=True):
        assert found in (value, f"'{value}")
        assert not found.lstrip("\ufeff \t\r\n").startswith(("=", "@"))


@pytest.mark.parametrize(
    "payload",
    [
        "=1+1",
        "=cmd|' /C calc'!A0",
        "+1+1",
        "-1+1",
        "@SUM(A1)",
        "\t=1+1",
        "\r=1+1",
        "\n=1+1",
        " =1+1",
        "\u00a0=1+1",
        "\ufeff=1+1",
        "\uff1d1+1",
        "-",
        '="a"',
        "\tx",
        "\rx",
    ],
)
def test_formulas_are_made_harmless(tmp_path, payload):
    """In cells and names, in CSV and TSV; quoted, so that neither a separator nor a line end divides them."""
    for suffix in (".csv", ".tsv"):
        path = tmp_path / f"a{suffix}"
        write(path, pd.DataFrame({payload: [payload], "n": [1.0]}))
        line = "\"'" + payload.replace('"', '""') + '"'
        separator = "," if suffix == ".csv" else "\t"
        assert path.read_bytes().decode() == f"{line}{separator}n\n{line}{separator}1\n"


def test_what_is_not_a_formula_is_unchanged(tmp_path):
    """Numbers, numbers as text, dates, and signs within a text are untouched; a lone CR is quoted."""
    path = tmp_path / "a.csv"
    columns = {
        "number": [-1.5, 1e-300],
        "whole": [-7, 2**60],
        "text": ["-1.5", "+7e3"],
        "comma": ["-1,5", "oak = 5"],
        "return": ["a\rb", 'say "oak"'],
        "flag": [True, False],
        "day": pd.to_datetime(["2024-01-31", "2024-02-01"]),
        "decimal": [Decimal("-1.10"), Decimal("2.00")],
    }
    write(path, pd.DataFrame(columns))
    assert path.read_text().splitlines()[0] == ",".join(columns)
    assert cells(path)[1] == ["-1.5", "-7", "-1.5", "-1,5", "a\rb", "true", "2024-01-31 00:00:00.000000", "-1.10"]
    assert cells(path)[2][:6] == ["1e-300", str(2**60), "+7e3", "oak = 5", 'say "oak"', "false"]
    assert b'"a\rb"' in path.read_bytes()
    assert not FORMULA.match("oak = 5")


def test_missing_cells(tmp_path):
    """Nothing between the separators; quotation marks in a table of one column, where a blank line would be no row."""
    path = tmp_path / "a.csv"
    write(path, pd.DataFrame({"a": [1.0, np.nan], "b": [None, "x"]}))
    assert path.read_text() == "a,b\n1,\n,x\n"
    write(path, pd.DataFrame({"a": [1.0, np.nan, 2.0]}), force=True)
    assert path.read_text() == 'a\n1\n""\n2\n'
    assert len(read_frame(path)) == 3


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_first_chunk_decides_the_types(tmp_path, suffix):
    """A column may be empty in the first or a later chunk; integers with missing values remain integers."""
    path = tmp_path / f"a{suffix}"
    first = pd.DataFrame({"x": [1.5], "text": [None], "label": ["oak"], "id": [2]})
    later = pd.DataFrame({"x": [np.nan, 3.0], "text": ["ash", None], "label": [None, None], "id": [np.nan, 3.0]})
    write(path, first, later, later[:0])
    (chunk,) = read_chunks(path, {"x": "numbers", "text": "text", "label": "text", "id": "numbers"}, keep=["id"])
    columns = chunk.table.columns
    assert columns["text"].tolist() == [MISSING_LABEL, "ash", MISSING_LABEL]
    assert columns["label"].tolist() == ["oak", MISSING_LABEL, MISSING_LABEL]
    np.testing.assert_array_equal(columns["x"], [1.5, np.nan, 3.0])
    assert [None if value is pd.NA else str(value) for value in chunk.kept["id"]] in (["2", None, "3"], ["2", "", "3"])


def test_kept_columns_go_through(tmp_path):
    """Columns kept from Parquet are written with their types, from CSV as text, beside predictions."""
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    ids = pa.array([2**60 + 1, None, 3])
    kinds = pa.array(["oak", None, "ash"]).dictionary_encode()
    pq.write_table(pa.table({"id": ids, "kind": kinds, "x": [1, 2, 3]}), source)
    for path in (target, tmp_path / "b.feather", tmp_path / "b.csv"):
        with open_writer(path) as writer:
            for chunk in read_chunks(source, {"x": "numbers"}, keep=["id", "kind"], rows=2):
                writer.write(chunk.kept.assign(mean=chunk.table.columns["x"]))
    assert pq.read_table(target).to_pydict() == {
        "id": ids.to_pylist(),
        "kind": ["oak", None, "ash"],
        "mean": [1.0, 2.0, 3.0],
    }
    assert (tmp_path / "b.csv").read_text() == f"id,kind,mean\n{2**60 + 1},oak,1\n,,2\n3,ash,3\n"


def test_text_of_other_types(tmp_path, monkeypatch):
    """Categories, and text as other programs write it, are made harmless as well; so is text from many batches."""
    path = tmp_path / "a.csv"
    write(path, pd.DataFrame({"a": pd.Categorical(["=1", None])}), pd.DataFrame({"a": pd.Categorical(["@2", "b"])}))
    assert path.read_text() == 'a\n"\'=1"\n""\n"\'@2"\nb\n'
    source = tmp_path / "a.arrow"
    view = pa.table({"a": pa.array(["=1", "b"], pa.string_view()), "x": [1, 2]})
    with pa.ipc.new_file(str(source), view.schema) as file:
        file.write(view)
    (chunk,) = read_chunks(source, {"x": "numbers"}, keep=["a"])
    write(path, chunk.kept, force=True)
    assert path.read_text() == 'a\n"\'=1"\nb\n'
    monkeypatch.setattr("hetcal.cli.tables.records.BATCH_ROWS", 2)
    (tmp_path / "b.csv").write_text("a,x\n" + "=1,1\n" * 5)
    (chunk,) = read_chunks(tmp_path / "b.csv", {"x": "numbers"}, keep=["a"])
    write(path, chunk.kept.assign(x=chunk.table.columns["x"]), force=True)
    assert path.read_text() == "a,x\n" + '"\'=1",1\n' * 5


def test_the_same_table_gives_the_same_bytes(tmp_path):
    """A gzip file holds neither the time nor its name or folder."""
    frame = pd.DataFrame({"a": [1.0]})
    (tmp_path / "folder").mkdir()
    write(tmp_path / "a.csv.gz", frame)
    write(tmp_path / "folder" / "b.csv.gz", frame)
    content = (tmp_path / "a.csv.gz").read_bytes()
    assert content == (tmp_path / "folder" / "b.csv.gz").read_bytes()
    assert gzip.decompress(content) == b"a\n1\n"


def test_parquet_has_checksums(tmp_path):
    """The reader detects a changed byte."""
    path = tmp_path / "a.parquet"
    write(path, pd.DataFrame({"a": np.random.default_rng(0).normal(size=1000)}))
    content = bytearray(path.read_bytes())
    content[2000] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged or truncated"):
        read_frame(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "a.xlsx",
            "the output file must end in one of .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .feather, .arrow, "
            "got the output file='a.xlsx'; the ending determines the format",
        ),
        ("old.csv", "old.csv already exists; use --force to replace it"),
        ("no/a.csv", "the folder no of a.csv does not exist; create it first"),
        ("folder.csv", "folder.csv is a folder; give the name of a file in it"),
    ],
)
def test_refused_before_anything_is_done(tmp_path, monkeypatch, name, message):
    """Names that cannot be written, or that exist."""
    monkeypatch.chdir(tmp_path)
    Path("old.csv").write_text("old")
    Path("folder.csv").mkdir()
    with pytest.raises((ValueError, OSError)) as raised, open_writer(name):
        raise AssertionError("the block must not be entered")
    assert str(raised.value) == message
    assert sorted(os.listdir(tmp_path)) == ["folder.csv", "old.csv"]
    assert Path("old.csv").read_text() == "old"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows", [1, 5000], ids=["in the end", "on the way"])
def test_full_disk(tmp_path, suffix, rows):
    """A full disk leaves the old file and nothing else, and the error names the file."""
    path = tmp_path / f"a{suffix}"
    path.write_text("old")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(rows, 3)), columns=list("abc"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError) as raised:  # noqa: PT011
            write(path, frame, frame, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(raised.value) == f"{path} cannot be written: File too large"
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {path.name: b"old"}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_on_the_way(tmp_path, suffix, error):
    """Whatever ends the block early leaves the old file; the new one does not appear before the end."""
    path = tmp_path / f"a{suffix}"
    path.write_text("old")

    def break_off():
        with open_writer(path, force=True) as writer:
            writer.write(pd.DataFrame({"a": [1.0]}))
            assert path.read_text() == "old"
            raise error

    with pytest.raises(error):
        break_off()
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {path.name: b"old"}


def test_no_rows_and_other_columns(tmp_path):
    """Mistakes of the program: nothing is written at all, or the chunks have different columns."""
    path = tmp_path / "a.csv"
    with pytest.raises(ValueError, match=r"a.csv was not written: there are no rows$"):
        write(path)
    with pytest.raises(ValueError, match=r"^frame must have the columns \['a'\], got frame=\['b'\]; give every chunk"):
        write(path, pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]}))
    assert list(tmp_path.iterdir()) == []


STDOUT = """
import sys, os, pandas as pd
from hetcal.cli.tables import open_writer
try:
    with open_writer("-") as writer:
        for _ in range(int(sys.argv[1])):
            writer.write(pd.DataFrame({"a": [0.1] * 1000, "b": ["=oak"] * 1000}))
except BrokenPipeError:
    os._exit(7)
except OSError as error:
    print(error, file=sys.stderr)
    os._exit(8)
"""


def test_standard_output():
    """CSV; a closed pipe is left to the caller."""
    command = [sys.executable, "-c", STDOUT]
    process = subprocess.run([*command, "2"], capture_output=True, timeout=120)
    assert (process.returncode, process.stderr) == (0, b"")
    assert process.stdout == b"a,b\n" + b'0.1,"\'=oak"\n' * 2000
    with subprocess.Popen([*command, "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(4) == b"a,b\n"
        process.stdout.close()
        assert (process.wait(timeout=120), process.stderr.read()) == (7, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_standard_output_on_a_full_disk():
    """Reported in one sentence."""
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [sys.executable, "-c", STDOUT, "2"], stdout=full, stderr=subprocess.PIPE, timeout=120, text=True
        )
    message = "standard output cannot be written: No space left on device\n"
    assert (process.returncode, process.stderr) == (8, message)

"""Tables read as a whole and in chunks: the same cells, whatever the format."""

import gzip
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from hetcal.cli.tables import CsvFormat, open_writer, read_chunks, read_file, reading
from hetcal.tabular.columns import MISSING_LABEL
from tests.cli.tables.frames import frame_of, read_frame

CSV = "size,kind,day,flag,id\n1.5,oak,2024-01-31,true,007\n,NA,,false,-8\n-2,ash,2024-02-01,,x\n"
KINDS = {"flag": "numbers", "size": "numbers", "kind": "text", "day": "dates"}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(CSV)
    return path


def test_kinds_are_detected(path):
    """Numbers, text, dates and booleans, with missing cells; the rows have the numbers of a spreadsheet."""
    data = read_file(path)
    assert data.table.kinds == {"size": "numbers", "kind": "text", "day": "dates", "flag": "numbers", "id": "text"}
    assert data.rows.tolist() == [2, 3, 4]
    columns = data.table.columns
    np.testing.assert_array_equal(columns["size"], [1.5, np.nan, -2])
    np.testing.assert_array_equal(columns["flag"], [1, 0, np.nan])
    assert columns["kind"].tolist() == ["oak", MISSING_LABEL, "ash"]
    assert sum(data.table.missing(name).sum() for name in columns) == 4
    assert columns["id"].tolist() == ["007", "-8", "x"]
    np.testing.assert_array_equal(columns["day"], np.array(["2024-01-31", "NaT", "2024-02-01"], "datetime64[us]"))


def test_columns_that_are_said_to_be_text_or_dropped(path):
    """What the user says of a column goes; a name that is no column is refused with the nearest one."""
    path.write_text("a,b,c\n1,2024-01-31,31.12.2024\n2,2024-02-01,1.1.2025\n")
    frame = read_frame(path, texts=["a", "b"], drop=["c"])
    assert {name: frame[name].to_list() for name in frame} == {"a": ["1", "2"], "b": ["2024-01-31", "2024-02-01"]}
    for option in ("texts", "drop"):
        flag = "--text" if option == "texts" else "--drop"
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            read_frame(path, **{option: ["bb"]})
        assert str(raised.value) == f"{flag} must be one of ['a', 'b', 'c'], got {flag}='bb'; did you mean 'b'?"


def test_kinds_are_detected_from_all_rows(path):
    """The last row of many counts: a column is what all of its cells are."""
    path.write_text("a,b\n" + "1,1\n" * 60_000 + "1,2024-01-31\n")
    with pytest.raises(
        ValueError, match=r"column 'b' of .* must hold numbers, got '2024-01-31' in row 60002; repair it"
    ):
        read_frame(path)


@pytest.mark.parametrize("rows", [1, 2, 50_000])
def test_kinds_given(path, rows):
    """Exactly the columns asked for, in that order; chunks together are the frame."""
    whole = read_frame(path, kinds=KINDS)
    assert list(whole) == list(KINDS)
    chunks = list(read_chunks(path, KINDS, rows=rows, keep=["id", "size"]))
    assert [len(chunk.table) for chunk in chunks] == ([3] if rows > 3 else [1, 1, 1] if rows == 1 else [2, 1])
    assert [chunk.rows[0] for chunk in chunks] == list(range(2, 5, rows))
    assert_frame_equal(pd.concat(map(frame_of, chunks)), whole)
    kept = pd.concat([chunk.kept for chunk in chunks])
    assert kept.to_dict("list") == {"id": ["007", "-8", "x"], "size": ["1.5", "", "-2"]}
    assert [len(chunk.kept) for chunk in chunks] == [len(chunk.rows) for chunk in chunks]


def test_kept_columns_are_not_converted(path):
    """They come as the text they are, whether or not they are converted as well."""
    (chunk,) = read_chunks(path, {"size": "numbers"}, keep=["size", "kind", "day", "flag", "id"])
    assert chunk.kept.iloc[0].to_list() == ["1.5", "oak", "2024-01-31", "true", "007"]
    assert list(chunk.table.columns) == ["size"]
    (chunk,) = read_chunks(path, {}, keep=["id"])
    assert (chunk.table.columns, chunk.kept["id"].to_list()) == ({}, ["007", "-8", "x"])


def test_an_error_in_a_later_chunk(path):
    """Rows are counted through all chunks."""
    path.write_text("a,b\n" + "1,1\n" * 120 + "oak,1\n")
    with pytest.raises(ValueError, match=r"column 'a' of .* must hold numbers, got 'oak' in row 122; repair it"):
        list(read_chunks(path, {"a": "numbers"}, rows=50))


def test_missing_columns(path):
    """The missing columns are listed with those that were not requested, so that a renamed one shows."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        next(read_chunks(path, {"Size": "numbers", "kind": "text", "mass": "numbers"}, keep=["id"]))
    assert str(raised.value) == (
        f"{path} must have the columns 'Size', 'mass', but lacks them; it has 'size', 'day', 'flag' instead: "
        "rename or add what is missing"
    )
    path.write_text("a\n1\n")
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        next(read_chunks(path, {"a": "numbers"}, keep=["id"]))
    assert str(raised.value) == (f"{path} must have the column 'id', but lacks it; add what is missing")
    path.write_text(",".join(f"x{i}" for i in range(30)) + "\n" + ",".join("1" * 30) + "\n")
    with pytest.raises(ValueError, match=r"it has 'x0', .*'x9' and 20 more instead"):
        read_frame(path, kinds={"a": "numbers"})


def test_wrong_arguments(path):
    """Arguments of the program, not of the user."""
    with pytest.raises(
        ValueError, match=r"^kind must be one of \['dates', 'numbers', 'text'\], got kind='number'; did"
    ):
        read_frame(path, kinds={"size": "number"})
    with pytest.raises(ValueError, match=r"^rows must be at least 1, got rows=0"):
        next(read_chunks(path, KINDS, rows=0))


def test_a_chunk_of_long_texts_is_smaller(path, monkeypatch):
    """Chunks are bounded in size, not only in rows."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", 1000)
    monkeypatch.setattr("hetcal.cli.tables.records.BATCH_ROWS", 10)
    path.write_text("a,b\n" + "1,{}\n".format("x" * 90) * 100)
    assert max(len(chunk.table) for chunk in read_chunks(path, {"b": "text"})) == 20


def test_formats_agree(path, tmp_path):
    """The same table in all formats gives the same frame."""
    frame = read_frame(path).reset_index(drop=True)
    for name in ("b.csv", "b.tsv", "b.csv.gz", "b.parquet", "b.feather", "b.arrow"):
        with open_writer(tmp_path / name) as writer:
            writer.write(frame)
        again = read_frame(tmp_path / name, kinds={**KINDS, "id": "text"}).reset_index(drop=True)
        assert_frame_equal(again, frame[list(again)])


def test_the_file_is_closed(path):
    """After an error, after the last chunk, and when the caller has had enough."""
    for _ in range(2):
        chunks = read_chunks(path, KINDS, rows=1)
        next(chunks)
        chunks.close()
    with pytest.raises(ValueError, match="must have the column 'x'"):
        read_frame(path, kinds={"x": "text"})
    read_frame(path)  # warnings of files left open are errors here


@pytest.mark.parametrize(
    ("name", "rows", "columns", "dates"),
    [
        ("winequality-red.csv", 1599, 12, 0),
        ("energydata_complete.csv", 19735, 29, 1),
        ("parkinsons_updrs.data", 5875, 22, 0),
    ],
)
def test_real_files(raw_file, name, rows, columns, dates):
    """Files as they are found: semicolons, quoted names, quoted numbers, dates."""
    frame = read_frame(raw_file(name))
    assert frame.shape == (rows, columns)
    assert [dtype.kind for dtype in frame.dtypes].count("M") == dates
    assert [dtype.kind for dtype in frame.dtypes].count("f") == columns - dates
    assert frame.notna().to_numpy().all()


def test_without_a_header(raw_file):
    """The crime data have no header, but text in the first row, which occurs again; missing values are read as such."""
    path = raw_file("communities.data")
    frame = read_frame(path)
    pd.testing.assert_frame_equal(frame, read_frame(path, CsvFormat(header=False)))
    with pytest.raises(ValueError, match=r"has two columns named '\?' .* or give --no-header if row 1 holds data$"):
        read_frame(path, CsvFormat(header=True))
    assert frame.shape == (1994, 128)
    assert frame.dtypes.map(lambda dtype: dtype.kind).value_counts().to_dict() == {"f": 127, "O": 1}
    assert frame["column_2"].isna().sum() == 1174


def test_a_gzip_file_is_read_in_chunks(tmp_path):
    """Packed files stream as well."""
    path = tmp_path / "table"
    path.write_bytes(gzip.compress(b"a;b\n" + b"1,5;2\n" * 1000))
    sums = [chunk.table.columns["a"].sum() for chunk in read_chunks(path, {"a": "numbers"}, rows=300)]
    assert sums == [450.0, 450.0, 450.0, 150.0]


def test_without_the_extra_and_without_torch():
    """Importing needs pandas and pyarrow, and says how to get them; torch is never loaded."""
    code = "import sys; sys.modules['pyarrow'] = None\nimport hetcal.cli.tables"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    message = "hetcal.cli.tables needs pandas and pyarrow; install them with: pip install 'hetcal[cli]'"
    assert process.stderr.strip().splitlines()[-1] == f"ImportError: {message}"
    code = "import sys, hetcal.cli.tables; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "feather"])
def test_progress_is_known_from_the_file(ending, tmp_path):
    """The share that was read rises to 1, so that the remaining time can be estimated."""
    path = tmp_path / f"t.{ending}"
    with open_writer(path) as writer:
        for piece in range(20):
            writer.write(pd.DataFrame(np.random.default_rng(piece).normal(size=(10_000, 2)), columns=["a", "b"]))
    shares = [chunk.share for chunk in read_chunks(path, {"a": "numbers", "b": "numbers"}, rows=20_000)]
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert shares[-1] == 1


def test_kept_numbers_have_one_decimal_mark(tmp_path):
    """A file with decimal commas is written again with points; text with commas stays."""
    path = tmp_path / "t.csv"
    path.write_text("a;cost;note\n1,5;947,20;1,2 or 3\n2,25;-3,5;x\n")
    (chunk,) = read_chunks(path, {"a": "numbers"}, keep=["cost", "note"])
    assert chunk.kept["cost"].tolist() == ["947.20", "-3.5"]
    assert chunk.kept["note"].tolist() == ["1,2 or 3", "x"]

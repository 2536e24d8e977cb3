"""Rows of CSV files: every row has its cells or is named, and memory is bounded whatever the file holds."""

import csv
import gzip
import io

import pyarrow as pa
import pytest

from hetcal.cli.tables import CsvFormat, read_chunks, records
from hetcal.cli.tables.records import BATCH_CELLS, BATCH_ROWS, TextTable
from hetcal.cli.tables.sources import HEAD_BYTES, TableSource
from tests.cli.tables.frames import read_frame


@pytest.fixture
def refusal(tmp_path, monkeypatch):
    """The message that a file with this content gets."""
    monkeypatch.chdir(tmp_path)

    def read(content, **options):
        (tmp_path / "a.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            read_frame("a.csv", CsvFormat(**options))
        return str(raised.value)

    return read


def read(path, content, **options):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_frame(path, CsvFormat(**options))


ELSE = "repair it, put cells that hold the separator in quotation marks, or give --separator"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", f"row 3 of a.csv has 1 cells, but row 1 has 2; {ELSE}"),
        ("a,b\n1,2\n3,4,5\n", f"row 3 of a.csv has 3 cells, but row 1 has 2; {ELSE}"),
        ("\n\na,b\n1,2\n\n\n3,4,5\n", f"row 7 of a.csv has 3 cells, but row 3 has 2; {ELSE}"),
        ('a,b\n"1\n1",2\n3,4,5\n', f"row 3 of a.csv has 3 cells, but row 1 has 2; {ELSE}"),
        ("a,b\n", "a.csv has columns but no rows; give a file with rows"),
        ("a,b\n\n\n", "a.csv has columns but no rows; give a file with rows"),
        (
            "a,b, a \n1,2,3\n",
            "a.csv has two columns named 'a' (columns 1 and 3); rename one of them, "
            "or give --no-header if row 1 holds data",
        ),
        (
            "\n,b,c\n1,2,3\n",
            "column 1 of a.csv has no name; name it or delete it, or give --no-header if row 2 holds data",
        ),
        ("a,b\n1,2\n3,\0\n", "a.csv is a binary file, not a readable table; export the table as CSV, or"),
        ('a,b\n1,"x\n2,y\n', "row 2 of a.csv opens a quotation mark that is never closed; close it"),
        (
            'a,b\n1,2\n1,"x"y\n',
            "row 3 of a.csv has text after a closing quotation mark; double the quotation marks inside a cell",
        ),
        (
            "a,b\n1,2\n1," + "x" * 131_073,
            "row 3 of a.csv has a cell of more than 131072 characters; check that every quotation mark is closed",
        ),
    ],
)
def test_bad_rows(refusal, content, message):
    """Ragged rows, bad headers, bad quotation marks and NUL: the row as a spreadsheet counts it."""
    assert refusal(content).startswith(message)


LONG = b"a,b\n" + (b"1," + b"2" * 1000 + b"\n") * 2000  # longer than the head
assert len(LONG) > HEAD_BYTES


def test_nul_far_behind(refusal):
    """A NUL that the head does not show is found with its row."""
    assert refusal(LONG + b"3,\0\n") == "row 2002 of a.csv holds NUL bytes; export the table as CSV again"


ADVICE = "give the encoding of the file, for example --encoding cp1252, or repair it"


def test_bytes_that_do_not_decode(refusal):
    """Far behind the head, in a file of two encodings, under the encoding given, in half a UTF-16 character."""
    assert refusal(LONG + b"1,\xff\n") == f"row 2002 of a.csv holds bytes that are not utf-8 text; {ADVICE}"
    mixed = "a,b\n1,ß\n".encode() + "2,ß\n".encode("cp1252")
    assert refusal(mixed) == f"row 3 of a.csv holds bytes that are not utf-8 text; {ADVICE}"
    assert (
        refusal(b"a,b\n1,\xff\n", encoding="ascii") == f"row 2 of a.csv holds bytes that are not ascii text; {ADVICE}"
    )
    assert refusal(b"a,b\n1,\x81\n") == f"row 2 of a.csv holds bytes that are not cp1252 text; {ADVICE}"
    half = "a,b\n1,2\n".encode("utf-16") + b"3"
    assert refusal(half) == f"row 3 of a.csv holds bytes that are not utf-16 text; {ADVICE}"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-32"])
def test_encodings(tmp_path, encoding):
    """The same table in every encoding that is detected; the byte order mark is not a part of the first name."""
    frame = read(tmp_path / "a.csv", "größe,art\n1,Säge\n2,Öl\n".encode(encoding))
    assert frame.to_dict("list") == {"größe": [1.0, 2.0], "art": ["Säge", "Öl"]}


def test_encoding_given_beside_a_mark(tmp_path):
    """A byte order mark is dropped even if the encoding given does not ask for it."""
    assert list(read(tmp_path / "a.csv", b'\xef\xbb\xbf"a",b\n1,2\n', encoding="utf-8")) == ["a", "b"]


def test_names_are_stripped_and_given(tmp_path):
    """Spaces around names are removed; without a header columns are numbered, and the first row is row 1."""
    assert list(read(tmp_path / "a.csv", " a ,\tb\n1,2\n")) == ["a", "b"]
    frame = read(tmp_path / "a.csv", "1,2\n3,4\n")
    assert (list(frame), list(frame.index)) == (["column_1", "column_2"], [1, 2])
    assert list(read(tmp_path / "a.csv", "1,2\n3,4\n", header=True)) == ["1", "2"]
    assert list(read(tmp_path / "a.csv", "x,y\n3,4\n", header=False)["column_1"]) == ["x", "3"]


def test_blank_lines_are_counted_but_no_rows(tmp_path):
    """Also where every second line is blank, as a file written twice through Windows line ends has it."""
    frame = read(tmp_path / "a.csv", "\na,b\r\r\n1,2\r\r\n\n3,4\r\r\n")
    assert frame["a"].to_list() == [1.0, 3.0]
    assert frame.index.to_list() == [4, 7]
    frame = read(tmp_path / "a.csv", "a\n1\n\n2\n\n")
    assert frame["a"].to_list() == [1.0, 2.0]


def test_blanks_around_and_between_cells(tmp_path):
    """Any number of spaces and tabs, also around the line; those inside quotation marks belong to the cell."""
    content = ' 1.5   2.5\t"old  oak" \n\n3.5 4.5\t\t"ash"\n'
    frame = read(tmp_path / "a.data", content, header=False)
    assert frame.values.tolist() == [[1.5, 2.5, "old  oak"], [3.5, 4.5, "ash"]]
    assert frame.index.to_list() == [1, 3]


def test_many_spaces_as_separator(tmp_path):
    """Old data files with columns of fixed width are read with --separator ' '."""
    frame = read(tmp_path / "a.csv", " 0.1   2.5\n10.0  12.5\n", separator=" ", header=False)
    assert frame.to_numpy().tolist() == [[0.1, 2.5], [10.0, 12.5]]


class Endless(io.RawIOBase):
    """A file without end that counts how much of it was read."""

    def __init__(self, line):
        self.line, self.count = line, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        start, length = self.count % len(self.line), len(buffer)
        buffer[:] = (self.line * (length // len(self.line) + 2))[start : start + length]
        self.count += length
        return length


@pytest.mark.parametrize(
    ("columns", "rows", "expected"),
    [(2, 7, 7), (2, 1 << 40, BATCH_ROWS), (5000, 1 << 40, BATCH_CELLS // 5000)],
    ids=["rows asked for", "rows", "cells"],
)
def test_a_file_without_end(columns, rows, expected):
    """Batches come at once, no larger than asked for and never larger than the limits on rows and cells."""
    line = b",".join([b"12"] * columns) + b"\n"
    endless = Endless(line)
    stream = io.BufferedReader(endless, 1 << 13)
    table = TextTable(TableSource("endless", "text", line * 3, False, stream), CsvFormat())
    batches = table.batches(table.columns[:2], rows)
    for _ in range(3):
        assert len(next(batches).rows) == expected
    assert endless.count < len(line) * (3 * expected + 2) + (1 << 16)


def test_large_cells_end_a_batch(monkeypatch):
    """Rows of long texts are bounded by their characters, blank lines by their number."""
    monkeypatch.setattr(records, "MAX_CHARACTERS", 10_000)
    line = b"1," + b"x" * 997 + b"\n"
    source = TableSource("long", "text", line * 3, False, io.BufferedReader(Endless(line)))
    table = TextTable(source, CsvFormat(header=True))
    assert len(next(table.batches(table.columns, BATCH_ROWS)).rows) == 10  # with the header eleven thousand
    head = b"a,b\n1,2\n"
    stream = io.BufferedReader(io.BytesIO(head + b"\n" * 3 * BATCH_ROWS + b"3,4\n"))
    table = TextTable(TableSource("blank", "text", head, False, stream), CsvFormat())
    numbers = [batch.rows.tolist() for batch in table.batches(table.columns, BATCH_ROWS)]
    assert numbers == [[2], [3 * BATCH_ROWS + 3]]


def test_a_row_without_end(monkeypatch):
    """Neither one line without end nor one row of many quoted lines is held in memory."""
    monkeypatch.setattr(records, "MAX_CHARACTERS", 10_000)
    for line, row in ((b"12345", 1), (b'"\n",', 1)):
        endless = Endless(line)
        stream = io.BufferedReader(endless, 1 << 13)
        with pytest.raises(ValueError, match=f"^row {row} of endless has over 10000 characters; check that"):
            TextTable(TableSource("endless", "text", line * 300, False, stream), CsvFormat())
        assert endless.count < 1 << 16


def test_a_bomb(tmp_path):
    """A gzip file of some kilobytes that unpacks to one line of hundreds of megabytes is refused on the way."""
    path = tmp_path / "bomb.csv"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"a,b\n1,2\n")
        for _ in range(100):
            file.write(b"7" * (1 << 20))
    with pytest.raises(ValueError, match=r"^row 3 of .*bomb.csv has over 67108864 characters; check that"):
        list(read_chunks(path, {"a": "numbers"}))


def test_too_many_columns(refusal):
    """Absurdly many columns are refused before they are parsed."""
    message = "a.csv has 100001 columns; at most 100000 are read"
    assert refusal(",".join(f"x{i}" for i in range(100_001)) + "\n1\n") == message


def test_the_limit_of_cells_is_the_csv_modules(refusal):
    """Nothing global is changed to read tables: the limit is the one that holds in this process."""
    before = csv.field_size_limit(1000)
    try:
        assert "more than 1000 characters" in refusal("a,b\n1," + "x" * 1001)
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)


def test_batches_hold_text():
    """A batch is the cells as they are, without a conversion."""
    content = b'a,b\n 1,"x, y"\n,NA\n'
    table = TextTable(TableSource("a", "text", content, True, io.BufferedReader(io.BytesIO(content))), CsvFormat())
    (batch,) = table.batches(["b", "a"], 10)
    assert batch.data == pa.RecordBatch.from_pydict({"b": ["x, y", "NA"], "a": ["1", ""]})
    assert batch.rows.tolist() == [2, 3]


def test_separators_are_counted_before_cells_are_cut(refusal, monkeypatch):
    """A line of separators is refused before it is a list; separators in quotation marks are no cells."""
    monkeypatch.setattr(records, "MAX_COLUMNS", 10)
    long = '"' + "," * 30 + '"'
    assert refusal(f"{long},b\n1,2,3\n").startswith("row 2 of a.csv has 3 cells, but row 1 has 2")
    assert refusal(f"a,b\n1,{',' * 20}\n") == "row 2 of a.csv has 22 columns; at most 10 are read"
    monkeypatch.setattr(TextTable, "_records", lambda table: [list(table._lines())])
    assert refusal("," * 20 + "\n1,2\n") == "a.csv has 21 columns; at most 10 are read"

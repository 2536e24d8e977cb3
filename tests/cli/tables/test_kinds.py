"""The kind of a column is detected from all rows or given; cells that do not fit are named with row and column."""

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from hetcal.cli.tables import patterns
from hetcal.cli.tables.kinds import CellRange, check_type, read_column
from hetcal.tabular.columns import MISSING_LABEL, Table

NAN, NAT = float("nan"), np.datetime64("NaT")


def column(cells, kind=None, decimal=".", type=None):
    """A column `x` of the file a.csv, whose first row is row 2, cut in two as batches are."""
    array = pa.array(cells, type)
    chunks = pa.chunked_array([array[:1], array[1:]])
    return read_column(chunks, CellRange("a.csv", "x", np.arange(2, len(cells) + 2), decimal), kind)


def refusal(cells, kind=None, decimal=".", type=None):
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        column(cells, kind, decimal, type)
    return str(raised.value)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "2.5", "-3e2", "+4", ".5", "5.", "1E-3"], [1, 2.5, -300, 4, 0.5, 5, 0.001]),
        ([" 1 ", "\t2"], [1, 2]),
        (["1", "", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"], [1] + 9 * [NAN]),
        (["true", "FALSE", "True", ""], [1, 0, 1, NAN]),
        (["", "NA"], [NAN, NAN]),
        (["12345678901234567890", "-99999999999999999999"], [12345678901234567890.0, -1e20]),
        (["1e-400", "0", "-0.0"], [0, 0, -0.0]),
        (["007", "08"], [7, 8]),
        (["20240131", "20240201"], [20240131, 20240201]),
    ],
)
def test_numbers(cells, expected):
    """Numbers, also very long and very small ones, true and false; missing words are NaN."""
    numbers = column(cells)
    assert numbers.dtype == np.float64
    assert_array_equal(numbers, np.array(expected, dtype=np.float64))
    assert_array_equal(column(cells, "numbers"), numbers)


def test_numbers_are_read_exactly():
    """The nearest float64, as Python reads it: the last bit counts."""
    cells = ["0.1", "2.2250738585072011e-308", "9007199254740993", "1.7976931348623157e308", "8.41e21", "5e-324"]
    assert column(cells).tolist() == [float(cell) for cell in cells]


def test_decimal_comma():
    """A comma is the decimal mark where it is said to be, and a point then never passes for one."""
    assert column(["1,5", "-2,5e3", "7", ""], decimal=",").tolist()[:3] == [1.5, -2500.0, 7.0]
    message = "column 'x' of a.csv must hold numbers, got '2.5' in row 3; write plain numbers, without thousands"
    assert refusal(["1,5", "2.5"], "numbers", decimal=",").startswith(message)
    assert "give --decimal . if that is the decimal mark" in refusal(["1,5", "2.5"], decimal=",")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2024-01-31", "2024/2/1", ""], ["2024-01-31", "2024-02-01", "NaT"]),
        (["2024-01-31T12:30", "2024-01-31 12:30:05"], ["2024-01-31T12:30:00", "2024-01-31T12:30:05"]),
        (["2024-01-31 00:00:00.1234567"], ["2024-01-31T00:00:00.123456"]),
        (["2024-01-31T12:30:00Z", "2024-01-31T12:30:00+02:00"], ["2024-01-31T12:30:00", "2024-01-31T10:30:00"]),
        (["2024-01-31 12:30-0500"], ["2024-01-31T17:30:00"]),
        (["0001-01-01", "9999-12-31"], ["0001-01-01", "9999-12-31"]),
    ],
)
def test_dates(cells, expected):
    """Dates of ISO style with and without time; those with a zone in universal time."""
    dates = column(cells)
    assert dates.dtype == "datetime64[us]"
    assert_array_equal(dates, np.array(expected, dtype="datetime64[us]"))
    assert_array_equal(column(cells, "dates"), dates)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["oak", " ash ", "", "?"], ["oak", "ash", None, None]),
        (["yes", "no"], ["yes", "no"]),
        (["1", "2", "oak"], ["1", "2", "oak"]),  # too few to be slips
        (["-", "-"], ["-", "-"]),
        (["1_000", "2_000"], ["1_000", "2_000"]),
        (["0x10", "0x11"], ["0x10", "0x11"]),
        (["12A", "5B"], ["12A", "5B"]),
        (["true", "false", "1"], ["true", "false", "1"]),
        (["inf", "oak"], ["inf", "oak"]),
        (["1.2.3.4", "10.2.30.4"], ["1.2.3.4", "10.2.30.4"]),
        (["\u0661", "\u0662"], ["\u0661", "\u0662"]),  # digits of another script
    ],
)
def test_text(cells, expected):
    """Everything else is text, without surrounding spaces, as a table holds it."""
    words = column(cells)
    assert words.tolist() == [MISSING_LABEL if word is None else word for word in expected]
    assert Table({"x": words}).kind("x") == "text"


def test_text_by_force():
    """Labels that look like numbers or dates stay labels, also in a table."""
    for cells in (["1", "02", "3"], ["2024-01-31", "31.12.2024"], ["1,234", "-"], ["inf"]):
        words = column(cells, "text")
        assert words.tolist() == cells
        assert Table({"x": words}).kind("x") == "text"
    assert column(["1", "", "02"], "text").tolist() == ["1", MISSING_LABEL, "02"]
    assert column(["", "NA"], "text").tolist() == [MISSING_LABEL, MISSING_LABEL]


LABELS = "or give --text x to treat the column as labels"
PLAIN = "write plain numbers, without thousands separators or signs such as % and $"
REPAIR = "repair it, or leave the cell empty if the value is unknown"


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1"] * 10 + ["oak"], f"must hold numbers, got 'oak' in row 12; {REPAIR}, {LABELS}"),
        (
            ["oak", *"1234567890", *"1234567890", "ash"],
            f"must hold numbers, got 'oak' in row 2 and 1 more such; {REPAIR}, {LABELS}",
        ),
        (["1"] * 10 + ["12:30"], f"must hold numbers, got '12:30' in row 12; {REPAIR}, {LABELS}"),
        (["1,234.5", "2"], f"must hold numbers, got '1,234.5' in row 2; {PLAIN}, {LABELS}"),
        (["1 234", "2"], f"must hold numbers, got '1 234' in row 2; {PLAIN}, {LABELS}"),
        (["12", "1'234'567"], f"must hold numbers, got \"1'234'567\" in row 3; {PLAIN}, {LABELS}"),
        (["45%", "7 %"], f"must hold numbers, got '45%' in row 2 and 1 more such; {PLAIN}, {LABELS}"),
        (["$5", "€ 1,000.00"], f"must hold numbers, got '$5' in row 2 and 1 more such; {PLAIN}, {LABELS}"),
        (
            ["1,5", "2"],
            f"must hold numbers, got '1,5' in row 2; {PLAIN}, or give --decimal , if that is the decimal mark, "
            f"{LABELS}",
        ),
        (["1", "-"], f"must hold numbers, got '-' in row 3; leave the cell empty if the value is missing, {LABELS}"),
        (["1", "inf"], "must hold finite numbers, got 'inf' in row 3; " + REPAIR),
        (["-Infinity"], "must hold finite numbers, got '-Infinity' in row 2; " + REPAIR),
        (["1e400", "1"], "must hold finite numbers, got '1e400' in row 2; " + REPAIR),
        (
            ["31.12.2024", "1.1.2025"],
            "must hold dates as YYYY-MM-DD, got '31.12.2024' in row 2 and 1 more such; "
            f"write them in this form, omit the column with --drop x, {LABELS}",
        ),
        (
            ["2024-01-31"] * 10 + ["soon"],
            "must hold dates as YYYY-MM-DD, got 'soon' in row 12; repair it, or leave the cell empty if the date is "
            f"unknown, {LABELS}",
        ),
        (
            ["2024-01-31", "2024-02-30"],
            "must hold dates as YYYY-MM-DD, got '2024-02-30' in row 3; repair it, or leave the cell empty if the date "
            f"is unknown, {LABELS}",
        ),
    ],
)
def test_slips(cells, message):
    """A column that is meant to hold numbers or dates is never taken as text without a word."""
    assert refusal(cells) == f"column 'x' of a.csv {message}"


@pytest.mark.parametrize(
    "cell", ["12/31/2024", "31-12-24", "12/31/2024 5:30 PM", "31 Dec 2024", "Dec 31, 2024", "2024.12.31", "2024-12"]
)
def test_other_styles_of_dates(cell):
    """Dates that could be read in two ways are refused, where nearly all cells look so; a few are labels."""
    message = f"column 'x' of a.csv must hold dates as YYYY-MM-DD, got {cell!r} in row 2"
    assert refusal([cell] * 9 + ["oak"]).startswith(message)
    assert list(column([cell] * 8 + ["oak", "ash"])) == [cell] * 8 + ["oak", "ash"]


@pytest.mark.parametrize(
    ("cells", "kind", "message"),
    [
        (["1", "oak"], "numbers", "must hold numbers, got 'oak' in row 3; " + REPAIR),
        (["1", "true"], "numbers", "must hold numbers, got 'true' in row 3; " + REPAIR),
        (["2024-01-31"], "numbers", "must hold numbers, got '2024-01-31' in row 2; " + REPAIR),
        (["1", "-"], "numbers", "must hold numbers, got '-' in row 3; leave the cell empty if the value is missing"),
        (["2024-01-31", "5"], "dates", "must hold dates as YYYY-MM-DD, got '5' in row 3; repair it, or leave the cell"),
        (["x" * 200], "numbers", f"must hold numbers, got '{'x' * 76}... in row 2; "),
    ],
)
def test_cells_that_are_not_of_the_kind_given(cells, kind, message):
    """In prediction one wrong cell is enough; labels are then no way out, so they are not offered."""
    said = refusal(cells, kind)
    assert said.startswith(f"column 'x' of a.csv {message}")
    assert "--text" not in said


def test_nothing_there():
    """A column without a value fits every kind."""
    empty = [None, None]
    types = (pa.null(), pa.int64(), pa.float64(), pa.bool_(), pa.decimal128(3))
    for cells, type in ((["", "?"], None), ([NAN, None], pa.float64()), *((empty, type) for type in types)):
        assert_array_equal(column(cells, "numbers", type=type), [NAN, NAN])
        assert_array_equal(column(cells, "dates", type=type), [NAT, NAT])
        assert column(cells, "text", type=type).tolist() == [MISSING_LABEL, MISSING_LABEL]
        assert_array_equal(column(cells, type=type), [NAN, NAN])


@pytest.mark.parametrize(
    ("numbers", "words", "is_refused"),
    [(9, 1, False), (10, 1, True), (10, 2, False), (89, 11, False), (90, 10, True)],
)
def test_where_slips_begin(numbers, words, is_refused):
    """Words are slips in a column with at least ten numbers, if nine tenths of it are numbers; missing cells aside."""
    cells = ["5"] * numbers + ["oak"] * words + [""] * 50
    if is_refused:
        assert "must hold numbers, got 'oak'" in refusal(cells)
    else:
        assert list(column(cells)) == ["5"] * numbers + ["oak"] * words + [MISSING_LABEL] * 50


def test_types_that_are_no_cells():
    """Nested and binary columns are refused by name; everything else is let in."""
    for type in (pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.binary(), pa.time64("us"), pa.duration("s")):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            check_type("a.parquet", "x", type)
        assert str(raised.value) == (
            f"column 'x' of a.parquet must hold numbers, text or dates, got {type}; "
            "convert it to numbers, text or dates, or remove it from the file"
        )
    for type in (pa.bool_(), pa.float16(), pa.decimal128(5), pa.dictionary(pa.int8(), pa.string()), pa.date32()):
        check_type("a.parquet", "x", type)


def test_the_names_of_options_are_quoted():
    """A column with spaces in its name can be copied from the message to the shell."""
    cells = pa.chunked_array([["1", "-"]])
    with pytest.raises(ValueError, match="or give --text 'my column' to treat"):
        read_column(cells, CellRange("a.csv", "my column", np.arange(2), "."))


def test_missing_words():
    """All missing words of the list are missing for numbers and for text, and no word is there twice."""
    assert len(set(patterns.MISSING_WORDS)) == len(patterns.MISSING_WORDS)
    assert np.isnan(column([*patterns.MISSING_WORDS, "1"])[:-1]).all()
    assert list(column([*patterns.MISSING_WORDS, "oak"])[:-1]) == [MISSING_LABEL] * len(patterns.MISSING_WORDS)


@pytest.mark.parametrize("kind", [None, "dates"])
def test_mixed_time_zones(kind):
    """Dates with and without a time zone in one column: the first row that differs, not a silent UTC."""
    zoned, naive = "2024-01-31T12:30:00+02:00", "2024-01-31 12:30"
    rule = "column 'x' of a.csv must hold dates that all have a time zone or all have none, got"
    end = "write all of them in the same way"
    assert refusal(["", zoned, "", naive, naive], kind) == (
        f"{rule} {naive!r} in row 5 and 1 more such; row 3 has one: {end}"
    )
    assert refusal(["2024-01-31", naive, "2024-01-31T12:30Z"], kind) == (
        f"{rule} '2024-01-31T12:30Z' in row 4; row 2 has none: {end}"
    )
    assert not np.isnat(column([zoned, "2024-01-31 12:30Z", "2024-01-31 12:30:00.5-0330", "2024-01-31 12:30+02"])).any()
    assert not np.isnat(column([naive, "2024-01-31", "2024/1/5"])).any()

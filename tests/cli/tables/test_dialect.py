"""The dialect of a CSV file is detected from its head, or given by the user."""

import pytest

from hetcal.cli.tables.dialect import CsvFormat, Dialect, find_dialect

ROWS = "".join(f"{i},{i}.5,oak\n" for i in range(30))


def find(content, format=CsvFormat(), is_whole=True):  # noqa: B008 (frozen)
    content = content.encode() if isinstance(content, str) else content
    return find_dialect("a.csv", content, is_whole, format)


@pytest.mark.parametrize(
    ("content", "separator", "decimal", "has_header"),
    [
        ("a,b\n1,2\n", ",", ".", True),
        ("a;b\n1,5;2,5\n", ";", ",", True),
        ("a;b\n1.5;2.5\n", ";", ".", True),
        ("a\tb\n1,5\t2\n", "\t", ",", True),
        ("a|b\n1|2\n", "|", ".", True),
        ("1,5;2,5\n3,5;4,5\n", ";", ",", False),
        ("1,2,a;b\n3,4,c;d\n", ",", ".", True),
        ("1.5,2\n3,4\n", ",", ".", False),
        ("1,,?\n3,4,5\n", ",", ".", True),
        ("1,,3\n3,4,5\n", ",", ".", False),
        ("2024-01-31,5\n2024-02-01,6\n", ",", ".", False),
        ('"a, b";c\n"x, y";1\n"x, y, z";2\n', ";", ".", True),
        ('name,text\n1,"a;b;c"\n2,"d;e;f"\n', ",", ".", True),
        ('name,text\n1,"two\nlines; and; more"\n2,x\n', ",", ".", True),
        ('a, "b"\n1, "x;y"\n', ",", ".", True),
        ("weight\n1,5\n2,5\n", ";", ",", True),
        ("weight\n1.5\n2.5\n", ",", ".", True),
        ("a;b\n1.234,5;x\n", ";", ",", True),
        ("a;b\n1,234.5;x\n", ";", ".", True),
        ("a;b\n1,234,567;x\n", ";", ".", True),
        ("a;b\n1,5;1.5\n", ";", ".", True),
        ("a;b\n12,500;0,75\n1,200;2\n", ";", ",", True),
        ("a;b\n0,500;1,200\n", ";", ",", True),
        ("a\tb\n12,500\t0.5\n1,200\t2\n", "\t", ".", True),
        ("a\tb\n12,500\t1,234,567\n1,200\t2\n", "\t", ".", True),
        ("\n\r\na,b\n1,2\n", ",", ".", True),
        ("a,b\r1,2\r", ",", ".", True),
        ("a,b,c\n" + ROWS + "1,2\n", ",", ".", True),
        ("a,b,c\n1\n2\n3;4\n", ",", ".", True),
        ("true,false\n1,0\n", ",", ".", True),
        (" 0.1  18.0   2.3\n 0.2   0.0  7.1 \n", " ", ".", False),
        ("x y\n1 2\n 3\t4\n", " ", ".", True),
        ('18.0 8 307.0\t"ford torino"\n15.0 8 350.0\t"buick"\n', " ", ".", True),
        ("first name,last name\nJo Ann,Van Dyke\n", ",", ".", True),
        ("full name\nJo Ann\n", ",", ".", True),
        ("2024-01-31 18:30,5\n2024-02-01 18:30,6\n", ",", ".", False),
        ("a b;c d\n1 2;3\n4 5;6\n", ";", ".", True),
        ("0.1,south,3\n0.2,north,4\n0.3,south,5\n", ",", ".", False),
        ("0.1,south,x1\n0.2,north,x2\n0.3,south,x3\n", ",", ".", True),
        ("2019,region\n1,south\n2,south\n", ",", ".", True),
    ],
)
def test_found_out(content, separator, decimal, has_header):
    """The separator that makes the table regular and numeric, the decimal mark that the numbers show, the header."""
    assert find(content) == Dialect("utf-8", separator, decimal, has_header)


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"a,b\n1,2\n", "utf-8"),
        ("größe,b\n1,2\n".encode(), "utf-8"),
        ("größe,b\n1,2\n".encode("utf-8-sig"), "utf-8"),
        ("größe,b\n1,2\n".encode("cp1252"), "cp1252"),
        ("größe,b\n1,2\n".encode("utf-16"), "utf-16"),
        ("größe,b\n1,2\n".encode("utf-16-be"), None),
        (b"\xfe\xff" + "größe,b\n1,2\n".encode("utf-16-be"), "utf-16"),
        ("größe,b\n1,2\n".encode("utf-32"), "utf-32"),
        ("größe,b\n1,ß\n".encode() + "2,ß\n".encode("cp1252"), "utf-8"),  # the reader then names the row
    ],
)
def test_encoding(content, encoding):
    """UTF-8, the byte order mark, or cp1252; other bytes are refused with advice."""
    if encoding is None:
        with pytest.raises(ValueError, match=r"a.csv is a binary file, .*export the table as CSV, or give --encoding"):
            find(content)
    else:
        assert find(content) == Dialect(encoding, ",", ".", True)


def test_a_head_that_was_cut():
    """Neither half a character nor half a row at the end of the head misleads."""
    content = ("größe;b;c\n" + "1,5;ß;x\n" * 3).encode()
    for end in range(len(content) - 4, len(content)):
        assert find(content[:end], is_whole=False) == Dialect("utf-8", ";", ",", True)


def test_a_given_format_is_used():
    """A given format is not detected, whatever the file looks like."""
    format = CsvFormat(separator=" ", decimal=",", encoding="latin-1", header=False)
    assert find("a,b\n1,2\n", format) == Dialect("latin-1", " ", ",", False)
    assert find("1,2\n", CsvFormat(header=True)).has_header


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"separator": ";;"}, "separator must be one character, got separator=';;'; give one such as ; or a tab"),
        ({"separator": '"'}, "separator must be one character, got separator='\"'; give one such as ; or a tab"),
        ({"decimal": ";"}, "decimal must be a point or a comma, got decimal=';'; give . or ,"),
        *(
            (
                {"encoding": name},
                f"encoding must be an encoding that Python knows, got encoding={name!r}; "
                "give one such as utf-8, utf-16, cp1252 or latin-1",
            )
            for name in ("klingon", "hex", "idna", "undefined", "a\0b", "")
        ),
    ],
)
def test_bad_formats(setting, message):
    """What the user says about a file is checked before the file is opened."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the whole message follows)
        CsvFormat(**setting)
    assert str(raised.value) == message


@pytest.mark.parametrize("content", ["\n", "\r\n\n", "\ufeff"])
def test_blank_files(content):
    """A file of blank lines holds no table."""
    with pytest.raises(ValueError, match=r"^a.csv is empty; give a file with a header and rows$"):
        find(content)


@pytest.mark.parametrize("other", ["950", "1.234", "x"])
def test_commas_that_may_separate_thousands(other):
    """Numbers such as 12,500 alone do not show the decimal mark; the user must give it."""
    content = f"town\tpopulation\noslo\t12,500\nulm\t{other}\nbern\t-1,200\n"
    with pytest.raises(ValueError, match=r"^a.csv has numbers such as '12,500', .*; give --decimal , .* --decimal \. "):
        find(content)
    for decimal in ".,":
        assert find(content, CsvFormat(decimal=decimal)).decimal == decimal

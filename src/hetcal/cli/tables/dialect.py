"""The dialect of a CSV file: encoding, separator, decimal mark and header, as given by the user or detected.

They are detected from the head of the file, never from its name. An error further down is reported by the reader, with
its row.
"""

import codecs
import csv
import io
import re
from dataclasses import dataclass
from itertools import islice

from hetcal._checks import must

Records = list[list[str]]

SEPARATORS = ",;\t| "
# Stands for any number of spaces and tabs, as in the tables of Fortran and R.
BLANKS = " "
QUOTED_OR_BLANKS = re.compile(r'("[^"]*")|[ \t]+')
# Sentences have blanks, too: a table of blanks has this share of numbers.
SHARE_OF_NUMBERS = 0.5
# Records examined to detect the separator and the decimal mark.
SAMPLE_RECORDS = 1000
# A character that divides the records less regularly than this is not a separator.
REGULAR = 0.8
BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # begins like the next one, so it is tested first
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF32_BE: "utf-32",
}
NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)
DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+([eE][+-]?\d+)?", re.ASCII)
DECIMAL_POINT = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d*)\.\d+([eE][+-]?\d+)?|[+-]?\d{1,3}(,\d{3}){2,}", re.ASCII)
# Numbers whose mark may also separate thousands; they do not determine the decimal mark.
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+", re.ASCII)
DATE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ].*)?", re.ASCII)


@dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file, as far as the user specifies it; None is detected."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n\0'):
            raise must("separator", "be one character", self.separator, "give one such as ; or a tab")
        if self.decimal not in (None, ".", ","):
            raise must("decimal", "be a point or a comma", self.decimal, "give . or ,")
        if self.encoding is not None:
            try:
                # This rejects codecs that do not encode text, such as hex.
                io.TextIOWrapper(io.BytesIO(), self.encoding)
                # This rejects codecs that cannot decode in parts, such as idna.
                codecs.getincrementaldecoder(self.encoding)("replace").decode(b"a,b")
            except (LookupError, ValueError):
                advice = "give one such as utf-8, utf-16, cp1252 or latin-1"
                raise must("encoding", "be an encoding that Python knows", self.encoding, advice) from None


@dataclass(frozen=True)
class Dialect:
    """What the reader needs to know about a CSV file."""

    encoding: str
    separator: str
    decimal: str
    has_header: bool


def find_dialect(name: str, head: bytes, is_whole: bool, format: CsvFormat) -> Dialect:
    """Detect from the head of the file what the user does not specify.

    >>> find_dialect("a.csv", b"name;size\\noak;1,5\\n", True, CsvFormat())
    Dialect(encoding='utf-8', separator=';', decimal=',', has_header=True)
    """
    encoding = format.encoding or find_encoding(name, head, is_whole)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head, is_whole).removeprefix("\ufeff")
    separator = format.separator or find_separator(text, is_whole)
    records = sample_records(text, separator, is_whole)
    if not records:
        raise ValueError(f"{name} is empty; give a file with a header and rows")
    decimal = format.decimal or ("." if separator == "," else find_decimal(name, records))
    has_header = find_header(records) if format.header is None else format.header
    return Dialect(encoding, separator, decimal, has_header)


def find_encoding(name: str, head: bytes, is_whole: bool) -> str:
    """The encoding of the byte order mark; otherwise UTF-8 if the head is UTF-8, or cp1252 (Windows).

    A head that is only partly UTF-8 is read as UTF-8, so that the reader reports the first row that is not. As cp1252
    it would be misread silently.
    """
    for mark, encoding in BOMS.items():
        if head.startswith(mark):
            return encoding
    if b"\0" in head:
        advice = "export the table as CSV, or give --encoding utf-16-le if it is text in that encoding"
        raise ValueError(f"{name} is a binary file, not a readable table; {advice}")
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(head, is_whole)
    if text.isascii():
        return "utf-8"
    foreign = re.search("[\udc80-\udcff]", text)
    return "cp1252" if foreign and not re.search("[^\0-\x7f\udc80-\udcff]", text) else "utf-8"


def sample_records(text: str, separator: str, is_whole: bool) -> Records:
    """The first records that are not blank. If the head is only a part of the file, its last record is omitted."""
    records: Records = []
    lines = io.StringIO(text, newline="")
    reader = csv.reader(
        map(join_blanks, lines) if separator == BLANKS else lines, delimiter=separator, skipinitialspace=True
    )
    try:
        records.extend(record for record in islice(reader, SAMPLE_RECORDS) if record)
        is_whole = is_whole or next(reader, None) is not None
    except csv.Error:  # a cell is too long, perhaps because this is not the separator; the reader will report it
        pass
    return records if is_whole or len(records) < 2 else records[:-1]


def join_blanks(line: str) -> str:
    """Replace the spaces and tabs between cells by one space, and omit those around the line; quoted cells stay.

    >>> join_blanks('  1.5\\t 2  "old oak" \\n')
    '1.5 2 "old oak"\\n'
    """
    return QUOTED_OR_BLANKS.sub(lambda found: found[1] or BLANKS, line.strip()) + "\n"


def find_separator(text: str, is_whole: bool) -> str:
    """The character that divides all records into the same number of cells, and into the most numbers.

    The second rule prevents `1,5;2,5` from becoming three columns. If no character is regular, the first record
    decides, and the reader reports the row that differs. Blanks separate only if nothing else makes as many numbers.
    """
    samples = {separator: sample_records(text, separator, is_whole) for separator in SEPARATORS}
    ranks = {}
    for separator, records in samples.items():
        width = len(records[0]) if records else 0
        regular = sum(len(record) == width for record in records) / max(len(records), 1)
        if width > 1 and regular >= REGULAR:
            cells = [cell for record in records[:100] for cell in record]
            numbers = sum(NUMBER.fullmatch(cell.strip()) is not None for cell in cells) / len(cells)
            ranks[separator] = (regular, numbers, width)
    others = [numbers for separator, (_, numbers, _) in ranks.items() if separator != BLANKS]
    if BLANKS in ranks and ranks[BLANKS][1] <= max([SHARE_OF_NUMBERS, *others]):
        del ranks[BLANKS]
    del samples[BLANKS]
    if ranks:
        return max(ranks, key=lambda separator: ranks[separator])
    widths = {separator: len(records[0]) if records else 0 for separator, records in samples.items()}
    if max(widths.values()) > 1:
        return max(widths, key=lambda separator: widths[separator])
    # One column: a character that occurs in no record, so that a decimal comma does not divide one.
    return next((s for s, records in samples.items() if all(len(record) == 1 for record in records)), ",")


def find_decimal(name: str, records: Records) -> str:
    """A comma, if more cells are numbers with a decimal comma than with a decimal point.

    If all commas may separate thousands, they do not count: as decimal marks they would turn 1,200 cars into 1.2. If
    the points do not decide either, the user must.
    """
    cells = [cell.strip() for record in records for cell in record]
    commas = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    points = [cell for cell in cells if DECIMAL_POINT.fullmatch(cell)]
    if all(map(THOUSANDS.fullmatch, commas)):
        if commas and not any(cell.count(",") > 1 or not THOUSANDS.fullmatch(cell) for cell in points):
            raise ValueError(
                f"{name} has numbers such as {commas[0]!r}, whose comma may separate decimals or thousands; "
                "give --decimal , if it is the decimal mark, or --decimal . if it is not"
            )
        return "."
    return "," if len(commas) > len(points) else "."


def find_header(records: list[list[str]]) -> bool:
    """Whether the first record holds names: not if its cells are numbers, dates, and labels of the rows below.

    >>> find_header([["0.126", "south"], ["0.892", "north"], ["0.512", "south"]])
    False
    >>> find_header([["2019", "region"], ["0.892", "north"], ["0.512", "south"]])
    True
    """
    cells = [(place, cell.strip()) for place, cell in enumerate(records[0]) if cell.strip()]
    names = [(place, cell) for place, cell in cells if not (NUMBER.fullmatch(cell) or DATE.fullmatch(cell))]
    if len(names) == len(cells):
        return True
    below = [{record[place].strip() for record in records[1:] if place < len(record)} for place, _ in names]
    return not all(cell in labels for (_, cell), labels in zip(names, below, strict=True))

"""What a CSV file looks like: encoding, separator, decimal mark and header, as the user said or as its head shows.

Nothing is taken from the file's name. What cannot be told from the head is told by the reader, row and all.
"""

import codecs
import csv
import io
import re
from dataclasses import dataclass
from itertools import islice

from hetcal._checks import must

Records = list[list[str]]

SEPARATORS = ",;\t|"
# Records looked at for the separator and the decimal mark.
SAMPLE = 1000
# Less regular than this, a character is no separator.
REGULAR = 0.8
BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # begins like the next
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF32_BE: "utf-32",
}
NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)
DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+([eE][+-]?\d+)?", re.ASCII)
DECIMAL_POINT = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d*)\.\d+([eE][+-]?\d+)?|[+-]?\d{1,3}(,\d{3}){2,}", re.ASCII)
# What may be thousands as well, and so shows neither mark.
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+", re.ASCII)
DATE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ].*)?", re.ASCII)


@dataclass(frozen=True)
class Format:
    """What the user said of a CSV file; None is found out."""

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
                io.TextIOWrapper(io.BytesIO(), self.encoding)  # refuses what is no encoding of text, such as hex
                codecs.getincrementaldecoder(self.encoding)("replace").decode(b"a,b")  # idna cannot
            except (LookupError, ValueError):
                advice = "give one such as utf-8, utf-16, cp1252 or latin-1"
                raise must("encoding", "be an encoding Python knows", self.encoding, advice) from None


@dataclass(frozen=True)
class Dialect:
    """What the reader needs to know of a CSV file."""

    encoding: str
    separator: str
    decimal: str
    has_header: bool


def find_dialect(name: str, head: bytes, is_whole: bool, format: Format) -> Dialect:
    """Find out what the user did not say, from the head of the file.

    >>> find_dialect("a.csv", b"name;size\\noak;1,5\\n", True, Format())
    Dialect(encoding='utf-8', separator=';', decimal=',', has_header=True)
    """
    encoding = format.encoding or find_encoding(name, head, is_whole)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head, is_whole).removeprefix("\ufeff")
    separator = format.separator or find_separator(text, is_whole)
    records = sample(text, separator, is_whole)
    if not records:
        raise ValueError(f"{name} is empty; give a file with a header and rows")
    decimal = format.decimal or ("." if separator == "," else find_decimal(name, records))
    has_header = find_header(records[0]) if format.header is None else format.header
    return Dialect(encoding, separator, decimal, has_header)


def find_encoding(name: str, head: bytes, is_whole: bool) -> str:
    """UTF-8 or what the byte order mark says, else Windows' cp1252.

    Text that is UTF-8 in some places and not in others is taken as UTF-8, so that the reader names the row: as cp1252
    it would be read without a word, and wrongly.
    """
    for mark, encoding in BOMS.items():
        if head.startswith(mark):
            return encoding
    if b"\0" in head:
        advice = "export the table as CSV, or give --encoding utf-16-le if it is text of that kind"
        raise ValueError(f"{name} is a binary file, not a table that can be read; {advice}")
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(head, is_whole)
    if text.isascii():
        return "utf-8"
    foreign = re.search("[\udc80-\udcff]", text)
    return "cp1252" if foreign and not re.search("[^\0-\x7f\udc80-\udcff]", text) else "utf-8"


def sample(text: str, separator: str, is_whole: bool) -> Records:
    """The first records that are not blank; the last one of a head that was cut is left out."""
    records: Records = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    try:
        records.extend(record for record in islice(reader, SAMPLE) if record)
        is_whole = is_whole or next(reader, None) is not None
    except csv.Error:  # a cell too long, perhaps because this is not the separator; the reader will say it
        pass
    return records if is_whole or len(records) < 2 else records[:-1]


def find_separator(text: str, is_whole: bool) -> str:
    """The character that cuts the records into as many cells as the first one has, and best into numbers.

    The last point keeps `1,5;2,5` from being three columns. Where nothing is regular, the first record decides, and the
    reader then names the row that differs.
    """
    samples = {separator: sample(text, separator, is_whole) for separator in SEPARATORS}
    ranks = {}
    for separator, records in samples.items():
        width = len(records[0]) if records else 0
        regular = sum(len(record) == width for record in records) / max(len(records), 1)
        if width > 1 and regular >= REGULAR:
            cells = [cell for record in records[:100] for cell in record]
            numbers = sum(NUMBER.fullmatch(cell.strip()) is not None for cell in cells) / len(cells)
            ranks[separator] = (regular, numbers, width)
    if ranks:
        return max(ranks, key=lambda separator: ranks[separator])
    widths = {separator: len(records[0]) if records else 0 for separator, records in samples.items()}
    if max(widths.values()) > 1:
        return max(widths, key=lambda separator: widths[separator])
    # One column: a character that cuts no record at all, so that a decimal comma is not cut either.
    return next((s for s, records in samples.items() if all(len(record) == 1 for record in records)), ",")


def find_decimal(name: str, records: Records) -> str:
    """A comma, if more cells are numbers with a decimal comma than with a decimal point.

    Commas that may all part thousands show nothing: taken for decimal marks, they would make 1,200 cars 1.2.
    """
    cells = [cell.strip() for record in records for cell in record]
    commas = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    points = [cell for cell in cells if DECIMAL_POINT.fullmatch(cell)]
    if all(map(THOUSANDS.fullmatch, commas)):
        if commas and not any(cell.count(",") > 1 or not THOUSANDS.fullmatch(cell) for cell in points):
            raise ValueError(
                f"{name} has numbers such as {commas[0]!r}, whose comma may part decimals or thousands; "
                "give --decimal , if it is the decimal mark, or --decimal . if it is not"
            )
        return "."
    return "," if len(commas) > len(points) else "."


def find_header(first: list[str]) -> bool:
    """Whether the first record holds names: not if all that is in it are numbers and dates."""
    cells = [cell.strip() for cell in first if cell.strip()]
    return not cells or not all(NUMBER.fullmatch(cell) or DATE.fullmatch(cell) for cell in cells)

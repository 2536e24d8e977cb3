"""The catalog of data sets: one TOML file per data set in the folder `catalog`, and the folder is the list.

The schema is closed and strict: a misspelled key or a value of another type is an error, so that no line of an entry is
silently ignored.
"""

import tomllib
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hetcal._checks import check_choice, must

CATALOG = resources.files("hetcal.datasets") / "catalog"


class CatalogPart(BaseModel):
    """A table of a catalog file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _suggest_nearest_key(cls, table: Any) -> Any:
        for key in table if isinstance(table, dict) else ():
            check_choice("key", key, cls.model_fields)
        return table


Names = Annotated[tuple[str, ...], Field(strict=False)]  # an array of TOML is a list


class Address(CatalogPart):
    """Where a raw file can be downloaded: directly or, with `member`, under that exact name in a zip archive."""

    url: str
    member: str = ""

    def __str__(self) -> str:
        return f"{self.member!r} in {self.url}" if self.member else self.url


class RawFile(CatalogPart):
    """A published file: its name in the cache, its exact size and SHA-256, and its addresses in order of preference."""

    name: str
    bytes: int
    sha256: str
    addresses: Annotated[tuple[Address, ...], Field(strict=False)]


class Reader(CatalogPart):
    """The format: `separator` (or "blanks"), the column names if there is no header, the marker of missing values."""

    separator: str
    columns: Names = ()
    missing: str = ""


class Groups(CatalogPart):
    """Rows that must not be separated by a split: equal features, or one value or one day in `column`."""

    rule: Literal["none", "same_features", "same_value", "same_day"] = "none"
    column: str = ""


class CatalogEntry(CatalogPart):
    """One file of the catalog; the features are all columns except the target and the dropped ones."""

    title: str
    url: str
    license: str
    citation: str
    target: str
    reader: Reader
    file: RawFile
    dropped: Names = ()
    categories: Names = ()  # columns whose numbers are labels
    drop_incomplete_rows: bool = False
    groups: Groups = Groups()


def available() -> list[str]:
    """Return the names that `load` accepts.

    >>> available()
    ['auto-mpg', 'boston', 'crime', 'energy', 'parkinsons', 'red-wine', 'superconductivity', 'white-wine']
    """
    return sorted(path.name.removesuffix(".toml") for path in CATALOG.iterdir() if path.name.endswith(".toml"))


def read_entry(name: str) -> CatalogEntry:
    """Return the entry of one data set; the error for an unknown name suggests the nearest known one."""
    check_choice("name", name, available())
    return parse_entry((CATALOG / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def parse_entry(text: str, file_name: str) -> CatalogEntry:
    """Read the text of an entry; an error names the file and the key."""
    try:
        return CatalogEntry.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise _first_error(error, file_name) from None


def _first_error(error: ValidationError, file_name: str) -> Exception:
    """Put the first error of pydantic into one sentence, in our own form and the terms of TOML."""
    first = error.errors(include_url=False)[0]
    value = first["input"]
    *tables, key = ["", *(part for part in first["loc"] if isinstance(part, str))]  # without positions in arrays
    table = " in ".join([*reversed(tables[1:]), file_name])
    place = f"{key} in {table}" if key else table
    if first["type"] == "missing":
        return must(table, f"have the key {key!r}", sorted(value), "add it")
    if first["type"] == "value_error":  # of an unknown key
        return ValueError(f"{place}: {first['ctx']['error']}")
    rule = {"model_type": "be a table", "tuple_type": "be an array"}.get(first["type"])
    return must(place, rule or first["msg"].removeprefix("Input should "), value, "correct the entry")

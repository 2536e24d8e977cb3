"""What is known about a data set: one TOML file in the folder `catalog`, and the folder is the list.

A misspelled key or a value of the wrong type is an error, so that no line of an entry is silently without effect.
"""

import tomllib
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import resources
from typing import Any, get_args, get_origin, get_type_hints

from hetcal._checks import check_choice, must
from hetcal.datasets.download import RawFile

CATALOG = resources.files("hetcal.datasets") / "catalog"
GROUP_RULES = ("none", "same_features", "same_value", "same_day")


@dataclass(frozen=True)
class Reader:
    """How the file is written: `separator` (or "blanks"), the columns if there is no header, the sign for missing."""

    separator: str
    columns: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class Groups:
    """Which rows must stay together in a split: those with equal features, or of one value or one day in `column`."""

    rule: str = "none"
    column: str = ""

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, GROUP_RULES)


@dataclass(frozen=True)
class Entry:
    """One file of the catalog; features are all columns but the target and the dropped ones."""

    title: str
    url: str
    license: str
    citation: str
    target: str
    reader: Reader
    file: RawFile
    dropped: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()  # numbers that are names
    drop_incomplete_rows: bool = False
    groups: Groups = Groups()


def available() -> list[str]:
    """The names that `load` knows.

    >>> available()
    ['auto-mpg', 'boston', 'crime', 'energy', 'parkinsons', 'red-wine', 'superconductivity', 'white-wine']
    """
    return sorted(path.name.removesuffix(".toml") for path in CATALOG.iterdir() if path.name.endswith(".toml"))


def read_entry(name: str) -> Entry:
    """The entry of one data set; an unknown name is answered with the nearest known one."""
    check_choice("name", name, available())
    return parse_entry((CATALOG / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def parse_entry(text: str, where: str) -> Entry:
    """Read the text of an entry; `where` is how errors call it."""
    return _build(Entry, tomllib.loads(text), where)


def _build(kind: Any, table: Any, where: str) -> Any:
    """Make a dataclass from a TOML table, key by key."""
    if not isinstance(table, dict):
        raise must(where, "be a table", table, f"give the keys of {kind.__name__}", TypeError)
    hints = get_type_hints(kind)
    for key in table:
        check_choice(f"key in {where}", key, hints)
    for field in fields(kind):
        if field.name not in table and field.default is MISSING:
            raise must(where, f"have the key {field.name!r}", sorted(table), "add it")
    return kind(**{key: _convert(hints[key], value, f"{key} in {where}") for key, value in table.items()})


def _convert(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _build(kind, value, where)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_convert(get_args(kind)[0], item, where) for item in value)
    if type(value) is not kind:
        raise must(where, f"be of type {kind.__name__}", value, "correct the entry", TypeError)
    return value

"""Text from outside, such as the names of a user's columns, made safe for a page, and values made safe for JSON."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

LONGEST_NAME, LONGEST_VALUE, LONGEST_COMMAND = 120, 1000, 10_000
# The folders of a path that starts at the root, home or a drive, at the start of a word, a quotation or a value.
FOLDERS = re.compile(
    r"""(?:(?<=["'])(?:[A-Za-z]:[\\/]|~?[\\/])[^"']*[\\/]|(?<![^\s=])(?:[A-Za-z]:[\\/]|~?[\\/])\S*[\\/])"""
)


def clean(text: Any, longest: int = LONGEST_NAME) -> str:
    """Make text from outside safe to write: no control characters, valid in UTF-8, of bounded length.

    >>> clean("price\\x00"), clean("x" * 500, longest=5)
    ('price�', 'xxxx…')
    """
    shown = str(text)[: longest + 1]
    shown = "".join(char if is_writable(char) else "\N{REPLACEMENT CHARACTER}" for char in shown)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def is_writable(char: str) -> bool:
    """Whether a character is safe: a tab, a line break, or no control character, lone surrogate or direction mark."""
    if char in "\t\n":
        return True
    point = ord(char)
    is_control = point < 0x20 or 0x7F <= point < 0xA0
    is_direction = point in (0x200E, 0x200F, 0x061C) or 0x202A <= point <= 0x202E or 0x2066 <= point <= 0x2069
    return not (is_control or is_direction or 0xD800 <= point <= 0xDFFF or point in (0xFFFE, 0xFFFF))


def without_folders(text: str) -> str:
    """Cut absolute paths to their last part, so that a report does not reveal the folders of the user's machine.

    >>> without_folders("hetcal fit /home/ada/train.csv --out '/tmp/my models/m.hetcal' --set a=b/c")
    "hetcal fit train.csv --out 'm.hetcal' --set a=b/c"
    """
    return FOLDERS.sub("", text)


def finite(value: Any) -> float | None:
    """A float for JSON, None if it is not finite."""
    value = float(value)
    return value if math.isfinite(value) else None


def listed_value(value: Any) -> bool | int | float | str | None:
    """Convert a value for JSON: numbers stay numbers, everything else becomes text without folders."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, PurePath):
        return clean(value.name, LONGEST_VALUE)
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}={listed_value(one)}" for key, one in value.items())
    elif isinstance(value, list | tuple | set | frozenset | np.ndarray):
        value = ", ".join(str(listed_value(one)) for one in value)
    return clean(without_folders(str(value)), LONGEST_VALUE)


def listing(values: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Labels and values, in their order."""
    return [{"label": clean(name), "value": listed_value(value)} for name, value in (values or {}).items()]


def commands(lines: Sequence[str]) -> list[str]:
    """Commands without folders."""
    return [clean(without_folders(str(line)), LONGEST_COMMAND) for line in lines]

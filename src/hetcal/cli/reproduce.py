"""The command that gives a result again: file names without their folders, which are nobody's business."""

import shlex
from pathlib import Path
from typing import Any


def command_line(command: str, *files: Any, **options: Any) -> str:
    """
    >>> command_line("fit", "data/my table.csv", target="y", drop=["id"], test=None)
    "hetcal fit 'my table.csv' --target y --drop id"
    """
    words = ["hetcal", command, *map(file_name, files)]
    for name, value in options.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, bool):
                words.append(f"--{name}" if one else f"--no-{name}")
            elif one is not None:
                words += [f"--{name.replace('_', '-')}", file_name(one) if name in FILES else str(one)]
    return shlex.join(words)


FILES = ("out", "test", "report")


def file_name(path: Any) -> str:
    return "-" if str(path) == "-" else Path(path).name


def shown_name(path: Any) -> str:
    """The file in words."""
    return "standard input" if str(path) == "-" else Path(path).name

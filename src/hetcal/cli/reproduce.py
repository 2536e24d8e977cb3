"""The command that reproduces a result. Files are named without their folders, which are private."""

import shlex
from pathlib import Path
from typing import Any

from hetcal.cli.arguments import parameters_of

# These do not change a result.
NOT_REPRODUCED = ("force", "json", "quiet", "jobs", "backend", "address")


def command_line(options: Any) -> str:
    """The command with every option that differs from its default.

    >>> from hetcal.cli.options import CompareOptions
    >>> command_line(CompareOptions(table="data/my table.csv", target="y", drop=["id"], folds=5))
    "hetcal compare 'my table.csv' --target y --drop id"
    """
    arguments, flags = [], []
    for parameter in parameters_of(type(options)):
        value = getattr(options, parameter.name)
        if value is None or value == parameter.default or parameter.name in NOT_REPRODUCED:
            continue
        for item in value if isinstance(value, list) else [value]:
            word = str(item) if parameter.file is None else Path(item).name
            if parameter.is_positional:
                arguments.append(word)
            elif isinstance(item, bool):
                flags.append(parameter.flag if item else parameter.flag.replace("--", "--no-", 1))
            else:
                flags += [parameter.flag, word]
    return shlex.join(["hetcal", options.command, *arguments, *flags])


def shown_name(path: Any) -> str:
    """The name of a file in a report."""
    return "standard input" if str(path) == "-" else Path(path).name

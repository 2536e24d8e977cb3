"""Tables of the user's own in a study: where their files are, and whether a file is still the one of a finished cell.

How a file is read is not decided here: `hetcal bench` passes on the reader of the command line (`ReadRows`), so that a
study reads a file as `hetcal fit` does.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hetcal._checks import Floats, must
from hetcal.studies.protocol import OwnTable, Protocol
from hetcal.tabular.columns import Table

# Features, target, and the labels of the groups (None if the table has none).
ReadRows = Callable[[Path, OwnTable], tuple[Table, Floats, Any]]
Description = dict[str, Any] | None
FOLDER_VARIABLE = "HETCAL_TABLES"


def find_file(protocol: Protocol, name: str) -> Path:
    """The file of a table: beside the protocol, or else in the folder that `HETCAL_TABLES` names."""
    file = protocol.tables[name].file
    named = os.environ.get(FOLDER_VARIABLE)
    folders = [protocol.folder, *([Path(named).expanduser()] if named else [])]
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
    looked = " or ".join(str(folder.absolute()) for folder in folders)
    advice = f"it is not in {looked}; put it there, or set {FOLDER_VARIABLE} to its folder"
    raise must(f"file of tables.{name}", "exist", file, advice, FileNotFoundError)


def locate_tables(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """The protocol with absolute paths of the tables among these data sets, for processes with another folder."""
    found = {
        name: replace(protocol.tables[name], file=str(find_file(protocol, name).absolute()))
        for name in names
        if name in protocol.tables
    }
    return replace(protocol, tables={**protocol.tables, **found})


def describe_table(protocol: Protocol, name: str) -> Description:
    """What a result on this data set depends on, to be recorded with it; None for the data sets of hetcal."""
    if name not in protocol.tables:
        return None
    table = protocol.tables[name]
    with find_file(protocol, name).open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    return {"sha256": checksum, "target": table.target, "group": table.group}

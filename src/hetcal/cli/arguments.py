"""What the commands of `hetcal` share: lists in one word, and whether files may be written."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def check_ending(option: str, path: Path | None, ending: str) -> None:
    """So that no table is overwritten by a model, and every file opens with what it is for."""
    if path is not None and path.suffix.lower() != ending:
        from hetcal._checks import must

        raise must(option, f"end in {ending}", str(path), f"write {path.with_suffix(ending)}")


def may_write(outputs: Sequence[Path | None], inputs: Sequence[str | Path | None], force: bool) -> None:
    """Before any work is done: whether the files may be written, asking where somebody can answer."""
    from hetcal._files import check_may_write

    taken = {Path(name).resolve() for name in inputs if name is not None and str(name) != "-"}
    for path in filter(None, outputs):
        if path.resolve() in taken:
            raise ValueError(f"{path} is named twice, to be read or written; give every file a name of its own")
        taken.add(path.resolve())
        is_asked = path.is_file() and not force and sys.stdin.isatty() and sys.stderr.isatty()
        if is_asked:
            typer.confirm(f"{path} exists already; replace it?", abort=True, err=True)
        check_may_write(path, force or is_asked)

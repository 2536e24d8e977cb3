"""From a dataclass of options to the arguments of a command, and the checks that come before any work."""

import dataclasses
import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import ArgumentInfo

from hetcal.cli.options import Reads, Writes


@dataclass(frozen=True)
class Parameter:
    """One field of an options dataclass, as the command line sees it."""

    name: str
    annotation: Any
    default: Any  # inspect.Parameter.empty if it is required

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def is_positional(self) -> bool:
        return any(isinstance(note, ArgumentInfo) for note in self.annotation.__metadata__)

    @property
    def file(self) -> Reads | Writes | None:
        return next((note for note in self.annotation.__metadata__ if isinstance(note, Reads | Writes)), None)


def parameters_of(options_type: Any) -> list[Parameter]:
    """The fields in the order of the help: those of the class first, then those of its bases."""
    hints = get_type_hints(options_type, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(options_type)}
    names = [name for base in options_type.__mro__ for name in inspect.get_annotations(base) if name in fields]
    return [Parameter(name, hints[name], default_of(fields[name])) for name in names]


def default_of(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def signature_of(options_type: Any) -> inspect.Signature:
    """The signature from which typer builds the command."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(parameter.name, kind, default=parameter.default, annotation=parameter.annotation)
        for parameter in parameters_of(options_type)
    ]
    return inspect.Signature(parameters)


class OnceCommand(TyperCommand):
    """A command that refuses an option that is given twice, of which click would silently use the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        for parameter in given:
            once = isinstance(parameter, TyperOption) and not (parameter.multiple or parameter.is_flag)
            if once and given.count(parameter) > 1:
                raise refuse_twice(parameter.opts[0])
        return super().parse_args(ctx, args)


def refuse_twice(flag: str) -> Exception:
    from hetcal._checks import must

    advice = "omit all but one"
    if flag == "--target":
        advice = "fit one model per target, or all of them from Python with HCRegressor().fit(X, Y)"
    return must(flag, "be given once", "two or more", advice)


def split_words(text: str | None) -> list[str] | None:
    """The words of a list with commas; None for an option that was not given."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def check_files(options: Any) -> None:
    """Check before any work is done that the files may be written; on a terminal, ask before replacing one."""
    read, written = [], []
    for parameter in parameters_of(type(options)):
        value = getattr(options, parameter.name)
        if parameter.file is None or value is None or str(value) == "-":
            continue
        if isinstance(parameter.file, Writes):
            check_ending(parameter.flag, Path(value), parameter.file.ending)
            written.append(Path(value))
        else:
            read.append(Path(value))
    if written:
        check_writable(written, read, options.force)


def check_ending(flag: str, path: Path, ending: str | None) -> None:
    """Require a fixed ending: a model then cannot overwrite a table, and a file opens in the right program."""
    if ending is not None and path.suffix.lower() != ending:
        from hetcal._checks import must

        raise must(flag, f"end in {ending}", str(path), f"write {path.with_suffix(ending)}")


def check_writable(outputs: Iterable[Path], inputs: Iterable[Path], force: bool) -> None:
    from hetcal._files import check_may_write

    taken = {path.resolve() for path in inputs}
    for path in outputs:
        if path.resolve() in taken:
            raise ValueError(f"{path} is named twice, to be read or written; give every file its own name")
        taken.add(path.resolve())
        is_asked = path.is_file() and not force and sys.stdin.isatty() and sys.stderr.isatty()
        if is_asked:
            typer.confirm(f"{path} exists already; replace it?", abort=True, err=True)
        check_may_write(path, force or is_asked)

"""The `hetcal` command: every command with its options and its function. Errors are reported in one sentence.

The function of a command is imported when it runs, so that `hetcal --help` is fast.
"""

import importlib
import inspect
import os
import signal
import sys
import warnings
from contextlib import nullcontext, redirect_stdout
from typing import Annotated, Any

try:
    import typer
except ImportError:
    sys.exit("the command line needs typer and rich; install them with: pip install 'hetcal[cli]'")

from hetcal.cli import options as given
from hetcal.cli.arguments import OnceCommand, check_files, signature_of

DESCRIPTION = "Prediction intervals that mean what they say: from a table to a model file, predictions and a report."
EXIT_INTERRUPTED = 130  # what a shell expects after Ctrl-C, and what typer exits with silently

app = typer.Typer(name="hetcal", help=DESCRIPTION, no_args_is_help=True, pretty_exceptions_enable=False)
bench = typer.Typer(help="Run studies of data sets x methods x splits, and show them.", no_args_is_help=True)
app.add_typer(bench, name="bench")

COMMANDS: dict[type, str] = {
    given.FitOptions: "fit.fit_file",
    given.PredictOptions: "predict.predict_file",
    given.EvaluateOptions: "evaluate.evaluate_file",
    given.CompareOptions: "compare.compare_file",
    given.InfoOptions: "info.describe_file",
    given.ExportOptions: "export.export_file",
    given.MethodsOptions: "methods.list_methods",
    given.DemoOptions: "demo.run_demo",
}
BENCH_COMMANDS: dict[type, str] = {
    given.BenchRunOptions: "bench.run_study",
    given.BenchTableOptions: "bench.print_table",
    given.BenchFiguresOptions: "bench.write_figures",
    given.BenchReportOptions: "bench.write_study_report",
}


def add_command(group: typer.Typer, options_type: Any, place: str) -> None:
    """Add the command whose options the dataclass declares; `place` names its module and function in this package."""

    def command(**values: Any) -> None:
        options = options_type(**values)
        check_files(options)
        as_json = getattr(options, "json", False)
        # What a library prints is no part of a JSON document; Ray reports lost workers on standard output.
        is_document = as_json and str(getattr(options, "out", "")) != "-"
        with redirect_stdout(sys.stderr) if is_document else nullcontext():
            result = find_function(place)(options)
        if result is not None:
            tell(result, as_json, getattr(options, "quiet", False))

    command.__signature__ = signature_of(options_type)  # type: ignore[attr-defined]
    group.command(options_type.command, cls=OnceCommand, help=inspect.getdoc(options_type))(command)


def find_function(place: str) -> Any:
    module, name = place.split(".")
    return getattr(importlib.import_module(f"hetcal.cli.{module}"), name)


def tell(result: dict[str, Any], as_json: bool, quiet: bool) -> None:
    """Print the result of a command, as JSON or in words, but never into predictions on standard output."""
    err = result.get("out") == "-"
    if as_json:
        import json

        typer.echo(json.dumps(result, indent=2, allow_nan=False), err=err)
    elif not quiet:
        from hetcal.cli.show import render_result

        typer.echo(render_result(result), err=err)


def show_version(wanted: bool) -> None:
    if wanted:
        from hetcal import __version__

        typer.echo(f"hetcal {__version__}")
        raise typer.Exit


@app.callback(help=DESCRIPTION)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


for _options, _place in COMMANDS.items():
    add_command(app, _options, _place)
for _options, _place in BENCH_COMMANDS.items():
    add_command(bench, _options, _place)


def main() -> None:
    """Run the `hetcal` command. An error that the user can correct is one sentence, not a traceback."""
    # Before torch is imported. The networks are small: more threads gain little, and are slow if another program is
    # busy, because they wait for each other at every step.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.showwarning = show_warning
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # end by an exception, so that half-written files are removed
            signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))
    try:
        try:
            app()
        finally:
            flush_output()
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError, MemoryError, RuntimeError) as error:
        typer.echo(f"hetcal: {sentence(error)}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != EXIT_INTERRUPTED:
            raise
        kept = "; finished cells are kept" if sys.argv[1:2] == ["bench"] else ""
        typer.echo(f"\nhetcal: stopped{kept}", err=True)
        sys.exit(EXIT_INTERRUPTED)


def flush_output() -> None:
    """Write what is still buffered: a disk that is full is then an error like any other."""
    if sys.stdout is None:  # closed by who started the command
        return
    try:
        sys.stdout.flush()
    except OSError:
        # Python tries again when it ends; it would print a message of its own and change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def sentence(error: BaseException) -> str:
    """Return the message of any error on one line."""
    from hetcal._checks import printable

    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    else:
        text = str(error) or type(error).__name__
    return printable(" ".join(text.split()))


def show_warning(message: Any, *_: Any, **__: Any) -> None:
    """Print a warning on one line, without its position in the code."""
    typer.echo(f"hetcal: warning: {sentence(message)}", err=True)

"""The command line: arguments to one call, errors to one sentence. No logic lives here.

Imports that cost time wait until a command needs them, so that `hetcal --help` answers at once.
"""

import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
except ImportError:
    sys.exit("the command line needs typer and rich; install them with: pip install 'hetcal[cli]'")

from hetcal.cli.arguments import Force, check_ending, may_write, words
from hetcal.cli.bench import bench

app = typer.Typer(
    name="hetcal",
    help="Prediction intervals that mean what they say: from a table to a model file, predictions and a report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")

Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="CSV or TSV, also gzipped, Parquet or Feather; - reads CSV from standard input."
    ),
]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A file that `hetcal fit` or `model.save` has written.")
]
Target = Annotated[str, typer.Option(help="Column to predict.")]
Drop = Annotated[list[str], typer.Option(metavar="COLUMN", help="Column to leave out, such as an id; may be repeated.")]
Group = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column whose rows belong together (a patient, a day): never split."),
]
Text = Annotated[
    list[str], typer.Option(metavar="COLUMN", help="Column of labels that look like numbers; may be repeated.")
]
Set = Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Setting of HCRegressor; may be repeated.")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
Report = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report, one self-contained page.")]
Separator = Annotated[str | None, typer.Option(help="Between the columns of CSV; found out by default.")]
Decimal = Annotated[str | None, typer.Option(help="Decimal mark of CSV, . or , ; found out by default.")]
Encoding = Annotated[str | None, typer.Option(help="Encoding of CSV, such as utf-8 or cp1252; found out by default.")]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first row of CSV has the names; found out by default."),
]
Json = Annotated[bool, typer.Option("--json", help="Answer as JSON on standard output, for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")]

STOPPED = 130  # what a shell expects after Ctrl-C, and what typer makes of it without a word


def show_version(wanted: bool) -> None:
    if wanted:
        from hetcal import __version__

        typer.echo(f"hetcal {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Prediction intervals that mean what they say: from a table to a model file, predictions and a report."""


@app.command()
def fit(
    table: Table,
    target: Target,
    out: Annotated[Path, typer.Option(metavar="FILE.hetcal", help="Model file to write.")],
    method: Annotated[
        str, typer.Option(help="Row of `hetcal methods`, or auto: the best of three by cross-validation.")
    ] = "auto",
    test_size: Annotated[float, typer.Option(help="Part of the rows to judge the model on; 0 trains on all.")] = 0.2,
    test: Annotated[str | None, typer.Option(metavar="TABLE", help="Rows to judge on, instead of --test-size.")] = None,
    drop: Drop = [],  # noqa: B006 (typer copies it)
    group: Group = None,
    text: Text = [],  # noqa: B006
    seed: Seed = 0,
    settings: Set = [],  # noqa: B006
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side while `auto` chooses.")] = 1,
    report: Report = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on a table, judge on rows held back, and save the model."""
    check_ending("--out", out, ".hetcal")
    check_ending("--report", report, ".html")
    may_write([out, report], [table, test], force)
    from hetcal.cli.fit import fit_file

    result = fit_file(
        table,
        out,
        target=target,
        method=method,
        test_size=test_size,
        test=test,
        drop=drop,
        group=group,
        texts=text,
        seed=seed,
        settings=settings,
        jobs=jobs,
        report=report,
        format=table_format(separator, decimal, encoding, header),
        quiet=quiet,
    )
    tell(result, as_json, quiet)


@app.command()
def predict(
    model: ModelFile,
    table: Table,
    out: Annotated[str, typer.Option(metavar="TABLE", help="CSV, Parquet or Feather to write; - is standard output.")],
    level: Annotated[list[str], typer.Option(help="Coverage of an interval, such as 0.9; may be repeated.")] = ["0.9"],  # noqa: B006
    quantiles: Annotated[str | None, typer.Option(help="Further quantiles: 0.05,0.5,0.95")] = None,
    keep: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="Column of the input to copy, such as an id; may be repeated.")
    ] = [],  # noqa: B006
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write mean, std and intervals for every row of a table, however long it is."""
    may_write([None if out == "-" else Path(out)], [model, table], force)
    from hetcal.cli.predict import predict_file

    result = predict_file(
        model,
        table,
        out,
        levels=fractions("level", ",".join(level)),
        quantiles=fractions("quantiles", quantiles),
        keep=keep,
        format=table_format(separator, decimal, encoding, header),
        quiet=quiet,
    )
    tell(result, as_json, quiet, err=out == "-")


@app.command()
def evaluate(
    file: Annotated[Path, typer.Argument(metavar="MODEL|PREDICTIONS", help="A model file; or a table of predictions.")],
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="With a model: the rows to judge it on.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column of the truth; a model of `hetcal fit` knows it.")] = None,
    mean: Annotated[str | None, typer.Option(help="Column of a table of predictions; `mean` by default.")] = None,
    std: Annotated[
        str | None, typer.Option(help="Standard deviation in a table of predictions; `std` by default.")
    ] = None,
    drop: Drop = [],  # noqa: B006
    group: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of groups, as places to look at.")] = None,
    report: Report = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say whether intervals can be believed: a model's on a table, or anyone's predictions (y, mean, std)."""
    check_ending("--report", report, ".html")
    may_write([report], [file, table], force)
    from hetcal.cli import evaluate as command

    chosen: dict[str, Any] = {
        "target": target,
        "group": group,
        "report": report,
        "format": table_format(separator, decimal, encoding, header),
    }
    if table is None:
        result = command.evaluate_predictions(str(file), mean=mean or "mean", std=std or "std", drop=drop, **chosen)
    elif mean or std or drop:
        raise ValueError("--mean, --std and --drop are for a table of predictions; leave them out with a model")
    else:
        result = command.evaluate_model(file, table, **chosen)
    tell(result, as_json, quiet)


@app.command()
def compare(
    table: Table,
    target: Target,
    methods: Annotated[
        str, typer.Option(help="all, hc, paper, or names of `hetcal methods`: hnn,ensemble_hc")
    ] = "paper",
    folds: Annotated[int, typer.Option(min=2, help="Parts of the table, each of which is judged on once.")] = 5,
    drop: Drop = [],  # noqa: B006
    group: Group = None,
    text: Text = [],  # noqa: B006
    seed: Seed = 0,
    settings: Set = [],  # noqa: B006
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side, one thread each.")] = 1,
    report: Report = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on a table by cross-validation, with error bars and a recommendation."""
    check_ending("--report", report, ".html")
    may_write([report], [table], force)
    from hetcal.cli.compare import compare_file

    result = compare_file(
        table,
        target=target,
        methods=methods,
        folds=folds,
        drop=drop,
        group=group,
        texts=text,
        seed=seed,
        settings=settings,
        jobs=jobs,
        report=report,
        format=table_format(separator, decimal, encoding, header),
        quiet=quiet,
    )
    tell(result, as_json, quiet)


@app.command()
def info(model: ModelFile, as_json: Json = False) -> None:
    """Say what a model file holds: columns, ranges, settings, figures, versions."""
    from hetcal.cli.info import describe_file

    tell(describe_file(model), as_json)


@app.command()
def export(
    model: ModelFile,
    onnx: Annotated[Path, typer.Option(metavar="FILE.onnx", help="Graph from features to mean and std.")],
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as ONNX, for servers without Python."""
    check_ending("--onnx", onnx, ".onnx")
    may_write([onnx], [model], force)
    from hetcal.cli.models import read_regressor
    from hetcal.model_files.onnx import export_onnx

    export_onnx(read_regressor(model)[0], onnx)
    tell({"command": "export", "onnx": str(onnx)}, as_json, quiet)


@app.command("methods")
def list_methods(as_json: Json = False) -> None:
    """List the methods: where sigma comes from, and what is trained."""
    from hetcal.cli.methods import describe_methods

    tell(describe_methods(), as_json)


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo-output")) -> None:
    """Fit the paper's four methods on two data sets, print a table, draw pictures."""
    from hetcal.cli.demo import show

    show(out)


def table_format(separator: str | None, decimal: str | None, encoding: str | None, header: bool | None) -> Any:
    from hetcal.cli.tables import Format

    return Format({"tab": "\t", "\\t": "\t"}.get(separator or "", separator), decimal, encoding, header)


def tell(result: dict[str, Any], as_json: bool, quiet: bool = False, err: bool = False) -> None:
    """A command's result, as JSON or in words."""
    if as_json:
        import json

        typer.echo(json.dumps(result, indent=2, allow_nan=False), err=err)
    elif not quiet:
        from hetcal.cli.show import in_words

        typer.echo(in_words(result), err=err)


def fractions(name: str, text: str | None) -> list[float]:
    """Numbers with commas between them: "0.05,0.5"."""
    from hetcal._checks import must

    try:
        return [float(word) for word in words(text) or ()]
    except ValueError:
        raise must(name, "be numbers with commas between them", text, "write 0.5,0.95") from None


def main() -> None:
    """The `hetcal` command: an error that a user can mend is one sentence, not a traceback."""
    # Before torch is imported. Networks are small: more threads gain little, and lose much where another program runs,
    # since they wait for each other at every step.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.showwarning = show_warning
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # end by an exception, so that half-written files are removed
            signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))
    try:
        app()
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError, MemoryError, RuntimeError) as error:
        typer.echo(f"hetcal: {sentence(error)}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != STOPPED:
            raise
        kept = "; what is finished is kept" if sys.argv[1:2] == ["bench"] else ""
        typer.echo(f"\nhetcal: stopped{kept}", err=True)
        sys.exit(STOPPED)


def sentence(error: BaseException) -> str:
    """One line, whatever a library wrote."""
    from hetcal._checks import printable

    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    else:
        text = str(error) or type(error).__name__
    return printable(" ".join(text.split()))


def show_warning(message: Any, *_: Any, **__: Any) -> None:
    """A warning is one line as well, without the place in the code."""
    typer.echo(f"hetcal: warning: {sentence(message)}", err=True)


if __name__ == "__main__":
    main()

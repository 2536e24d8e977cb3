"""The options of every command, each declared once: the command line is parsed into them, the command is called with
them, and the line that reproduces a result is written from them.

A field has the name of its option, and the docstring of a class is the help of its command. Nothing here imports slow
modules, so that `hetcal --help` is fast.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

if TYPE_CHECKING:
    from hetcal.cli.tables import CsvFormat


@dataclass(frozen=True)
class Reads:
    """Marks the name of a file that a command reads."""


@dataclass(frozen=True)
class Writes:
    """Marks the name of a file that a command writes; its ending is fixed unless it chooses the format."""

    ending: str | None = None


TableFile = Annotated[
    str,
    Reads(),
    typer.Argument(
        metavar="TABLE", help="CSV or TSV (also gzipped), Parquet or Feather; - reads CSV from standard input."
    ),
]
ModelFile = Annotated[
    Path, Reads(), typer.Argument(metavar="MODEL", help="A file written by `hetcal fit` or `model.save`.")
]
# How `hetcal fit` holds out test rows; the first is the default.
SPLITS = ("distinct", "random")

TargetColumn = Annotated[str, typer.Option(help="Column to predict.")]
DroppedColumns = Annotated[
    list[str], typer.Option(metavar="COLUMN", help="Column to omit, such as an id; may be repeated.")
]
GroupColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column whose rows belong together (a patient, a day) and are never split."),
]
DropMissingTarget = Annotated[
    bool, typer.Option("--drop-missing-target", help="Omit rows without a target, instead of refusing the table.")
]
TextColumns = Annotated[
    list[str], typer.Option(metavar="COLUMN", help="Column of labels that look like numbers; may be repeated.")
]
SetPairs = Annotated[list[str], typer.Option(metavar="NAME=VALUE", help="Setting of HCRegressor; may be repeated.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
ReportFile = Annotated[
    Path | None,
    Writes(".html"),
    typer.Option(metavar="FILE.html", help="Write a report as one self-contained page."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON to standard output, for scripts.")]
RECALIBRATIONS = ("conformal", "isotonic", "std")
Recalibrate = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help=f"{', '.join(RECALIBRATIONS)}: correct the intervals by a fifth of the training rows, held out for it.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of fits at once, with one thread each; by default 1, on Ray as many as the cluster has CPUs.",
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(help="Where fits run: serial (in this process), processes (of this machine) or ray (a cluster)."),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(help="Ray cluster: auto, host:6379 or ray://host:10001. By default a cluster of this machine alone."),
]
ResultsFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of results written by `hetcal bench run`.")]


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """The format of CSV files, as far as the user specifies it."""

    separator: Annotated[
        str | None,
        typer.Option(
            help="Separator of CSV columns, such as ; or tab; ' ' is any number of blanks. Detected by default."
        ),
    ] = None
    decimal: Annotated[str | None, typer.Option(help="Decimal mark of CSV, . or , ; detected by default.")] = None
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of CSV, such as utf-8 or cp1252; detected by default.")
    ] = None
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether the first row of CSV contains names; detected by default."),
    ] = None

    @property
    def csv_format(self) -> "CsvFormat":
        from hetcal.cli.tables import CsvFormat

        separator = {"tab": "\t", "\\t": "\t"}.get(self.separator or "", self.separator)
        return CsvFormat(separator, self.decimal, self.encoding, self.header)


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options for the output of a command; none of these changes a result."""

    force: Force = False
    json: Json = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")] = False


@dataclass(frozen=True, kw_only=True)
class FitOptions(CsvOptions, AnswerOptions):
    """Train a model on a table, evaluate it on held-out rows, and save it."""

    command: ClassVar[str] = "fit"
    table: TableFile
    target: TargetColumn
    out: Annotated[Path, Writes(".hetcal"), typer.Option(metavar="FILE.hetcal", help="Model file to write.")]
    method: Annotated[
        str, typer.Option(help="Method from `hetcal methods`, or auto: the best of four by cross-validation.")
    ] = "cross_hc"
    test_size: Annotated[
        float, typer.Option(help="Fraction of the rows held out to evaluate the model; 0 trains on all rows.")
    ] = 0.2
    test: Annotated[
        str | None, Reads(), typer.Option(metavar="TABLE", help="Table to evaluate on, instead of --test-size.")
    ] = None
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of dates or numbers: train on the earlier rows, test on the later."
        ),
    ] = None
    split: Annotated[
        str, typer.Option(help="distinct: test rows at random, equal rows on one side; random: equal rows on any side.")
    ] = SPLITS[0]
    drop_missing_target: DropMissingTarget = False
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Do not read the table into memory: for huge Parquet files. A folder of them is always streamed.",
        ),
    ] = False
    drop: DroppedColumns = field(default_factory=list)
    group: GroupColumn = None
    text: TextColumns = field(default_factory=list)
    seed: Seed = 0
    set: SetPairs = field(default_factory=list)
    recalibrate: Recalibrate = None
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of fits at once while `auto` compares methods; as in `compare`.")
    ] = None
    backend: Annotated[
        str | None, typer.Option(help="Where `auto` compares methods: serial, processes or ray; as in `compare`.")
    ] = None
    address: ClusterAddress = None
    report: ReportFile = None


@dataclass(frozen=True, kw_only=True)
class PredictOptions(CsvOptions, AnswerOptions):
    """Write mean, std and prediction intervals for every row of a table of any length."""

    command: ClassVar[str] = "predict"
    model: ModelFile
    table: TableFile
    out: Annotated[
        str,
        Writes(),
        typer.Option(metavar="TABLE", help="CSV, Parquet or Feather file to write; - is standard output."),
    ]
    level: Annotated[list[str], typer.Option(help="Coverage of an interval, such as 0.9; may be repeated.")] = field(
        default_factory=lambda: ["0.9"]
    )
    upper: Annotated[
        list[str], typer.Option(help="Probability that y is at most a one-sided bound, such as 0.95; may be repeated.")
    ] = field(default_factory=list)
    lower: Annotated[
        list[str], typer.Option(help="Probability that y is at least a one-sided bound, such as 0.95; may be repeated.")
    ] = field(default_factory=list)
    quantiles: Annotated[str | None, typer.Option(help="Further quantiles: 0.05,0.5,0.95")] = None
    keep: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="Input column to copy, such as an id; may be repeated.")
    ] = field(default_factory=list)
    backend: Annotated[
        str | None, typer.Option(help="serial (in this process), or ray: Parquet in and out, on all CPUs of a cluster.")
    ] = None
    address: ClusterAddress = None


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CsvOptions, AnswerOptions):
    """Check whether prediction intervals are reliable: those of a model on a table, or a table of any predictions."""

    command: ClassVar[str] = "evaluate"
    file: Annotated[
        Path, Reads(), typer.Argument(metavar="MODEL|PREDICTIONS", help="A model file, or a table of predictions.")
    ]
    table: Annotated[
        str | None, Reads(), typer.Argument(metavar="[TABLE]", help="With a model: the rows to evaluate it on.")
    ] = None
    target: Annotated[str | None, typer.Option(help="Column of the true values; a model of `hetcal fit` knows it.")] = (
        None
    )
    mean: Annotated[
        str | None, typer.Option(help="Column of the mean in a table of predictions; `mean` by default.")
    ] = None
    std: Annotated[
        str | None, typer.Option(help="Column of the standard deviation in a table of predictions; `std` by default.")
    ] = None
    lower: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the lower end of the intervals of --level.")
    ] = None
    upper: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the upper end of the intervals of --level.")
    ] = None
    level: Annotated[float, typer.Option(help="Nominal coverage of --lower and --upper.")] = 0.9
    quantile: Annotated[
        list[str],
        typer.Option(metavar="Q=COLUMN", help="Column of a quantile, such as 0.05=low; may be repeated."),
    ] = field(default_factory=list)
    drop_missing_target: DropMissingTarget = False
    drop: DroppedColumns = field(default_factory=list)
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of groups, which are tested as subgroups.")
    ] = None
    report: ReportFile = None


@dataclass(frozen=True, kw_only=True)
class CompareOptions(CsvOptions, AnswerOptions):
    """Compare methods on a table by cross-validation, with standard errors and a recommendation."""

    command: ClassVar[str] = "compare"
    table: TableFile
    target: TargetColumn
    methods: Annotated[
        str,
        typer.Option(
            help="auto (those of `fit --method auto`), baselines (of scikit-learn), peers (of other libraries, if "
            "installed), all, hc, paper, or names from `hetcal methods`: hnn,ridge"
        ),
    ] = "auto,baselines,peers"
    folds: Annotated[int, typer.Option(min=2, help="Number of folds; each is held out once.")] = 5
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of dates or numbers: each fold is tested on rows later than its training."
        ),
    ] = None
    drop_missing_target: DropMissingTarget = False
    drop: DroppedColumns = field(default_factory=list)
    group: GroupColumn = None
    text: TextColumns = field(default_factory=list)
    seed: Seed = 0
    set: SetPairs = field(default_factory=list)
    recalibrate: Recalibrate = None
    jobs: Jobs = None
    backend: Backend = None
    address: ClusterAddress = None
    report: ReportFile = None


@dataclass(frozen=True, kw_only=True)
class InfoOptions:
    """Describe a model file: columns, ranges, settings, metrics, versions."""

    command: ClassVar[str] = "info"
    model: ModelFile
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class ExportOptions(AnswerOptions):
    """Write a model as ONNX, for servers without Python."""

    command: ClassVar[str] = "export"
    model: ModelFile
    onnx: Annotated[
        Path, Writes(".onnx"), typer.Option(metavar="FILE.onnx", help="Graph from features to mean and std.")
    ]


@dataclass(frozen=True, kw_only=True)
class MethodsOptions:
    """List the methods: where sigma comes from, and how it is trained."""

    command: ClassVar[str] = "methods"
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Fit the default and the paper's four methods on two data sets, print a table and draw figures."""

    command: ClassVar[str] = "demo"
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("demo-output")


@dataclass(frozen=True, kw_only=True)
class BenchRunOptions:
    """Run a protocol, cell by cell. The run may be stopped at any time; the same command resumes it."""

    command: ClassVar[str] = "run"
    protocol: Annotated[Path, typer.Argument(help="TOML file that describes the study.")]
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; finished cells are not run again. Default: next to the protocol."),
    ] = None
    studies: Annotated[str | None, typer.Option(help="Only these studies of the protocol: a,b")] = None
    only: Annotated[str | None, typer.Option(help="Only these data sets: boston,crime")] = None
    methods: Annotated[str | None, typer.Option(help="Only these methods: hnn,dropout_hc")] = None
    seeds: Annotated[str | None, typer.Option(help="Only these splits: 0,1,2 or 0-4")] = None
    jobs: Jobs = None
    backend: Backend = None
    address: ClusterAddress = None
    quick: Annotated[bool, typer.Option("--quick", help="Run the protocol's quick version, in minutes.")] = False


TABLE_FORMATS = ("terminal", "markdown", "latex", "csv", "cells")


@dataclass(frozen=True, kw_only=True)
class BenchTableOptions:
    """Print the table: mean and standard error over the splits, noise floor, published values."""

    command: ClassVar[str] = "table"
    folder: ResultsFolder
    format: Annotated[str, typer.Option(help=f"One of {', '.join(TABLE_FORMATS)}.")] = "terminal"
    metric: Annotated[list[str], typer.Option(help="ce, rmse, crps, ...; may be repeated.")] = field(
        default_factory=list
    )


@dataclass(frozen=True, kw_only=True)
class BenchFiguresOptions:
    """Draw the figures as PNG and SVG."""

    command: ClassVar[str] = "figures"
    folder: ResultsFolder
    out: Annotated[Path | None, typer.Option(help="Folder for the figures; by default the folder of results.")] = None


@dataclass(frozen=True, kw_only=True)
class BenchReportOptions:
    """Write the tables and calibration curves as one self-contained page."""

    command: ClassVar[str] = "report"
    folder: ResultsFolder
    out: Annotated[Path, Writes(".html"), typer.Option(metavar="FILE.html", help="Page to write.")]
    force: Force = False

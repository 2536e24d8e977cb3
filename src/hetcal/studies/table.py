"""A study as a table: data sets by methods, mean and standard error over the splits, published figures beside ours.

Two steps: `tabulate` finds the figures, and a renderer per format writes them: terminal, Markdown, CSV or LaTeX.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from hetcal.studies.results import Figure, Result, Results, summarize

METRICS = ("ce", "rmse")
SUMMARY_METRICS = (
    *("ce", "ce_noise_floor", "rmse", "mae", "nll", "crps", "sharpness", "coverage_90", "interval_width_90"),
    *("interval_score_90", "ence", "conditional_coverage_error", "seconds"),
)
TITLES = {"ce": "Calibration error", "rmse": "RMSE", "crps": "CRPS", "nll": "Negative log likelihood"}


@dataclass(frozen=True)
class Entry:
    """One place of a table: our figure, the published one, and whether ours is the best of its row."""

    figure: Figure
    published: float | None
    is_best: bool


@dataclass(frozen=True)
class Table:
    """One metric of one study: a row per data set, an entry per method (None where nothing is finished)."""

    title: str
    methods: Sequence[str]
    rows: Sequence[tuple[str, float | None, Sequence[Entry | None]]]  # data set, noise floor, entries


def tabulate(results: Results, metric: str) -> list[Table]:
    """A table for each study; where settings are varied, a row for each variant."""
    tables = []
    for study in results.protocol.studies:
        variants = sorted({cell.varied for cell in results.done if cell.study == study.name})
        titles = {cell.method: result["title"] for cell, result in results.done.items() if cell.study == study.name}
        methods = [method for method in study.methods if method in titles]
        rows = []
        for dataset, varied in product(study.datasets, variants):
            groups = [results.select(study.name, dataset, method, **dict(varied)) for method in methods]
            if any(groups):
                comparable = study.split == "random" and not varied
                published = results.protocol.reference.get(dataset, {}) if comparable else {}
                name = " ".join([dataset, variant(varied)]).strip()
                rows.append(tabulate_row(name, metric, methods, groups, published))
        if rows:
            title = f"{TITLES.get(metric, metric)}: {study.name} ({study.split} splits)"
            tables.append(Table(title, [titles[method] for method in methods], rows))
    return tables


def tabulate_row(
    name: str, metric: str, methods: Sequence[str], groups: Sequence[Sequence[Result]], published: Any
) -> tuple[str, float | None, list[Entry | None]]:
    figures = [summarize(group, metric) for group in groups]
    floor = summarize([result for group in groups for result in group], "ce_noise_floor") if metric == "ce" else None
    # Below the noise floor nothing is better: luck alone decides there.
    best = max(min(loss(figure.mean, metric) for figure in figures if figure), floor.mean if floor else -math.inf)
    entries = [
        Entry(figure, published.get(method, {}).get(metric), loss(figure.mean, metric) <= best) if figure else None
        for method, figure in zip(methods, figures, strict=True)
    ]
    return name, floor.mean if floor else None, entries


def loss(value: float, metric: str) -> float:
    """What is to be small: the metric itself, or how far the coverage is from what it should be."""
    return abs(value - 0.9) if metric == "coverage_90" else value


def notes(results: Results) -> list[str]:
    """What a reader of the table must know beside it."""
    said = []
    if results.failed:
        said.append(
            f"{len(results.failed)} cell(s) failed and are not in the table, {next(iter(results.failed))} for one"
        )
    if results.damaged:
        said.append(f"{len(results.damaged)} damaged file(s) left out, {results.damaged[0]} for one; run again to redo")
    versions = sorted({result["versions"]["hetcal"] for result in results.done.values()})
    if len(versions) > 1:
        said.append(f"the cells were made by different versions of hetcal: {', '.join(versions)}")
    missing = len(set(results.protocol.cells()) - set(results.done) - set(results.failed))
    if missing:
        said.append(f"{missing} cell(s) of the protocol are still to run")
    if results.protocol.is_quick:
        said.append("a quick first look: few splits, short training, part of the rows; not the study")
    return said


def render_markdown(tables: Sequence[Table]) -> str:
    def text(entry: Entry) -> str:
        ours = with_error(entry.figure, " ± ")
        return (f"**{ours}**" if entry.is_best else ours) + published(entry)

    blocks = []
    for table in tables:
        lines = ["| " + " | ".join(header(table)) + " |", "|---" + "|---:" * (len(header(table)) - 1) + "|"]
        lines += ["| " + " | ".join(line) + " |" for line in body(table, text)]
        blocks.append("\n".join([f"**{table.title}**", "", *lines]))
    return "\n\n".join(blocks) + "\n"


def render_latex(tables: Sequence[Table]) -> str:
    def text(entry: Entry) -> str:
        ours = with_error(entry.figure, r" \pm ")
        return (rf"$\mathbf{{{ours}}}$" if entry.is_best else f"${ours}$") + published(entry)

    blocks = []
    for table in tables:
        names = [[re.sub(r"([_&%#$])", r"\\\1", line[0]), *line[1:]] for line in [header(table), *body(table, text)]]
        lines = [" & ".join(line) + r" \\" for line in names]
        columns = "l" + "r" * (len(header(table)) - 1)
        blocks.append(
            "\n".join(
                [
                    rf"% {table.title}",
                    rf"\begin{{tabular}}{{{columns}}}",
                    r"\hline",
                    lines[0],
                    r"\hline",
                    *lines[1:],
                    r"\hline",
                    r"\end{tabular}",
                ]
            )
        )
    return "\n\n".join(blocks) + "\n"


def render_terminal(tables: Sequence[Table]) -> str:
    """With rich, and narrow: the published figure stands on a line of its own."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    def text(entry: Entry) -> str:
        ours = with_error(entry.figure, "±")
        ours = f"[bold]{ours}[/bold]" if entry.is_best else ours
        return ours if entry.published is None else f"{ours}\n[dim]{number(entry.published)}[/dim]"

    console = Console(highlight=False, width=1000)  # wider than any table: a figure that is cut off is a wrong one
    with console.capture() as capture:
        for table in tables:
            shown = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
            for place, name in enumerate(header(table)):
                shown.add_column(name, justify="right" if place else "left", no_wrap=True)
            for line in body(table, text):
                shown.add_row(*line)
            has_published = any(entry and entry.published is not None for row in table.rows for entry in row[2])
            console.print(f"[bold]{table.title}[/bold]" + ("; below each figure the published one" * has_published))
            console.print(shown)
            console.print()
    return capture.get()


def render_csv(results: Results) -> str:
    """Every study, data set, method and variant with mean and standard error of every metric: one line each."""
    names = ["study", "split", "dataset", "method", "varied", "n_splits", "n_train", "n_test"]
    figures = [f"{metric}{suffix}" for metric in SUMMARY_METRICS for suffix in ("", "_se")]
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for cell in sorted(results.done, key=order_of(results)):
        groups.setdefault((cell.study, cell.dataset, cell.method, cell.varied), []).append(results.done[cell])
    lines = []
    for (study, dataset, method, varied), group in groups.items():
        split = group[0]["split"]
        line = [study, split["rule"], dataset, method, variant(varied), len(group), split["n_train"], split["n_test"]]
        for metric in SUMMARY_METRICS:
            figure = summarize(group, metric)
            line += [f"{figure.mean:.6g}", f"{figure.error:.3g}"] if figure else ["", ""]
        lines.append(line)
    return write_csv([[*names, *figures], *lines])


def render_cells(results: Results) -> str:
    """Every finished cell with its metrics and its training: one line each."""
    names = ["study", "dataset", "method", "varied", "seed"]
    training = ["epochs", "best_epoch", "stopped"]
    lines = []
    for cell in sorted(results.done, key=order_of(results)):
        result = results.done[cell]
        metrics = [f"{result['metrics'][metric]:.6g}" for metric in SUMMARY_METRICS]
        median, high = (result["std_quantiles"][round(100 * q) - 1] for q in (0.5, 0.95))
        metrics.append(f"{high / median:.4g}")
        ended = [result["training"][name] for name in training]
        lines.append([cell.study, cell.dataset, cell.method, variant(cell.varied), cell.seed, *metrics, *ended])
    return write_csv([[*names, *SUMMARY_METRICS, "std_95_to_median", *training], *lines])


def order_of(results: Results) -> Callable[[Any], Any]:
    """Cells in the order of the protocol; those it no longer has, at the end."""
    place = {cell: number for number, cell in enumerate(results.protocol.cells())}
    grid = {(cell.study, cell.dataset, cell.method, cell.varied): number for cell, number in reversed(place.items())}
    return lambda cell: (
        grid.get((cell.study, cell.dataset, cell.method, cell.varied), len(place)),
        cell.path.parent,
        cell.seed,
    )


def variant(varied: tuple[tuple[str, Any], ...]) -> str:
    return " ".join(f"{name}={value}" for name, value in varied)


def write_csv(lines: Sequence[Sequence[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()


def header(table: Table) -> list[str]:
    has_floor = any(floor is not None for _, floor, _ in table.rows)
    return ["data set", *(["floor"] if has_floor else []), *table.methods]


def body(table: Table, text: Callable[[Entry], str]) -> list[list[str]]:
    return [
        [dataset, *([] if floor is None else [number(floor)]), *(text(entry) if entry else "" for entry in entries)]
        for dataset, floor, entries in table.rows
    ]


def with_error(figure: Figure, sign: str) -> str:
    """A single split has no standard error."""
    error = sign + number(figure.error, like=figure.mean) if figure.n > 1 else ""
    return number(figure.mean) + error


def published(entry: Entry) -> str:
    return "" if entry.published is None else f" ({number(entry.published)})"


def number(value: float, like: float | None = None) -> str:
    """Three digits where they matter: 0.317, 3.43, 75.7; an error bar has the decimals of its mean (`like`)."""
    size = abs(value if like is None else like)
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"

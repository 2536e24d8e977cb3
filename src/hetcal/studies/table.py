"""A study as a table: data sets by methods, mean and standard error over the splits, with published figures.

There are two steps: `tabulate` computes the figures, and one function per format writes them, for a terminal, Markdown,
LaTeX or CSV.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hetcal.metrics.evidence import LEVEL
from hetcal.metrics.wording import count, fixed
from hetcal.studies.protocol import describe_varied
from hetcal.studies.results import Result, Results, estimate_figure
from hetcal.studies.statistics import FIGURES, Estimate

# The figures of the paper's table.
PAPER_FIGURES = ("ce", "rmse")
# The columns of a CSV file. The committed studies are older than the pinball loss in `evaluate`.
CSV_FIGURES = (
    "ce",
    "ce_noise_floor",
    *(name for name in FIGURES if name not in ("ce", "ce_noise_floor", "pinball_loss")),
)


@dataclass(frozen=True)
class TableEntry:
    """One entry of a table: our estimate, the published value, and whether ours is the best of its row."""

    estimate: Estimate
    published: float | None
    is_best: bool


class TableRow(NamedTuple):
    """A data set: the noise floor if the figure has one, and an entry per method, None if no cell is finished."""

    name: str
    floor: float | None
    entries: Sequence[TableEntry | None]


@dataclass(frozen=True)
class StudyTable:
    """One figure of one study: a row per data set, a column per method."""

    title: str
    methods: Sequence[str]
    rows: Sequence[TableRow]


def tabulate(results: Results, figure: str) -> list[StudyTable]:
    """Make a table for each study; if settings are varied, it has a row for each variant."""
    tables = []
    for study in results.protocol.studies:
        titles = {cell.method: result["title"] for cell, result in results.done.items() if cell.study == study.name}
        methods = [method for method in study.methods if method in titles]
        rows = []
        for dataset, varied, groups in results.by_method(study):
            is_comparable = study.split == "random" and not varied
            published = results.protocol.reference.get(dataset, {}) if is_comparable else {}
            name = f"{dataset} {describe_varied(varied)}".strip()
            rows.append(tabulate_row(name, figure, {method: groups[method] for method in methods}, published))
        if rows:
            title = f"{FIGURES[figure].title}: {study.name} ({study.split} splits)"
            tables.append(StudyTable(title, [titles[method] for method in methods], rows))
    return tables


def tabulate_row(
    name: str, figure: str, groups: Mapping[str, Sequence[Result]], published: Mapping[str, Mapping[str, float]]
) -> TableRow:
    estimates = {method: estimate_figure(group, figure) for method, group in groups.items()}
    finished = [result for group in groups.values() for result in group]
    floor = estimate_figure(finished, "ce_noise_floor") if figure == "ce" else None
    # Below the noise floor no method is better than another, because differences there are due to chance.
    best = max(
        min(loss(estimate.mean, figure) for estimate in estimates.values() if estimate),
        floor.mean if floor else -math.inf,
    )
    entries = [
        TableEntry(estimate, published.get(method, {}).get(figure), loss(estimate.mean, figure) <= best)
        if estimate
        else None
        for method, estimate in estimates.items()
    ]
    return TableRow(name, floor.mean if floor else None, entries)


def loss(value: float, figure: str) -> float:
    """The quantity to be minimized: the figure itself, or the distance of the coverage from its nominal level."""
    return abs(value - LEVEL) if FIGURES[figure].better == "near" else value


def study_notes(results: Results) -> list[str]:
    """Notes about the cells of a table that a reader must know."""
    notes = []
    if results.failed:
        example = next(iter(results.failed))
        notes.append(f"the table omits {count(len(results.failed), 'failed cell')}, for example {example}")
    if results.damaged:
        files = f"{count(len(results.damaged), 'damaged file')}, for example {results.damaged[0]}"
        notes.append(f"the table omits {files}; run the protocol again to replace them")
    versions = sorted({result["versions"]["hetcal"] for result in results.done.values()})
    if len(versions) > 1:
        notes.append(f"the cells were run with different versions of hetcal: {', '.join(versions)}")
    missing = len(set(results.protocol.cells()) - set(results.done) - set(results.failed))
    if missing:
        notes.append(f"still to run: {count(missing, 'cell')} of the protocol")
    if results.protocol.is_quick:
        notes.append("this is a quick run with few splits, short training and some of the rows, not the full study")
    return notes


def render_markdown(tables: Sequence[StudyTable]) -> str:
    def text(entry: TableEntry) -> str:
        ours = with_error(entry.estimate, " ± ")
        return (f"**{ours}**" if entry.is_best else ours) + in_brackets(entry)

    blocks = []
    for table in tables:
        lines = ["| " + " | ".join(header(table)) + " |", "|---" + "|---:" * (len(header(table)) - 1) + "|"]
        lines += ["| " + " | ".join(line) + " |" for line in body(table, text)]
        blocks.append("\n".join([f"**{table.title}**", "", *lines]))
    return "\n\n".join(blocks) + "\n"


def render_latex(tables: Sequence[StudyTable]) -> str:
    def text(entry: TableEntry) -> str:
        ours = with_error(entry.estimate, r" \pm ")
        return (rf"$\mathbf{{{ours}}}$" if entry.is_best else f"${ours}$") + in_brackets(entry)

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


def render_terminal(tables: Sequence[StudyTable]) -> str:
    """Render with rich. The published figure is on a separate line, so that the table is narrow."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    def text(entry: TableEntry) -> str:
        ours = with_error(entry.estimate, "±")
        ours = f"[bold]{ours}[/bold]" if entry.is_best else ours
        return ours if entry.published is None else f"{ours}\n[dim]{fixed(entry.published)}[/dim]"

    console = Console(highlight=False, width=1000)  # wider than any table: no figure may be cut off
    with console.capture() as capture:
        for table in tables:
            shown = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
            for place, name in enumerate(header(table)):
                shown.add_column(name, justify="right" if place else "left", no_wrap=True)
            for line in body(table, text):
                shown.add_row(*line)
            has_published = any(entry and entry.published is not None for row in table.rows for entry in row.entries)
            remark = "; the published figure is below ours" if has_published else ""
            console.print(f"[bold]{table.title}[/bold]{remark}")
            console.print(shown)
            console.print()
    return capture.get()


def render_csv(results: Results) -> str:
    """One line for each study, data set, method and variant: mean and standard error of every figure."""
    names = ["study", "split", "dataset", "method", "varied", "n_splits", "n_train", "n_test"]
    figures = [f"{figure}{suffix}" for figure in CSV_FIGURES for suffix in ("", "_se")]
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for cell in sorted(results.done, key=order_of(results)):
        groups.setdefault((cell.study, cell.dataset, cell.method, cell.varied), []).append(results.done[cell])
    lines = []
    for (study, dataset, method, varied), group in groups.items():
        split = group[0]["split"]
        counts = [len(group), split["n_train"], split["n_test"]]
        estimates = [estimate for figure in CSV_FIGURES if (estimate := estimate_figure(group, figure))]
        shown = [text for estimate in estimates for text in (f"{estimate.mean:.6g}", f"{estimate.error:.3g}")]
        lines.append([study, split["rule"], dataset, method, describe_varied(varied), *counts, *shown])
    return write_csv([[*names, *figures], *lines])


def render_cells(results: Results) -> str:
    """One line for each finished cell: its figures, its memory, and how its training ended (empty for peers)."""
    names = ["study", "dataset", "method", "varied", "seed"]
    training = ["epochs", "best_epoch", "stopped"]
    lines = []
    for cell in sorted(results.done, key=order_of(results)):
        result = results.done[cell]
        shown = [f"{result['metrics'][figure]:.6g}" for figure in CSV_FIGURES]
        median, high = (result["std_quantiles"][round(100 * q) - 1] for q in (0.5, 0.95))
        shown.append(f"{high / median:.4g}")
        memory = result.get("peak_memory_mb")  # older results have none
        shown.append("" if memory is None else f"{memory:.0f}")
        ended = [result["training"][name] if result["training"] else "" for name in training]
        lines.append([cell.study, cell.dataset, cell.method, describe_varied(cell.varied), cell.seed, *shown, *ended])
    return write_csv([[*names, *CSV_FIGURES, "std_95_to_median", "peak_memory_mb", *training], *lines])


def order_of(results: Results) -> Callable[[Any], Any]:
    """Sort cells in the order of the protocol; cells that it no longer has are last."""
    place = {cell: number for number, cell in enumerate(results.protocol.cells())}
    grid = {(cell.study, cell.dataset, cell.method, cell.varied): number for cell, number in reversed(place.items())}
    return lambda cell: (
        grid.get((cell.study, cell.dataset, cell.method, cell.varied), len(place)),
        cell.path.parent,
        cell.seed,
    )


def write_csv(lines: Sequence[Sequence[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()


def header(table: StudyTable) -> list[str]:
    has_floor = any(floor is not None for _, floor, _ in table.rows)
    return ["data set", *(["floor"] if has_floor else []), *table.methods]


def body(table: StudyTable, text: Callable[[TableEntry], str]) -> list[list[str]]:
    return [
        [dataset, *([] if floor is None else [fixed(floor)]), *(text(entry) if entry else "" for entry in entries)]
        for dataset, floor, entries in table.rows
    ]


def with_error(estimate: Estimate, sign: str) -> str:
    """Mean and standard error; a single split has no standard error."""
    error = sign + fixed(estimate.error, like=estimate.mean) if estimate.n > 1 else ""
    return fixed(estimate.mean) + error


def in_brackets(entry: TableEntry) -> str:
    return "" if entry.published is None else f" ({fixed(entry.published)})"

"""The tables: figures recomputed from the files in another way, and complete output in every format."""

import csv
import io
import json
import math
import re
import statistics
from collections import defaultdict
from dataclasses import replace

import pytest
from numpy.testing import assert_allclose

from hetcal.metrics.wording import fixed
from hetcal.studies.protocol import Cell
from hetcal.studies.results import read_results, write_result
from hetcal.studies.table import (
    CSV_FIGURES,
    render_cells,
    render_csv,
    render_latex,
    render_markdown,
    render_terminal,
    study_notes,
    tabulate,
)
from tests.studies.samples import cell_files, make_result, make_results

TEXT = """\
title = "Shown"

[[study]]
name = "table"
datasets = ["skewed", "heteroscedastic"]
methods = ["mc_dropout", "hnn", "dropout_hc"]
seeds = 4

[[study]]
name = "patients"
split = "grouped"
datasets = ["skewed"]
methods = ["hnn"]
seeds = 1

[[study]]
name = "lengths"
datasets = ["skewed"]
methods = ["hnn"]
seeds = 2
vary = { max_epochs = [2, 10] }

[reference.skewed]
hnn = { ce = 0.541, rmse = 5.106 }
"""
# Means by data set and method; the noise floor of the hand-made results is 0.25.
CE = {
    ("heteroscedastic", "mc_dropout"): 0.8,
    ("heteroscedastic", "hnn"): 0.375,
    ("heteroscedastic", "dropout_hc"): 0.5,
    ("skewed", "mc_dropout"): 0.24,
    ("skewed", "hnn"): 0.1,
    ("skewed", "dropout_hc"): 0.3,
}
NLL = {"mc_dropout": -0.5, "hnn": -1.5, "dropout_hc": 0.5}
COVERAGE = {"mc_dropout": 0.97, "hnn": 0.85, "dropout_hc": 0.5}
AROUND_THE_MEAN = (-0.03, 0.01, 0.04, -0.02)


def metrics_of(cell):
    ce = CE[cell.dataset, cell.method] + AROUND_THE_MEAN[cell.seed]
    return {"ce": ce, "rmse": 20 * ce, "nll": NLL[cell.method], "coverage_90": COVERAGE[cell.method]}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return make_results(tmp_path_factory.mktemp("results"), TEXT, metrics_of)


def entries(results, metric, study=0):
    """The entries of one table by data set and method."""
    table = tabulate(results, metric)[study]
    return {
        (name, title): entry for name, _, row in table.rows for title, entry in zip(table.methods, row, strict=True)
    }


def best(results, metric):
    return {place for place, entry in entries(results, metric).items() if entry.is_best}


def test_figures_are_mean_and_standard_error(results):
    """By hand: the mean of the four splits, and their standard deviation divided by the square root of four."""
    error = math.sqrt(sum(value**2 for value in AROUND_THE_MEAN) / 3) / 2
    titles = {"mc_dropout": "MC Dropout", "hnn": "HNN", "dropout_hc": "Dropout-HC"}
    found = entries(results, "ce")
    assert found.keys() == {(dataset, titles[method]) for dataset, method in CE}
    for (dataset, method), mean in CE.items():
        figure = found[dataset, titles[method]].estimate
        assert figure.n == 4
        assert_allclose([figure.mean, figure.error], [mean, error], rtol=1e-12)


def test_the_best_and_what_noise_allows(results):
    """Above the noise floor one method is best; all methods at or below it are, because there chance decides."""
    assert best(results, "ce") == {("heteroscedastic", "HNN"), ("skewed", "HNN"), ("skewed", "MC Dropout")}
    assert {floor for _, floor, _ in tabulate(results, "ce")[0].rows} == {0.25}


def test_the_best_where_there_is_no_floor(results):
    """Only one has the smallest RMSE or (below zero too) NLL; the best coverage is the nearest to 90 %."""
    datasets = ("heteroscedastic", "skewed")
    for metric in ("rmse", "nll", "coverage_90"):
        assert best(results, metric) == {(dataset, "HNN") for dataset in datasets}
        assert {floor for _, floor, _ in tabulate(results, metric)[0].rows} == {None}


def test_published_figures(results):
    """Only beside random splits with the settings of the protocol."""
    found = entries(results, "rmse")
    assert found["skewed", "HNN"].published == 5.106
    assert [entry.published for place, entry in found.items() if place != ("skewed", "HNN")] == 5 * [None]
    for study in (1, 2):
        assert {entry.published for entry in entries(results, "ce", study).values()} == {None}


def test_one_table_per_study(results):
    tables = tabulate(results, "ce")
    assert [table.title for table in tables] == [
        "Calibration error: table (random splits)",
        "Calibration error: patients (grouped splits)",
        "Calibration error: lengths (random splits)",
    ]
    assert [name for name, _, _ in tables[0].rows] == ["skewed", "heteroscedastic"]  # in the order of the protocol
    assert [name for name, _, _ in tables[2].rows] == ["skewed max_epochs=2", "skewed max_epochs=10"]


def test_markdown(results):
    """Word for word: best in bold, published in brackets, no error for a single split, no floor beside the RMSE."""
    assert render_markdown(tabulate(results, "ce")[:2]) == (
        "**Calibration error: table (random splits)**\n"
        "\n"
        "| data set | floor | MC Dropout | HNN | Dropout-HC |\n"
        "|---|---:|---:|---:|---:|\n"
        "| skewed | 0.250 | **0.240 ± 0.016** | **0.100 ± 0.016** (0.541) | 0.300 ± 0.016 |\n"
        "| heteroscedastic | 0.250 | 0.800 ± 0.016 | **0.375 ± 0.016** | 0.500 ± 0.016 |\n"
        "\n"
        "**Calibration error: patients (grouped splits)**\n"
        "\n"
        "| data set | floor | HNN |\n"
        "|---|---:|---:|\n"
        "| skewed | 0.250 | **0.070** |\n"
    )
    assert render_markdown(tabulate(results, "rmse")[:1]).splitlines()[2:] == [
        "| data set | MC Dropout | HNN | Dropout-HC |",
        "|---|---:|---:|---:|",
        "| skewed | 4.80 ± 0.32 | **2.00 ± 0.32** (5.11) | 6.00 ± 0.32 |",
        "| heteroscedastic | 16.0 ± 0.3 | **7.50 ± 0.32** | 10.0 ± 0.3 |",
    ]


def test_latex(results):
    """Every row has as many columns as declared, everything that opens is closed, and names are escaped."""
    text = render_latex([table for metric in ("ce", "rmse") for table in tabulate(results, metric)])
    blocks = text.split("\n\n")
    assert len(blocks) == 6
    for block in blocks:
        lines = block.splitlines()
        columns = re.fullmatch(r"\\begin\{tabular\}\{(lr+)\}", lines[1])[1]
        rows = [line for line in lines if line.endswith(r" \\")]
        assert {line.count("&") for line in rows} == {len(columns) - 1}
        assert lines == [lines[0], lines[1], r"\hline", rows[0], r"\hline", *rows[1:], r"\hline", r"\end{tabular}"]
        assert lines[0].startswith("% ")
        for line in rows:
            assert line.count("$") % 2 == 0
            assert line.count("{") == line.count("}")
            assert not re.search(r"(?<!\\)[_#%]|±", line)
    assert r"skewed & 0.250 & $\mathbf{0.240 \pm 0.016}$ & $\mathbf{0.100 \pm 0.016}$ (0.541) & $0.300" in blocks[0]
    assert r"skewed max\_epochs=10 & " in blocks[2]


def test_terminal(results, monkeypatch):
    """Bold in a terminal, plain in a file, and nothing cut off, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "30")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    plain = render_terminal(tabulate(results, "ce"))
    lines = plain.splitlines()
    assert lines[0] == "Calibration error: table (random splits); the published figure is below ours"
    assert lines[1].split("  ")[0] == "data set"
    assert lines[3].split() == ["skewed", "0.250", "0.240±0.016", "0.100±0.016", "0.300±0.016"]
    assert lines[4].split() == ["0.541"]
    assert "Calibration error: patients (grouped splits)\n" in plain
    assert "skewed max_epochs=10" in plain
    assert not re.search("\x1b|…", plain)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    colored = render_terminal(tabulate(results, "ce"))
    assert re.findall("\x1b\\[1m(0.\\d*±0.\\d*)\x1b\\[0m", colored)[:3] == [
        "0.240±0.016",
        "0.100±0.016",
        "0.375±0.016",
    ]
    assert "\x1b[2m0.541\x1b[0m" in colored
    assert re.sub("\x1b\\[[0-9;]*m", "", colored) == plain


def test_csv_of_hand_made_results(results):
    """One line for each place of the grid, in the order of the protocol."""
    lines = list(csv.DictReader(io.StringIO(render_csv(results))))
    assert [tuple(line[name] for name in ("study", "split", "dataset", "method", "varied")) for line in lines] == [
        *(("table", "random", "skewed", method, "") for method in NLL),
        *(("table", "random", "heteroscedastic", method, "") for method in NLL),
        ("patients", "grouped", "skewed", "hnn", ""),
        *(("lengths", "random", "skewed", "hnn", f"max_epochs={n}") for n in (2, 10)),
    ]
    assert [line["n_splits"] for line in lines] == ["4"] * 6 + ["1", "2", "2"]
    assert (lines[1]["ce"], lines[1]["ce_se"], lines[1]["n_train"], lines[1]["n_test"]) == ("0.1", "0.0158", "80", "20")
    assert lines[6]["ce_se"] == "0"


def test_csv_of_a_run(finished):
    """Recomputed from the JSON files of a real run: every metric that is listed, its mean and its error."""
    groups = defaultdict(list)
    for path in cell_files(finished):
        result = json.loads(path.read_text())
        groups[result["study"], result["dataset"], result["method"]].append(result["metrics"])
    lines = list(csv.DictReader(io.StringIO(render_csv(read_results(finished)))))
    assert [(line["study"], line["dataset"], line["method"]) for line in lines] == list(groups)
    for line, group in zip(lines, groups.values(), strict=True):
        assert (line["n_splits"], line["n_train"], line["n_test"]) == ("2", "800", "200")
        for metric in CSV_FIGURES:
            values = [metrics[metric] for metrics in group]
            assert_allclose(float(line[metric]), statistics.fmean(values), rtol=1e-5)
            assert_allclose(float(line[f"{metric}_se"]), statistics.stdev(values) / 2**0.5, rtol=1e-2, atol=1e-12)


def test_cells(results):
    """One line for each finished cell, seeds in their order."""
    lines = list(csv.DictReader(io.StringIO(render_cells(results))))
    assert len(lines) == len(results.done) == 2 * 3 * 4 + 1 + 2 * 2
    assert [line["seed"] for line in lines[:4]] == ["0", "1", "2", "3"]
    assert [float(line["ce"]) for line in lines[4:8]] == [0.07, 0.11, 0.14, 0.08]
    assert (lines[0]["epochs"], lines[0]["best_epoch"], lines[0]["stopped"]) == ("3", "1", "patience")
    assert lines[0]["peak_memory_mb"] == "512"


def test_cells_of_peers_and_of_older_versions(results):
    """A peer has no epochs, and an older result no memory: these places are empty."""
    cell, result = next(iter(results.done.items()))
    older = {name: value for name, value in result.items() if name != "peak_memory_mb"} | {"training": None}
    (line,) = csv.DictReader(io.StringIO(render_cells(replace(results, done={cell: older}))))
    assert {line[name] for name in ("peak_memory_mb", "epochs", "best_epoch", "stopped")} == {""}


def test_unfinished_study(tmp_path):
    """Failed, damaged, missing: the entry in the table is empty, and the notes say so."""

    def metrics_of_some(cell):
        if (cell.study, cell.dataset, cell.method) == ("table", "skewed", "hnn"):
            return "MemoryError"
        return metrics_of(cell) if cell.study == "table" and cell.method != "dropout_hc" else None

    results = make_results(tmp_path, TEXT, metrics_of_some)
    path = cell_files(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-9])
    results = read_results(tmp_path)
    assert study_notes(results) == [
        "the table omits 4 failed cells, for example skewed hnn",
        f"the table omits 1 damaged file, for example {path}; run the protocol again to replace them",
        "still to run: 14 cells of the protocol",
    ]
    (table,) = tabulate(results, "rmse")
    assert table.methods == ["MC Dropout", "HNN"]
    assert render_markdown([table]).splitlines()[-2:] == [
        "| skewed | **4.80 ± 0.32** |  |",
        "| heteroscedastic | 16.0 ± 0.3 | **7.70 ± 0.35** |",
    ]
    assert len(render_csv(results).splitlines()) == 1 + 3


def test_nothing_finished(tmp_path):
    results = make_results(tmp_path, TEXT, lambda cell: None)
    assert tabulate(results, "ce") == []
    assert study_notes(results) == ["still to run: 29 cells of the protocol"]
    assert render_csv(results).count("\n") == 1


def test_notes_of_a_whole_study(results, tmp_path):
    """A complete study has none; two versions of hetcal and a quick run are mentioned."""
    assert study_notes(results) == []
    cells = results.protocol.cells()
    both = make_results(tmp_path, TEXT, metrics_of)
    write_result(tmp_path, cells[0], {**make_result(both.protocol, cells[0]), "versions": {"hetcal": "0.0.9"}})
    assert study_notes(read_results(tmp_path)) == ["the cells were run with different versions of hetcal: 0.0.9, 0.1.0"]
    both.protocol = replace(both.protocol, is_quick=True)
    assert study_notes(both) == [
        "this is a quick run with few splits, short training and some of the rows, not the full study"
    ]


def test_cells_that_the_protocol_no_longer_has(results, tmp_path):
    """They remain in the CSV, at its end."""
    make_results(tmp_path, TEXT, metrics_of)
    stray = Cell("table", "boston", "quantile_hc", 0)
    write_result(tmp_path, stray, make_result(results.protocol, stray))
    lines = render_csv(read_results(tmp_path)).splitlines()
    assert lines[:-1] == render_csv(results).splitlines()
    assert lines[-1].startswith("table,random,boston,quantile_hc,")


@pytest.mark.parametrize(
    ("value", "like", "text"),
    [
        (0.3174, None, "0.317"),
        (3.4251, None, "3.43"),
        (75.66, None, "75.7"),
        (-1.234, None, "-1.23"),
        (0.0456, 12.0, "0.0"),
        (0.0456, 2.0, "0.05"),
        (0.0456, 0.2, "0.046"),
    ],
)
def test_digits(value, like, text):
    """Three digits where they matter, and an error with the decimals of its mean."""
    assert fixed(value, like) == text

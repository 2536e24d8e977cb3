"""`hetcal bench`: run, table, figures and report of a study, and what is refused."""

import csv
import gzip
import hashlib
import io
import re
from pathlib import Path

import pytest

from hetcal.cli.bench import parse_seeds
from hetcal.studies.protocol import parse_protocol
from hetcal.studies.results import open_folder, read_results
from tests.studies.samples import TINY, cell_files, fingerprint, make_results

SMALL = TINY.replace(', "skewed"', "").replace("seeds = 2", "seeds = 1")
WITH_QUICK = TINY + "[quick]\nseeds = 1\nmax_epochs = 1\nmax_train_rows = 50\n"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder of results made by hand, with one cell failed and one missing."""

    def metrics_of(cell):
        place = cell.method, cell.seed
        return {("hnn", 1): "MemoryError", ("quantile_hc", 1): None}.get(place, {"ce": 0.5 + cell.seed, "crps": 0.125})

    folder = tmp_path_factory.mktemp("results")
    make_results(folder, TINY, metrics_of)
    return folder


def test_run_then_table_then_figures(hetcal, tmp_path):
    """The three commands of the documentation, one after the other."""
    Path("study.toml").write_text(SMALL)
    code, out, err = hetcal("bench", "run", "study.toml", "--out", "results")
    assert (code, out) == (0, "2 cells finished, 0 failed; now: hetcal bench table results\n")
    assert "2 of 2 cells" in err
    before = fingerprint(tmp_path / "results")
    assert len(before) == 2

    code, out, err = hetcal("bench", "run", "study.toml", "--out", "results", "--jobs", "2")
    assert (code, out) == (0, "2 cells finished, 0 failed; now: hetcal bench table results\n")
    assert fingerprint(tmp_path / "results") == before

    code, out, err = hetcal("bench", "table", "results")
    assert (code, err) == (0, "")
    assert re.search(r"^data set +floor +HNN +Quantile-HC\n", out, re.MULTILINE)

    code, out, err = hetcal("bench", "figures", "results")
    assert (code, err) == (0, "")
    assert [Path(line).suffix for line in out.splitlines()] == 2 * [".png", ".svg"]
    assert all(Path(line).stat().st_size > 1000 for line in out.splitlines())
    code, out, err = hetcal("bench", "figures", "results", "--out", "pictures/new")
    assert out.splitlines()[0] == "pictures/new/figure-2.png"
    assert Path("pictures/new/figure-2.png").is_file()


MINE = SMALL.replace('"heteroscedastic"', '"heteroscedastic", "mine"').replace(', "quantile_hc"', "")
MINE += '[tables.mine]\nfile = "mine.csv.gz"\ntarget = "price"\ngroup = "town"\n'
ROWS = 40


def write_own_table(folder, slope=1.0):
    """A gzipped CSV as people write it: semicolons, a column of labels and one of groups."""
    lines = [f"{i % 7};{'ab'[i % 2]};{slope * i};{i // 4}" for i in range(ROWS)]
    with gzip.open(folder / "mine.csv.gz", "wt") as file:
        file.write("\n".join(["size;kind;price;town", *lines]))
    return hashlib.sha256((folder / "mine.csv.gz").read_bytes()).hexdigest()


def test_a_table_of_ones_own(hetcal, tmp_path, monkeypatch):
    """Beside the protocol or in HETCAL_TABLES; its checksum is in the cell, and a changed file is run again."""
    Path("study.toml").write_text(MINE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("HETCAL_TABLES", str(elsewhere))
    checksum = write_own_table(elsewhere)
    arguments = ("bench", "run", "study.toml", "--out", "results")
    finished = "2 cells finished, 0 failed; now: hetcal bench table results\n"
    code, out, _ = hetcal(*arguments)
    assert (code, out) == (0, finished)
    cells = {cell.dataset: (cell, result) for cell, result in read_results(Path("results")).done.items()}
    cell, result = cells["mine"]
    assert result["table"] == {"sha256": checksum, "target": "price", "group": "town"}
    assert result["split"] == {"rule": "random", "n_train": 0.8 * ROWS, "n_test": 0.2 * ROWS}
    assert cells["heteroscedastic"][1]["table"] is None
    assert re.search("^mine ", hetcal("bench", "table", "results")[1], re.MULTILINE)
    assert hetcal("bench", "figures", "results")[0] == 0

    before = fingerprint(tmp_path / "results")
    write_own_table(tmp_path, slope=2.0)  # the file beside the protocol comes first
    code, out, _ = hetcal(*arguments)
    assert (code, out) == (0, f"other file or columns, run again: mine hnn seed 0\n{finished}")
    after = fingerprint(tmp_path / "results")
    assert {path for path in after if after[path] != before[path]} == {str(tmp_path / "results/cells" / cell.path)}
    assert hetcal(*arguments)[:2] == (0, finished)


def test_groups_of_ones_own_table(hetcal):
    """The column of groups is not a feature, and a grouped split keeps its rows together."""
    write_own_table(Path())
    Path("study.toml").write_text(MINE.replace("seeds = 1", 'seeds = 1\nsplit = "grouped"'))
    code, _, err = hetcal("bench", "run", "study.toml", "--out", "results", "--only", "mine")
    assert code == 0, err
    (result,) = read_results(Path("results")).done.values()
    assert result["split"] == {"rule": "grouped", "n_train": 32, "n_test": 8}  # 8 and 2 towns of 4 rows


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "mine.csv.gz",
            "yours.csv",
            r"file of tables.mine must exist, got file of tables.mine='yours.csv'; it is not in \S+; put it there, or "
            r"set HETCAL_TABLES to its folder",
        ),
        (
            '"price"',
            '"prize"',
            r"target must be one of \['kind', 'price', 'size', 'town'\], got target='prize'; did you mean 'price'\?",
        ),
        ('"town"', '"city"', r"group must be one of \['kind', 'price', 'size', 'town'\], got group='city'; .*"),
        ('"price"', '"kind"', r"target must be a column of numbers, got target='kind'.*"),
    ],
    ids=["file", "target", "group", "text"],
)
def test_bad_tables_of_ones_own(hetcal, monkeypatch, old, new, message):
    """Reported before any cell is run and any folder is made."""
    monkeypatch.delenv("HETCAL_TABLES", raising=False)
    write_own_table(Path())
    assert MINE.count(old) == 1
    Path("study.toml").write_text(MINE.replace(old, new))
    code, out, err = hetcal("bench", "run", "study.toml", "--out", "results")
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"hetcal: {message}\n", err)
    assert not Path("results").exists()


def test_selection_and_failures(hetcal):
    """The options choose cells; a failed one is reported, the others are run, and the exit code is 1."""
    Path("study.toml").write_text(TINY + "[methods.hnn]\nbatch_size = 0\n")
    options = ["--studies", "table", "--only", "skewed, heteroscedastic", "--seeds", "1-1"]
    code, out, err = hetcal("bench", "run", "study.toml", "--out", "results", *options)
    assert code == 1
    assert out.splitlines()[-1] == "2 cells finished, 2 failed; now: hetcal bench table results"
    failures = [line for line in out.splitlines() if line.startswith("failed: ")]
    reason = "ValueError: batch_size must be at least 1, got batch_size=0; choose a value in that range"
    assert failures == [f"failed: {name} hnn seed 1: {reason}" for name in ("heteroscedastic", "skewed")]
    assert "Traceback" not in out + err
    assert {cell.seed for cell in read_results(Path("results")).done} == {1}
    code, out, err = hetcal(
        "bench", "run", "study.toml", "--out", "results", "--methods", "quantile_hc", "--seeds", "0,1"
    )
    assert out.splitlines()[-1] == "4 cells finished, 2 failed; now: hetcal bench table results"


def test_quick(hetcal):
    """The quick version is marked wherever it is shown, and the study itself is not mixed with it."""
    Path("study.toml").write_text(WITH_QUICK)
    options = ["--only", "skewed", "--methods", "hnn"]
    code, out, _ = hetcal("bench", "run", "study.toml", "--out", "results", "--quick", *options)
    assert (code, out) == (0, "1 cells finished, 0 failed; now: hetcal bench table results\n")
    (result,) = read_results(Path("results")).done.values()
    assert (result["split"]["n_train"], result["training"]["epochs"]) == (50, 1)
    _, _, err = hetcal("bench", "table", "results")
    assert err.splitlines() == [
        "still to run: 3 cells of the protocol",
        "this is a quick run with few splits, short training and some of the rows, not the full study",
    ]
    code, _, err = hetcal("bench", "run", "study.toml", "--out", "results", *options)
    full = parse_protocol(WITH_QUICK)
    assert code == 2
    assert f"(hash {full.hash})" in err
    assert f"(hash {full.made_quick().hash})" in err


def test_results_go_beside_the_protocol(hetcal):
    """Without --out the results are beside the protocol, those of the quick version apart from them."""
    Path("studies").mkdir()
    Path("studies/study.toml").write_text(TINY + "[quick]\nseeds = 1\n")
    options = ("--only", "skewed", "--methods", "hnn", "--seeds", "0")
    code, out, _ = hetcal("bench", "run", "studies/study.toml", *options)
    assert (code, out) == (0, "1 cells finished, 0 failed; now: hetcal bench table studies/results\n")
    code, out, _ = hetcal("bench", "run", "studies/study.toml", "--quick", *options)
    assert (code, out) == (0, "1 cells finished, 0 failed; now: hetcal bench table studies/quick/results\n")


@pytest.mark.parametrize(
    ("output", "start"),
    [
        ("terminal", "Calibration error: table (random splits)\n"),
        ("markdown", "**Calibration error: table (random splits)**\n"),
        ("latex", "% Calibration error: table (random splits)\n\\begin{tabular}{lrrr}\n"),
        ("csv", "study,split,dataset,method,varied,n_splits,n_train,n_test,ce,ce_se,"),
        ("cells", "study,dataset,method,varied,seed,ce,"),
    ],
)
def test_formats(hetcal, results, output, start):
    """The table goes to stdout, to be piped; the notes to stderr, to be read."""
    code, out, err = hetcal("bench", "table", results, "--format", output)
    assert code == 0
    assert out.startswith(start)
    assert out.endswith("\n")
    assert err.splitlines() == [
        "the table omits 2 failed cells, for example heteroscedastic hnn",
        "still to run: 2 cells of the protocol",
    ]
    if output in ("csv", "cells"):
        lines = list(csv.DictReader(io.StringIO(out)))
        assert len(lines) == 4
        assert {None} & {name for line in lines for name in [*line, *line.values()]} == set()


def test_metrics(hetcal, results):
    """CE and RMSE unless others are asked for, in the order in which they are asked."""
    for options, titles in [
        ([], ["Calibration error", "RMSE"]),
        (["--metric", "crps", "--metric", "interval_width_90"], ["CRPS", "Width of 90 % intervals"]),
    ]:
        _, out, _ = hetcal("bench", "table", results, "--format", "markdown", *options)
        assert re.findall(r"^\*\*(.*): table", out, re.MULTILINE) == titles
    assert "0.125" in hetcal("bench", "table", results, "--metric", "crps")[1]


BAD_RUNS = {
    "data set": (
        {"text": TINY.replace('"skewed"', '"skewd"')},
        r"study.toml: line 10: data set must be one of \[.*\], got data set='skewd'; did you mean 'skewed'\?",
    ),
    "method": (
        {"text": TINY.replace('"hnn"', '"hhn"')},
        r"line 11: method must be one of .*'dropout_hc', .*, got method='hhn'; did you mean 'hnn'\?",
    ),
    "setting": (
        {"text": TINY.replace("width", "widht")},
        r"line 4: setting must be one of \[.*\], got setting='widht'; did you mean 'width'\?",
    ),
    "key": (
        {"text": TINY.replace("[settings]", "[setting]")},
        r"study.toml: line 3: key of a protocol must be one of \[.*\], got key of a protocol='setting'; did you mean "
        r"'settings'\?",
    ),
    "syntax": ({"text": TINY.replace("width = 8", "width = ")}, r"study.toml: Invalid value \(at line 4, column 9\)"),
    "missing": (
        {"protocol": "absent.toml"},
        "protocol must be a readable TOML file, got protocol='absent.toml'; No such file or directory",
    ),
    "only": (
        {"options": ["--only", "boston"]},
        r"dataset must be one of \['heteroscedastic', 'skewed'\], got dataset='boston'; choose one of these",
    ),
    "nothing": (
        {"options": ["--only", ","]},
        r"selection must leave at least one cell, got selection=\{'dataset': \[\]\}; choose more",
    ),
    "studies": (
        {"options": ["--studies", "tabel"]},
        r"study must be one of \['table'\], got study='tabel'; did you mean 'table'\?",
    ),
    "seed": (
        {"options": ["--seeds", "0-5"]},
        "seeds must be within 0 to 1, the seeds of the protocol, got seeds=2; raise its seeds",
    ),
    "unwritable": (
        {"out": "study.toml/below"},
        "folder must be writable, got folder='study.toml/below'; Not a directory; choose another --out",
    ),
    "quick": (
        {"options": ["--quick"]},
        r"protocol must have a \[quick\] section for a quick run, got protocol='Tiny'; add one, with seeds = 1",
    ),
}


@pytest.mark.parametrize(("call", "message"), BAD_RUNS.values(), ids=BAD_RUNS)
def test_bad_runs(hetcal, call, message):
    """One sentence on stderr, exit code 2, no folder made."""
    Path("study.toml").write_text(call.get("text", TINY))
    out = call.get("out", "results")
    code, stdout, err = hetcal(
        "bench", "run", call.get("protocol", "study.toml"), "--out", out, *call.get("options", [])
    )
    assert (code, stdout) == (2, "")
    assert re.fullmatch(rf"hetcal: {message}\n", err)
    assert not Path(out).exists()


@pytest.mark.parametrize("seeds", ["a", "1.5", "-1", "0-", "0--1", "0,x", "1 2", "²", "0x1"])
def test_seeds_that_are_not_numbers(hetcal, seeds):
    Path("study.toml").write_text(TINY)
    code, _, err = hetcal("bench", "run", "study.toml", "--out", "results", "--seeds", seeds)
    assert (code, err) == (
        2,
        f"hetcal: seeds must be integers and ranges, got seeds={seeds!r}; write 0,1,2 or 0-4\n",
    )


@pytest.mark.parametrize(
    ("text", "seeds"),
    [(None, None), ("0", [0]), ("0,1, 5-7,", [0, 1, 5, 6, 7]), ("3-3", [3]), ("2-0", []), ("", [])],
)
def test_parse_seeds(text, seeds):
    assert parse_seeds(text) == seeds


def test_other_protocol_in_the_folder(hetcal):
    """Refused with both hashes, before anything is run or written."""
    other = TINY.replace("width = 8", "width = 9")
    open_folder(Path("results"), parse_protocol(TINY))
    Path("study.toml").write_text(other)
    code, _, err = hetcal("bench", "run", "study.toml", "--out", "results")
    assert (code, err) == (
        2,
        f"hetcal: folder must hold results of this protocol (hash {parse_protocol(other).hash}), got folder='results'; "
        f"it holds those of 'Tiny' (hash {parse_protocol(TINY).hash}); choose another --out\n",
    )
    assert Path("results/protocol.toml").read_text() == TINY
    assert not cell_files(Path("results"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--format", "html"],
            r"format must be one of \['cells', 'csv', 'latex', 'markdown', 'terminal'\], got format='html'; choose .*",
        ),
        (["--format", "tex"], r"format must be one of \[.*\], got format='tex'; did you mean 'latex'\?"),
        (["--metric", "rsme"], r"metric must be one of \['ce', .*\], got metric='rsme'; did you mean 'rmse'\?"),
    ],
    ids=["format", "near format", "metric"],
)
def test_bad_tables(hetcal, results, options, message):
    code, out, err = hetcal("bench", "table", results, *options)
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"hetcal: {message}\n", err)


@pytest.mark.parametrize("command", ["table", "figures"])
def test_empty_folders(hetcal, command):
    """Nothing at all, or a protocol without a finished cell."""
    code, out, err = hetcal("bench", command, ".")
    assert (code, out, err) == (
        2,
        "",
        "hetcal: folder must hold the results of a run, got folder='.'; create them with: hetcal bench run PROTOCOL\n",
    )
    open_folder(Path("results"), parse_protocol(TINY))
    code, out, err = hetcal("bench", command, "results")
    assert (code, out, err) == (
        (0, "", "still to run: 8 cells of the protocol\n")
        if command == "table"
        else (2, "", "hetcal: folder must hold finished cells, got folder='results'; run the protocol first\n")
    )


def test_bench_report(hetcal, results, tmp_path):
    """Failed cells do not keep the page from being written."""
    code, out, err = hetcal("bench", "report", results, "--out", "study.html")
    assert (code, out) == (0, "study.html\n"), err
    assert "HNN" in (tmp_path / "study.html").read_text()

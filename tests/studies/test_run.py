"""Running a study: whatever stops it, the same command resumes it, with the results of an uninterrupted run."""

import json
import os
import re
import shutil
import signal

import pytest

from hetcal.studies.cells import identify
from hetcal.studies.protocol import Cell, parse_protocol
from hetcal.studies.results import read_results, write_result
from hetcal.studies.run import run_protocol, time_left
from hetcal.studies.table import render_cells, render_csv
from tests.processes import DEADLINE_SECONDS, members, needs_proc, wait_until
from tests.studies.samples import TINY, cell_files, fingerprint, without_seconds

PROTOCOL = parse_protocol(TINY)


@pytest.fixture
def start(warm_python, tmp_path):
    """Start `hetcal bench run` as a user does, in a process group of its own that is killed after the test."""
    started = []

    def start_run(text, folder, *options):
        (tmp_path / "study.toml").write_text(text)
        arguments = ["-m", "hetcal.cli", "bench", "run", tmp_path / "study.toml", "--out", folder, *options]
        with (tmp_path / "stderr").open("w") as stderr:
            process = warm_python.start(*arguments, cwd=tmp_path, stderr=stderr, start_new_session=True)
        started.append(process)
        return process

    yield start_run
    for process in started:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished folder, to be changed."""
    return shutil.copytree(finished, tmp_path / "copy")


def test_a_whole_run(finished):
    """A file for every cell, each with the hash of the protocol."""
    results = read_results(finished)
    assert results.done.keys() == set(PROTOCOL.cells())
    assert (results.failed, results.damaged) == ({}, [])
    assert [json.loads(path.read_text())["protocol"] for path in cell_files(finished)] == 8 * [PROTOCOL.hash]


def test_two_jobs_give_the_same_bits(finished, tmp_path):
    """Neither parallel cells nor the order of the cells affect a result."""
    run_protocol(PROTOCOL, tmp_path, jobs=2)
    assert without_seconds(tmp_path) == without_seconds(finished)


def test_finished_cells_are_not_run_again(copy):
    before = fingerprint(copy)
    said = []
    results = run_protocol(PROTOCOL, copy, say=said.append)
    assert fingerprint(copy) == before
    assert len(results.done) == 8
    assert said == []


def test_a_grown_study_keeps_its_cells(finished, tmp_path, copy):
    """With one more data set and one more seed only the new cells are run, and all are equal to those of a new run."""
    before = fingerprint(copy)
    text = TINY.replace('"skewed"]', '"skewed", "heavy-tailed"]').replace("seeds = 2", "seeds = 3")
    text = text.replace('["hnn", "quantile_hc"]', '["hnn"]')
    grown = parse_protocol(text)
    results = run_protocol(grown, copy)
    assert fingerprint(copy).items() >= before.items()
    assert results.done.keys() == {*PROTOCOL.cells(), *grown.cells()}
    assert len(results.done) == 8 + 5
    run_protocol(grown, tmp_path / "new", only=["heteroscedastic"], seeds=[1, 2])
    assert without_seconds(copy).items() >= without_seconds(tmp_path / "new").items()


def test_only_what_is_selected(tmp_path):
    chosen = {"studies": ["table"], "only": ["skewed"], "methods": ["quantile-hc"], "seeds": [1]}
    results = run_protocol(PROTOCOL, tmp_path, **chosen)
    assert results.done.keys() == {Cell("table", "skewed", "quantile_hc", 1)}


FAILING = """\

[methods.hnn]
batch_size = 0

[[study]]
name = "grouped"
split = "grouped"
datasets = ["heteroscedastic"]
methods = ["quantile_hc"]
seeds = 1
"""


def test_a_failed_cell_is_recorded_and_the_rest_goes_on(tmp_path):
    """A setting that is invalid for one method, and a data set without groups in a grouped study."""
    protocol = parse_protocol(TINY.replace("seeds = 2", "seeds = 1").replace(', "skewed"', "") + FAILING)
    said = []
    results = run_protocol(protocol, tmp_path, say=said.append)
    assert results.done.keys() == {Cell("table", "heteroscedastic", "quantile_hc", 0)}
    bad_batch = "ValueError: batch_size must be at least 1, got batch_size=0; choose a value in that range"
    no_groups = "ValueError: data set must have groups for a grouped split, got data set=None; omit it from the "
    errors = {cell: result["error"] for cell, result in results.failed.items()}
    assert errors.keys() == {
        Cell("table", "heteroscedastic", "hnn", 0),
        Cell("grouped", "heteroscedastic", "quantile_hc", 0),
    }
    assert errors[Cell("table", "heteroscedastic", "hnn", 0)].startswith("Traceback")
    assert errors[Cell("table", "heteroscedastic", "hnn", 0)].endswith(bad_batch + "\n")
    assert no_groups in errors[Cell("grouped", "heteroscedastic", "quantile_hc", 0)]
    assert said == [
        f"failed: heteroscedastic hnn seed 0: {bad_batch}",
        f"failed: heteroscedastic quantile_hc seed 0: {no_groups}grouped study",
    ]
    assert {json.loads(path.read_text())["protocol"] for path in cell_files(tmp_path)} == {protocol.hash}


def test_failed_cells_are_tried_again(finished, copy):
    """A cell that failed for lack of memory may succeed later."""
    cell = PROTOCOL.cells()[3]
    write_result(copy, cell, {**identify(PROTOCOL, cell), "error": "MemoryError"})
    assert run_protocol(PROTOCOL, copy).failed == {}
    assert without_seconds(copy) == without_seconds(finished)


def test_cells_of_other_defaults_are_done_again(finished, copy):
    """Two versions of hetcal must not mix in one table, even where the protocol does not give a setting."""
    cell = PROTOCOL.cells()[0]
    result = read_results(copy).done[cell]
    write_result(copy, cell, {**result, "settings": {**result["settings"], "learning_rate": 1.0}})
    said = []
    run_protocol(PROTOCOL, copy, say=said.append)
    assert said == [f"other defaults of hetcal, run again: {cell} seed {cell.seed}"]
    assert without_seconds(copy) == without_seconds(finished)


def test_damaged_files_are_named_and_done_again(finished, copy):
    """One is truncated, one has a changed digit; one outside of the selection is only named."""
    truncated, changed, later = (copy / "cells" / cell.path for cell in PROTOCOL.cells()[:3])
    before = fingerprint(copy)
    truncated.write_bytes(truncated.read_bytes()[:500])
    changed.write_text(re.sub(r'"rmse": (\d)', lambda m: f'"rmse": {(int(m[1]) + 1) % 10}', changed.read_text()))
    later.write_bytes(b"")
    said = []
    results = run_protocol(PROTOCOL, copy, only=["heteroscedastic"], say=said.append)
    assert sorted(said) == [
        f"damaged, not selected: {later}",
        *sorted(f"damaged, run again: {path}" for path in (truncated, changed)),
    ]
    assert results.damaged == [later]
    run_protocol(PROTOCOL, copy)
    assert without_seconds(copy) == without_seconds(finished)
    untouched = {str(copy / "cells" / cell.path) for cell in PROTOCOL.cells()[3:]}
    assert {path: fingerprint(copy)[path] for path in untouched} == {path: before[path] for path in untouched}


def table_without_seconds(folder):
    lines = [line.split(",") for line in render_csv(read_results(folder)).splitlines()]
    kept = [place for place, name in enumerate(lines[0]) if not name.startswith("seconds")]
    return [[line[place] for place in kept] for line in lines]


@needs_proc
def test_killed_and_resumed(finished, tmp_path, start):
    """After kill -9 to all processes of a run, another run gives the table of an uninterrupted one.

    Only running cells are lost: those that the progress bar has counted are on disk, complete, and are not run again.
    """
    folder = tmp_path / "results"
    process = start(TINY, folder, "--jobs", "2")
    wait_until(lambda: cell_files(folder), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = fingerprint(folder)
    assert 1 <= len(before) < 8
    counted = [int(n) for n in re.findall(r"(\d+) of 8 cells", (tmp_path / "stderr").read_text())]
    assert max(counted) <= len(before)
    killed = read_results(folder)
    assert (killed.damaged, killed.failed, len(killed.done)) == ([], {}, len(before))

    run_protocol(PROTOCOL, folder)
    assert fingerprint(folder).items() >= before.items()
    assert without_seconds(folder) == without_seconds(finished)
    assert table_without_seconds(folder) == table_without_seconds(finished)
    assert len(table_without_seconds(folder)) == 1 + 4


LONG = """\

[methods.quantile_hc]
max_epochs = 100000000
patience = 100000000
"""


@needs_proc
def test_ctrl_c(tmp_path, start):
    """During training: exit code 130, one sentence, no process left, and no result of the interrupted training."""
    folder = tmp_path / "results"
    text = TINY.replace(', "skewed"', "") + LONG
    run_protocol(parse_protocol(text), folder, methods=["hnn"])
    before = fingerprint(folder)
    assert len(before) == 2
    process = start(text, folder)

    def is_training():
        """Beside the first process there are two of its children; a grandchild is the cell."""
        return any(
            pid != process.pid and parent != process.pid and seconds > 0.3
            for pid, (parent, seconds) in members(process.pid).items()
        )

    wait_until(is_training, process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(DEADLINE_SECONDS) in (130, -signal.SIGINT)  # which a shell reports as 130
    wait_until(lambda: not members(process.pid))
    said = (tmp_path / "stderr").read_text().replace("\r", "\n").strip().split("\n")
    said = [line for line in said if line and not re.search(r"\d of 4 cells", line)]
    assert said == ["hetcal: stopped; finished cells are kept"]
    assert fingerprint(folder) == before
    results = read_results(folder)
    assert (len(results.done), results.failed, results.damaged) == (2, {}, [])


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            {"only": ["boston"]},
            "dataset must be one of ['heteroscedastic', 'skewed'], got dataset='boston'; choose one of these",
        ),
        ({"only": ["skew"]}, "dataset must be one of ['heteroscedastic', 'skewed'], got dataset='skew'; did you mean"),
        ({"methods": ["hhn"]}, "method must be one of ['hnn', 'quantile_hc'], got method='hhn'; did you mean 'hnn'?"),
        ({"studies": ["tables"]}, "study must be one of ['table'], got study='tables'; did you mean 'table'?"),
        ({"seeds": [0, 2]}, "seeds must be within 0 to 1, the seeds of the protocol, got seeds=2; raise its seeds"),
        (
            {"only": [], "seeds": [0]},
            "selection must leave at least one cell, got selection={'dataset': [], 'seed': [0]};",
        ),
        ({"seeds": []}, "selection must leave at least one cell, got selection={'seed': []}; choose more"),
    ],
    ids=["only", "near", "methods", "studies", "seeds", "nothing", "no seeds"],
)
def test_empty_selections(tmp_path, selection, message):
    """A name that the protocol does not have is an error, and no folder is created."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        run_protocol(PROTOCOL, tmp_path / "new", **selection)
    assert not (tmp_path / "new").exists()


def test_unknown_setting_is_found_before_anything_is_made(tmp_path):
    with pytest.raises(ValueError, match=r"^line 4: setting must be one of .*; did you mean 'width'\?$"):
        run_protocol(parse_protocol(TINY.replace("width", "widht")), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_time_left():
    """From the most similar finished cells: same data set and method, else same data set, else any."""
    a, b, c = (Cell("s", dataset, method, 0) for dataset, method in [("x", "m"), ("x", "n"), ("y", "m")])
    again = [Cell("s", cell.dataset, cell.method, 1) for cell in (a, b, c)]
    assert time_left([], {a: 1.0}, 1) == "done"
    assert time_left(again, {}, 1) == "time left not yet known"
    assert time_left(again, {a: 60.0, b: 120.0, c: 180.0}, 1) == "about 6 min left"
    assert time_left(again, {a: 60.0, b: 120.0, c: 180.0}, 2) == "about 3 min left"
    assert time_left(again[:1], {a: 180.0, b: 60.0}, 2) == "about 3 min left"
    assert time_left([Cell("s", "x", "new", 0)], {a: 60.0, b: 120.0, c: 1000.0}, 1) == "about 2 min left"
    assert time_left([Cell("s", "new", "new", 0)], {a: 240.0, c: 120.0}, 1) == "about 3 min left"
    assert time_left(again, {a: 1.0}, 1) == "less than a minute left"


def test_cells_can_be_listed(finished):
    """Every cell with its seed and the end of its training, to examine outliers."""
    lines = render_cells(read_results(finished)).splitlines()
    assert len(lines) == 1 + 8
    assert lines[1].startswith("table,heteroscedastic,hnn,,0,")
    assert lines[1].endswith("max_epochs")

"""Every script and every protocol under benchmarks/ still runs, at tiny sizes; what it measures is not looked at."""

import importlib.util
import json
import os
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from hetcal.datasets.entry import read_entry
from hetcal.studies.cells import check_settings
from hetcal.studies.protocol import read_protocol

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# script: (constants that make it small, arguments)
SCRIPTS = {
    "any-estimator/claims.py": ({}, []),
    "batched/run.py": ({"SPLITS": 2, "ROWS": 4, "SIZES": [13, 4, 1], "DEPTH": 1}, []),
    "ensemble/run.py": ({"CASES": [(40, 3, 2)], "MEMBERS": 2, "REPEATS": 1}, []),
    "paper/claims.py": ({}, []),
    "recalibration/figure.py": ({}, ["--out", "figure.png"]),
    "speed/run.py": (
        {
            "ROWS": 256,
            "WIDTH": 8,
            "DEPTH": 2,
            "STEPS": 2,
            "PREDICTION_PASSES": 10,
            "METRIC_ROWS": 300,
            "TOOLBOX_ROWS": 200,
            "GEMM_SHAPES": [(256, 256, 256)],
        },
        ["--repeats", "1"],
    ),
    "streaming/run.py": ({}, ["--rows", "50", "--set", "max_epochs=1"]),
}
IMPORTED = {"speed/peers.py": "speed/run.py"}  # modules of a script
PROTOCOLS = sorted(str(path.relative_to(BENCHMARKS)) for path in BENCHMARKS.rglob("*.toml"))
TINY = {"width": 4, "depth": 1, "max_epochs": 1}


def test_every_script_has_a_smoke_run():
    found = {path.relative_to(BENCHMARKS).as_posix() for path in BENCHMARKS.rglob("*.py")}
    assert found == {*SCRIPTS, *IMPORTED}
    assert set(IMPORTED.values()) <= set(SCRIPTS)


@pytest.fixture
def run_script(monkeypatch, tmp_path, capsys):
    """Run the `main` of a script in an empty folder; return what it prints."""

    def run(name):
        constants, arguments = SCRIPTS[name]
        path = BENCHMARKS / name
        monkeypatch.syspath_prepend(path.parent)
        spec = importlib.util.spec_from_file_location(f"benchmark_{path.parent.name}", path)
        script = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, script)
        spec.loader.exec_module(script)
        for constant, value in constants.items():
            monkeypatch.setattr(script, constant, value)
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        monkeypatch.chdir(tmp_path)
        script.main()
        return capsys.readouterr().out

    threads = torch.get_num_threads()
    yield run
    torch.set_num_threads(threads)
    sys.modules.pop("peers", None)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(run_script, tmp_path, name):
    """It ends without a warning, and prints a table or writes the file that it was asked for."""
    out = run_script(name)
    if "--out" in SCRIPTS[name][1]:
        assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]
    else:
        assert len(out.splitlines()) >= 3
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["any-estimator/claims.py", "paper/claims.py"])
def test_readme_has_the_computed_figures(run_script, name):
    """The tables of the README are those that the script computes from the committed cells."""
    readme = (BENCHMARKS / name).with_name("README.md").read_text()
    shown = run_script(name).partition("## Grouped splits")[0]  # the README has other figures of these
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) > 20
    assert [row for row in rows if row not in readme] == []


def smallest(study):
    """A data set for one cell: a synthetic one or, if the split needs groups, the smallest real one; None without."""
    if study.get("split") != "grouped":
        return "heteroscedastic"
    files = [(read_entry(name).file, name) for name in study["datasets"]]
    folder = Path(os.environ.get("HETCAL_DATA") or os.devnull)
    return min([(file.bytes, name) for file, name in files if (folder / file.name).is_file()], default=(0, None))[1]


def as_toml(value):
    """A value in one line of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(value)


def one_cell_of_each_study(content):
    """The protocol with one data set, method, split and value of what is varied, and a tiny network."""
    studies = []
    for study in content["study"]:
        if smallest(study):
            vary = {name: values[:1] for name, values in study.get("vary", {}).items()}
            cell = {"datasets": [smallest(study)], "methods": study["methods"][:1], "seeds": 1, "vary": vary}
            studies.append({**study, **cell, "seeds_of": {}})
    settings = {**content.get("settings", {}), **TINY}
    return {**content, "study": studies, "settings": settings, "max_train_rows": 60}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocol(hetcal, tmp_path, name):
    """All methods and settings of the protocol are known, and one tiny cell of every study runs."""
    protocol = read_protocol(BENCHMARKS / name)
    check_settings(protocol)
    if protocol.quick:
        check_settings(protocol.made_quick())
    tiny = one_cell_of_each_study(tomllib.loads(protocol.text))
    (tmp_path / "tiny.toml").write_text("".join(f"{key} = {as_toml(value)}\n" for key, value in tiny.items()))
    code, out, err = hetcal("bench", "run", "tiny.toml", "--out", "results")
    assert (code, out) == (0, f"{len(tiny['study'])} cells finished, 0 failed; now: hetcal bench table results\n"), err

"""Every script and every protocol under benchmarks/ still runs, at tiny sizes; what it measures is not looked at."""

import importlib.util
import json
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from hetcal.datasets.entry import read_entry
from hetcal.studies.cells import check_protocol
from hetcal.studies.protocol import read_protocol

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# script: (constants that make it small, arguments)
SCRIPTS = {
    "ablation/run.py": ({}, ["--sets", "heteroscedastic", "--seeds", "1", "--max-steps", "2"]),
    "any-estimator/claims.py": ({}, []),
    "batched/run.py": ({"SPLITS": 2, "ROWS": 4, "SIZES": [13, 4, 1], "DEPTH": 1}, []),
    "ensemble/run.py": ({"CASES": [(40, 3, 2)], "MEMBERS": 2, "REPEATS": 1}, []),
    "hard-tables/run.py": (
        {"N_TEST": 30, "QUICK_STEPS": 2, "METHODS": ("hnn", "mean")},
        ["--quick"],
    ),
    "paper/claims.py": ({}, []),
    "peers/anchors.py": ({"ANCHORS": {"heteroscedastic": (40, 0.5)}}, ["--splits", "1"]),
    "peers/claims.py": ({}, ["--rows"]),
    "recalibration/figure.py": ({}, ["--out", "figure.png"]),
    "scale/run.py": ({"NEW_ROWS": 50}, ["--rows", "60", "61", "62", "--max-steps", "2", "--here"]),
    "scale/small_jobs.py": ({"BACKENDS": ("serial",)}, []),
    "speed/default.py": (
        {"CASES": [(60, 3)], "STEPS": 2, "PREDICTED_ROWS": 10, "GEMM": 64},
        ["--threads", "1"],
    ),
    "speed/threads.py": (
        {"METHODS": ("hnn",), "SIZES": (1,), "TRAINING_ROWS": 60, "STEPS": 1, "ROUNDS": 1, "SECONDS": 0.01, "GEMM": 8},
        ["--threads", "2"],
    ),
    "speed/run.py": (
        {
            "ROWS": 256,
            "WIDTH": 8,
            "DEPTH": 2,
            "STEPS": 2,
            "PREDICTION_PASSES": 10,
            "METRIC_ROWS": 300,
            "TOOLBOX_ROWS": 20,
            "GEMM_SHAPES": [(256, 256, 256)],
        },
        ["--repeats", "1"],
    ),
    "streaming/run.py": ({}, ["--rows", "50", "--set", "max_epochs=1"]),
    "verdict/run.py": ({"ROWS": (30,), "GROUPS": ((4, 10, 0.5),)}, ["--samples", "2"]),
}
IMPORTED = {"speed/peers.py": "speed/run.py"}  # modules of a script
PROTOCOLS = sorted(str(path.relative_to(BENCHMARKS)) for path in BENCHMARKS.rglob("*.toml"))
STUDIES = [
    (name, study["name"]) for name in PROTOCOLS for study in tomllib.loads((BENCHMARKS / name).read_text())["study"]
]
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


def test_default_fitted_to_the_end(run_script, monkeypatch):
    constants = {"PREDICTED_ROWS": 10, "SETTINGS": {"max_steps": 2}}
    monkeypatch.setitem(SCRIPTS, "speed/default.py", (constants, ["--whole", "60"]))
    assert run_script("speed/default.py").splitlines()[-1].startswith("| 60 | 2 |")


def test_default_beside_libraries_that_are_not_installed(run_script, monkeypatch):
    """What is missing is named in its place of the table; the others are measured."""
    monkeypatch.setitem(SCRIPTS, "speed/default.py", ({"SETTINGS": {"max_steps": 2}}, ["--beside", "60"]))
    monkeypatch.setitem(sys.modules, "pytabkit", None)
    monkeypatch.setitem(sys.modules, "lightning_uq_box", None)
    last = run_script("speed/default.py").splitlines()[-1]
    assert last.startswith("| 60 | ")
    assert last.count(" s | 2 | ") == 1
    assert "pytabkit" in last
    assert "lightning_uq_box" in last


@pytest.mark.parametrize("name", ["any-estimator/claims.py", "paper/claims.py"])
def test_readme_has_the_computed_figures(run_script, name):
    """The tables of the README are those that the script computes from the committed cells."""
    readme = (BENCHMARKS / name).with_name("README.md").read_text()
    shown = run_script(name).partition("## Grouped splits")[0]  # the README has other figures of these
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) > 20
    assert [row for row in rows if row not in readme] == []


@pytest.mark.parametrize("name", PROTOCOLS)
def test_settings_of_protocol(name):
    """All methods and settings of the protocol are known, those of its first look too."""
    protocol = read_protocol(BENCHMARKS / name)
    check_protocol(protocol)
    if protocol.quick:
        check_protocol(protocol.made_quick())


def as_toml(value):
    """A value in one line of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(value)


@pytest.mark.parametrize(("name", "study"), STUDIES)
def test_study(hetcal, raw_file, tmp_path, name, study):
    """One cell runs, with a tiny network: of the first method, values and split, on data that need no download."""
    content = tomllib.loads((BENCHMARKS / name).read_text())
    cell = next(entry for entry in content["study"] if entry["name"] == study)
    if cell["methods"][0] == "realmlp":
        pytest.importorskip("pytabkit")
    dataset = "heteroscedastic"
    if cell.get("split") == "grouped":  # no synthetic data have groups
        files = {read_entry(dataset).file: dataset for dataset in cell["datasets"]}
        smallest = min(files, key=lambda file: file.bytes)
        raw_file(smallest.name, f"{smallest.name}.gz")
        dataset = files[smallest]
    cell |= {"datasets": [dataset], "methods": cell["methods"][:1], "seeds": 1, "seeds_of": {}, "omit": {}}
    cell["vary"] = {setting: values[:1] for setting, values in cell.get("vary", {}).items()}
    content.pop("quick", None)  # it may name other methods
    content |= {"study": [cell], "settings": content.get("settings", {}) | TINY, "max_train_rows": 60}
    (tmp_path / "tiny.toml").write_text("".join(f"{key} = {as_toml(value)}\n" for key, value in content.items()))
    code, out, err = hetcal("bench", "run", "tiny.toml", "--out", "results")
    assert (code, out) == (0, "1 cells finished, 0 failed; now: hetcal bench table results\n"), err

"""The command line: arguments become one call, and an error that a user can correct is one sentence on stderr."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from numpy.testing import assert_allclose

from hetcal import METHODS, __version__, load
from hetcal.cli import app as cli
from hetcal.methods import PAPER, make
from tests.processes import wait_until
from tests.studies.samples import TINY, make_results


def test_usage_errors(hetcal):
    """Mistakes in the command itself are reported by typer, with exit code 2."""
    Path("study.toml").write_text(TINY)
    for arguments, part in [
        (["bench", "run"], "Missing argument"),
        (["bench", "run", "study.toml", "--out", "results", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["bench", "rum"], "No such command 'rum'"),
    ]:
        code, out, err = hetcal(*arguments)
        assert (code, out) == (2, "")
        assert part in err


def run(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)


def test_help_and_table_do_not_wait_for_torch(tmp_path):
    """Neither help nor tables import what takes long; help not even NumPy and scikit-learn."""
    make_results(tmp_path / "results", TINY, lambda cell: {"ce": 0.5, "crps": 0.125})
    code = (
        "import sys; from hetcal.cli.app import main; sys.argv[0] = 'hetcal'\n"
        "try: main()\n"
        "except SystemExit as end:\n"
        "    print(end.code, *{'torch', 'pandas', 'matplotlib', 'sklearn', 'numpy'} & set(sys.modules))"
    )
    table = ["bench", "table", str(tmp_path / "results")]
    for arguments, imported in ((["--help"], []), (["bench", "run", "--help"], []), (table, ["numpy"])):
        done = run(sys.executable, "-c", code, *arguments)
        assert done.stdout.splitlines()[-1].split() == ["0", *imported], done.stderr


def test_the_command_is_installed():
    """`hetcal` and `python -m hetcal.cli` are the same."""
    commands = [Path(sys.executable).with_name("hetcal")], [sys.executable, "-m", "hetcal.cli"]
    shown = [run(*command, "bench", "--help").stdout.split("COMMAND", 1)[1].split() for command in commands]
    assert shown[0] == shown[1]
    assert {"run", "table", "figures"} <= set(shown[0])


def test_without_typer():
    """The message names the extra to install."""
    code = "import sys; sys.modules['typer'] = None; import hetcal.cli.app"
    done = run(sys.executable, "-c", code)
    assert done.returncode == 1
    assert done.stderr == "the command line needs typer and rich; install them with: pip install 'hetcal[cli]'\n"


TINY_FIT = ("--set", "max_epochs=2", "--set", "width=8", "--set", "depth=1")


@pytest.fixture
def table(tmp_path):
    """Forty rows of two numbers and a target."""
    values = np.random.default_rng(0).normal(size=(40, 3))
    pd.DataFrame(values, columns=["a", "b", "y"]).to_csv(tmp_path / "train.csv", index=False)
    return "train.csv"


def test_version_and_methods(hetcal):
    assert hetcal("--version") == (0, f"hetcal {__version__}\n", "")
    code, out, _ = hetcal("methods")
    assert code == 0
    assert "ensemble_hc" in out
    assert "random_sigma" not in out  # for an argument, not for use
    names = [row["name"] for row in json.loads(hetcal("methods", "--json")[1])["methods"]]
    assert set(PAPER) <= set(names) < set(METHODS)


def test_json_holds_nothing_that_a_library_prints(hetcal, monkeypatch):
    """Ray reports a lost worker on standard output, where a program expects a JSON document alone."""

    def list_methods(options):
        print("(raylet) A worker died")  # noqa: T201
        return {"methods": []}

    monkeypatch.setattr(cli, "find_function", lambda place: list_methods)
    code, out, err = hetcal("methods", "--json")
    assert (code, json.loads(out)) == (0, {"methods": []})
    assert err == "(raylet) A worker died\n"


def test_compare_with_report(hetcal, table, tmp_path):
    """The table, the recommendation and the page; `--json` has the numbers of each fold."""
    compare = ("compare", table, "--target", "y", "--methods", "hnn,quantile_hc", "--folds", "2", *TINY_FIT)
    code, out, err = hetcal(*compare, "--report", "compare.html")
    assert code == 0, err
    assert "Quantile-HC" in out
    assert "Report: compare.html" in out
    assert "Quantile-HC" in (tmp_path / "compare.html").read_text()
    result = json.loads(hetcal(*compare, "--json")[1])
    assert [len(method["metrics"]["crps"]["values"]) for method in result["methods"]] == [2, 2]
    assert result["recommendation"]["text"] in out


def test_recalibrate_from_the_table_to_the_verdict(hetcal, table):
    """The file holds the corrected model: its written intervals are those of the loaded model, and are evaluated."""
    fit = ("fit", table, "--target", "y", "--out", "m.hetcal", "--method", "hnn", "--recalibrate", "std", *TINY_FIT)
    code, out, err = hetcal(*fit)
    assert code == 0, err
    assert "std recalibration by" in out.splitlines()[0]
    assert "recalibrated" in hetcal("info", "m.hetcal")[1]
    assert hetcal("predict", "m.hetcal", table, "--out", "p.csv", "--level", "0.8", "--keep", "y")[0] == 0
    written = pd.read_csv("p.csv")[["lower_80", "upper_80"]].to_numpy()
    model = load("m.hetcal")
    columns = list(model.feature_names_in_)
    assert_allclose(written, model.predict_interval(pd.read_csv(table)[columns], 0.8), rtol=1e-9)
    code, out, _ = hetcal("evaluate", "p.csv", "--target", "y")
    assert code == 0
    assert out.startswith("Predictions: the quantiles 0.1, 0.9; between and beyond them a normal distribution\n")
    assert "The given 80 % intervals cover" in out
    code, _, err = hetcal("export", "m.hetcal", "--onnx", "m.onnx")
    assert code == 2
    assert err.startswith("hetcal: model must not be recalibrated for ONNX, got model='std'; the graph has no map")


def test_compare_baselines_recalibrated(hetcal, table):
    compare = ("compare", table, "--target", "y", "--methods", "no-model,ridge", "--recalibrate", "conformal")
    code, out, err = hetcal(*compare, "--folds", "2")
    assert code == 0, err
    assert "No model + conformal" in out
    assert "training rows of each fold were not trained on, for conformal recalibration." in out


def test_fit_then_export(hetcal, table, tmp_path):
    """Quiet means only warnings; the graph is written, and not replaced silently."""
    fit = ("fit", table, "--target", "y", "--out", "m.hetcal", "--method", "hnn", *TINY_FIT)
    code, out, err = hetcal(*fit, "--quiet")
    assert (code, out) == (0, "")
    assert all(line.startswith("hetcal: warning: ") for line in err.splitlines())
    code, out, err = hetcal("export", "m.hetcal", "--onnx", "m.onnx")
    assert (code, out) == (0, "m.onnx: features -> mean, std\n"), err
    code, _, err = hetcal("export", "m.hetcal", "--onnx", "m.onnx")
    assert (code, err) == (2, "hetcal: m.onnx already exists; use --force to replace it\n")


def test_overwriting_asks_on_a_terminal(warm_python, tmp_path):
    """On a real terminal: "no" keeps the file, "yes" replaces it."""
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    pd.DataFrame({"y": [0.0, 1.0], "mean": 0.5, "std": 1.0}).to_csv(tmp_path / "p.csv", index=False)
    report = tmp_path / "r.html"
    report.write_text("old")
    command = ["-m", "hetcal.cli", "evaluate", "p.csv", "--target", "y", "--report", "r.html"]
    for answer, is_old in ((b"n\n", True), (b"y\n", False)):
        ours, theirs = pty.openpty()
        process = warm_python.start(*command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        os.write(ours, answer)
        said = b""
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while piece := os.read(ours, 1024):
                said += piece
        os.close(ours)
        process.wait(timeout=120)
        assert b"r.html exists already; replace it?" in said
        assert (report.read_text() == "old") is is_old


def test_a_missing_extra_is_named(tmp_path):
    """Which extra to install, in one line."""
    (tmp_path / "p.csv").write_text("y,mean,std\n1,1,1\n")
    for package, extra in (("pyarrow", "cli"), ("jinja2", "report")):
        code = (
            f"import sys; sys.modules['{package}'] = None; sys.argv[1:] = ['evaluate', 'p.csv', '--target', 'y']; "
            "from hetcal.cli.app import main; main()"
        )
        ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 2
        assert f"pip install 'hetcal[{extra}]'" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_a_reader_that_has_gone_is_no_traceback(tmp_path):
    """`hetcal ... | head`: the pipe is closed before the answer comes."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "hetcal.cli", "--version"]
    ended = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_an_ended_process_removes_what_it_began(warm_python, tmp_path):
    """SIGTERM, as a scheduler sends it: no half-written file is left. Standard input keeps the command waiting."""
    values = np.random.default_rng(0).normal(size=(40, 3))
    pd.DataFrame(values, columns=["a", "b", "y"]).to_csv(tmp_path / "t.csv", index=False)
    model = make("hnn", max_epochs=1, width=4, depth=1, random_state=0)
    model.fit(pd.DataFrame(values[:, :2], columns=["a", "b"]), values[:, 2]).save(tmp_path / "m.hetcal")
    command = ["-m", "hetcal.cli", "predict", "m.hetcal", "-", "--out", "p.csv"]
    read, write = os.pipe()
    with (
        os.fdopen(read),
        os.fdopen(write, "wb") as stdin,
        warm_python.start(*command, cwd=tmp_path, stdin=read) as process,
    ):
        stdin.write(b"a,b\n" + b"1.5,2.5\n" * 400_000)  # more than the piece that is read at once
        stdin.flush()
        wait_until(lambda: list(tmp_path.glob(".*.part")), process)
        process.terminate()
        assert process.wait(timeout=120) == 143
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.hetcal", "t.csv"]


def documented_commands():
    """Every `hetcal` line in the shell blocks of the documentation."""
    root = Path(__file__).parents[2]
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), flags=re.DOTALL):
            yield from (f"{page.name}: {line}" for line in block.splitlines() if line.startswith("hetcal "))


@pytest.mark.parametrize("line", list(documented_commands()))
def test_documented_commands_are_understood(line):
    """Commands and options in the documentation exist, and take the values that are shown."""
    words = shlex.split(line.partition(": ")[2], comments=True)[1:]
    command = typer.main.get_command(cli.app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)

"""The command in a report runs as it stands, and reveals nobody's folders."""

import shlex
from pathlib import Path

from hetcal.cli import app as cli
from hetcal.cli.options import EvaluateOptions, FitOptions
from hetcal.cli.reproduce import command_line


def test_words_survive_the_shell():
    name = "it's; rm -rf $HOME"
    options = FitOptions(table="-", target=name, out=Path("m.hetcal"), set=["a=1", "b=2"], test_size=0.3)
    words = ["--target", name, "--out", "m.hetcal", "--test-size", "0.3", "--set", "a=1", "--set", "b=2"]
    assert shlex.split(command_line(options)) == ["hetcal", "fit", "-", *words]


def test_folders_are_omitted():
    options = FitOptions(
        table="/home/ann/a.csv",
        target="y",
        out=Path("/secret/m.hetcal"),
        test="/home/ann/b.csv",
        report=Path("/secret/r.html"),
    )
    assert command_line(options) == "hetcal fit a.csv --target y --out m.hetcal --test b.csv --report r.html"
    options = EvaluateOptions(file=Path("/secret/m.hetcal"), table="/home/ann/b.csv")
    assert command_line(options) == "hetcal evaluate m.hetcal b.csv"


def test_the_format_is_part_of_it():
    options = EvaluateOptions(file=Path("a.csv"), separator="~", encoding="cp1252", header=False)
    assert command_line(options) == "hetcal evaluate a.csv --separator '~' --encoding cp1252 --no-header"
    assert command_line(EvaluateOptions(file=Path("a.csv"), header=True)).endswith("--header")


def test_what_does_not_change_the_result_is_omitted():
    options = FitOptions(table="a.csv", target="y", out=Path("m.hetcal"), force=True, json=True, quiet=True, jobs=2)
    assert command_line(options) == "hetcal fit a.csv --target y --out m.hetcal"


def test_the_command_is_parsed_into_the_same_options(monkeypatch, tmp_path):
    """Every option of `fit`: written as a command, and parsed as one."""
    options = {
        "table": "a.csv",
        "target": "y",
        "out": Path("m.hetcal"),
        "method": "hnn",
        "test_size": 0.5,
        "test": "b.csv",
        "drop": ["id", "name"],
        "group": "patient",
        "text": ["zip"],
        "seed": 3,
        "set": ["width=8"],
        "report": Path("r.html"),
        "separator": ";",
        "decimal": ",",
        "encoding": "cp1252",
        "header": False,
    }
    parsed = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "find_function", lambda place: parsed.append)
    cli.app(shlex.split(command_line(FitOptions(**options)))[1:], standalone_mode=False)
    assert parsed == [FitOptions(**options)]

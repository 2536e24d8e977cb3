"""From options to arguments: every command is wired, and files are checked before any work is done."""

import inspect
from pathlib import Path

import pytest
import typer

from hetcal.cli.app import BENCH_COMMANDS, COMMANDS, app, find_function
from hetcal.cli.arguments import check_files, parameters_of, split_words
from hetcal.cli.options import EvaluateOptions, FitOptions, PredictOptions


@pytest.mark.parametrize(("options", "place"), [*COMMANDS.items(), *BENCH_COMMANDS.items()])
def test_every_command_has_a_function_for_its_options(options, place):
    """The places are names in a table, which no type checker follows."""
    (parameter,) = inspect.signature(find_function(place)).parameters.values()
    assert parameter.annotation is options
    assert options.__doc__


def test_the_order_is_that_of_the_help():
    """What is special about a command comes first, what commands share comes last."""
    parameters = parameters_of(PredictOptions)
    own = ["model", "table", "out", "level", "upper", "lower", "quantiles", "keep", "backend", "address"]
    shared = ["separator", "decimal", "encoding", "header", "force", "json", "quiet"]
    assert [parameter.name for parameter in parameters] == own + shared
    assert [parameter.name for parameter in parameters if parameter.is_positional] == ["model", "table"]
    assert parameters[3].default == ["0.9"]
    assert parameters[0].default is inspect.Parameter.empty


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "y", "--target", "z"], r"--target must be given once, .*; fit one model per target, or all"),
        (["--target", "y", "--seed", "1", "--seed=2"], r"--seed must be given once, .*; omit all but one"),
    ],
)
def test_an_option_that_is_given_twice_is_refused(words, message):
    """Otherwise the last one would be used silently. Lists and flags may be repeated."""
    fit = typer.main.get_command(app).commands["fit"]
    with pytest.raises(ValueError, match=message):
        fit.make_context("fit", ["t.csv", "--out", "m.hetcal", *words])
    repeated = ["--target", "y", "--drop", "a", "--drop", "b", "-q", "-q"]
    assert fit.make_context("fit", ["t.csv", "--out", "m.hetcal", *repeated]).params["drop"] == ["a", "b"]


def test_options_do_not_share_their_lists():
    first, second = (EvaluateOptions(file=Path("p.csv")) for _ in range(2))
    first.drop.append("id")
    assert second.drop == []


def fit_options(**options):
    return FitOptions(**{"table": "t.csv", "target": "y", "out": Path("m.hetcal"), **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out": Path("m.csv")}, r"--out must end in .hetcal, got --out='m.csv'; write m.hetcal"),
        ({"report": Path("r.pdf")}, r"--report must end in .html, got --report='r.pdf'; write r.html"),
        ({"table": "m.hetcal"}, r"m.hetcal is named twice, to be read or written; give every file its own name"),
        ({"test": "./m.hetcal"}, r"m.hetcal is named twice"),
        ({"out": Path("old.hetcal")}, r"old.hetcal already exists; use --force to replace it"),
    ],
)
def test_files_that_may_not_be_written(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    Path("old.hetcal").write_text("old")
    with pytest.raises((ValueError, OSError), match=message):
        check_files(fit_options(**options))


def test_files_that_may_be_written(tmp_path, monkeypatch):
    """New ones, existing ones by force, and standard output beside standard input."""
    monkeypatch.chdir(tmp_path)
    Path("old.hetcal").write_text("old")
    check_files(fit_options(report=Path("r.html")))
    check_files(fit_options(out=Path("old.hetcal"), force=True))
    check_files(PredictOptions(model=Path("old.hetcal"), table="-", out="-"))
    assert Path("old.hetcal").read_text() == "old"


def test_split_words():
    assert (split_words(None), split_words(""), split_words(" a, b ,,c ")) == (None, [], ["a", "b", "c"])

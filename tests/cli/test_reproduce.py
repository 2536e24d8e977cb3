"""The command in a report runs as it stands, and tells nobody's folders."""

import shlex

from hetcal.cli.reproduce import command_line


def test_words_survive_the_shell():
    name = "it's; rm -rf $HOME"
    words = shlex.split(command_line("fit", "-", target=name, set=["a=1", "b=2"], test_size=0.2, group=None))
    assert words == ["hetcal", "fit", "-", "--target", name, "--set", "a=1", "--set", "b=2", "--test-size", "0.2"]


def test_folders_are_left_out():
    assert command_line("fit", "/home/ann/a.csv", out="/secret/m.hetcal") == "hetcal fit a.csv --out m.hetcal"


def test_the_format_is_part_of_it():
    format = {"separator": "~", "decimal": None, "encoding": "cp1252", "header": False}
    assert command_line("fit", "a.csv", **format) == "hetcal fit a.csv --separator '~' --encoding cp1252 --no-header"

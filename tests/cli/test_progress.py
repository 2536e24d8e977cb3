"""Progress on standard error: a bar on a terminal, lines elsewhere, nothing if the user wants quiet."""

import sys
import time

import pytest

from hetcal.cli.progress import announce, fits_bar, is_watched, rows_bar

REDRAWN = 0.15  # seconds after which a bar is drawn again


def test_bar_of_fits_shows_their_number_and_the_time_left(capsys):
    """From the first step of the first fit on; a finished fit is a whole number."""
    with fits_bar(watched=True) as show:
        time.sleep(REDRAWN)
        show(0.25, 13, "HNN, fold 1 of 3")
        first = capsys.readouterr().err
        time.sleep(REDRAWN)
        show(1, 13, "HNN, fold 1 of 3")
        time.sleep(REDRAWN)
        show(13, 13, "Cross-HC on 80 rows")
    assert "fit 1 of 13, HNN, fold 1 of 3" in first
    assert "passed, 00:" in first
    assert "?" not in first.split("\r")[-1]  # the time left is known
    assert "fit 13 of 13, Cross-HC on 80 rows" in capsys.readouterr().err


def test_bar_of_rows(capsys):
    with rows_bar(watched=True) as show:
        show(500, None)
        time.sleep(REDRAWN)
        show(1500, 3000)
    assert "1.50k/3.00k" in capsys.readouterr().err


@pytest.mark.parametrize("bar", [fits_bar, rows_bar])
def test_nothing_is_drawn_without_a_terminal(bar, capsys):
    with bar(watched=False) as show:
        show(*(1, 2, "label")[: 3 if bar is fits_bar else 2])
    assert capsys.readouterr().err == ""


def test_lines_without_a_terminal(capsys):
    announce(False, "training HNN on 80 rows")
    announce(True, "quiet")
    assert capsys.readouterr().err == "hetcal: training HNN on 80 rows\n"
    assert not is_watched(quiet=False)


def test_no_lines_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    announce(False, "training")
    assert capsys.readouterr().err == ""
    assert is_watched(quiet=False)
    assert not is_watched(quiet=True)

"""Results in words: numbers short, tables aligned, odd columns whole."""

from hetcal.cli.show import aligned, render_result, seen

TEXT = {"kind": "text", "labels": ["a", "b"], "has_rare": False}


def test_what_was_seen_of_a_column():
    assert seen(TEXT) == "a, b"
    assert seen({**TEXT, "labels": ["Cork, North", "Aix"]}) == "'Cork, North', Aix"
    assert seen({**TEXT, "labels": [], "has_rare": True}) == "rare labels"
    assert (
        seen({**TEXT, "labels": list("abcdefghij"), "has_rare": True}) == "a, b, c, d, e, f, g, h, 2 more, rare labels"
    )
    assert (
        seen({"kind": "numbers", "range": [-1.5, 2.25], "has_missing": True})
        == "\N{MINUS SIGN}1.5 to 2.25, missing values"
    )
    assert seen({"kind": "numbers", "range": None, "has_missing": True}) == "only missing values"
    assert seen({"kind": "dates", "range": [-1.0, 19782.5], "has_missing": False}) == "1969-12-31 to 2024-02-29"
    assert seen({"kind": "dates", "range": [0.0, 1e8], "has_missing": False}) == "1970-01-01 to 275760-09-13"


def test_tables_are_aligned():
    assert aligned([["name", "x"], ["a", "10"], ["failed", "because of a long sentence", ""][:1]]) == [
        "name  x",
        "a     10",
        "failed",
    ]


def test_predictions_on_standard_output_are_not_named():
    result = {"command": "predict", "rows": 3, "out": "-", "unseen_labels": {}}
    assert render_result(result) == "3 rows predicted"
    assert render_result({**result, "out": "p.csv"}) == "3 rows predicted: p.csv"


def test_names_from_a_file_cannot_play_with_the_terminal():
    """Neither escape sequences nor line breaks."""
    said = render_result({"command": "predict", "rows": 1, "out": "\x1b[2J\nowned.csv"})
    assert said == "1 rows predicted: ?[2J?owned.csv"

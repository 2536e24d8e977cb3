"""A protocol file determines a study, and a misspelled name in it is detected before any model is trained."""

import re
from itertools import product
from pathlib import Path
from textwrap import dedent

import pytest

from hetcal.studies import protocol as module
from hetcal.studies.cells import check_protocol
from hetcal.studies.protocol import Cell, OwnTable, parse_protocol, read_protocol
from tests.studies.samples import TINY

WITH_QUICK = (
    TINY
    + """\
seeds_of = { skewed = 5 }
vary = { dropout = [0.1, 0.2], depth = [1, 2] }

[quick]
seeds = 1
max_train_rows = 100
max_epochs = 1
vary = { dropout = [0.2], patience = [1] }
"""
)


TABLE = '[tables.mine]\nfile = "mine.csv"\ntarget = "y"\n'


def change(old, new, text=TINY):
    assert text.count(old) == 1
    return text.replace(old, new)


def test_the_docstring_is_a_protocol():
    """The example in the docstring of the module is a valid protocol."""
    example = dedent(re.search(r"\n\n(    .*?)\n\n\S", module.__doc__, re.DOTALL)[1])
    protocol = parse_protocol(example)
    check_protocol(protocol)
    check_protocol(protocol.made_quick())
    assert protocol.title == "My study"
    assert len(protocol.cells()) == 2 * ((10 + 5 + 10) + (10 + 10))  # the second method is omitted on one set
    assert {cell.dataset for cell in protocol.made_quick().cells()} == {"boston"}
    assert protocol.tables == {"sales": OwnTable("sales.csv.gz", target="price", group="customer")}
    assert protocol.reference["boston"]["hnn"] == {"ce": 0.541, "rmse": 5.106}
    assert protocol.text == example


def test_cells_come_seed_by_seed():
    """An unfinished study covers every data set, and no cell is omitted or repeated."""
    cells = parse_protocol(TINY).cells()
    grid = product(range(2), ["heteroscedastic", "skewed"], ["hnn", "quantile_hc"])
    assert cells == [Cell("table", dataset, method, seed) for seed, dataset, method in grid]


def test_seeds_of_and_vary():
    """A data set may have more or fewer splits than the rest; every combination of varied settings is a cell."""
    protocol = parse_protocol(WITH_QUICK)
    cells = protocol.cells()
    variants = [(("dropout", rate), ("depth", depth)) for rate, depth in product([0.1, 0.2], [1, 2])]
    counts = {"heteroscedastic": 2, "skewed": 5}
    expected = {
        Cell("table", dataset, method, seed, varied)
        for dataset, n in counts.items()
        for method, seed, varied in product(["hnn", "quantile_hc"], range(n), variants)
    }
    assert len(cells) == len(expected)
    assert set(cells) == expected
    assert len({cell.path for cell in cells}) == len(cells)
    assert cells[0].path == Path("table/heteroscedastic/hnn,dropout=0.1,depth=1/seed-0.json")
    assert str(cells[0]) == "heteroscedastic hnn dropout=0.1 depth=1"


def test_settings_of_a_cell():
    """Varied settings take precedence over those of the method, and these over those of all methods."""
    text = change("[settings]", "[methods.hnn]\ndepth = 3\ndropout = 0.5\n[settings]")
    protocol = parse_protocol(text + "vary = { dropout = [0.3] }")
    varied = (("dropout", 0.3),)
    assert protocol.settings_of(Cell("table", "skewed", "hnn", 0, varied)) == {
        "width": 8,
        "depth": 3,
        "max_epochs": 2,
        "dropout": 0.3,
    }
    assert protocol.settings_of(Cell("table", "skewed", "quantile_hc", 0)) == {"width": 8, "depth": 2, "max_epochs": 2}


def test_hyphens_become_underscores():
    """In studies, settings and published figures, so that cells, files and hashes have one spelling."""
    text = change("[settings]", "[methods.quantile_hc]\ndepth = 3\n[settings]")
    text = change('"hnn", "quantile_hc"]', '"random_sigma+isotonic", "quantile_hc"]', text)
    text += "\n[reference.boston]\nquantile_hc = { ce = 0.5 }\n"
    hyphens = text.replace("quantile_hc", "quantile-hc").replace("random_sigma", "random-sigma")
    first, second = parse_protocol(text), parse_protocol(hyphens)
    assert {cell.method for cell in second.cells()} == {"random_sigma+isotonic", "quantile_hc"}
    assert second.cells() == first.cells()
    assert second.hash == first.hash
    assert second.methods == {"quantile_hc": {"depth": 3}}
    assert second.reference == {"boston": {"quantile_hc": {"ce": 0.5}}}


def test_omitted_data_sets():
    """A method that is too slow for a data set is run on the others; hyphens are allowed there too."""
    cells = parse_protocol(TINY + 'omit = { quantile-hc = ["skewed"] }\n').cells()
    assert len(cells) == 6
    assert {cell.dataset for cell in cells if cell.method == "quantile_hc"} == {"heteroscedastic"}
    assert {cell.dataset for cell in cells if cell.method == "hnn"} == {"heteroscedastic", "skewed"}


def test_quick_data_sets():
    """A quick run may have fewer data sets; a study that has none of them is omitted."""
    second = TINY[TINY.index("[[study]]") :].replace('"table"', '"second"').replace(', "skewed"', "")
    quick = parse_protocol(TINY + second + '[quick]\ndatasets = ["skewed"]\n').made_quick()
    assert [(study.name, study.datasets) for study in quick.studies] == [("table", ("skewed",))]


def test_own_tables_and_data_sets_mix(tmp_path):
    """Tables of one's own stand beside the data sets of hetcal; their files are not looked for here."""
    path = tmp_path / "study.toml"
    path.write_text(change('"skewed"', '"mine", "boston"') + TABLE)
    protocol = read_protocol(path)
    assert protocol.tables == {"mine": OwnTable("mine.csv", target="y")}
    assert protocol.folder == tmp_path
    assert {cell.dataset for cell in protocol.cells()} == {"heteroscedastic", "mine", "boston"}


SAME_RESULTS = {
    "seeds": change("seeds = 2", "seeds = 3"),
    "seeds_of": TINY + "seeds_of = { skewed = 1 }",
    "data sets": change('["heteroscedastic", "skewed"]', '["boston", "skewed"]'),
    "methods": change('"quantile_hc"]', '"quantile_hc", "dropout_hc"]'),
    "title": change('"Tiny"', '"Small"'),
    "comment": change("width = 8", "width = 8  # narrow"),
    "quick": TINY + "[quick]\nseeds = 1\n",
    "reference": TINY + "[reference.boston]\nhnn = { ce = 0.5 }\n",
    "own table": TINY + TABLE,
    "omitted": TINY + 'omit = { hnn = ["skewed"] }',
}
OTHER_RESULTS = {
    "setting": change("width = 8", "width = 9"),
    "further setting": change("width = 8", "width = 8\npatience = 1"),
    "method": change("[settings]", "[methods.hnn]\ndropout = 0.3\n[settings]"),
    "test_fraction": change("[settings]", "test_fraction = 0.3\n[settings]"),
    "max_train_rows": change("[settings]", "max_train_rows = 100\n[settings]"),
    "split": TINY + 'split = "grouped"',
}


@pytest.mark.parametrize("text", SAME_RESULTS.values(), ids=SAME_RESULTS)
def test_a_study_can_grow(text):
    """A change that affects no result keeps the hash, so that finished cells remain valid."""
    assert parse_protocol(text).hash == parse_protocol(TINY).hash


def test_what_changes_results_changes_the_hash():
    hashes = [parse_protocol(text).hash for text in [TINY, *OTHER_RESULTS.values()]]
    assert len(set(hashes)) == len(hashes)
    assert all(re.fullmatch("[0-9a-f]{16}", value) for value in hashes)


def test_quick():
    """The quick section replaces seeds, varied values, rows and settings, which gives another hash."""
    full = parse_protocol(WITH_QUICK)
    quick = full.made_quick()
    assert (quick.is_quick, full.is_quick) == (True, False)
    assert quick.max_train_rows == 100
    assert quick.settings == {"width": 8, "depth": 2, "max_epochs": 1}
    assert {cell.seed for cell in quick.cells()} == {0}
    # Only what the study varies is varied.
    assert {cell.varied for cell in quick.cells()} == {(("dropout", 0.2), ("depth", depth)) for depth in (1, 2)}
    assert quick.hash != full.hash


def test_quick_needs_its_section():
    with pytest.raises(
        ValueError, match=r"^protocol must have a \[quick\] section for a quick run, got protocol='Tiny'"
    ):
        parse_protocol(TINY).made_quick()


BAD = {
    "data set": (
        change('"skewed"', '"skewd"'),
        r"line 10: data set must be one of \['auto-mpg', .*\], got data set='skewd'; did you mean 'skewed'\?",
    ),
    "real data set": (
        change('"skewed"', '"Parkinson"'),
        r"line 10: data set must be one of .*, got data set='Parkinson'; did you mean 'parkinsons'\?",
    ),
    "data sets": (
        change('["heteroscedastic", "skewed"]', '"skewed"'),
        r"datasets of study 1 must be a list, got datasets of study 1='skewed'; write datasets = \[...\]",
    ),
    "key": (
        change("[settings]", "max_rows = 1\n[settings]"),
        r"line 3: key of a protocol must be one of \['max_train_rows', .*\], got key of a protocol='max_rows'; did you "
        r"mean 'max_train_rows'\?",
    ),
    "key of study": (
        change("seeds = 2", "# seed is wrong\nseed = 2"),
        r"line 13: key of a study must be one of \['datasets', .*\], got key of a study='seed'; did you mean 'seeds'\?",
    ),
    "title": (
        change('title = "Tiny"\n', ""),
        r"protocol must have 'title', got protocol=\['settings', 'study'\]; see the docstring of .*protocol",
    ),
    "no study": (TINY.split("[[study]]")[0], r"protocol must have 'study', got protocol=\['settings', 'title'\]; .*"),
    "single brackets": (
        change("[[study]]", "[study]"),
        r"study must be a list of tables, got study=\{'name'.*; write \[\[study\]\], in double brackets",
    ),
    "no table": ("title = 'x'\nstudy = [5]", r"study 1 must be a table, got study 1=5; write \[\[study\]\]"),
    "no seeds": (change("seeds = 2", ""), r"study 1 must have 'seeds', got study 1=None; give it; .*"),
    "seeds": (change("seeds = 2", "seeds = -1"), r"seeds must be at least 1, got seeds=-1; choose .*"),
    "part of a seed": (change("seeds = 2", "seeds = 2.5"), r"seeds must be a whole number, got seeds=2.5; give .*"),
    "seeds_of": (TINY + "seeds_of = { skewed = 0 }", r"seeds must be at least 1, got seeds=0; choose .*"),
    "seeds of what": (TINY + "seeds_of = { skwd = 1 }", r"line 13: data set must .*; did you mean 'skewed'\?"),
    "quick seeds": (TINY + "[quick]\nseeds = 0", r"seeds must be at least 1, got seeds=0; choose .*"),
    "split": (
        TINY + 'split = "groups"',
        r"line 13: split must be one of \['grouped', 'inner', 'random'\], got split='groups'; did you mean 'grouped'\?",
    ),
    "name": (
        change('"table"', '"../table"'),
        r"study name must use letters, digits, - and _, got study name='../table'; it becomes the name of a folder",
    ),
    "same name": (
        TINY + TINY[TINY.index("[[study]]") :],
        r"study names must differ, got study names=\['table', 'table'\]; rename one",
    ),
    "vary": (
        TINY + "vary = { dropout = 0.1 }",
        r"vary.dropout must be a list of numbers or words, got vary.dropout=0.1; write vary = \{ dropout = \[.*\] \}",
    ),
    "vary tables": (TINY + "vary = { x = [{ a = 1 }] }", r"vary.x must be a list of numbers or words, got vary.x=.*"),
    "quick vary": (
        TINY + "[quick]\nvary = { x = [] }",
        r"vary.x must be a list of numbers or words, got vary.x=\[\].*",
    ),
    "settings": (
        change("[settings]\nwidth = 8\ndepth = 2\nmax_epochs = 2", "settings = 3"),
        r"settings must be a table, got settings=3; write \[settings\]",
    ),
    "methods": (
        change("[settings]", "[methods]\nhnn = 3\n[settings]"),
        r"methods.hnn must be a table, got methods.hnn=3; write \[methods.hnn\]",
    ),
    "methods twice": (
        change("[settings]", "[methods]\nmc-dropout = {}\nmc_dropout = {}\n[settings]"),
        r"methods must name each method once, got methods=\['mc-dropout', 'mc_dropout'\]; a hyphen is read as .*",
    ),
    "published": (
        TINY + "[reference]\nboston = 0.5",
        r"reference.boston must be a table, got reference.boston=0.5; write \[reference.boston\]",
    ),
    "test_fraction": (
        change("[settings]", "test_fraction = 1.0\n[settings]"),
        r"test_fraction must be greater than 0 and less than 1, got test_fraction=1.0; choose .*",
    ),
    "max_train_rows": (
        change("[settings]", "max_train_rows = 0\n[settings]"),
        r"max_train_rows must be at least 1, got max_train_rows=0; choose .*",
    ),
    "reference": (
        TINY + "[reference.bostn]\nhnn = { ce = 1 }",
        r"line 13: data set must be one of .*, got data set='bostn'; did you mean 'boston'\?",
    ),
    "key of table": (
        TINY + TABLE + 'traget = "y"',
        r"line 16: key of a table must be one of \['file', 'group', 'target'\], got key of a table='traget'; .*",
    ),
    "no target": (
        TINY + '[tables.mine]\nfile = "mine.csv"',
        r"tables.mine must have 'target', got tables.mine=None; give it; see hetcal.studies.protocol",
    ),
    "no file": (
        TINY + '[tables.mine]\ntarget = "y"',
        r"tables.mine must have 'file', got tables.mine=None; give it; .*",
    ),
    "table": (TINY + "[tables]\nmine = 3", r"tables.mine must be a table, got tables.mine=3; write \[tables.mine\]"),
    "column": (
        TINY + TABLE + "group = 3",
        r"group of tables.mine must be a text, got group of tables.mine=3; write it in quotes",
    ),
    "one column": (
        TINY + TABLE + 'group = "y"',
        r"target of tables.mine must differ from its group, got target of tables.mine='y'; name another column",
    ),
    "known name": (
        TINY + TABLE.replace("mine", "boston"),
        r"name of a table must use letters, digits, - and _, and differ from the data sets of hetcal, got name of a "
        r"table='boston'; it becomes the name of a folder; rename the table",
    ),
    "folder": (TINY + TABLE.replace("tables.mine", 'tables."a/b"'), r"name of a table must use .*, got .*='a/b'; .*"),
    "no such table": (
        change('"skewed"', '"mine2"') + TABLE,
        r"line 10: data set must be one of .*, got data set='mine2'; did you mean 'mine'\?",
    ),
    "omitted method": (
        TINY + 'omit = { dropout_hc = ["skewed"] }',
        r"line 13: omitted method must be one of \['hnn', 'quantile_hc'\], got omitted method='dropout_hc'; .*",
    ),
    "omitted set": (TINY + 'omit = { hnn = ["skewd"] }', r"line 13: data set must be .*; did you mean 'skewed'\?"),
    "quick set": (TINY + '[quick]\ndatasets = ["skewd"]', r"line 14: data set must be .*; did you mean 'skewed'\?"),
    "syntax": (change("width = 8", "width = "), r"Invalid value \(at line 4, column 9\)"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_bad_protocols(tmp_path, text, message):
    """The message names the file, if possible the line, the wrong value, and what to do."""
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises((ValueError, TypeError), match=rf"^{re.escape(str(path))}: {message}$"):
        read_protocol(path)


@pytest.mark.parametrize(
    ("name", "advice"),
    [("absent.toml", "No such file or directory"), ("", "Is a directory"), ("latin.toml", "save it as UTF-8")],
    ids=["absent", "folder", "latin"],
)
def test_unreadable_files(tmp_path, name, advice):
    (tmp_path / "latin.toml").write_bytes('title = "Größe"'.encode("latin-1"))
    path = tmp_path / name
    message = f"protocol must be a readable TOML file, got protocol={str(path)!r}; {advice}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_protocol(path)

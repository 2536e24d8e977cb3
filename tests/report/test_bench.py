"""The dict of a study: the figures of its cells, with floors, published values and curves."""

import json

import numpy as np
import pytest

from hetcal.report import describe_bench, render
from hetcal.studies.results import estimate_figure, read_results
from hetcal.studies.table import tabulate
from tests.studies.samples import TINY, cell_files, make_results

TEXT = (
    TINY
    + """
[[study]]
name = "rates"
datasets = ["skewed"]
methods = ["hnn"]
seeds = 1
vary = { dropout = [0.1, 0.5] }

[reference.skewed]
hnn = { ce = 0.5 }
"""
)


def metrics_of(cell):
    return {"ce": 0.3 + 0.1 * cell.seed, "crps": 1.0 if cell.method == "hnn" else 2.0}


@pytest.fixture
def results(tmp_path):
    return make_results(tmp_path, TEXT, metrics_of)


def test_blocks(results):
    """A block per data set and variant, with mean, standard error and curve of every method."""
    content = describe_bench(results)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    names = ["table: heteroscedastic", "table: skewed", "rates: skewed dropout=0.1", "rates: skewed dropout=0.5"]
    assert [block["name"] for block in content["blocks"]] == names
    block = content["blocks"][1]
    assert block["caption"] == "2 random splits with 80 training and 20 test rows"
    assert block["ce_noise_floor"] == 0.25
    for method in block["methods"]:
        group = results.select("table", "skewed", method["name"])
        figure = estimate_figure(group, "ce")
        assert method["metrics"]["ce"]["mean"] == figure.mean
        assert method["metrics"]["ce"]["standard_error"] == figure.error
        np.testing.assert_allclose(method["curve"]["coverage"], np.mean([one["coverage"] for one in group], axis=0))
    assert content["blocks"][2]["methods"][0]["metrics"]["ce"]["standard_error"] is None  # a single split
    assert block["band"]["rows"] == 20


def test_overview_is_the_table_of_the_study(results):
    """What `hetcal bench table` prints, published figures too."""
    content = describe_bench(results)
    table, expected = content["overview"][0], tabulate(results, "ce")[0]
    assert table["title"] == expected.title
    for row, (name, floor, entries) in zip(table["rows"], expected.rows, strict=True):
        assert (row["name"], row["floor"]) == (name, floor)
        assert [cell["mean"] for cell in row["cells"]] == [entry.estimate.mean for entry in entries]
        assert [cell["published"] for cell in row["cells"]] == [entry.published for entry in entries]
    assert table["rows"][1]["cells"][0]["published"] == 0.5
    html = render(content)
    assert "publ. 0.50" in html
    assert "Noise floor" in html


def test_notes_without_folders(tmp_path):
    """Failed, damaged and missing cells are told, the folder of this machine is not."""
    make_results(tmp_path, TEXT, lambda cell: None if cell.study == "rates" else metrics_of(cell))
    damaged = cell_files(tmp_path)[0]
    damaged.write_text("{")
    content = describe_bench(read_results(tmp_path))
    assert any("damaged" in note for note in content["notes"])
    assert any("still to run" in note for note in content["notes"])
    text = json.dumps(content) + render(content)
    assert str(tmp_path) not in text
    assert str(tmp_path.parent) not in text


def test_nothing_finished(tmp_path):
    results = make_results(tmp_path, TEXT, lambda cell: None)
    with pytest.raises(ValueError, match="folder must hold finished cells, got folder="):
        describe_bench(results)

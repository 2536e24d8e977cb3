"""The figures show the results, are complete files, and are the same for the same results."""

import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose

from hetcal.metrics import CURVE_LEVELS, calibration_band, ce_noise_floor
from hetcal.studies.figures import draw_figures, figures_of
from hetcal.studies.results import read_results, write_result
from tests.studies.samples import make_result, make_results

TEXT = """\
title = "Drawn"

[[study]]
name = "table"
datasets = ["heteroscedastic", "skewed", "heavy-tailed"]
methods = ["hnn", "dropout_hc"]
seeds = 2

[[study]]
name = "rates"
datasets = ["skewed"]
methods = ["hnn", "dropout_hc"]
seeds = 2
vary = { dropout = [0.1, 0.2, 0.4] }
"""


def ce_of(cell):
    return {"ce": dict(cell.varied).get("dropout", 0.3) + cell.seed / 10 + (cell.method == "hnn")}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return make_results(tmp_path_factory.mktemp("results"), TEXT, ce_of)


@pytest.fixture(scope="module")
def drawn(results, tmp_path_factory):
    return draw_figures(results, tmp_path_factory.mktemp("figures"))


def test_files(drawn):
    """Figures 1 and 2 and one of all data sets, each as PNG and SVG, complete and not empty."""
    names = ["figure-2", "calibration-table", "figure-1"]
    assert [path.name for path in drawn] == [f"{name}.{suffix}" for name in names for suffix in ("png", "svg")]
    assert sorted(drawn) == sorted(drawn[0].parent.iterdir())
    for path in drawn:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG\r\n")
            assert content.endswith(b"IEND\xaeB`\x82")
            assert matplotlib.image.imread(path)[..., :3].std() > 0.01  # not one color alone
        else:
            root = ElementTree.fromstring(content)
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 20


def test_same_results_same_bytes(drawn, results, tmp_path):
    """Neither a date nor a random name gets into the files, and no setting of matplotlib is changed."""
    before = dict(matplotlib.rcParams)
    again = draw_figures(read_results(results.folder), tmp_path)
    assert dict(matplotlib.rcParams) == before
    for first, second in zip(drawn, again, strict=True):
        assert first.read_bytes() == second.read_bytes()


def curves(ax):
    """The lines with a name, by name."""
    return {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}


def test_figure_1(results):
    """CE by rate is the mean of the splits, with one standard error; sigma is shown at the paper's rate of 0.2."""
    figure = dict(figures_of(results))["figure-1"]
    left, right = figure.axes
    lines = curves(left)
    assert lines.keys() == {"HNN", "Dropout-HC", "noise floor"}
    for title, offset in {"HNN": 1, "Dropout-HC": 0}.items():
        assert_allclose(lines[title].get_xdata(), [0.1, 0.2, 0.4])
        assert_allclose(lines[title].get_ydata(), np.array([0.1, 0.2, 0.4]) + 0.05 + offset)
    assert_allclose(lines["noise floor"].get_ydata(), ce_noise_floor(20))
    band = left.collections[0].get_paths()[0].vertices[:, 1]
    assert_allclose([band.min(), band.max()], [1.15 - 0.05, 1.45 + 0.05])
    assert right.get_title() == "skewed: sigma at dropout = 0.2"
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert labels == ["HNN (median 1.5)", "Dropout-HC (median 1.5)"]


def test_figure_2(tmp_path):
    """The mean coverage of the splits, with the CE in the legend, over the band of a calibrated model."""
    results = make_results(tmp_path, TEXT, ce_of)
    for cell in results.protocol.cells():
        result = {
            **make_result(results.protocol, cell, **ce_of(cell)),
            "coverage": (CURVE_LEVELS ** (1 + cell.seed)).tolist(),
        }
        write_result(tmp_path, cell, result)
    figure = dict(figures_of(read_results(tmp_path)))["figure-2"]
    assert [ax.get_title() for ax in figure.axes] == ["heteroscedastic (20 test rows)", "skewed (20 test rows)"]
    for ax in figure.axes:
        lines = curves(ax)
        assert lines.keys() == {"HNN (CE 1.35)", "Dropout-HC (CE 0.35)"}
        for line in lines.values():
            assert_allclose(line.get_ydata(), (CURVE_LEVELS + CURVE_LEVELS**2) / 2)
        band = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert_allclose([band.min(), band.max()], [calibration_band(20, CURVE_LEVELS)[0].min(), 1])


def test_all_data_sets_are_drawn(results):
    figure = dict(figures_of(results))["calibration-table"]
    shown = [ax.get_title() for ax in figure.axes if ax.axison]
    assert shown == [f"{name} (20 test rows)" for name in ("heteroscedastic", "skewed", "heavy-tailed")]


def test_figure_2_has_the_sets_of_the_paper(tmp_path):
    """Boston and crime, wherever they are in the protocol; a grouped study has a figure of its own."""
    text = TEXT.replace('["heteroscedastic", "skewed", "heavy-tailed"]', '["skewed", "boston", "energy", "crime"]')
    text = text.replace('name = "rates"', 'name = "days"\nsplit = "grouped"').replace("vary", "# vary")
    figures = dict(figures_of(make_results(tmp_path, text, ce_of)))
    assert figures.keys() == {"figure-2", "calibration-table", "calibration-days"}
    assert [ax.get_title().split()[0] for ax in figures["figure-2"].axes] == ["boston", "crime"]


def test_unfinished_study(tmp_path):
    """Finished cells are drawn: one data set, method and split, two of three rates, and sigma at the nearest rate."""

    def metrics_of_some(cell):
        is_done = (cell.dataset, cell.method, cell.seed) == ("skewed", "hnn", 0)
        return ce_of(cell) if is_done and cell.varied != (("dropout", 0.2),) else None

    figures = dict(figures_of(make_results(tmp_path, TEXT, metrics_of_some)))
    assert curves(figures["figure-2"].axes[0]).keys() == {"HNN (CE 1.30)"}
    left, right = figures["figure-1"].axes
    assert_allclose(curves(left)["HNN"].get_xdata(), [0.1, 0.4])
    assert_allclose(curves(left)["HNN"].get_ydata(), [1.1, 1.4])
    assert right.get_title() == "skewed: sigma at dropout = 0.1"


def test_nothing_to_draw(tmp_path):
    """No finished cell, or only cells that the protocol no longer has: one sentence, no file."""
    message = f"folder must hold finished cells, got folder={str(tmp_path)!r}; run the protocol first"
    results = make_results(tmp_path, TEXT, lambda cell: None)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        draw_figures(results, tmp_path)
    make_results(tmp_path, TEXT, lambda cell: ce_of(cell) if cell.method == "hnn" and cell.varied else None)
    (tmp_path / "protocol.toml").write_text(TEXT.replace('["hnn", "dropout_hc"]', '["dropout_hc"]'))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        draw_figures(read_results(tmp_path), tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".png", ".svg")]


def test_a_real_run_can_be_drawn(finished, tmp_path):
    """The fields that the figures need are in the results of a run."""
    paths = draw_figures(read_results(finished), tmp_path)
    assert [path.name for path in paths if path.suffix == ".svg"] == ["figure-2.svg", "calibration-table.svg"]

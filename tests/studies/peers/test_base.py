"""Tables become matrices as other libraries need them, and a library that is missing is named."""

import re
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hetcal.prediction import Prediction
from hetcal.studies.cells import check_protocol, method_title, run_cell
from hetcal.studies.peers import PEERS, Peer
from hetcal.studies.peers.base import QUANTILE_LEVELS, MatrixEncoder
from hetcal.studies.protocol import Cell, parse_protocol
from hetcal.studies.run import run_protocol
from hetcal.tabular.columns import MISSING_LABEL, Table
from tests.studies.samples import TINY

DAY = np.datetime64("1970-01-02T12:00", "us")
TABLE = Table(
    {
        "kind": np.array(["oak", MISSING_LABEL, "ash"], dtype=object),
        "size": np.array([1.0, np.nan, 3.0]),
        "date": np.array([DAY, np.datetime64("NaT"), DAY]),
    }
)


@pytest.mark.parametrize(("fill", "size", "date"), [(True, 2.0, 1.5), (False, np.nan, np.nan)])
def test_encoding(fill, size, date):
    """Numbers, days since 1970, then a column per label; a missing label is a label, an unknown one is none of them."""
    encoder = MatrixEncoder(fill).fit(TABLE)
    rows = [[1.0, 1.5, 0, 0, 1], [size, date, 1, 0, 0], [3.0, 1.5, 0, 1, 0]]
    assert_array_equal(encoder.transform(TABLE), rows)
    unknown = Table({**TABLE.take([0]).columns, "kind": np.array(["elm"], dtype=object)})
    assert_array_equal(encoder.transform(unknown), [[1.0, 1.5, 0, 0, 0]])


def test_a_column_without_values():
    """It is filled with zeros, because it has no mean."""
    table = Table({"x": np.full(2, np.nan)})
    assert_array_equal(MatrixEncoder(fill=True).fit(table).transform(table), [[0.0], [0.0]])


def test_levels():
    """Symmetric, with the median and the ends of all intervals of the calibration error."""
    assert_array_equal(QUANTILE_LEVELS, np.sort(1 - QUANTILE_LEVELS).round(3))
    assert {0.5, 0.005, 0.995, 0.05, 0.95, 0.45} <= set(QUANTILE_LEVELS)


class MeanOfTraining(Peer):
    """Predicts mean and standard deviation of the training rows."""

    title, packages = "Mean", ("numpy",)

    def _fit(self, x, y, groups):
        self.moments_ = y.mean(), y.std()

    def _predict(self, x):
        mean, std = self.moments_
        return Prediction(np.full(len(x), mean), np.full(len(x), std))


PEER_TEXT = TINY.replace('"hnn"', '"mean_of_training"')


@pytest.fixture
def known_peer(monkeypatch):
    monkeypatch.setitem(PEERS, "mean_of_training", MeanOfTraining)


def test_a_peer_is_a_method_of_a_study(known_peer):
    """On the same rows, without our settings; a cell records the versions of the peer's packages, but no epochs."""
    protocol = parse_protocol(PEER_TEXT)
    check_protocol(protocol)
    result = run_cell(protocol, Cell("table", "skewed", "mean_of_training", seed=1))
    assert result["title"] == "Mean"
    assert result["settings"] == {"random_state": 1}
    assert result["split"] == {"rule": "random", "n_train": 800, "n_test": 200}
    assert result["training"] is None
    assert result["versions"]["numpy"] == np.__version__
    assert 50 < result["peak_memory_mb"] < 1e5
    assert result["metrics"]["rmse"] > 0


def test_a_peer_can_be_recalibrated(known_peer):
    protocol = parse_protocol(TINY.replace('"hnn"', '"mean_of_training+std"'))
    check_protocol(protocol)
    result = run_cell(protocol, Cell("table", "skewed", "mean_of_training+std", seed=0))
    assert (result["title"], result["split"]["n_train"]) == ("Mean + std", 640)
    assert method_title("catboost+isotonic") == "CatBoost + isotonic"


def test_settings_are_not_varied_for_peers(known_peer):
    protocol = parse_protocol(PEER_TEXT + "vary = { dropout = [0.1] }")
    message = (
        "methods of 'table' must not include a peer where settings vary, got methods of 'table'='mean_of_training'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        check_protocol(protocol)


def test_a_missing_package(monkeypatch, tmp_path):
    """Reported once, before the first cell, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "catboost", None)
    message = r"^the method CatBoost needs catboost \(.*\); install it with: pip install 'hetcal\[peers\]'$"
    with pytest.raises(ImportError, match=message):
        run_protocol(parse_protocol(TINY.replace('"hnn"', '"catboost"')), tmp_path)

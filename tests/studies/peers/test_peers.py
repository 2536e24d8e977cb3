"""Every peer that is installed gives a distribution that knows more than the mean of y. Others are skipped."""

import os

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hetcal.metrics import crps
from hetcal.prediction import Prediction
from hetcal.studies.peers import PEERS
from hetcal.tabular.columns import Table

ROWS, TEST_ROWS = 150, 50


@pytest.fixture(scope="module")
def rows():
    """A linear table with little noise, a column of labels and a few missing numbers."""
    random = np.random.default_rng(0)
    x = random.normal(size=(2, ROWS + TEST_ROWS))
    kind = random.choice(["oak", "ash"], ROWS + TEST_ROWS)
    y = 3 * x[0] + 2 * (kind == "oak") + 0.3 * random.normal(size=ROWS + TEST_ROWS)
    x[1, ::10] = np.nan
    return Table({"a": x[0], "b": x[1], "kind": kind.astype(object)}), y


@pytest.mark.filterwarnings("ignore")  # of the libraries themselves
@pytest.mark.parametrize("name", [name for name in PEERS if name != "tabm"])  # tabm takes minutes; realmlp is its kin
def test_peer(rows, name, tmp_path, monkeypatch):
    """Better than the mean of y, the same again with the same seed, and no files in the user's folder."""
    for package in PEERS[name].packages:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    X, y = rows
    train, test = np.arange(ROWS), np.arange(ROWS, ROWS + TEST_ROWS)
    model = PEERS[name](random_state=3).fit(X.take(train), y[train], groups=train // 5)
    prediction = model.predict_dist(X.take(test))
    blind = Prediction(np.full(TEST_ROWS, y[train].mean()), np.full(TEST_ROWS, y[train].std()))
    times = 1.05 if name == "no_model" else 0.5  # it is blind itself
    assert crps(y[test], prediction) < times * crps(y[test], blind)
    assert os.listdir(tmp_path) == []
    if name not in ("ngboost", "realmlp"):  # these take ten times as long as the others
        again = PEERS[name](random_state=3).fit(X.take(train), y[train], groups=train // 5)
        assert_array_equal(again.predict_dist(X.take(test)).interval(0.5), prediction.interval(0.5))

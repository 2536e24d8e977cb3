"""The parts of the demo; the whole takes a minute and is run by `make demo`."""

import numpy as np

from hetcal.cli import demo
from hetcal.methods import METHODS, PAPER


def test_table_and_pictures(monkeypatch, tmp_path):
    """With networks trained for two epochs: one row per method, all figures written."""
    make = demo.make
    monkeypatch.setattr(demo, "make", lambda method, **settings: make(method, max_epochs=2, width=8, **settings))
    data = {"diabetes": demo.diabetes(), "synthetic": demo.synthetic()}
    results = {(name, method): demo.fit_and_evaluate(data[name], method) for name in data for method in PAPER}
    text = demo.table([(METHODS[method].title, results["synthetic", method]) for method in PAPER])
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "sigma corr." in lines[0]
    assert [line.split("  ")[0] for line in lines[2:-1]] == ["MC Dropout", "HNN", "Dropout-HC", "Quantile-HC"]
    assert np.isfinite(results["synthetic", "hnn"]["std_correlation"])
    demo.draw(data, results, tmp_path)
    assert len(list(tmp_path.glob("*.png"))) == 5

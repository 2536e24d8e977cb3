"""The demo with tiny networks; the real one takes a minute and is run by `make demo`."""

import numpy as np

from hetcal.cli import demo
from hetcal.cli.options import DemoOptions


def test_table_and_figures(monkeypatch, tmp_path, capsys):
    """With networks trained for two epochs: two tables with one row per method, and all figures."""
    make = demo.make
    monkeypatch.setattr(demo, "make", lambda method, **settings: make(method, max_epochs=2, width=8, **settings))
    demo.run_demo(DemoOptions(out=tmp_path / "figures"))
    out = capsys.readouterr().out
    diabetes, synthetic = (part.splitlines()[:8] for part in out.split("test rows\n\n")[1:])
    for lines in (diabetes, synthetic):
        assert lines[0].startswith("method")
        assert len({len(line) for line in lines[:7]}) == 1
        names = ["Cross-HC", "MC Dropout", "HNN", "Dropout-HC", "Quantile-HC"]
        assert [line.split("  ")[0] for line in lines[2:7]] == names
    assert "sigma corr." not in diabetes[0]
    assert "sigma corr." in synthetic[0]
    assert all(np.isfinite(float(line.split()[-1])) for line in synthetic[2:7])
    assert len(list((tmp_path / "figures").glob("*.png"))) == 5
    assert "Figures are in " in out


def test_intervals_that_are_too_narrow_are_explained():
    """Too narrow on test rows alone is overfitting; on training rows too, sigma ignores the noise."""
    assert "cover 94.8% of the training rows; the method has fitted" in demo.explain_narrow(0.948)
    assert "cover 68.3% of the training rows; its sigma does not reflect the noise" in demo.explain_narrow(0.683)


def test_a_method_that_is_too_narrow_has_its_coverage_of_the_training_rows(monkeypatch):
    rng = np.random.default_rng(0)
    arrays = {"X_train": rng.normal(size=(80, 3)), "y_train": rng.normal(size=80)}
    arrays |= {"X": rng.normal(size=(400, 3)), "y": rng.normal(size=400)}
    make = demo.make
    monkeypatch.setattr(demo, "make", lambda method, **settings: make(method, max_epochs=30, width=16, **settings))
    assert 0 < demo.fit_and_evaluate(arrays, "mc_dropout")["training_coverage"] < 1

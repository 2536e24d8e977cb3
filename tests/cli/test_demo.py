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

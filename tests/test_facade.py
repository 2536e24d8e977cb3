"""The facade is lazy: metrics and plots come without torch."""

import subprocess
import sys

import pytest

import hetcal


def test_public_names():
    for name in hetcal.__all__:
        assert getattr(hetcal, name) is not None
        assert name in dir(hetcal)
    with pytest.raises(AttributeError, match="no attribute 'HCRegresor'"):
        hetcal.HCRegresor  # noqa: B018


LIGHT = (
    *(
        "",
        ".exceptions",
        ".metrics",
        ".metrics.scorers",
        ".plots",
        ".datasets",
        ".report",
        ".splitting",
        ".tabular.columns",
    ),
    *(".studies.table", ".model_files.archive", ".cli.tables", ".cli.app"),
)


@pytest.mark.parametrize("module", [f"hetcal{name}" for name in LIGHT])
def test_no_torch(module):
    """Anyone can use these on anyone's predictions without paying for torch."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_evaluate_through_the_facade_needs_no_torch():
    code = "import sys, hetcal; hetcal.evaluate([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

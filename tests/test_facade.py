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


# In one process: what a module brings with it is not loaded earlier, unless by one of those before it.
CODE = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    if "torch" in sys.modules:
        sys.exit(f"{module} imports torch")
import hetcal
hetcal.evaluate([0.0, 1.0], [0.0, 0.0], [1.0, 1.0])
if "torch" in sys.modules:
    sys.exit("evaluate imports torch")
"""


def test_no_torch():
    """Anyone can use these, and `evaluate` of the facade, on anyone's predictions without paying for torch."""
    modules = [f"hetcal{name}" for name in LIGHT]
    ended = subprocess.run([sys.executable, "-c", CODE, *modules], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")

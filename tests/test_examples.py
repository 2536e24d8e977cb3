"""Every example runs as its reader would run it."""

import importlib.util
from pathlib import Path

import pytest

from tests.warm_python import WarmPython

STARTS_A_CLUSTER = "08_grid_search_on_ray.py"
EXAMPLES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.cluster] if path.name == STARTS_A_CLUSTER else [])
    for path in sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
]
# What an example needs beyond the library, and the files that it leaves behind.
NEEDS = {"01_quickstart.py": "matplotlib", "06_lightning.py": "lightning", STARTS_A_CLUSTER: "ray"}
WRITES = {"01_quickstart.py": ["quickstart.png"]}


@pytest.fixture(scope="module")
def python():
    """`python -W error`, with one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        warm = WarmPython("-W", "error")
    yield warm
    warm.close()


@pytest.mark.parametrize("path", EXAMPLES)
def test_example(python, path, tmp_path):
    """It ends well and without a warning, says how its intervals do, and leaves no other files than it says."""
    needed = NEEDS.get(path.name)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{path.name} needs {needed}; pip install {needed}")
    result = python.run(path, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "% intervals cover" in result.stdout
    assert len(result.stdout.splitlines()) <= 3
    if path.name != "01_quickstart.py":  # which shows a progress bar
        assert result.stderr == ""
    assert sorted(file.name for file in tmp_path.iterdir()) == WRITES.get(path.name, [])

"""The root conftest.py: pages of docs run in an empty folder and must leave the repository as it was."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.mark.parametrize(
    ("block", "left"),
    [
        ("Path('here.hetcal').touch(); assert os.listdir() == ['here.hetcal']", None),
        ("Path(root, 'model.hetcal').touch()", "model.hetcal"),
        ("Path(root, 'docs', 'own.hetcal').touch()", "docs/own.hetcal"),
        ("Path(root, 'kept.txt').unlink()", "kept.txt"),
        ("Path(root, '.pytest_cache').mkdir()", None),
    ],
    ids=["own_folder", "root", "subfolder", "removed", "cache"],
)
def test_a_page_that_leaves_a_file_behind_fails(tmp_path, block, left):
    """In a repository of its own, with a page that does so."""
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    shutil.copy(CONFTEST, root)
    (root / "kept.txt").touch()
    lines = ["```python", "import os", "from pathlib import Path", f"root = {str(root)!r}", block, "```"]
    (root / "docs" / "page.md").write_text("\n".join(lines))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "docs"]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert "1 passed" in ended.stdout
    assert ended.returncode == (1 if left else 0)
    if left:
        assert f"but these came or went: {left}" in ended.stdout

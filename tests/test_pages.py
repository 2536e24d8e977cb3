"""The root conftest.py: pages of docs run in an empty folder and must leave the repository as it was."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
# What each page does, and what the check must say of it.
PAGES = {
    "own_folder": ("Path('here.hetcal').touch(); assert os.listdir() == ['here.hetcal']", None),
    "cache": ("Path(root, '.mypy_cache').mkdir()", None),
    "root": ("Path(root, 'model.hetcal').touch()", "model.hetcal"),
    "subfolder": ("Path(root, 'docs', 'own.hetcal').touch()", "docs/own.hetcal"),
    "removed": ("Path(root, 'kept.txt').unlink()", "kept.txt"),
}


def test_a_page_that_leaves_a_file_behind_fails(tmp_path):
    """In a repository of its own, with pages that do so and pages that do not."""
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    shutil.copy(CONFTEST, root)
    (root / "kept.txt").touch()
    for name, (block, _) in PAGES.items():
        lines = ["```python", "import os", "from pathlib import Path", f"root = {str(root)!r}", block, "```"]
        (root / "docs" / f"{name}.md").write_text("\n".join(lines))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rE", "-p", "no:cacheprovider", "docs"],
        cwd=root,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = {name: left for name, (_, left) in PAGES.items() if left}
    assert f"{len(PAGES)} passed, {len(wrong)} errors" in ended.stdout
    for name, left in wrong.items():
        assert f"ERROR docs/{name}.md" in ended.stdout
        assert f"but these came or went: {left}\n" in ended.stdout

"""Runs the Python blocks of README.md and docs/ as tests, each page in its own empty folder; orders the files.

A page must leave nothing behind in the repository; this is checked at the end of every page.
"""

import os
import tempfile
from pathlib import Path

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

REPOSITORY = Path(__file__).parent
# Tools may write here while the tests run.
CACHES = {
    ".git",
    ".venv",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".import_linter_cache",
    ".hypothesis",
}

# The slowest files, which begin first: otherwise one test process would wait for the other at the end.
SLOWEST = (
    "tests/test_examples.py",
    "tests/model_files/test_onnx.py",
    "tests/benchmarks/test_smoke.py",
    "tests/studies/test_run.py",
    "tests/test_regressor.py",
    "tests/contracts/test_sklearn.py",
    "tests/contracts/test_model_attacks.py",
    "tests/contracts/test_hostile_inputs.py",
    "tests/cli/test_app.py",
    "tests/contracts/test_threads.py",
    "tests/model_files/test_state.py",
    "tests/contracts/test_hostile_files.py",
    "tests/test_classifier.py",
    "tests/contracts/test_combinations.py",
    "tests/tabular/test_streaming.py",
    "tests/contracts/test_interrupts.py",
    "tests/contracts/test_csv_to_report.py",
)


def pytest_collection_modifyitems(items):
    """Move the slowest files to the front; within a file and among the others the order stays."""
    places = {REPOSITORY / name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path, len(SLOWEST)))


def list_repository():
    """All files and folders of the repository, without caches."""
    found = set()
    for folder, folders, files in os.walk(REPOSITORY):
        folders[:] = [name for name in folders if name not in CACHES]
        found.update(str((Path(folder) / name).relative_to(REPOSITORY)) for name in [*folders, *files])
    return found


def enter_folder(namespace):
    namespace["_repository"] = list_repository()
    namespace["_folder"], namespace["_before"] = tempfile.TemporaryDirectory(), os.getcwd()
    os.chdir(namespace["_folder"].name)


def leave_folder(namespace):
    os.chdir(namespace["_before"])
    namespace["_folder"].cleanup()
    changed = sorted(namespace["_repository"] ^ list_repository())
    assert not changed, f"a page must leave the repository as it was, but these came or went: {', '.join(changed)}"


pages = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md"], setup=enter_folder, teardown=leave_folder
)
pytest_collect_file = pages.pytest()

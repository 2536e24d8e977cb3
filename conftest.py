"""Runs the Python blocks of README.md and docs/ as tests, each page in an empty folder of its own."""

import os
import tempfile

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


def enter_folder(namespace):
    namespace["_folder"], namespace["_before"] = tempfile.TemporaryDirectory(), os.getcwd()
    os.chdir(namespace["_folder"].name)


def leave_folder(namespace):
    os.chdir(namespace["_before"])
    namespace["_folder"].cleanup()


pages = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md"], setup=enter_folder, teardown=leave_folder
)
pytest_collect_file = pages.pytest()

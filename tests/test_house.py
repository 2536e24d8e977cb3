"""The size of the house: few rooms, short files, short functions, and names that have one home."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "hetcal"
MODULES = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
MOST_MODULES, MOST_PACKAGES = 17, 10  # directly under the package, `__init__` included
MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_FUNCTION = 400, 60
MOST_SHARED_NAMES = 24
# Exceptions, each with its reason: {"regressor.py": "...", "regressor.py:HCRegressor.fit": "..."}.
LONGER: dict[str, str] = {}


def functions(text):
    """Name with classes and functions around it, and lines from `def` to the end, of every function."""

    def visit(node, around):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{around}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield name, child.end_lineno - child.lineno + 1
                yield from visit(child, f"{name}.")
            else:
                yield from visit(child, around)

    yield from visit(ast.parse(text), "")


def top_level_names(text):
    """Functions, classes and assigned names of a module."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))


def test_rooms():
    """What lies directly under the package can be read at one glance."""
    modules = [path.name for path in PACKAGE.glob("*.py")]
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert len(modules) <= MOST_MODULES, sorted(modules)
    assert len(packages) <= MOST_PACKAGES, sorted(packages)


def test_files_are_short():
    lines = {name: len(text.splitlines()) for name, text in MODULES.items()}
    assert {n: k for n, k in lines.items() if k > MOST_LINES_OF_A_FILE and n not in LONGER} == {}


def test_functions_are_short():
    lines = {f"{name}:{function}": k for name, text in MODULES.items() for function, k in functions(text)}
    assert {n: k for n, k in lines.items() if k > MOST_LINES_OF_A_FUNCTION and n not in LONGER} == {}


def test_exceptions_are_still_needed():
    lines = {name: (len(text.splitlines()), MOST_LINES_OF_A_FILE) for name, text in MODULES.items()}
    for name, text in MODULES.items():
        lines |= {f"{name}:{function}": (k, MOST_LINES_OF_A_FUNCTION) for function, k in functions(text)}
    assert [name for name in LONGER if name not in lines or lines[name][0] <= lines[name][1]] == []
    assert all(LONGER.values()), "give a reason for each"


def test_names_have_one_home():
    """A name that stands in several modules means several things; what `__init__` passes on does not count."""
    homes = defaultdict(set)
    for name, text in MODULES.items():
        if not name.endswith("__init__.py"):
            for word in top_level_names(text):
                homes[word].add(name)
    shared = {word: sorted(places) for word, places in sorted(homes.items()) if len(places) > 1}
    assert len(shared) <= MOST_SHARED_NAMES, "\n".join(f"{word}: {', '.join(shared[word])}" for word in shared)


@pytest.mark.parametrize(
    ("text", "names", "lengths"),
    [
        ("A, B = 1, 2\nc: int = 3\nd: int\n", ["A", "B", "c", "d"], []),
        ("@e\ndef f(\n    x,\n):\n    def g(): pass\n", ["f"], [("f", 4), ("f.g", 1)]),
        ("class C:\n    x = 1\n    async def m(self):\n        pass\n", ["C"], [("C.m", 2)]),
        ("if 1:\n    def h(): pass\nimport os\n", [], [("h", 1)]),
    ],
)
def test_counting(text, names, lengths):
    assert list(top_level_names(text)) == names
    assert list(functions(text)) == lengths

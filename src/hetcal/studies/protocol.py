"""A protocol: everything that decides a study, as one TOML file.

    title = "My study"

    [settings]                # of every model: parameters of HCRegressor
    max_epochs = 500

    [methods.quantile_hc]     # of one method, over what hetcal.METHODS says
    dropout = 0.1

    [[study]]
    name = "table"
    split = "random"          # or "grouped": whole patients, days or duplicates stay on one side
                              # or "inner": the training part of "random" split again, to choose settings by
    datasets = ["boston", "crime"]    # names of hetcal.datasets, synthetic ones too
    methods = ["hnn", "dropout_hc"]
    seeds = 10                # splits 0, 1, ..., 9, the same for every method
    seeds_of = { crime = 5 }
    vary = { dropout = [0.1, 0.2] }

    [quick]                   # what --quick changes: seeds, seeds_of, max_train_rows, vary, and settings
    seeds = 1

    [reference.boston]        # published figures to print beside ours
    hnn = { ce = 0.541, rmse = 5.106 }

Its hash covers what a result depends on: settings, methods, splits. Data sets, methods and seeds may be added to a
study later, and the finished cells still count.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from hetcal import datasets
from hetcal._checks import check_choice, check_number, must

SPLITS = ("random", "grouped", "inner")
Settings = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One fit: a method on one split of one data set, with the settings that the study varies."""

    study: str
    dataset: str
    method: str
    seed: int
    varied: tuple[tuple[str, Any], ...] = ()

    @property
    def path(self) -> Path:
        """Where its result lies below the folder of the run."""
        variant = "".join(f",{name}={value}" for name, value in self.varied)
        return Path(self.study) / self.dataset / f"{self.method}{variant}" / f"seed-{self.seed}.json"

    def __str__(self) -> str:
        return " ".join([self.dataset, self.method, *(f"{name}={value}" for name, value in self.varied)])


@dataclass(frozen=True)
class Study:
    """A grid of cells: data sets x methods x varied settings x seeds."""

    name: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int
    split: str = "random"
    seeds_of: Mapping[str, int] = field(default_factory=dict)
    vary: Mapping[str, list[Any]] = field(default_factory=dict)

    def cells(self) -> Iterator[Cell]:
        """Seed by seed, so that an unfinished study has seen every data set."""
        variants = [tuple(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]
        for seed in range(max(self.seeds, *self.seeds_of.values(), 0)):
            for dataset, varied, method in product(self.datasets, variants, self.methods):
                if seed < self.seeds_of.get(dataset, self.seeds):
                    yield Cell(self.name, dataset, method, seed, varied)


@dataclass(frozen=True)
class Protocol:
    """A parsed protocol; `text` is the file it came from."""

    title: str
    studies: tuple[Study, ...]
    settings: Settings = field(default_factory=dict)
    methods: Mapping[str, Settings] = field(default_factory=dict)
    test_fraction: float = 0.2
    max_train_rows: int | None = None
    quick: Settings = field(default_factory=dict)
    reference: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    text: str = ""
    is_quick: bool = False

    @property
    def hash(self) -> str:
        """Hash of what a result depends on."""
        content = {
            "settings": self.settings,
            "methods": self.methods,
            "test_fraction": self.test_fraction,
            "max_train_rows": self.max_train_rows,
            "splits": {study.name: study.split for study in self.studies},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def cells(self) -> list[Cell]:
        return [cell for study in self.studies for cell in study.cells()]

    def study(self, name: str) -> Study:
        return next(study for study in self.studies if study.name == name)

    def settings_of(self, cell: Cell) -> Settings:
        """What the model of a cell is made with, over its row of `hetcal.METHODS`."""
        name = cell.method.partition("+")[0]  # behind it: a recalibrator, which has no settings
        return {**self.settings, **self.methods.get(name, {}), **dict(cell.varied)}

    def made_quick(self) -> "Protocol":
        """The first look that the file's `quick` section describes."""
        if not self.quick:
            raise must("protocol", "have a [quick] section for a quick run", self.title, "add one, with seeds = 1")
        changes = dict(self.quick)
        grid = {name: changes.pop(name) for name in ("seeds", "seeds_of", "vary") if name in changes}
        studies = []
        for study in self.studies:
            vary = {name: grid.get("vary", {}).get(name, values) for name, values in study.vary.items()}
            seeds = grid.get("seeds", study.seeds)
            studies.append(replace(study, seeds=seeds, seeds_of=grid.get("seeds_of", {}), vary=vary))
        rows = changes.pop("max_train_rows", self.max_train_rows)
        settings = {**self.settings, **changes}
        return replace(self, studies=tuple(studies), settings=settings, max_train_rows=rows, is_quick=True)


def read_protocol(path: Path) -> Protocol:
    """Read and check a protocol file; an error names the file, the line and the nearest known name."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise must("protocol", "be a readable TOML file", str(path), error.strerror or "check the path") from None
    except UnicodeDecodeError:
        raise must("protocol", "be a readable TOML file", str(path), "save it as UTF-8") from None
    try:
        return parse_protocol(text)
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{path}: {error}") from None


def parse_protocol(text: str) -> Protocol:
    content = tomllib.loads(text)
    known = ["title", "settings", "methods", "test_fraction", "max_train_rows", "quick", "reference", "study"]
    check_keys(text, "key of a protocol", content, known)
    for name in ("title", "study"):
        if name not in content:
            raise must("protocol", f"have {name!r}", sorted(content), "see the docstring of hetcal.studies.protocol")
    for name in ("settings", "methods", "quick", "reference"):
        check_table(name, content.get(name, {}), f"write [{name}]")
    if not isinstance(content["study"], list):
        raise must("study", "be a list of tables", content["study"], "write [[study]], in double brackets", TypeError)
    studies = tuple(parse_study(text, number, entry) for number, entry in enumerate(content.pop("study"), 1))
    names = [study.name for study in studies]
    if len(set(names)) < len(names):
        raise must("study names", "differ", names, "rename one")
    check_number("test_fraction", content.get("test_fraction", 0.2), 0, 1, open_low=True, open_high=True)
    for method, settings in content.get("methods", {}).items():
        check_table(f"methods.{method}", settings, f"write [methods.{method}]")
    for dataset in content.get("reference", {}):
        check_word(text, "data set", dataset, known_datasets())
    check_grid(content.get("quick", {}))
    for table in (content, content.get("quick", {})):
        check_number("max_train_rows", table.get("max_train_rows", 1), 1, integer=True)
    return Protocol(studies=studies, text=text, **content)


def parse_study(text: str, number: int, entry: dict[str, Any]) -> Study:
    check_table(f"study {number}", entry, "write [[study]]")
    check_keys(text, "key of a study", entry, [item.name for item in fields(Study)])
    for name in ("name", "datasets", "methods", "seeds"):
        if not entry.get(name):
            raise must(f"study {number}", f"have {name!r}", entry.get(name), "give it; see hetcal.studies.protocol")
    for name in ("datasets", "methods"):
        if not isinstance(entry[name], list):
            raise must(f"{name} of study {number}", "be a list", entry[name], f"write {name} = [...]", TypeError)
    if not re.fullmatch(r"[\w-][\w.-]*", entry["name"]):
        raise must("study name", "be of letters, digits, - and _", entry["name"], "it becomes the name of a folder")
    check_word(text, "split", entry.get("split", "random"), SPLITS)
    for dataset in [*entry["datasets"], *entry.get("seeds_of", {})]:
        check_word(text, "data set", dataset, known_datasets())
    check_grid(entry)
    lists = {name: tuple(entry[name]) for name in ("datasets", "methods")}
    return Study(**{**entry, **lists})


def check_grid(grid: Mapping[str, Any]) -> None:
    """Seeds are counted, and what is varied has values that can name a file."""
    for seeds in [grid.get("seeds", 1), *grid.get("seeds_of", {}).values()]:
        check_number("seeds", seeds, 1, integer=True)
    for name, values in grid.get("vary", {}).items():
        if not isinstance(values, list) or not values or not all(isinstance(v, int | float | str) for v in values):
            raise must(f"vary.{name}", "be a list of numbers or words", values, "write vary = { dropout = [0.1, 0.2] }")


def check_table(name: str, value: Any, advice: str) -> None:
    if not isinstance(value, dict):
        raise must(name, "be a table", value, advice, TypeError)


def known_datasets() -> list[str]:
    return [*datasets.available(), *datasets.SYNTHETIC]


def check_keys(text: str, noun: str, keys: Iterable[str], known: Iterable[str]) -> None:
    for key in keys:
        check_word(text, noun, key, known)


def check_word(text: str, noun: str, word: str, known: Iterable[str]) -> None:
    """`check_choice`, with the line of the file that the word stands in."""
    try:
        check_choice(noun, word, known)
    except ValueError as error:
        raise ValueError(f"line {line_of(text, word)}: {error}") from None


def line_of(text: str, word: str) -> int | str:
    """The first line outside of comments that holds the word; tomllib keeps no positions."""
    whole = re.compile(rf"(?<![\w-]){re.escape(str(word))}(?![\w-])")
    for number, line in enumerate(text.splitlines(), 1):
        if whole.search(line.split("#")[0]):
            return number
    return "?"

"""A protocol: one TOML file that determines the results of a study.

    title = "My study"

    [settings]                # parameters of HCRegressor, for every model
    max_epochs = 500

    [methods.quantile_hc]     # for one method; they take precedence over hetcal.METHODS
    dropout = 0.1

    [[study]]
    name = "table"
    split = "random"          # or "grouped": all rows of a patient, a day or a duplicate stay on one side
                              # or "inner": the training part of "random", split again to choose settings
    datasets = ["boston", "crime"]    # names in hetcal.datasets, including the synthetic ones
    methods = ["hnn", "dropout_hc"]
    seeds = 10                # splits 0, 1, ..., 9, the same for every method
    seeds_of = { crime = 5 }
    vary = { dropout = [0.1, 0.2] }

    [quick]                   # changes made by --quick: seeds, seeds_of, max_train_rows, vary, and settings
    seeds = 1

    [reference.boston]        # published figures, printed next to ours
    hnn = { ce = 0.541, rmse = 5.106 }

The hash of a protocol covers what a result depends on: settings, test fraction and splits. Data sets, methods and seeds
can be added to a study later, and the finished cells remain valid. Hyphens in the name of a method become underscores.
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
from hetcal._checks import check_choice, check_number, must, underscored

SPLIT_RULES = ("random", "grouped", "inner")
ModelSettings = dict[str, Any]
Varied = tuple[tuple[str, Any], ...]  # names and values of the settings that a study varies


@dataclass(frozen=True)
class Cell:
    """One fit: a method on one split of one data set, with the settings that the study varies."""

    study: str
    dataset: str
    method: str
    seed: int
    varied: Varied = ()

    @property
    def path(self) -> Path:
        """The file of its result, relative to the folder of cells."""
        variant = "".join(f",{name}={value}" for name, value in self.varied)
        return Path(self.study) / self.dataset / f"{self.method}{variant}" / f"seed-{self.seed}.json"

    def __str__(self) -> str:
        return " ".join(filter(None, [self.dataset, self.method, describe_varied(self.varied)]))


def describe_varied(varied: Varied) -> str:
    """
    >>> describe_varied((("dropout", 0.1), ("depth", 2)))
    'dropout=0.1 depth=2'
    """
    return " ".join(f"{name}={value}" for name, value in varied)


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
        """All cells, ordered by seed, so that an unfinished study covers every data set."""
        variants = [tuple(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]
        for seed in range(max(self.seeds, *self.seeds_of.values(), 0)):
            for dataset, varied, method in product(self.datasets, variants, self.methods):
                if seed < self.seeds_of.get(dataset, self.seeds):
                    yield Cell(self.name, dataset, method, seed, varied)


@dataclass(frozen=True)
class Protocol:
    """A parsed protocol; `text` is the content of its file."""

    title: str
    studies: tuple[Study, ...]
    settings: ModelSettings = field(default_factory=dict)
    methods: Mapping[str, ModelSettings] = field(default_factory=dict)
    test_fraction: float = 0.2
    max_train_rows: int | None = None
    quick: ModelSettings = field(default_factory=dict)
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

    def settings_of(self, cell: Cell) -> ModelSettings:
        """The settings of the model of a cell; they take precedence over its row in `hetcal.METHODS`."""
        name, _ = split_method(cell.method)
        return {**self.settings, **self.methods.get(name, {}), **dict(cell.varied)}

    def made_quick(self) -> "Protocol":
        """The short version of the study, as the `quick` section of the file describes it."""
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
    """Read and check a protocol file; an error names the file, the line and the closest known name."""
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
    content["methods"] = parse_methods("methods", content.get("methods", {}))
    for dataset, published in content.get("reference", {}).items():
        check_word(text, "data set", dataset, known_datasets())
        check_table(f"reference.{dataset}", published, f"write [reference.{dataset}]")
        content["reference"][dataset] = parse_methods(f"reference.{dataset}", published)
    check_grid(content.get("quick", {}))
    for table in (content, content.get("quick", {})):
        check_number("max_train_rows", table.get("max_train_rows", 1), 1, integer=True)
    return Protocol(studies=studies, text=text, **content)


def parse_methods(name: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables by method, with the names of the methods as in `hetcal.METHODS`."""
    for method, table in tables.items():
        check_table(f"{name}.{method}", table, f"write [{name}.{method}]")
    parsed = {underscored(method): table for method, table in tables.items()}
    if len(parsed) < len(tables):
        raise must(name, "name each method once", sorted(tables), "a hyphen is read as an underscore; remove one")
    return parsed


def split_method(method: str) -> tuple[str, str]:
    """Method and recalibrator; the latter is empty for most methods.

    >>> split_method("random_sigma+isotonic"), split_method("hnn")
    (('random_sigma', 'isotonic'), ('hnn', ''))
    """
    name, _, recalibrator = method.partition("+")
    return name, recalibrator


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
        raise must("study name", "use letters, digits, - and _", entry["name"], "it becomes the name of a folder")
    check_word(text, "split", entry.get("split", "random"), SPLIT_RULES)
    for dataset in [*entry["datasets"], *entry.get("seeds_of", {})]:
        check_word(text, "data set", dataset, known_datasets())
    check_grid(entry)
    methods = tuple(underscored(method) for method in entry["methods"])
    return Study(**{**entry, "datasets": tuple(entry["datasets"]), "methods": methods})


def check_grid(grid: Mapping[str, Any]) -> None:
    """Seeds must be counts, and the values of a varied setting must be usable in the name of a file."""
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
    """Like `check_choice`, with the line of the protocol that contains the word."""
    try:
        check_choice(noun, word, known)
    except ValueError as error:
        raise ValueError(f"line {line_of(text, word)}: {error}") from None


def line_of(text: str, word: str) -> int | str:
    """The first line that contains the word outside of comments; tomllib does not keep positions."""
    either = re.escape(str(word)).replace("_", "[_-]")  # the file may have a hyphen there
    whole = re.compile(rf"(?<![\w-]){either}(?![\w-])")
    for number, line in enumerate(text.splitlines(), 1):
        if whole.search(line.split("#")[0]):
            return number
    return "?"

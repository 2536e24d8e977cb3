"""A protocol: one TOML file that determines the results of a study.

    title = "My study"

    [settings]                # parameters of HCRegressor, for every model
    max_epochs = 500

    [methods.quantile_hc]     # for one method; they take precedence over hetcal.METHODS
    dropout = 0.1

    [tables.sales]            # a table of one's own, beside the protocol or in the folder that HETCAL_TABLES names
    file = "sales.csv.gz"
    target = "price"
    group = "customer"        # optional: rows that a grouped split keeps on one side

    [[study]]
    name = "table"
    split = "random"          # or "grouped": all rows of a patient, a day or a duplicate stay on one side
                              # or "inner": the training part of "random", split again to choose settings
    datasets = ["boston", "crime", "sales"]    # names in hetcal.datasets, including the synthetic ones, and in [tables]
    methods = ["hnn", "dropout_hc"]            # names in hetcal.METHODS and hetcal.studies.peers.PEERS
    seeds = 10                # splits 0, 1, ..., 9, the same for every method
    seeds_of = { crime = 5 }
    omit = { dropout_hc = ["crime"] }    # data sets on which a method is not run
    vary = { dropout = [0.1, 0.2] }

    [quick]                   # changes made by --quick: seeds, seeds_of, max_train_rows, vary, and settings
    seeds = 1
    datasets = ["boston"]     # of every study, only these, and so for methods; a study that has none is omitted

    [reference.boston]        # published figures, printed next to ours
    hnn = { ce = 0.541, rmse = 5.106 }

The hash of a protocol covers what a result depends on: settings, test fraction and splits. Data sets, methods and seeds
can be added to a study later, and the finished cells remain valid. Tables of one's own are not part of the hash either:
every cell records the SHA-256 of its file and the roles of the columns (`own_tables`). Hyphens in the name of a method
become underscores.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

from hetcal import datasets
from hetcal._checks import check_choice, check_number, must, underscored

SPLIT_RULES = ("random", "grouped", "inner")
# What [quick] changes besides settings and max_train_rows.
QUICK_GRID = ("datasets", "methods", "seeds", "seeds_of", "vary")
IS_FOLDER_NAME = re.compile(r"[\w-][\w.-]*")
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


@dataclass(frozen=True)
class OwnTable:
    """A table of the user's own: its file, the target, and the column of groups if rows belong together."""

    file: str
    target: str
    group: str | None = None


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
    omit: Mapping[str, list[str]] = field(default_factory=dict)
    vary: Mapping[str, list[Any]] = field(default_factory=dict)

    def cells(self) -> Iterator[Cell]:
        """All cells, ordered by seed, so that an unfinished study covers every data set."""
        variants = [tuple(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]
        for seed in range(max(self.seeds, *self.seeds_of.values(), 0)):
            for dataset, varied, method in product(self.datasets, variants, self.methods):
                if seed < self.seeds_of.get(dataset, self.seeds) and dataset not in self.omit.get(method, ()):
                    yield Cell(self.name, dataset, method, seed, varied)


@dataclass(frozen=True)
class Protocol:
    """A parsed protocol; `text` is the content of its file, and `folder` is where the file is."""

    title: str
    studies: tuple[Study, ...]
    settings: ModelSettings = field(default_factory=dict)
    methods: Mapping[str, ModelSettings] = field(default_factory=dict)
    tables: Mapping[str, OwnTable] = field(default_factory=dict)
    test_fraction: float = 0.2
    max_train_rows: int | None = None
    quick: ModelSettings = field(default_factory=dict)
    reference: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    text: str = ""
    folder: Path = field(default=Path(), compare=False)
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
        grid = {name: changes.pop(name) for name in QUICK_GRID if name in changes}
        studies = []
        for study in self.studies:
            sets = tuple(name for name in study.datasets if name in grid.get("datasets", study.datasets))
            methods = tuple(name for name in study.methods if name in grid.get("methods", study.methods))
            if not sets or not methods:
                continue
            vary = {name: grid.get("vary", {}).get(name, values) for name, values in study.vary.items()}
            changed = replace(study, datasets=sets, methods=methods, seeds=grid.get("seeds", study.seeds))
            studies.append(replace(changed, seeds_of=grid.get("seeds_of", {}), vary=vary))
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
        return parse_protocol(text, path.parent)
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{path}: {error}") from None


def parse_protocol(text: str, folder: Path = Path()) -> Protocol:
    content = tomllib.loads(text)
    known = ["title", "settings", "methods", "tables", "test_fraction", "max_train_rows", "quick", "reference", "study"]
    check_keys(text, "key of a protocol", content, known)
    for name in ("title", "study"):
        if name not in content:
            raise must("protocol", f"have {name!r}", sorted(content), "see the docstring of hetcal.studies.protocol")
    for name in ("settings", "methods", "tables", "quick", "reference"):
        check_table(name, content.get(name, {}), f"write [{name}]")
    if not isinstance(content["study"], list):
        raise must("study", "be a list of tables", content["study"], "write [[study]], in double brackets", TypeError)
    content["tables"] = {name: parse_table(text, name, entry) for name, entry in content.get("tables", {}).items()}
    known_sets = [*known_datasets(), *content["tables"]]
    entries = enumerate(content.pop("study"), 1)
    studies = tuple(parse_study(text, number, entry, known_sets) for number, entry in entries)
    names = [study.name for study in studies]
    if len(set(names)) < len(names):
        raise must("study names", "differ", names, "rename one")
    check_number("test_fraction", content.get("test_fraction", 0.2), 0, 1, open_low=True, open_high=True)
    content["methods"] = parse_methods("methods", content.get("methods", {}))
    for dataset, published in content.get("reference", {}).items():
        check_word(text, "data set", dataset, known_sets)
        check_table(f"reference.{dataset}", published, f"write [reference.{dataset}]")
        content["reference"][dataset] = parse_methods(f"reference.{dataset}", published)
    check_grid(content.get("quick", {}))
    quick = content.get("quick", {})
    check_keys(text, "data set", quick.get("datasets", []), known_sets)
    if "methods" in quick:
        quick["methods"] = [underscored(method) for method in quick["methods"]]
        check_keys(text, "method", quick["methods"], {method for study in studies for method in study.methods})
    for table in (content, content.get("quick", {})):
        check_number("max_train_rows", table.get("max_train_rows", 1), 1, integer=True)
    return Protocol(studies=studies, text=text, folder=folder, **content)


def parse_table(text: str, name: str, entry: Any) -> OwnTable:
    """A table of the user's own; its file is looked for only when the study is run."""
    check_table(f"tables.{name}", entry, f"write [tables.{name}]")
    check_keys(text, "key of a table", entry, [item.name for item in fields(OwnTable)])
    if not IS_FOLDER_NAME.fullmatch(name) or name in known_datasets():
        rule = "use letters, digits, - and _, and differ from the data sets of hetcal"
        raise must("name of a table", rule, name, "it becomes the name of a folder; rename the table")
    for key in ("file", "target"):
        if not entry.get(key):
            raise must(f"tables.{name}", f"have {key!r}", entry.get(key), "give it; see hetcal.studies.protocol")
    for key, value in entry.items():
        if not isinstance(value, str):
            raise must(f"{key} of tables.{name}", "be a text", value, "write it in quotes", TypeError)
    if entry["target"] == entry.get("group"):
        raise must(f"target of tables.{name}", "differ from its group", entry["target"], "name another column")
    return OwnTable(**entry)


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


def parse_study(text: str, number: int, entry: dict[str, Any], known_sets: Iterable[str]) -> Study:
    check_table(f"study {number}", entry, "write [[study]]")
    check_keys(text, "key of a study", entry, [item.name for item in fields(Study)])
    for name in ("name", "datasets", "methods", "seeds"):
        if not entry.get(name):
            raise must(f"study {number}", f"have {name!r}", entry.get(name), "give it; see hetcal.studies.protocol")
    for name in ("datasets", "methods"):
        if not isinstance(entry[name], list):
            raise must(f"{name} of study {number}", "be a list", entry[name], f"write {name} = [...]", TypeError)
    if not IS_FOLDER_NAME.fullmatch(entry["name"]):
        raise must("study name", "use letters, digits, - and _", entry["name"], "it becomes the name of a folder")
    check_word(text, "split", entry.get("split", "random"), SPLIT_RULES)
    methods = tuple(underscored(method) for method in entry["methods"])
    omit = {underscored(method): omitted for method, omitted in entry.get("omit", {}).items()}
    check_keys(text, "omitted method", omit, methods)
    for dataset in [*entry["datasets"], *entry.get("seeds_of", {}), *chain.from_iterable(omit.values())]:
        check_word(text, "data set", dataset, known_sets)
    check_grid(entry)
    return Study(**{**entry, "datasets": tuple(entry["datasets"]), "methods": methods, "omit": omit})


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

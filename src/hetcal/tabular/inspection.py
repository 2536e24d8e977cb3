"""What a table shows before anything is trained: its columns, its target, and findings with the option that answers
each of them. Nothing here changes the table.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats, must
from hetcal.metrics.verdict import rows_needed, sufficient_test_size
from hetcal.metrics.wording import count, number, percent
from hetcal.tabular.columns import DATE_ADVICE, MISSING_LABEL, Table, check_unique_columns, read_table
from hetcal.tabular.facts import ColumnFacts, TargetFacts, describe_column, describe_target, unit_vector
from hetcal.tabular.rows import check_groups, number_equal_rows, numbers_repeat, ranks
from hetcal.tabular.targets import check_regression_target

ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?")
MOST_NAMED = 10  # columns in a sentence
# A column of labels, or of whole numbers, can be an id if it has this many rows and so many different values.
FEWEST_ROWS_OF_IDS, ID_SHARE = 20, 0.95
ID_NAME = re.compile(r"(?i:(^|[\W_])(id|uuid|guid|index|key|nr|no|number)s?$)|[a-z]I[dD]$|#$")
# Groups of rows: at least this many, with this share of the rows in groups of two or more.
FEWEST_GROUPS, GROUPED_SHARE = 5, 0.5
MOST_CANDIDATES = 20
# What a group determines must vary: its second value has at least this share of the rows.
RARE_SHARE = 0.05
MANY_MISSING = 0.5
# A target of this skewness has a long tail.
LONG_TAIL = 2.0
# A column is a linear function of the target if 1 minus its correlation is at most this.
SAME = 1e-9


@dataclass(frozen=True)
class Finding:
    """Something about a table that its user should know, and the option of `hetcal fit` that answers it.

    Attributes:
        name: What was found, such as "equal_rows".
        text: It in a sentence, with the answer.
        flag: The option that answers it, such as "--drop id"; None if there is none.
        is_warning: Whether results mislead unless it is answered.
    """

    name: str
    text: str
    flag: str | None = None
    is_warning: bool = False


@dataclass(frozen=True)
class Inspection:
    """What `inspect` has found; `str(inspection)` is a text for a terminal."""

    rows: int
    columns: list[ColumnFacts]
    target: TargetFacts
    findings: list[Finding]

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {**asdict(self), "target": {**asdict(self.target), "text": self.target.text}}

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The rows, the target, the columns by their use, and the findings."""
        yield f"{count(self.rows, 'row')}, {count(len(self.columns), 'feature')}"
        yield f"  {self.target.text}"
        for use in dict.fromkeys(column.use for column in self.columns):
            names = [column.name for column in self.columns if column.use == use]
            yield f"  {use}: {named(names)}"
        yield from (f"* {finding.text}" for finding in self.findings)


def inspect(
    X: Any,
    y: Any,
    *,
    target: str = "y",
    groups: Any = None,
    time: str | None = None,
    target_transform: str | None = None,
    test_rows: int | None = None,
) -> Inspection:
    """Look at a table before training: columns and their use, the target, and what a user should know or decide.

    `hetcal fit` prints the result. The findings name its options; in Python, `--drop` is `X.drop(columns=...)`,
    `--group` is `fit(X, y, groups=...)`, `--set` is a setting of `HCRegressor`, and `--time` and `--split` are yours to
    do with `train_test_split`.

    Args:
        X: (n, d) frame or array, as in `HCRegressor.fit`.
        y: (n,) numbers.
        target: Name of y.
        groups: (n,) labels of rows that belong together; then none are looked for.
        time: Column that orders the rows, if training and test rows are split by it.
        target_transform: Setting of the regressor; with one, a skewed y is no finding.
        test_rows: Number of rows that the model will be evaluated on.

    Raises:
        ValueError: y is constant or not numeric, so that there is nothing to learn.

    >>> random = np.random.default_rng(0)
    >>> X = np.column_stack([np.arange(100.0), random.normal(size=100), np.ones(100)])
    >>> print(inspect(X, random.lognormal(sigma=2, size=100)))
    100 rows, 3 features
      y: from 0.00826 to 37.8, skewness 3.2, 100 different values
      standardized number: x0 and x1
      ignored, because it is constant: x2
    * x0 looks like an id: 100 whole numbers without gaps; omit it with --drop x0
    * x2 is constant; omit it with --drop x2
    * y is positive with a long tail (skewness 3.2); if the intervals disappoint, train on its logarithm with
      --set target_transform=log
    """
    table = X if isinstance(X, Table) else read_any(X)
    values = check_regression_target(np.asarray(y))
    if values.shape != (len(table),):
        shape = f"array of shape {values.shape}"
        raise must("y", f"have one value per row of X ({len(table)})", shape, "give one target")
    facts = describe_target(target, values)
    codes = {name: ranks(column).astype(np.int64) for name, column in table.columns.items()}
    columns = [describe_column(table, name, codes[name]) for name in table.columns]
    look = Look(table, values, codes, {column.name: column for column in columns})
    findings = [
        *look.for_the_target_among_features(),
        *look.for_dates(time),
        *look.for_equal_rows(check_groups(groups, len(table)), is_split_by_time=time is not None),
        *(look.for_groups() if groups is None else ()),
        *look.for_ids(),
        *look.for_useless_columns(),
        *(look.for_a_long_tail(facts) if target_transform is None else ()),
        *(() if test_rows is None else few_rows_to_judge(test_rows, len(table))),
    ]
    return Inspection(len(table), columns, facts, findings)


def read_any(X: Any) -> Table:
    return read_table(check_unique_columns(X) if hasattr(X, "columns") else np.asarray(X))


@dataclass(frozen=True, eq=False)
class Look:
    """The table with what every search for findings needs."""

    table: Table
    y: Floats
    codes: dict[str, NDArray[np.int64]]  # ranks of the values
    columns: dict[str, ColumnFacts]

    def for_the_target_among_features(self) -> Iterator[Finding]:
        y = unit_vector(self.y)
        for name, facts in self.columns.items():
            if facts.kind == "numbers" and facts.different > 2 and not facts.missing:
                correlation = float((unit_vector(self.table.columns[name]) * y).sum())
                if abs(correlation) >= 1 - SAME:
                    said = f"{name} is the target in other units: a linear function of it in every row"
                    purpose = "if it is unknown when you predict, omit it"
                    yield answer("target_among_features", said, purpose, drop([name]))

    @cached_property
    def dates_as_text(self) -> dict[str, NDArray[np.datetime64]]:
        """Columns of text in which every label is a date."""
        texts = [name for name, facts in self.columns.items() if facts.kind == "text" and facts.different > 1]
        read = {name: read_dates(self.table.columns[name]) for name in texts}
        return {name: dates for name, dates in read.items() if dates is not None}

    def for_dates_as_text(self) -> Iterator[Finding]:
        for name in self.dates_as_text:
            said = f"{name} holds dates as text, which a model takes for labels without an order; {DATE_ADVICE}"
            yield Finding("dates_as_text", said, is_warning=True)

    def for_dates(self, time: str | None) -> Iterator[Finding]:
        yield from self.for_dates_as_text()
        known = {name: self.table.columns[name] for name, facts in self.columns.items() if facts.kind == "dates"}
        known = {name: dates for name, dates in {**known, **self.dates_as_text}.items() if self.is_varied(name)}
        if time is not None or not known:
            return
        name = max(known, key=lambda column: self.columns[column].different)
        dates = known[name]
        first, last = (np.datetime_as_string(day, "D") for day in (np.nanmin(dates), np.nanmax(dates)))
        said = (
            f"{name} holds dates ({first} to {last}), and a random split tests on rows between the training rows in "
            "time: it hides how much worse the model is on rows that are later than all of them"
        )
        yield answer("dates", said, "test on the later rows", f"--time {shlex.quote(name)}", is_warning=True)

    def for_equal_rows(self, groups: NDArray[np.int64] | None, is_split_by_time: bool) -> Iterator[Finding]:
        numbers = number_equal_rows(self.table, self.y, groups)
        repeated = len(self.y) - len(np.unique(numbers))
        if not repeated:
            return
        share = percent(repeated / len(self.y))
        said = f"{repeated:,} of {len(self.y):,} rows ({share}) are exact copies of another row"
        if is_split_by_time:
            yield Finding("equal_rows", said)
        elif numbers_repeat(numbers):
            said += ", too many to keep copies on one side of a split: a test row may have been a training row"
            yield Finding("equal_rows", said)
        else:
            yield answer(
                "equal_rows",
                f"{said}, and copies stay on one side of the test split",
                "split at random",
                "--split random",
            )

    def for_groups(self) -> Iterator[Finding]:
        """The column that looks most like the label of groups: others are the same for all rows of a label."""
        found: list[tuple[int, int, str, list[str]]] = []
        candidates = [name for name in self.columns if self.may_group(name)]
        for name in sorted(candidates, key=lambda column: -self.columns[column].different)[:MOST_CANDIDATES]:
            shared = self.determined_by(name)
            if shared or ID_NAME.search(name):
                found.append((len(shared), self.columns[name].different, name, shared))
        if not found:
            return
        _, different, name, shared = max(found)
        same = f", and all rows of one share {named(shared)}" if shared else ""
        said = f"{name} looks like the label of groups: {different} labels for {len(self.y):,} rows{same}"
        flag = f"--group {shlex.quote(name)}"
        yield answer("groups", said, "if you will predict for new ones, keep each on one side of every split", flag)

    def may_group(self, name: str) -> bool:
        facts, codes = self.columns[name], self.codes[name]
        if not FEWEST_GROUPS <= facts.different <= len(codes) / 2 or facts.missing or not self.has_labels(name):
            return False
        sizes = np.bincount(codes)
        return bool(sizes[sizes > 1].sum() >= GROUPED_SHARE * len(codes))

    def is_varied(self, name: str) -> bool:
        return self.columns[name].different > 1

    def has_labels(self, name: str) -> bool:
        """Whether a column has text other than dates, or whole numbers."""
        if name in self.dates_as_text:
            return False
        values = self.table.columns[name]
        kind = self.columns[name].kind
        return kind == "text" or (kind == "numbers" and bool((values[~np.isnan(values)] % 1 == 0).all()))

    def determined_by(self, name: str) -> list[str]:
        """The columns that are the same in all rows of a label, and differ between labels."""
        order = np.argsort(self.codes[name], kind="stable")
        same_label = np.diff(self.codes[name][order]) == 0
        found = []
        for other, codes in self.codes.items():
            sizes = np.sort(np.bincount(codes))
            varies = 1 < self.columns[other].different < self.columns[name].different
            varies = varies and sizes[-2] >= RARE_SHARE * len(codes)
            if varies and not (np.diff(codes[order])[same_label] != 0).any():
                found.append(other)
        return found

    def for_ids(self) -> Iterator[Finding]:
        """Columns that are different in nearly every row; copies of a row have the same id."""
        n = len(np.unique(number_equal_rows(self.table, self.y)))
        for name, facts in self.columns.items():
            if n < FEWEST_ROWS_OF_IDS or facts.different < ID_SHARE * n or not self.has_labels(name):
                continue
            if facts.kind == "text":
                said = f"{facts.different:,} different labels in {n:,} rows"
            elif facts.different == n and np.ptp(self.table.columns[name]) == n - 1:
                said = f"{n:,} whole numbers without gaps"
            elif facts.different == n and ID_NAME.search(name):
                said = f"{n:,} whole numbers, all different"
            else:
                continue
            yield answer("id", f"{name} looks like an id: {said}", "omit it", drop([name]))

    def for_useless_columns(self) -> Iterator[Finding]:
        constant = [name for name, facts in self.columns.items() if facts.use.startswith("ignored")]
        if constant:
            said, them = ("is", "it") if len(constant) == 1 else ("are", "them")
            yield answer("constant", f"{named(constant)} {said} constant", f"omit {them}", drop(constant))
        first: dict[bytes, str] = {}
        for name in self.columns:
            if name not in constant:
                original = first.setdefault(content_of(self.table.columns[name]), name)
                if original != name:
                    yield answer("duplicate", f"{name} repeats {original} in every row", "omit it", drop([name]))
        for name, facts in self.columns.items():
            if facts.missing > MANY_MISSING and name not in constant:
                said = f"{name} is missing in {percent(facts.missing)} of the rows"
                yield answer("missing", said, "if it is not missing for a reason, omit it", drop([name]))

    def for_a_long_tail(self, facts: TargetFacts) -> Iterator[Finding]:
        if facts.skewness < LONG_TAIL:
            return
        shape = f"with a long tail (skewness {number(facts.skewness, 2)})"
        purpose, name = "if the intervals disappoint, train on", facts.name
        if facts.low > 0:
            flag = "--set target_transform=log"
            yield answer("skew", f"{name} is positive {shape}", f"{purpose} its logarithm", flag)
        else:
            flag = "--set target_transform=yeo-johnson"
            yield answer("skew", f"{name} is skewed, {shape}", f"{purpose} a power of it", flag)


def read_dates(texts: NDArray[Any]) -> NDArray[np.datetime64] | None:
    """Read labels that are ISO dates, all of them or missing; None if one is not.

    >>> read_dates(np.array(["2024-01-31", "2024-02-30"], dtype=object)) is None
    True
    """
    words = np.where(texts == MISSING_LABEL, "NaT", texts)
    if not all(word == "NaT" or ISO_DATE.fullmatch(word) for word in words):
        return None
    try:
        return words.astype("datetime64[us]")
    except ValueError:  # no day of the calendar
        return None


def few_rows_to_judge(test_rows: int, rows: int) -> Iterator[Finding]:
    if 0 < test_rows < rows_needed():
        said = f"{count(test_rows, 'test row')} will be too few for a verdict, which needs {rows_needed()}"
        size = sufficient_test_size(rows)
        if size is not None:
            yield answer("few_test_rows", said, "hold out more", f"--test-size {size:g}")
        else:
            yield Finding("few_test_rows", f"{said}; compare methods by cross-validation, or collect more rows")


def answer(name: str, said: str, purpose: str, flag: str, *, is_warning: bool = False) -> Finding:
    return Finding(name, f"{said}; {purpose} with {flag}", flag, is_warning)


def drop(names: Sequence[str]) -> str:
    return " ".join(f"--drop {shlex.quote(name)}" for name in names)


def content_of(values: NDArray[Any]) -> bytes:
    """Bytes that are equal if two columns are."""
    if values.dtype.kind == "O":
        return "\0".join(values).encode("utf-8", "surrogatepass")
    return (values + 0.0 if values.dtype.kind == "f" else values).tobytes()  # -0 equals 0


def named(names: Sequence[str]) -> str:
    """
    >>> named(["a", "b", "c"])
    'a, b and c'
    """
    shown = [*names[:MOST_NAMED], *([f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))

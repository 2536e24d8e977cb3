"""The paper's data sets as tables: from the raw file's bytes to features, target and the groups for honest splits.

What is particular to a set stands in its catalog entry, not here. pandas is imported when the first set is loaded.
"""

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetcal.datasets.download import fetch
from hetcal.datasets.entry import Entry, read_entry

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table to learn from, and what one must know to use and to cite it.

    Rows with the same number in `groups` belong on the same side of a split: scikit-learn's `GroupKFold` and
    `GroupShuffleSplit` take it as it is. None means that rows may be split freely.
    """

    name: str
    title: str
    X: "pandas.DataFrame" = field(repr=False)  # float64 columns, or categories; missing values are NaN
    y: NDArray[np.float64] = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    target_name: str
    groups: NDArray[np.int64] | None = field(repr=False)
    license: str
    citation: str
    url: str


def load(name: str) -> Dataset:
    """Load one of the paper's data sets by name; `available()` lists them.

    The file is downloaded once, from the UCI archive, into the user's cache folder. Without network, set `HETCAL_DATA`
    to a folder that holds the raw files.

    Raises:
        ImportError: pandas, or pooch for a download, is not installed.
        FileNotFoundError: the file is neither there nor to be had; the message says where to put it.
        ValueError: the name is unknown, or the file in `HETCAL_DATA` is not the published one.
    """
    entry = read_entry(name)
    try:
        import pandas
    except ImportError as error:
        raise ImportError("hetcal.datasets.load needs pandas; install it with: pip install 'hetcal[data]'") from error
    table = _parse(pandas, entry, fetch(entry.file))
    if entry.drop_incomplete_rows:
        table = table.dropna(ignore_index=True)
    features = table.drop(columns=[entry.target, *entry.dropped])
    features = features.astype(dict.fromkeys(entry.categories, str))
    features = features.astype({c: "category" if c in entry.categories else "float64" for c in features.columns})
    return Dataset(
        name=name,
        title=entry.title,
        X=features,
        y=np.array(table[entry.target], dtype=np.float64),
        feature_names=tuple(features.columns),
        target_name=entry.target,
        groups=_groups(pandas, entry, table, features),
        license=entry.license,
        citation=entry.citation,
        url=entry.url,
    )


def _parse(pandas: Any, entry: Entry, content: bytes) -> Any:
    reader = entry.reader
    return pandas.read_csv(
        io.BytesIO(content),
        sep=r"\s+" if reader.separator == "blanks" else reader.separator,
        header=None if reader.columns else 0,
        names=list(reader.columns) or None,
        na_values=[reader.missing] if reader.missing else [],
        keep_default_na=False,  # what counts as missing is said by the entry alone
    )


def _groups(pandas: Any, entry: Entry, table: Any, features: Any) -> NDArray[np.int64] | None:
    """Number the groups 0, 1, ... in the order of their first rows."""
    rule, column = entry.groups.rule, entry.groups.column
    if rule == "none":
        return None
    if rule == "same_features":
        numbers = features.groupby(list(features.columns), sort=False, dropna=False).ngroup()
        return np.array(numbers, dtype=np.int64)
    values = pandas.to_datetime(table[column]).dt.normalize() if rule == "same_day" else table[column]
    return np.array(pandas.factorize(values)[0], dtype=np.int64)

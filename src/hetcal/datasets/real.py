"""The data sets of the paper as tables: from the bytes of the raw file to features, target and groups.

What is specific to a data set is in its catalog entry, not here. pandas is imported by the first call of `load`.
"""

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetcal.datasets.download import fetch
from hetcal.datasets.entry import CatalogEntry, read_entry

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set with its license and citation.

    Rows with the same number in `groups` belong on the same side of a split; pass it to scikit-learn's `GroupKFold` or
    `GroupShuffleSplit`. None means that rows may be split at random.
    """

    name: str
    title: str
    X: "pandas.DataFrame" = field(repr=False)  # columns are float64 or categories; missing values are NaN
    y: NDArray[np.float64] = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    target_name: str
    groups: NDArray[np.int64] | None = field(repr=False)
    license: str
    citation: str
    url: str


def load(name: str) -> Dataset:
    """Load one of the data sets of the paper by name; `available()` lists the names.

    The file is downloaded once, from the UCI archive, into the user's cache folder. To work offline, set the
    environment variable `HETCAL_DATA` to a folder that holds the raw files.

    Raises:
        ImportError: pandas is not installed, or pooch is not installed and the file must be downloaded.
        FileNotFoundError: The file is not stored and cannot be downloaded; the message states where to put it.
        ValueError: The name is unknown, or the file in `HETCAL_DATA` is not the published one.
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


def _parse(pandas: Any, entry: CatalogEntry, content: bytes) -> Any:
    reader = entry.reader
    return pandas.read_csv(
        io.BytesIO(content),
        sep=r"\s+" if reader.separator == "blanks" else reader.separator,
        header=None if reader.columns else 0,
        names=list(reader.columns) or None,
        na_values=[reader.missing] if reader.missing else [],
        keep_default_na=False,  # only the entry defines what counts as missing
    )


def _groups(pandas: Any, entry: CatalogEntry, table: Any, features: Any) -> NDArray[np.int64] | None:
    """Number the groups 0, 1, ... in the order of their first rows."""
    rule, column = entry.groups.rule, entry.groups.column
    if rule == "none":
        return None
    if rule == "same_features":
        numbers = features.groupby(list(features.columns), sort=False, dropna=False).ngroup()
        return np.array(numbers, dtype=np.int64)
    values = pandas.to_datetime(table[column]).dt.normalize() if rule == "same_day" else table[column]
    return np.array(pandas.factorize(values)[0], dtype=np.int64)

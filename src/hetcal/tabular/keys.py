"""Keys of rows: hashes of their values, the same wherever and in whatever order of the columns a row is met."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetcal.splitting import Keys, hash_keys
from hetcal.tabular.columns import Table


def keys_of_rows(table: Table, y: NDArray[Any]) -> Keys:
    """One key per row, of its values and the names of their columns; equal rows have equal keys."""
    total = np.zeros(len(y), np.uint64)
    for place, values in enumerate(y.reshape(len(y), -1).T):
        total += hash_keys(bits_of(values), place)
    for name, values in table.columns.items():
        total += hash_keys(bits_of(values) ^ np.uint64(hash_text(name)))
    return hash_keys(total)


def keys_of_labels(labels: NDArray[Any]) -> Keys:
    """One key per row, of the label of its group."""
    return hash_keys(bits_of(labels))


def bits_of(values: NDArray[Any]) -> Keys:
    """The value of each row as 64 bits; equal values have equal bits, missing ones too."""
    if values.dtype.kind == "f":
        return np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64)  # one NaN, and -0 is 0
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]").view(np.uint64)
    known: dict[Any, int] = {}
    for value in values:
        if value not in known:
            known[value] = hash_text(str(value))
    return np.fromiter((known[value] for value in values), np.uint64, len(values))


def hash_text(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")

"""A sketch of training rows, from which a later command can tell how many rows of a table the model was trained on.

Of the hashes of all rows, the sketch has the 64 smallest. Hashes do not depend on anything but the row, so that these
64 are a random sample of the training rows: the share of them that occurs in another table estimates the share of the
training rows in it. No value can be read from a hash; who knows a whole row can check whether it is one of the 64.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hetcal.cli.columns import Observations

SKETCH_SIZE, DIGITS_OF_HASH = 64, 12
Hashes = NDArray[np.uint64]
ODD = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def sketch_of(rows: Observations) -> list[str]:
    """The smallest hashes of the rows, in hexadecimal digits."""
    return [f"{value:0{DIGITS_OF_HASH}x}" for value in np.unique(hash_rows(rows))[:SKETCH_SIZE].tolist()]


def estimate_training_rows(rows: Observations, sketch: Sequence[str], trained: int) -> int:
    """The number of rows that are among the `trained` rows of a sketch: an estimate, if these are more than it has."""
    known = np.array([int(digits, 16) for digits in sketch], dtype=np.uint64)
    hashes = hash_rows(rows)
    if len(known) < SKETCH_SIZE:
        return int(np.isin(hashes, known).sum())
    return min(round(float(np.isin(known, hashes).mean()) * trained), len(rows))


def hash_rows(rows: Observations) -> Hashes:
    """One number per row, of its values and the names of their columns, in any order of the columns."""
    total = mix(bits_of(rows.y))
    for name, values in rows.X.columns.items():
        total += mix(bits_of(values) ^ np.uint64(hash_text(name)))
    return mix(total) >> np.uint64(64 - 4 * DIGITS_OF_HASH)


def bits_of(values: NDArray[np.generic]) -> Hashes:
    """The value of each row as 64 bits; equal values have equal bits."""
    if values.dtype.kind == "O":
        labels, codes = np.unique(values.astype(str), return_inverse=True)
        return np.array([hash_text(label) for label in labels.tolist()], dtype=np.uint64)[codes]
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]").view(np.uint64)
    numbers = values.astype(np.float64) + 0.0  # -0 equals 0
    return np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)


def hash_text(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "little")


def mix(bits: Hashes) -> Hashes:
    """Spread the bits (the finalizer of SplitMix64; Steele, Lea and Flood, 2014); sums wrap around."""
    for shift, factor in zip((30, 27), ODD, strict=True):
        bits = (bits ^ (bits >> np.uint64(shift))) * factor
    return bits ^ (bits >> np.uint64(31))

"""A sketch of training rows, from which a later command can tell how many rows of a table the model was trained on.

Of the hashes of all rows, the sketch has the 64 smallest. Hashes do not depend on anything but the row, so that these
64 are a random sample of the training rows: the share of them that occurs in another table estimates the share of the
training rows in it. No value can be read from a hash; who knows a whole row can check whether it is one of the 64.
"""

from collections.abc import Sequence

import numpy as np

from hetcal.cli.columns import Observations
from hetcal.splitting import Keys
from hetcal.tabular.keys import keys_of_rows

SKETCH_SIZE, DIGITS_OF_HASH = 64, 12


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


def hash_rows(rows: Observations) -> Keys:
    """The first digits of the keys of the rows."""
    return keys_of_rows(rows.X, rows.y) >> np.uint64(64 - 4 * DIGITS_OF_HASH)

"""From the arguments of `fit` to the rows that are trained on."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from hetcal._checks import Floats, must
from hetcal.exceptions import DegenerateDataWarning
from hetcal.splitting import Keys
from hetcal.tabular.columns import Table
from hetcal.tabular.encoding import TableEncoder
from hetcal.tabular.rows import (
    check_groups,
    check_weights,
    consist_of_repeats,
    cut_mixed_rows,
    merge_equal_rows,
)
from hetcal.tabular.spool import Spool, SpooledRows
from hetcal.training.workers import ALONE, Workers

ReadTarget = Callable[[NDArray[Any]], NDArray[Any]]  # checks y, and returns it as an array


@dataclass
class TrainingRows:
    """The rows of one fit: those with weight, equal ones merged, encoded."""

    target: NDArray[Any]  # (n,) or (n, k), as the subclass read it
    weights: Floats  # (n,)
    copies: Floats  # (n,) given rows that each row stands for
    total: float  # number of given rows, where a weight of 2 counts like two rows
    groups: NDArray[np.int64] | None  # (n,)
    encoder: TableEncoder
    x: Tensor  # (n, inputs), what the network sees
    seed: int
    # All rows, if they do not fit into memory; those above are then a random sample of them, with these keys.
    spool: Spool | None = None
    keys: Keys | None = None
    workers: Workers = ALONE  # that share the rows of the fit

    @property
    def counts(self) -> Floats:
        """The weights, scaled so that their sum is the number of given rows."""
        return self.weights * (self.total / self.weights.sum())

    @property
    def are_repeated(self) -> bool:
        """Whether shares of the weight of every row are held out, instead of whole rows or groups."""
        return self.groups is None and consist_of_repeats(self.copies)

    @property
    def n_targets(self) -> int:
        return 1 if self.target.ndim == 1 else int(self.target.shape[1])

    def stream(self, name: str, standardize: Callable[[Floats], NDArray[np.float32]]) -> SpooledRows | None:
        """All rows for the training of this name, with the target in its scale; None if they are in memory."""
        if self.spool is None or self.keys is None:
            return None
        return SpooledRows(self.spool, self.keys, name, standardize, self.workers, round(self.total))


def prepare_table(
    table: Table,
    y: Any,
    sample_weight: Any,
    groups: Any,
    read_target: ReadTarget,
    seed: int,
    *,
    are_classes: bool = False,
) -> TrainingRows:
    """Prepare a table in memory for training."""
    if sparse.issparse(y):
        raise must("y", "be dense", f"a sparse {type(y).__name__}", "call y.toarray().ravel()", TypeError)
    target = read_target(np.asarray(y))
    if len(target) != len(table):
        rule = f"have one value per row of X ({len(table)})"
        raise must("y", rule, f"{len(target)} values", "give both the same length")
    weights, unit = check_weights(sample_weight, table)
    codes = check_groups(groups, len(table))
    rows, weights, copies = merge_equal_rows(table, target, weights, codes)
    if are_classes and not consist_of_repeats(copies):
        pieces, counts = cut_mixed_rows(table.take(rows), weights)
        rows, weights, copies = rows[pieces], weights[pieces] / counts, copies[pieces] / counts
    if len(rows) < 2:
        advice = "a standard deviation cannot be learned from one row"
        raise must("X", "have at least 2 different rows", f"n_samples={len(rows)}", advice)
    table = table.take(rows)
    with np.errstate(over="ignore"):
        frequencies = np.maximum(copies, weights * unit)  # a weight of 2 counts like two rows
    encoder = TableEncoder().fit(table, weights, frequencies)
    warn_of_no_information(encoder)
    x = torch.from_numpy(encoder.transform(table))
    codes = None if codes is None else codes[rows]
    total = min(float(frequencies.sum()), 2.0**53)  # weights may be astronomical
    return TrainingRows(target[rows], weights, copies, total, codes, encoder, x, seed)


def warn_of_no_information(encoder: TableEncoder) -> None:
    if not encoder.is_informative:
        message = "no column of X varies; every row gets the same prediction"
        warnings.warn(message, DegenerateDataWarning, stacklevel=6)

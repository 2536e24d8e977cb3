"""More rows than fit into memory, as training reads them: shuffled blocks, each row with a key.

The key of a row is a hash of its values (or of its group). It decides who holds out the row, the same wherever the row
is met, so that no list of held-out rows is needed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetcal.splitting import Keys, Use, uniform_of
from hetcal.training.rows import TensorRows
from hetcal.training.settings import TrainingSettings
from hetcal.training.workers import Workers


@dataclass(frozen=True, eq=False)
class StreamBlock:
    """Rows of a stream, in random order."""

    x: Tensor  # (n, inputs)
    y: Tensor  # (n,) or (n, targets)
    keys: Keys  # (n,)

    def __len__(self) -> int:
        return len(self.y)


class RowStream(Protocol):
    """The rows; its length is their number, in all processes."""

    @property
    def sample_keys(self) -> Keys:
        """The keys of the rows of the sample that comes with it."""
        ...

    @property
    def name(self) -> str:
        """Tells the trainings of one fit apart."""
        ...

    @property
    def workers(self) -> Workers:
        """The processes that share the rows; `blocks` has those of this process."""
        ...

    def __len__(self) -> int: ...

    def blocks(self, generator: torch.Generator) -> Iterator[StreamBlock]:
        """All rows in random order, then all of them in another order, and so on without end."""
        ...


def is_validation(keys: Keys, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which rows judge the epochs of one network."""
    return uniform_of(keys, seed, Use.VALIDATION) < fraction


def stream_batches(stream: RowStream, settings: TrainingSettings, generator: torch.Generator) -> Iterator[TensorRows]:
    """Training rows of a stream in batches of nearly equal size, without end."""
    batch_size = share_of(stream.workers, settings.batch_size)
    for block in stream.blocks(generator):
        seen = torch.from_numpy(np.flatnonzero(~is_validation(block.keys, settings.validation_fraction, settings.seed)))
        for index in seen.tensor_split(math.ceil(len(seen) / batch_size)) if len(seen) else ():
            x, y = block.x[index].to(settings.device), block.y[index].to(settings.device)
            yield TensorRows(x, y, torch.ones(len(y), device=y.device), index.to(y.device))


def share_of(workers: Workers, batch_size: int) -> int:
    """The rows that each process takes, so that all together have a batch."""
    return max(1, round(batch_size / workers.count))

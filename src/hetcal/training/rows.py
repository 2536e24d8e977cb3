"""Rows as tensors: checks, the split into training and validation rows, batches."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetcal._checks import must
from hetcal.splitting import check_two_groups, hold_out
from hetcal.training.settings import TrainingSettings

# With fewer rows, a tenth of them is too few for early stopping; then all rows are training rows.
MIN_ROWS_FOR_VALIDATION = 10

GroupNumbers = NDArray[np.int64] | None


@dataclass
class TensorRows:
    """Rows that are trained or validated on together."""

    x: Tensor
    y: Tensor
    weight: Tensor
    index: Tensor  # numbers of the rows

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> "TensorRows":
        return TensorRows(self.x[index], self.y[index], self.weight[index], index)


def check_rows(x: Tensor, y: Tensor, sample_weight: Tensor | None, settings: TrainingSettings) -> TensorRows:
    """Check shapes and values (an (n, 1) target would broadcast silently); move the rows, scale weights to mean 1."""
    for name, value in {"x": x, "y": y}.items():
        if not isinstance(value, Tensor):
            raise must(name, "be a torch tensor", type(value).__name__, "use torch.as_tensor(...)", TypeError)
    if y.ndim > 2 or y.shape[1:] == (1,):
        raise must("y", "be (n,), or (n, k) for k > 1 targets", f"tensor of shape {tuple(y.shape)}", "use y[:, 0]")
    if len(x) != len(y):
        raise must("y", f"have one value per row of x ({len(x)})", f"{len(y)} values", "give both the same length")
    if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise must("x and y", "be finite", "NaN or infinity", "remove or impute these values first")
    if settings.input_noise and not x.is_floating_point():
        raise must("input_noise", f"be 0 for x of type {x.dtype}", settings.input_noise, "token ids cannot have noise")
    weight = torch.ones(len(y), dtype=torch.float32) if sample_weight is None else sample_weight.to(torch.float32)
    if weight.shape != (len(y),) or not torch.isfinite(weight).all() or weight.min() < 0 or weight.sum() <= 0:
        raise must("sample_weight", "be at least 0, not all 0, one per row", sample_weight, "give one weight per row")
    device = settings.device
    return TensorRows(x.to(device), y.to(device), (weight / weight.mean()).to(device), torch.arange(len(y)))


def check_group_numbers(groups: Tensor | None, n: int) -> GroupNumbers:
    """Number the groups from 0; return one number per row."""
    if groups is None:
        return None
    if groups.shape != (n,):
        raise must("groups", f"have one number per row ({n})", f"shape {tuple(groups.shape)}", "give one per row")
    known, codes = np.unique(groups.cpu().numpy(), return_inverse=True)
    check_two_groups(known)
    return codes.astype(np.int64)


def split_tensors(
    rows: TensorRows, validation_fraction: float, generator: torch.Generator, groups: GroupNumbers = None
) -> tuple[TensorRows, TensorRows]:
    """Split into training and validation rows, at random or by groups; few rows are all used for training."""
    n_validation = math.ceil(validation_fraction * len(rows)) if len(rows) >= MIN_ROWS_FOR_VALIDATION else 0
    order = torch.randperm(len(rows), generator=generator).numpy()
    first, second = (torch.from_numpy(part).to(rows.y.device) for part in hold_out(order, n_validation, groups))
    return rows.take(first), rows.take(second)


def batches(
    rows: TensorRows, batch_size: int, generator: torch.Generator, noise_std: float = 0.0
) -> Iterator[TensorRows]:
    """Yield all rows in random order, in batches of nearly equal size: a last batch of one row would be noise."""
    order = torch.randperm(len(rows), generator=generator).to(rows.y.device)
    for index in order.tensor_split(math.ceil(len(rows) / batch_size)):
        yield with_noise(rows.take(index), noise_std, generator)


def with_noise(batch: TensorRows, noise_std: float, generator: torch.Generator) -> TensorRows:
    """Add noise to x in place; it is a copy, because rows are selected by index."""
    if noise_std:
        noise = torch.randn(batch.x.shape, generator=generator, dtype=torch.float32)
        batch.x.add_(noise.to(batch.x), alpha=noise_std)
    return batch

"""Ridge regressions as members of a `CrossEnsemble`: what a linear model, or the mean of y, would predict.

They cost almost nothing. They matter for tables with few rows or many columns, where a network does not find more.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hetcal._checks import Floats
from hetcal.networks import SQUASH_LIMIT

# Penalties relative to the number of rows; the largest leaves the mean of y only.
PENALTIES = np.geomspace(1e-6, 1e6, 49)
# With more columns the linear members predict the mean of y.
MOST_COLUMNS = 5000


class LinearMembers(nn.Module):
    """One ridge regression for each part of the rows, with a constant sigma.

    Args:
        n_parts: Number of members.
        n_inputs, n_numbers: Columns of the encoded table, and those that are numbers.
        n_targets: Number of targets.
    """

    n_groups = 1
    weight: Tensor
    bias: Tensor
    std: Tensor

    def __init__(self, n_parts: int, n_inputs: int, n_numbers: int, n_targets: int) -> None:
        super().__init__()
        self.inputs = LinearInputs(n_inputs, n_numbers)
        self.register_buffer("weight", torch.zeros(n_parts, n_targets, n_inputs, dtype=torch.float64))
        self.register_buffer("bias", torch.zeros(n_parts, n_targets, 1, dtype=torch.float64))
        self.register_buffer("std", torch.ones(n_parts, n_targets, 1, dtype=torch.float64))

    def fit(self, x: Tensor, y: Tensor, weight: Tensor, seen: Sequence[Tensor], seed: int) -> None:
        """Fit each member to the rows that it may see; x (n, inputs), y (n, targets). Nothing here is random."""
        self.inputs.fit(x, weight)
        inputs = self.inputs(x.T.double()).T.cpu().numpy()
        targets, weights = y.double().cpu().numpy(), weight.double().cpu().numpy()
        for part, rows in enumerate(seen):
            index = rows.cpu().numpy()
            slopes, biases, stds = fit_ridge(inputs[index], targets[index], weights[index])
            self.weight[part].copy_(torch.from_numpy(slopes))
            self.bias[part, :, 0].copy_(torch.from_numpy(biases))
            self.std[part, :, 0].copy_(torch.from_numpy(stds))

    def forward(self, x: Tensor, parts: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Mean and std of some members, (1, parts, n, targets) each."""
        mean = (torch.matmul(self.weight[parts], self.inputs(x.T.double())) + self.bias[parts]).transpose(1, 2)
        return mean[None], self.std[parts].transpose(1, 2).expand_as(mean)[None]

    def continuation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows x (n, inputs) moved into the range of the training rows, and by how much each member goes on beyond it.

        Returns:
            The rows inside, (n, inputs), and the differences of the means, (parts, n, targets), 0 for rows inside.
        """
        inside = self.inputs.inside(x.T)
        beyond = self.inputs(x.T.double()) - self.inputs(inside.double())
        return inside.T, torch.matmul(self.weight, beyond).transpose(1, 2)


def fit_ridge(x: Floats, y: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    r"""Weighted ridge regression of each target, with the penalty of least generalized cross-validation.

    .. math:: \mathrm{GCV}(\lambda) = \frac{n \, \mathrm{RSS}(\lambda)}{(n - \mathrm{df}(\lambda))^2}

    Returns:
        Slopes (targets, d), biases (targets,), and the square root of the GCV as residual std (targets,).
    """
    share = weight / weight.sum()
    n = 1 / float(share @ share)
    x_mean, y_mean = share @ x, share @ y
    root = np.sqrt(share)[:, None]
    a, b = (x - x_mean) * root, (y - y_mean) * root
    variance = (b**2).sum(0)
    slopes, gcv = np.zeros((y.shape[1], x.shape[1])), variance * n / max(n - 1, 1)
    if x.shape[1] <= MOST_COLUMNS and len(x) > 2:
        values, basis = eigenbasis(a)
        target = basis.T @ (a.T @ b)  # (rank, targets)
        for j in range(y.shape[1]):
            best = math.inf
            for penalty in PENALTIES:
                shrunk = 1 / (values + penalty)
                df = 1 + float((values * shrunk).sum())
                if df > 0.9 * n:
                    continue
                rss = variance[j] - float((target[:, j] ** 2 * (2 * shrunk - values * shrunk**2)).sum())
                score = max(rss, 1e-14 * variance[j]) / (1 - df / n) ** 2
                if score < best:
                    best, slopes[j] = score, basis @ (shrunk * target[:, j])
            gcv[j] = min(best, gcv[j])
    return slopes, y_mean - slopes @ x_mean, np.sqrt(np.maximum(gcv, 1e-12))


def eigenbasis(a: Floats) -> tuple[Floats, Floats]:
    """Positive eigenvalues of a'a and their vectors, by the cheaper of two decompositions."""
    if a.shape[0] >= a.shape[1]:
        values, vectors = np.linalg.eigh(a.T @ a)
        keep = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
        return values[keep], vectors[:, keep]
    _, singular, vectors = np.linalg.svd(a, full_matrices=False)
    keep = singular > 1e-6 * max(singular.max(initial=0.0), 1e-300)
    return singular[keep] ** 2, vectors[keep].T


class LinearInputs(nn.Module):
    """The inputs of the linear path: numbers as they were before they were squashed, standardized; (..., inputs, n).

    Beyond the range of the training rows they go on by at most the width of that range.
    """

    low: Tensor
    high: Tensor
    center: Tensor
    scale: Tensor

    def __init__(self, n_inputs: int, n_numbers: int) -> None:
        super().__init__()
        self.n_numbers = n_numbers
        for name, value in {"low": -1.0, "high": 1.0, "center": 0.0, "scale": 1.0}.items():
            self.register_buffer(name, torch.full((n_inputs, 1), value, dtype=torch.float32))

    def fit(self, x: Tensor, weight: Tensor) -> None:
        """Learn range and scale of the training rows, x (n, inputs), in place."""
        self.low.copy_(x.amin(0)[:, None])
        self.high.copy_(x.amax(0)[:, None])
        plain = self.unsquash(x.T.double())
        share = weight.double() / weight.sum()
        center = (share * plain).sum(1, keepdim=True)
        scale = (share * (plain - center).square()).sum(1, keepdim=True).sqrt()
        self.center.copy_(center)
        self.scale.copy_(torch.where(scale > 1e-6, scale, 1.0))

    def inside(self, x: Tensor) -> Tensor:
        """The nearest rows in the range of the training rows."""
        return x.clamp(self.low, self.high)

    def unsquash(self, x: Tensor) -> Tensor:
        numbers = SQUASH_LIMIT * sinh(x[..., : self.n_numbers, :] / SQUASH_LIMIT)
        return torch.cat([numbers, x[..., self.n_numbers :, :]], dim=-2)

    def forward(self, x: Tensor) -> Tensor:
        low, high = self.unsquash(self.low), self.unsquash(self.high)
        return (self.unsquash(x).clamp(2 * low - high, 2 * high - low) - self.center) / self.scale


def sinh(x: Tensor) -> Tensor:
    """In an exported graph by exponentials where x is double, for which ONNX runtimes have no sinh."""
    if torch.compiler.is_exporting() and x.dtype == torch.float64:
        return (x.exp() - (-x).exp()) / 2
    return x.sinh()

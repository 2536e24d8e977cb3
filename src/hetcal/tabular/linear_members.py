"""Ridge regressions as members of a `CrossEnsemble`: what a linear model, or the mean of y, would predict.

They cost almost nothing. They matter for tables with few rows or many columns, where a network does not find more, and
guarantee that the pool is hardly ever worse than either.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hetcal._checks import Floats
from hetcal.estimators.cross_ensemble import CrossEnsemble

# Penalties relative to the number of rows; the largest leaves the mean of y only.
PENALTIES = np.geomspace(1e-6, 1e6, 49)
# With more columns the linear members predict the mean of y.
MOST_COLUMNS = 5000


def fit_linear_members(ensemble: CrossEnsemble, x: Tensor, y: Tensor, weight: Tensor, seen: Sequence[Tensor]) -> None:
    """Fit one linear member for each part, to the rows that its member of the first group has seen, in place."""
    inputs = ensemble.linear_inputs(x.T.double()).T.numpy()
    for part, rows in enumerate(seen):
        index = rows.numpy()
        slopes, biases, stds = fit_ridge(inputs[index], y.double().numpy()[index], weight.double().numpy()[index])
        ensemble.linear_weight[part].copy_(torch.from_numpy(slopes))
        ensemble.linear_bias[part, :, 0].copy_(torch.from_numpy(biases))
        ensemble.linear_std[part, :, 0].copy_(torch.from_numpy(stds))


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
            gcv[j] = min(best, gcv[j]) if math.isfinite(best) else gcv[j]
    return slopes, y_mean - slopes @ x_mean, np.sqrt(np.maximum(gcv, 1e-12))


def eigenbasis(a: Floats) -> tuple[Floats, Floats]:
    """Positive eigenvalues of a'a and their vectors, by the smaller of a'a and aa'."""
    if a.shape[0] >= a.shape[1]:
        values, vectors = np.linalg.eigh(a.T @ a)
        keep = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
        return values[keep], vectors[:, keep]
    _, singular, vectors = np.linalg.svd(a, full_matrices=False)
    keep = singular > 1e-6 * max(singular.max(initial=0.0), 1e-300)
    return singular[keep] ** 2, vectors[keep].T

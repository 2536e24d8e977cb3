"""What the network is trained for: one function, one equation each, `(prediction, y) -> loss per row`.

An objective never asks where sigma comes from. Putting the sigma of any estimator into `gaussian_nll` is the
paper's heteroscedastic calibration; `squared_error` leaves sigma as the estimator happens to give it.
"""

from collections.abc import Callable

from torch import Tensor

from hetcal.prediction import Prediction

Objective = Callable[[Prediction, Tensor], Tensor]


def squared_error(prediction: Prediction, y: Tensor) -> Tensor:
    r"""No calibration: the mean alone is trained.

    .. math:: (y - \mu)^2

    >>> import torch
    >>> squared_error(Prediction(torch.tensor([1.0]), torch.tensor([2.0])), torch.tensor([4.0]))
    tensor([9.])
    """
    return (y - prediction.mean) ** 2  # (n,)


def gaussian_nll(prediction: Prediction, y: Tensor) -> Tensor:
    r"""Heteroscedastic likelihood, eq. 1 of the paper: the surrogate that calibrates.

    .. math:: \frac{(y - \mu)^2}{2 \sigma^2} + \frac12 \log \sigma^2

    >>> import torch
    >>> gaussian_nll(Prediction(torch.tensor([1.0]), torch.tensor([1.0])), torch.tensor([4.0]))
    tensor([4.5000])
    """
    mu, sigma = prediction.mean, prediction.std
    return ((y - mu) / sigma) ** 2 / 2 + sigma.log()  # (n,)


def capped_gaussian_nll(prediction: Prediction, y: Tensor) -> Tensor:
    r"""The likelihood as a judge of epochs: eq. 1 with a row counted at most three standard deviations off.

    .. math:: \min\left(\frac{(y - \mu)^2}{\sigma^2}, 3^2\right) / 2 + \frac12 \log \sigma^2

    Among some dozen validation rows a single outlier would otherwise decide, and stop training while the mean is still
    coarse.

    >>> import torch
    >>> capped_gaussian_nll(Prediction(torch.tensor([1.0]), torch.tensor([1.0])), torch.tensor([40.0]))
    tensor([4.5000])
    """
    mu, sigma = prediction.mean, prediction.std
    return ((y - mu) / sigma).square().clamp(max=9) / 2 + sigma.log()  # (n,)


# What the best epoch is chosen by, where it is not the objective itself.
CRITERIA: dict[Objective, Objective] = {gaussian_nll: capped_gaussian_nll}
OBJECTIVES: dict[str, Objective] = {"squared_error": squared_error, "gaussian_nll": gaussian_nll}

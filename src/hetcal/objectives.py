"""Objectives: what is optimized. Each is one function and one equation, `(prediction, y) -> loss per row`.

An objective does not know where sigma comes from. The paper's heteroscedastic calibration puts the sigma of any
estimator into the likelihood; `squared_error` does not train sigma. The likelihood is that of the prediction's family
(`hetcal.families`), by default the Gaussian of eq. 1.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from hetcal._checks import must
from hetcal.prediction import Prediction

Objective = Callable[[Prediction, Tensor], Tensor]

# How strongly the scale weights the rows in `beta_nll`: 0 is the likelihood, 1 gives the mean the gradient of the
# squared error.
BETA = 0.5


def squared_error(prediction: Prediction, y: Tensor) -> Tensor:
    r"""Squared error, without calibration: only the mean is trained.

    .. math:: (y - \mu)^2

    >>> import torch
    >>> squared_error(Prediction(torch.tensor([1.0]), torch.tensor([2.0])), torch.tensor([4.0]))
    tensor([9.])
    """
    return (y - prediction.mean) ** 2  # (n,)


def gaussian_nll(prediction: Prediction, y: Tensor) -> Tensor:
    r"""Heteroscedastic Gaussian likelihood, eq. 1 of the paper: the objective that calibrates.

    .. math:: \frac{(y - \mu)^2}{2 \sigma^2} + \frac12 \log \sigma^2

    >>> import torch
    >>> gaussian_nll(Prediction(torch.tensor([1.0]), torch.tensor([1.0])), torch.tensor([4.0]))
    tensor([4.5000])
    """
    mu, sigma = prediction.mean, prediction.std
    return ((y - mu) / sigma) ** 2 / 2 + sigma.log()  # (n,)


def nll_loss(prediction: Prediction, y: Tensor) -> Tensor:
    r"""Heteroscedastic likelihood of any family; for the Gaussian it is eq. 1 including the constant.

    .. math:: -\log f\left(\frac{y - \mu}{\sigma}\right) + \log \sigma

    with f the density of the prediction's family.

    >>> import torch
    >>> nll_loss(Prediction(torch.tensor([1.0]), torch.tensor([1.0])), torch.tensor([4.0]))
    tensor([5.4189])
    """
    return -prediction.log_prob(y)  # (n,)


def beta_nll(prediction: Prediction, y: Tensor) -> Tensor:
    r"""Likelihood with the rows weighted by their own variance, so that badly fitted rows keep their influence.

    .. math:: \lfloor \sigma^{2\beta} \rfloor \left( -\log f\left(\frac{y - \mu}{\sigma}\right) + \log \sigma \right),
              \qquad \beta = \frac12

    The brackets mean that no gradient passes. Seitzer et al. (2022), On the pitfalls of heteroscedastic uncertainty
    estimation.

    >>> import torch
    >>> beta_nll(Prediction(torch.tensor([1.0]), torch.tensor([2.0])), torch.tensor([1.0]))
    tensor([3.2242])
    """
    return prediction.std.detach() ** (2 * BETA) * nll_loss(prediction, y)  # (n,)


def faithful_nll(prediction: Prediction, y: Tensor) -> Tensor:
    r"""Squared error for the mean, and for sigma the likelihood with the mean held fixed.

    .. math:: \frac{(y - \mu)^2}{2} - \log f\left(\frac{y - \lfloor \mu \rfloor}{\sigma}\right) + \log \sigma

    The brackets mean that no gradient passes. Stirn et al. (2023), Faithful heteroscedastic regression with neural
    networks.

    >>> import torch
    >>> faithful_nll(Prediction(torch.tensor([1.0]), torch.tensor([1.0])), torch.tensor([4.0]))
    tensor([9.9189])
    """
    return squared_error(prediction, y) / 2 + nll_loss(replace(prediction, mean=prediction.mean.detach()), y)  # (n,)


def crps_loss(prediction: Prediction, y: Tensor) -> Tensor:
    r"""Continuous ranked probability score: it calibrates like the likelihood, but is robust to outliers.

    .. math:: \int (F(t) - 1\{t \ge y\})^2 \, dt

    with F the predictive distribution function; in closed form for every family (`hetcal.families`).

    >>> import torch
    >>> crps_loss(Prediction(torch.tensor([0.0]), torch.tensor([1.0])), torch.tensor([1.0]))
    tensor([0.6024])
    """
    score: Tensor = prediction.crps(y)
    return score  # (n,)


def scaled_crps(prediction: Prediction, y: Tensor) -> Tensor:
    r"""CRPS relative to the one that the prediction expects of itself; it judges the epochs of a likelihood.

    .. math:: \frac{\mathrm{CRPS}(F, y)}{e} + \log e, \qquad e = E \, \mathrm{CRPS}(F, Y) \propto \sigma, \quad Y \sim F

    Proper like the CRPS and the likelihood. As in the likelihood, every row counts alike, whatever its noise, so that
    too small a sigma shows; in the CRPS the rows with much noise decide. As in the CRPS, an outlier counts only by its
    distance. Bolin and Wallin (2023), Local scale invariance and robustness of proper scoring rules.

    >>> import torch
    >>> scaled_crps(Prediction(torch.tensor([0.0]), torch.tensor([1.0])), torch.tensor([1.0]))
    tensor([0.4954])
    """
    expected = prediction.std * torch.as_tensor(prediction.family.expected_crps()).to(prediction.std)
    return crps_loss(prediction, y) / expected + expected.log()  # (n,)


def check_loss(objective_rows: Tensor, y: Tensor) -> None:
    if objective_rows.shape not in (y.shape[:1], y.shape):
        rule, advice = f"return one loss per row, shape {tuple(y.shape)}", "do not average over the rows"
        raise must("objective", rule, f"shape {tuple(objective_rows.shape)}", advice)


def mean_over_targets(values: Tensor) -> Tensor:
    """(n,) from (n,) or (n, k); one number stays one number."""
    return values.flatten(1).mean(1) if values.ndim > 1 else values


# The criterion by which the best epoch is chosen, where it is not the objective itself. By its likelihood, a single
# outlier among a few dozen validation rows would decide.
CRITERIA: dict[Objective, Objective] = dict.fromkeys((nll_loss, gaussian_nll, beta_nll, faithful_nll), scaled_crps)
OBJECTIVES: dict[str, Objective] = {
    "squared_error": squared_error,
    "nll": nll_loss,
    "gaussian_nll": gaussian_nll,
    "beta_nll": beta_nll,
    "faithful_nll": faithful_nll,
    "crps": crps_loss,
}

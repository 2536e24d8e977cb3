"""The shape of the predictive distribution: Gaussian, Laplace, Student-t or learned, with mean 0 and variance 1.

A prediction has a location, a scale and a shape: y = mean + std * z, with z from one of these families. Every family
has variance 1. Therefore `std` is the standard deviation for every family, and the sigma of any estimator fits into any
likelihood. Log density and CRPS work on torch tensors (differentiably) and on NumPy arrays. This file does not
import torch, so that the metrics can use it.
"""

from dataclasses import dataclass
from math import log, pi, sqrt
from typing import Any

import numpy as np
from scipy import special, stats

from hetcal._checks import check_choice, check_number, must

# Nodes of the quadrature that replaces the Student-t distribution function on tensors.
QUADRATURE_NODES = 48


class Family:
    """Distribution of the standardized residual z = (y - mean) / std: mean 0, variance 1."""

    name: str

    def log_density(self, z: Any) -> Any:
        """Logarithm of the density at z, for tensors or arrays."""
        raise NotImplementedError

    def crps(self, z: Any) -> Any:
        """Continuous ranked probability score at z for std 1, for tensors or arrays."""
        raise NotImplementedError

    def expected_crps(self) -> Any:
        """CRPS that the distribution expects of itself, which is half its Gini mean difference."""
        raise NotImplementedError

    def cdf(self, z: Any) -> Any:
        """Distribution function, for arrays."""
        raise NotImplementedError

    def quantile(self, q: Any) -> Any:
        """Inverse of `cdf`, for arrays."""
        raise NotImplementedError

    def numpy(self) -> "Family":
        """The same family without tensors."""
        return self

    def target(self, j: int) -> "Family":
        """The family of one of several targets."""
        return self


@dataclass(frozen=True)
class Gaussian(Family):
    r"""The family of the paper: density :math:`\varphi(z) = e^{-z^2/2} / \sqrt{2\pi}`.

    CRPS: :math:`z (2 \Phi(z) - 1) + 2 \varphi(z) - 1 / \sqrt\pi`; Gneiting and Raftery (2007), eq. 21.

    >>> round(float(Gaussian().quantile(0.975)), 2)
    1.96
    """

    name = "gaussian"

    def log_density(self, z: Any) -> Any:
        return -(z**2) / 2 - log(2 * pi) / 2

    def crps(self, z: Any) -> Any:
        functions = functions_for(z)
        density = functions.exp(-(z**2) / 2) / sqrt(2 * pi)
        return z * functions.erf(z / sqrt(2)) + 2 * density - self.expected_crps()

    def expected_crps(self) -> float:
        return 1 / sqrt(pi)

    def cdf(self, z: Any) -> Any:
        return special.ndtr(z)

    def quantile(self, q: Any) -> Any:
        return special.ndtri(q)


@dataclass(frozen=True)
class Laplace(Family):
    r"""Peaked, with exponential tails: density :math:`e^{-|z|/b} / (2b)` with :math:`b = 1/\sqrt2`, so variance 1.

    CRPS: :math:`|z| + b e^{-|z|/b} - \frac34 b`.

    >>> round(float(Laplace().quantile(0.975)), 2)
    2.12
    """

    name = "laplace"

    def log_density(self, z: Any) -> Any:
        return -sqrt(2) * abs(z) - log(2) / 2

    def crps(self, z: Any) -> Any:
        b = 1 / sqrt(2)
        return abs(z) + b * functions_for(z).exp(-abs(z) / b) - self.expected_crps()

    def expected_crps(self) -> float:
        return 0.75 / sqrt(2)

    def cdf(self, z: Any) -> Any:
        return stats.laplace.cdf(z, scale=1 / sqrt(2))

    def quantile(self, q: Any) -> Any:
        return stats.laplace.ppf(q, scale=1 / sqrt(2))


@dataclass(frozen=True)
class StudentT(Family):
    r"""Heavy tails: Student's t with :math:`\nu` = `df` > 2 degrees of freedom, scaled to variance 1.

    .. math:: z = c\,t, \quad c = \sqrt{(\nu - 2) / \nu}, \qquad
              \log p(z) = \log \frac{\Gamma(\frac{\nu+1}{2})}{\Gamma(\frac{\nu}{2}) \sqrt{\nu\pi}\, c}
              - \frac{\nu + 1}{2} \log\left(1 + \frac{z^2}{\nu - 2}\right)

    CRPS after Jordan, Krüger and Lerch (2019), Evaluating probabilistic forecasts with scoringRules:

    .. math:: c \left( t (2 F_\nu(t) - 1) + 2 f_\nu(t) \frac{\nu + t^2}{\nu - 1}
              - \frac{2 \sqrt\nu}{\nu - 1} \frac{B(\frac12, \nu - \frac12)}{B(\frac12, \frac\nu2)^2} \right)

    Args:
        df: Degrees of freedom: a number, or one per target for several targets; a tensor while it is learned.

    >>> round(float(StudentT(4).quantile(0.975)), 2)
    1.96
    """

    df: Any
    name = "student_t"

    def __post_init__(self) -> None:
        if not hasattr(self.df, "detach"):
            for df in np.ravel(self.df).tolist():
                check_number("df", df, 2, open_low=True)

    def log_density(self, z: Any) -> Any:
        f = functions_for(z, self.df)
        nu = f.as_like(self.df)
        # Gamma((nu + 1) / 2) / Gamma(nu / 2) = sqrt(pi) / B(1/2, nu / 2)
        constant = -f.log_beta(0.5, nu / 2) - f.log(nu - 2) / 2
        return constant - (nu + 1) / 2 * f.log1p(z**2 / (nu - 2))

    def crps(self, z: Any) -> Any:
        f = functions_for(z, self.df)
        nu = f.as_like(self.df)
        c = f.sqrt((nu - 2) / nu)
        t = z / c
        density = f.exp(self.log_density(z)) * c  # of t
        distance = c * (t * (2 * f.t_cdf(nu, t) - 1) + 2 * density * (nu + t**2) / (nu - 1))
        return distance - StudentT(nu).expected_crps()

    def expected_crps(self) -> Any:
        f = functions_for(self.df)
        nu = f.as_like(self.df)
        log_beta_ratio = f.log_beta(0.5, nu - 0.5) - 2 * f.log_beta(0.5, nu / 2)
        return 2 * f.sqrt(nu - 2) / (nu - 1) * f.exp(log_beta_ratio)

    def cdf(self, z: Any) -> Any:
        df = np.asarray(self.numpy().df)
        return special.stdtr(df, np.asarray(z) / np.sqrt((df - 2) / df))

    def quantile(self, q: Any) -> Any:
        """Inverse of `cdf`; with one `df` per target, the axes of q come after the axis of the targets."""
        df = np.asarray(self.numpy().df)[(...,) + (None,) * np.ndim(q)]
        return special.stdtrit(df, q) * np.sqrt((df - 2) / df)

    def numpy(self) -> "StudentT":
        if not hasattr(self.df, "detach"):
            return self
        values = self.df.detach().cpu().double().numpy()
        return StudentT(values if values.ndim else float(values))

    def target(self, j: int) -> "StudentT":
        return StudentT(self.df[j]) if np.ndim(self.df) else self


@dataclass(frozen=True, eq=False)
class Empirical(Family):
    r"""A shape learned from held-out rows: the quantile function :math:`T` of their standardized residuals.

    .. math:: F^{-1}(q) = T(\Phi^{-1}(q)), \qquad F(z) = \Phi(T^{-1}(z)), \qquad
              \log f(z) = \log \varphi(s) - \log T'(s), \quad s = T^{-1}(z)

    T is given at the normal scores `SCORES` and linear between and beyond them, so it may be skewed, peaked or
    heavy-tailed. The CRPS is the mean of twice the pinball loss over `CRPS_NODES` equally probable quantiles.

    Args:
        values: T at `SCORES`, increasing: (61,), or (k, 61) for k targets. Mean 0 and variance 1 are up to the caller;
            see `standardized`.

    >>> Empirical(SCORES).quantile(0.975).round(2), Empirical(SCORES).cdf(np.array([0.0]))
    (np.float64(1.96), array([0.5]))
    """

    values: Any
    name = "empirical"

    def quantile(self, q: Any) -> Any:
        """Inverse of `cdf`; with several targets, the axes of q come after the axis of the targets."""
        scores = special.ndtri(q)
        if np.ndim(self.values) == 1:
            return extended_interp(scores, SCORES, self.values)
        return np.stack([extended_interp(scores, SCORES, row) for row in self.values])

    def scores(self, z: Any) -> Any:
        """Normal score of z: the inverse of T."""
        z = np.asarray(z, dtype=np.float64)
        if np.ndim(self.values) == 1:
            return extended_interp(z, self.values, SCORES)
        return np.stack([extended_interp(z[..., j], row, SCORES) for j, row in enumerate(self.values)], axis=-1)

    def cdf(self, z: Any) -> Any:
        return special.ndtr(self.scores(z))

    def log_density(self, z: Any) -> Any:
        s = self.scores(z)
        steps = np.log(np.diff(self.values, axis=-1) / np.diff(SCORES))
        place = np.clip(np.searchsorted(SCORES, s) - 1, 0, len(SCORES) - 2)
        slope = steps[place] if steps.ndim == 1 else steps[np.arange(len(steps)), place]
        return -(s**2) / 2 - log(2 * pi) / 2 - slope

    def crps(self, z: Any) -> Any:
        z = np.asarray(z, dtype=np.float64)
        if np.ndim(self.values) == 1:
            return crps_of_nodes(z, self.quantile(CRPS_LEVELS))
        nodes = self.quantile(CRPS_LEVELS)  # (k, nodes)
        return np.stack([crps_of_nodes(z[..., j], row) for j, row in enumerate(nodes)], axis=-1)

    def expected_crps(self) -> Any:
        nodes = self.quantile(CRPS_LEVELS)  # (nodes,), or (k, nodes)
        return ((2 * np.arange(1, CRPS_NODES + 1) - CRPS_NODES - 1) * nodes).sum(-1) / CRPS_NODES**2

    def target(self, j: int) -> "Empirical":
        return Empirical(self.values[j]) if np.ndim(self.values) == 2 else self

    def standardized(self) -> tuple[Any, Any, "Empirical"]:
        """Mean and standard deviation of the shape, and the shape with mean 0 and variance 1."""
        scores = np.linspace(-6, 6, 241)
        weights = np.exp(-(scores**2) / 2)
        weights /= weights.sum()
        nodes = self.quantile(special.ndtr(scores))
        mean = (weights * nodes).sum(-1)
        std = np.sqrt((weights * (nodes - mean[..., None]) ** 2).sum(-1))
        return mean, std, Empirical((self.values - mean[..., None]) / std[..., None])


# The normal scores at which an empirical shape is given.
SCORES = np.linspace(-3.0, 3.0, 61)
CRPS_NODES = 400
CRPS_LEVELS = (np.arange(CRPS_NODES) + 0.5) / CRPS_NODES


def extended_interp(x: Any, knots: Any, values: Any) -> Any:
    """Linear interpolation; beyond the knots the first and the last piece go on."""
    below = np.minimum(x - knots[0], 0) * (values[1] - values[0]) / (knots[1] - knots[0])
    above = np.maximum(x - knots[-1], 0) * (values[-1] - values[-2]) / (knots[-1] - knots[-2])
    return np.interp(x, knots, values) + below + above


def crps_of_nodes(z: Any, nodes: Any) -> Any:
    """CRPS of the distribution with these equally probable quantiles: E|Q - z| - E|Q - Q'| / 2, by partial sums."""
    n = len(nodes)
    sums = np.concatenate([[0.0], np.cumsum(nodes)])
    below = np.searchsorted(nodes, z)
    distance = (z * (2 * below - n) + sums[-1] - 2 * sums[below]) / n
    return distance - ((2 * np.arange(1, n + 1) - n - 1) * nodes).sum() / n**2


GAUSSIAN = Gaussian()
FAMILIES: dict[str, type[Family]] = {"gaussian": Gaussian, "laplace": Laplace, "student_t": StudentT}


def check_family(family: Any) -> Family | str:
    """Return the family, or its name if it is a known one; raise otherwise."""
    if isinstance(family, Family):
        return family
    if isinstance(family, str):
        return check_choice("family", family, FAMILIES)
    advice = f"give one of {sorted(FAMILIES)}, or hetcal.families.StudentT(df=4) for fixed degrees of freedom"
    raise must("family", "be a name or a family", family, advice, TypeError)


class ArrayFunctions:
    """The functions that the formulas need beyond arithmetic, for NumPy arrays."""

    exp, log, log1p, sqrt = np.exp, np.log, np.log1p, np.sqrt
    erf, log_beta, t_cdf = special.erf, special.betaln, special.stdtr
    as_like = staticmethod(np.asarray)


class TensorFunctions:
    """The same functions for torch tensors, as methods of the tensor, so that torch is not imported here."""

    def __init__(self, like: Any) -> None:
        self.like = like

    def as_like(self, value: Any) -> Any:
        return value if hasattr(value, "detach") else self.like.new_tensor(value)

    def exp(self, x: Any) -> Any:
        return x.exp()

    def log(self, x: Any) -> Any:
        return x.log()

    def log1p(self, x: Any) -> Any:
        return x.log1p()

    def sqrt(self, x: Any) -> Any:
        return x.sqrt()

    def erf(self, x: Any) -> Any:
        return x.erf()

    def lgamma(self, x: Any) -> Any:
        return self.as_like(x).double().lgamma()  # a difference of large values needs more digits than float32 has

    def log_beta(self, a: float, b: Any) -> Any:
        b = self.as_like(b).double()
        return (self.lgamma(a) + self.lgamma(b) - self.lgamma(a + b)).to(self.like.dtype)

    def t_cdf(self, nu: Any, t: Any) -> Any:
        r"""Student's distribution function by Gauss-Legendre quadrature; torch has none.

        .. math:: F_\nu(t) = \frac12 + \frac{1}{B(\frac12, \frac\nu2)}
                  \int_0^{\arctan(t / \sqrt\nu)} \cos^{\nu-1}(\theta) \, d\theta
        """
        nodes, weights = (self.like.new_tensor(values) for values in np.polynomial.legendre.leggauss(QUADRATURE_NODES))
        nu = self.as_like(nu)
        # Beyond this angle cos^nu is below exp(-80); no node is wasted there, even for a large nu.
        limit = 2 * (-(-80 / nu).expm1() / 2).sqrt().asin()
        end = (t / nu.sqrt()).atan().clamp(-limit, limit)
        theta = end[..., None] * (nodes + 1) / 2
        # Near 0 the cosine differs from 1 only in digits that float32 does not have.
        log_cos = (-(theta.sin() ** 2)).log1p().div(2).where(theta.abs() < 0.5, theta.cos().log())
        integral = (end[..., None] / 2 * weights * ((nu[..., None] - 1) * log_cos).exp()).sum(-1)
        return 0.5 + integral * (-self.log_beta(0.5, nu / 2)).exp()


def functions_for(*values: Any) -> Any:
    """The functions for tensors if any of the values is a tensor, otherwise those for arrays."""
    tensor = next((value for value in values if hasattr(value, "detach")), None)
    return ArrayFunctions if tensor is None else TensorFunctions(tensor)

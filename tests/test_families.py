"""The shapes of the predictive distribution, against scipy, scoringrules and numerical integration."""

import numpy as np
import pytest
import scoringrules
import torch
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad

from hetcal.families import (
    FAMILIES,
    GAUSSIAN,
    Gaussian,
    Laplace,
    StudentT,
    TensorFunctions,
    check_family,
    functions_for,
)

Z = np.concatenate([-np.logspace(2.6, -3, 20), [0.0], np.logspace(-3, 2.6, 20)])  # scipy's Laplace density is 0 at 500
Q = np.array([1e-10, 0.01, 0.3, 0.5, 0.9, 0.999])


def student(df):
    return stats.t(df, scale=np.sqrt((df - 2) / df))


CASES = {
    "gaussian": (Gaussian(), stats.norm()),
    "laplace": (Laplace(), stats.laplace(scale=np.sqrt(0.5))),
    "student_t 2.1": (StudentT(2.1), student(2.1)),
    "student_t 3": (StudentT(3), student(3)),
    "student_t 4.5": (StudentT(4.5), student(4.5)),
    "student_t 30": (StudentT(30.0), student(30.0)),
    "student_t 500": (StudentT(500.0), student(500.0)),
}
SCORES = {
    "gaussian": lambda z: scoringrules.crps_normal(z, 0.0, 1.0),
    "laplace": lambda z: scoringrules.crps_laplace(z, 0.0, np.sqrt(0.5)),
    "student_t": lambda z, df: scoringrules.crps_t(z, df, 0.0, np.sqrt((df - 2) / df)),
}
every = pytest.mark.parametrize(("family", "reference"), CASES.values(), ids=CASES)


@every
def test_density_distribution_and_quantiles_are_scipys(family, reference):
    assert_allclose(family.log_density(Z), reference.logpdf(Z), rtol=1e-10, atol=1e-12)
    assert_allclose(family.cdf(Z), reference.cdf(Z), rtol=1e-10, atol=1e-15)
    assert_allclose(family.quantile(Q), reference.ppf(Q), rtol=1e-8, atol=1e-12)
    assert_allclose(family.cdf(family.quantile(Q)), Q, rtol=1e-8)


@every
def test_mean_0_and_variance_1(family, reference):
    """Symmetric, and by integration of the family's own density over u = log z, which reaches the heaviest tails."""
    assert_allclose(family.log_density(-Z), family.log_density(Z), rtol=0)

    def moment(power):
        pieces = [(-40, 0), (0, 3), (3, 230)]
        integrals = [quad(lambda u: np.exp(family.log_density(np.exp(u)) + (power + 1) * u), *ends) for ends in pieces]
        return 2 * sum(value for value, _ in integrals)

    assert_allclose(moment(0), 1, rtol=1e-7)
    assert_allclose(moment(2), 1, rtol=1e-7)


@every
def test_crps_is_that_of_scoringrules(family, reference):
    extra = (family.df,) if isinstance(family, StudentT) else ()
    assert_allclose(family.crps(Z), SCORES[family.name](Z, *extra), rtol=1e-9, atol=1e-12)


@every
@pytest.mark.parametrize("z", [-3.0, 0.0, 0.4])
def test_crps_is_the_integral_of_its_definition(family, reference, z):
    r""":math:`\int (F(x) - 1\{x \ge z\})^2 dx`."""
    below = quad(lambda x: reference.cdf(x) ** 2, -np.inf, z, epsabs=1e-10)[0]
    above = quad(lambda x: reference.sf(x) ** 2, z, np.inf, epsabs=1e-10)[0]
    assert_allclose(family.crps(np.array(z)), below + above, atol=1e-7)


@every
def test_tensors_agree_with_arrays(family, reference):
    """In double precision nearly to rounding (the quadrature of Student's distribution to 1e-8), in single to 1e-4."""
    for kind, rtol, atol in ((torch.float64, 1e-8, 1e-11), (torch.float32, 1e-4, 2e-4)):
        z = torch.tensor(Z, dtype=kind)
        for function in (family.log_density, family.crps):
            assert function(z).dtype == kind
            assert_allclose(function(z), function(z.double().numpy()), rtol=rtol, atol=atol)


@every
def test_gradients(family, reference):
    """In z, against finite differences."""
    z = torch.tensor([-30.0, -2.0, -0.3, 0.7, 4.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(family.log_density, z)
    assert torch.autograd.gradcheck(family.crps, z)


@pytest.mark.parametrize("df", [2.2, 4.0, 40.0])
def test_gradients_in_the_degrees_of_freedom(df):
    z = torch.tensor([-30.0, -2.0, 0.0, 0.7, 4.0], dtype=torch.float64)
    nu = torch.tensor(df, dtype=torch.float64, requires_grad=True)
    for method in ("log_density", "crps"):
        assert torch.autograd.gradcheck(lambda nu, method=method: getattr(StudentT(nu), method)(z), nu)


def test_crps_is_proper_in_the_degrees_of_freedom():
    """Its gradient, averaged over the true distribution, is 0 at the true df and points back to it from either side."""
    z = torch.tensor(student(5).ppf((np.arange(4000) + 0.5) / 4000))
    gradient = []
    for df in (4.0, 5.0, 6.5):
        nu = torch.tensor(df, dtype=torch.float64, requires_grad=True)
        StudentT(nu).crps(z).mean().backward()
        gradient.append(nu.grad.item())
    assert gradient[0] < -1e-4
    assert abs(gradient[1]) < 2e-5
    assert gradient[2] > 5e-5


def test_one_df_per_target():
    """df (k,) goes with z (n, k); the axes of q stand behind that of the targets."""
    df, z = np.array([2.5, 4.0, 50.0]), np.linspace(-4, 4, 12).reshape(4, 3)
    family = StudentT(df)
    tensors = StudentT(torch.tensor(df))
    for j, nu in enumerate(df):
        one = StudentT(nu)
        for method in ("log_density", "crps", "cdf"):
            assert_allclose(getattr(family, method)(z)[:, j], getattr(one, method)(z[:, j]), rtol=1e-12)
        for method in ("log_density", "crps"):
            assert_allclose(getattr(tensors, method)(torch.tensor(z))[:, j], getattr(one, method)(z[:, j]), rtol=1e-8)
        assert_allclose(family.quantile(0.1)[j], one.quantile(0.1))
        assert_allclose(family.quantile(Q)[j], one.quantile(Q))
        assert_allclose(tensors.quantile(np.stack([Q, 1 - Q]))[j], one.quantile(np.stack([Q, 1 - Q])))
    assert family.quantile(np.stack([Q, 1 - Q])).shape == (3, 2, 6)


def test_large_df_approaches_the_gaussian():
    """The difference falls like 1 / df."""
    z = np.linspace(-4, 4, 81)
    for method in ("log_density", "crps", "cdf"):
        error = [
            np.abs(getattr(StudentT(df), method)(z) - getattr(GAUSSIAN, method)(z)).max() for df in (1e2, 1e3, 1e4)
        ]
        assert_allclose(error[0] / error[1], 10, rtol=0.2)
        assert_allclose(error[1] / error[2], 10, rtol=0.05)
    tensors = StudentT(1e4).crps(torch.tensor(z))
    assert_allclose(tensors, GAUSSIAN.crps(z), atol=1e-4)


@pytest.mark.parametrize("wrong", [2, 1.5, 0, -1.0])
def test_too_few_degrees_of_freedom(wrong):
    with pytest.raises(ValueError, match=rf"^df must be greater than 2, got df={wrong}; choose a value in that range$"):
        StudentT(wrong)


@pytest.mark.parametrize(("wrong", "error"), [("4", TypeError), (True, TypeError), (np.inf, ValueError)])
def test_df_is_a_finite_number(wrong, error):
    with pytest.raises(error, match=r"^df must be a finite number, got df="):
        StudentT(wrong)


def test_learned_df_becomes_a_number():
    nu = torch.tensor(4.25, requires_grad=True)
    assert StudentT(nu).numpy() == StudentT(4.25)
    assert isinstance(StudentT(nu).numpy().df, float)
    several = StudentT(torch.tensor([3.0, 4.25], requires_grad=True)).numpy().df
    assert isinstance(several, np.ndarray)
    assert several.dtype == np.float64
    assert_allclose(several, [3, 4.25])
    for family in (GAUSSIAN, Laplace(), StudentT(4)):
        assert family.numpy() is family


def test_infinite_residuals():
    """A y of density 0, such as a negative one under the logarithm: no warning, no NaN."""
    ends = np.array([-np.inf, np.inf])
    for family, _ in CASES.values():
        assert_allclose(family.log_density(ends), [-np.inf, -np.inf])
        assert_allclose(family.cdf(ends), [0, 1])


def test_names():
    assert {name: kind.name for name, kind in FAMILIES.items()} == {name: name for name in FAMILIES}
    assert check_family("laplace") == "laplace"
    assert check_family(StudentT(4)) == StudentT(4)
    with pytest.raises(
        ValueError, match=r"^family must be one of .*, got family='student-t'; did you mean 'student_t'"
    ):
        check_family("student-t")
    with pytest.raises(
        TypeError, match=r"^family must be a name or a family, got family=4; give one of \['gaussian', "
    ):
        check_family(4)


def test_functions_follow_the_values():
    """A tensor anywhere makes all of it tensors."""
    assert isinstance(functions_for(1.0, torch.ones(2)), TensorFunctions)
    assert isinstance(functions_for(torch.ones(2), 4.0), TensorFunctions)
    assert not isinstance(functions_for(np.ones(2), 4.0), TensorFunctions)

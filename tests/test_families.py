"""The shapes of the predictive distribution, against scipy, scoringrules and numerical integration."""

import numpy as np
import pytest
import scoringrules
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import special, stats
from scipy.integrate import quad

from hetcal.families import (
    FAMILIES,
    GAUSSIAN,
    SCORES,
    Empirical,
    Gaussian,
    Laplace,
    StudentT,
    TensorFunctions,
    check_family,
    crps_of_nodes,
    extended_interp,
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
CRPS_OF_SCORINGRULES = {
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
    assert_allclose(family.crps(Z), CRPS_OF_SCORINGRULES[family.name](Z, *extra), rtol=1e-9, atol=1e-12)


@every
@pytest.mark.parametrize("z", [-3.0, 0.0, 0.4])
def test_crps_is_the_integral_of_its_definition(family, reference, z):
    r""":math:`\int (F(x) - 1\{x \ge z\})^2 dx`."""
    below = quad(lambda x: reference.cdf(x) ** 2, -np.inf, z, epsabs=1e-10)[0]
    above = quad(lambda x: reference.sf(x) ** 2, z, np.inf, epsabs=1e-10)[0]
    assert_allclose(family.crps(np.array(z)), below + above, atol=1e-7)


@every
def test_expected_crps_is_the_mean_over_the_distribution_itself(family, reference):
    r"""Half of Gini's mean difference, :math:`\int F (1 - F) dx`; for tensors and arrays of df too."""
    expected = 2 * quad(lambda x: reference.cdf(x) * reference.sf(x), 0, np.inf, epsabs=1e-10)[0]
    assert_allclose(family.expected_crps(), expected, rtol=1e-6)
    if isinstance(family, StudentT):
        assert_allclose(StudentT(torch.tensor(float(family.df))).expected_crps(), expected, rtol=1e-4)
        assert_allclose(StudentT(np.full(3, float(family.df))).expected_crps(), np.full(3, expected), rtol=1e-6)


def test_expected_crps_of_an_empirical_shape():
    """The normal one, and wider by its width for each of several targets."""
    assert_allclose(Empirical(SCORES).expected_crps(), GAUSSIAN.expected_crps(), rtol=2e-3)
    shapes = Empirical(np.stack([SCORES, 2 * SCORES]))
    assert_allclose(shapes.expected_crps(), Empirical(SCORES).expected_crps() * np.array([1, 2]), rtol=1e-9)


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


# Shapes that a table may have: skewed (an exponential), heavy-tailed, two humps, and a kink.
LEARNED = {
    "normal": Empirical(SCORES),
    "skewed": Empirical(stats.expon.ppf(special.ndtr(SCORES))),
    "heavy": Empirical(np.sinh(SCORES)),
    "two humps": Empirical(SCORES + 1.5 * np.tanh(4 * SCORES)),
    "kink": Empirical(np.where(SCORES < 0, 0.1 * SCORES, 2 * SCORES)),
}
every_learned = pytest.mark.parametrize("family", LEARNED.values(), ids=LEARNED)
FAR = np.array([1e-12, 1e-5, 0.001, 0.02, 0.3, 0.5, 0.71, 0.99, 0.9999, 1 - 1e-9])  # most of them beyond the knots


@every_learned
def test_learned_quantiles_and_distribution_function_are_inverse(family):
    """Also in the tails, where the outermost pieces of T go on; there is no limit of the support."""
    assert_allclose(family.cdf(family.quantile(FAR)), FAR, rtol=1e-7)
    z = np.linspace(-30, 30, 201)
    z = z[np.abs(family.scores(z)) < 5]
    assert_allclose(family.quantile(family.cdf(z)), z, atol=1e-8)
    assert_allclose(family.cdf(np.array([-np.inf, np.inf])), [0, 1])
    assert_allclose(family.log_density(np.array([-np.inf, np.inf])), [-np.inf, -np.inf])


@every_learned
def test_learned_tails_are_those_of_a_normal(family):
    """Beyond the knots T is linear: the distribution is a normal one whose scale is the slope of the last piece."""
    for end, step in ((0, 1), (-1, -2)):
        slope = (family.values[end] - family.values[step]) / (SCORES[end] - SCORES[step])
        scores = SCORES[end] * np.array([1.0, 1.5, 2.0])
        expected = family.values[end] + slope * (scores - SCORES[end])
        assert_allclose(family.quantile(special.ndtr(scores)), expected, rtol=1e-6)


@every_learned
def test_learned_density_is_the_derivative_of_the_distribution_function(family):
    """Between the knots, by central differences, and its integral over the line is 1."""
    middles = (family.values[1:] + family.values[:-1]) / 2
    z = np.concatenate([[family.values[0] - 0.3], middles, [family.values[-1] + 0.3]])
    h = 1e-6
    slope = (family.cdf(z + h) - family.cdf(z - h)) / (2 * h)
    assert_allclose(np.exp(family.log_density(z)), slope, rtol=1e-4, atol=1e-9)
    # By the trapezoidal rule inside each piece, because the density jumps at the knots.
    edges = extended_interp(np.linspace(-6, 6, 121), SCORES, family.values)
    t = np.linspace(0, 1, 42)[1:-1]
    inside = edges[:-1, None] + np.diff(edges)[:, None] * t
    density = np.exp(family.log_density(inside)).mean(1)
    assert_allclose(density @ np.diff(edges), 1, atol=1e-4)


@every_learned
@pytest.mark.parametrize("z", [-4.0, -0.2, 0.0, 1.3, 6.0])
def test_learned_crps_is_the_integral_of_its_definition(family, z):
    r""":math:`\int (F(x) - 1\{x \ge z\})^2 dx` on a fine grid; 400 quantiles omit only the outermost tails."""
    x = np.linspace(-60, 60, 240_001)
    squares = (family.cdf(x) - (x >= z)) ** 2
    assert_allclose(family.crps(np.array(z)), np.trapezoid(squares, x), rtol=2e-3, atol=2e-3)


def test_learned_normal_shape_is_the_gaussian():
    z = np.linspace(-8, 8, 101)
    normal = LEARNED["normal"]
    assert_allclose(normal.cdf(z), GAUSSIAN.cdf(z))
    assert_allclose(normal.log_density(z), GAUSSIAN.log_density(z), atol=1e-12)
    assert_allclose(normal.quantile(FAR), GAUSSIAN.quantile(FAR), atol=1e-12)
    assert_allclose(normal.crps(z), GAUSSIAN.crps(z), atol=1e-3)


@every_learned
def test_standardized_has_mean_0_and_variance_1(family):
    """The moments are those of a million equally probable quantiles, which see tails up to a score of 4.9."""
    q = (np.arange(1_000_000) + 0.5) / 1_000_000
    mean, std, standard = family.standardized()
    nodes = family.quantile(q)
    assert_allclose([mean, std], [nodes.mean(), nodes.std()], rtol=2e-3, atol=1e-3)
    assert_allclose(standard.values, (family.values - mean) / std)
    again = standard.standardized()
    assert_allclose(again[0], 0, atol=1e-12)
    assert_allclose(again[1], 1)


@given(
    steps=st.lists(st.floats(1e-3, 10), min_size=60, max_size=60),
    start=st.floats(-50, 50),
    q=st.lists(st.floats(1e-6, 1 - 1e-6), min_size=1, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_any_increasing_shape_is_a_distribution(steps, start, q):
    """Inverse functions, a positive density, a nonnegative CRPS that is least near the median, and moments 0 and 1."""
    family = Empirical(start + np.cumsum([0.0, *steps]))
    q = np.sort(q)
    z = family.quantile(q)
    assert (np.diff(z) >= 0).all()
    assert_allclose(family.cdf(z), q, rtol=1e-6)
    assert np.isfinite(family.log_density(z)).all()
    assert (family.crps(z) >= family.crps(family.quantile(0.5)) - 1e-9).all()
    assert family.crps(family.quantile(0.5)) > 0
    _, _, standard = family.standardized()
    assert_allclose(standard.standardized()[:2], [0, 1], atol=1e-9)


def test_learned_shapes_of_several_targets():
    """Values (k, 61) go with z (n, k); the axes of q stand behind that of the targets."""
    names = ["skewed", "normal", "heavy"]
    family = Empirical(np.stack([LEARNED[name].values for name in names]))
    z, levels = np.linspace(-4, 4, 12).reshape(4, 3), np.stack([FAR, 1 - FAR])
    mean, std, standard = family.standardized()
    assert mean.shape == std.shape == (3,)
    for j, name in enumerate(names):
        one = LEARNED[name]
        for method in ("log_density", "crps", "cdf"):
            assert_allclose(getattr(family, method)(z)[:, j], getattr(one, method)(z[:, j]), rtol=1e-12)
        assert_allclose(family.quantile(levels)[j], one.quantile(levels))
        assert_allclose(family.target(j).values, one.values)
        assert_allclose(standard.values[j], one.standardized()[2].values)
    assert family.quantile(levels).shape == (3, 2, 10)
    assert LEARNED["heavy"].target(0) is LEARNED["heavy"]


def test_family_of_one_target():
    """Families without parameters per target are those of each target; a df per target is taken apart."""
    assert GAUSSIAN.target(1) is GAUSSIAN
    assert StudentT(4).target(1) == StudentT(4)
    assert StudentT(np.array([3.0, 5.0])).target(1) == StudentT(5.0)


@given(nodes=st.lists(st.floats(-10, 10), min_size=1, max_size=8), z=st.floats(-20, 20))
@settings(max_examples=60, deadline=None)
def test_crps_of_nodes_is_its_expectations(nodes, z):
    """E|Q - z| - E|Q - Q'| / 2 by all pairs, also with equal nodes."""
    nodes = np.sort(nodes)
    expected = np.abs(nodes - z).mean() - np.abs(nodes[:, None] - nodes).mean() / 2
    assert_allclose(crps_of_nodes(np.array([z]), nodes), [expected], atol=1e-10)


def test_extended_interp_goes_on_beyond_the_knots():
    knots, values = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 3.0])
    assert_allclose(extended_interp(np.array([-1.0, 0.5, 2.0, 3.0, 5.0]), knots, values), [-2, 1, 2.5, 3, 4])

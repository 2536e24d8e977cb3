"""Every metric against an implementation that shares no code with it, and against what must hold for any data."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats
from uncertainty_toolbox import metrics_calibration, metrics_scoring_rule

from hetcal import metrics
from hetcal.distributions import TransformedPrediction
from hetcal.families import GAUSSIAN, SCORES, Empirical, Laplace, StudentT
from hetcal.prediction import Prediction
from hetcal.transforms import Log, PerTarget, YeoJohnson

thorough = settings(max_examples=40, deadline=None, derandomize=True, database=None)

# name: (metric, by which power of c it scales when y, mean and std are multiplied by c)
METRICS = {
    "ce": (metrics.ce, 0),
    "coverage": (metrics.coverage, 0),
    "ence": (metrics.ence, 0),
    "conditional_coverage_error": (metrics.conditional_coverage_error, 0),
    "rmse": (metrics.rmse, 1),
    "mae": (metrics.mae, 1),
    "sharpness": (metrics.sharpness, 1),
    "interval_width": (metrics.interval_width, 1),
    "crps": (metrics.crps, 1),
    "interval_score": (metrics.interval_score, 1),
    "pinball_loss": (metrics.pinball_loss, 1),
    "nll": (metrics.nll, None),
}

BAD_INPUTS = [  # argument, value, message
    (
        "y",
        [1.0, np.nan],
        r"y must be finite, got y=nan; remove or repair the 1 such value\(s\), the first in row 1",
    ),
    ("mean", [-np.inf, 1.0], r"mean must be finite, got mean=-inf; .* first in row 0"),
    ("std", [1.0, np.inf], r"std must be finite, got std=inf"),
    (
        "std",
        [1.0, 0.0],
        r"std must be greater than 0, got std=0.0; a standard deviation is positive; see row 1",
    ),
    ("std", [-2.0, 1.0], r"std must be greater than 0, got std=-2.0; .* see row 0"),
    ("y", [], r"y must have at least one value, got y=\[\]; give one value per row"),
    (
        "mean",
        [1.0],
        r"mean must have as many values as y \(2\), got mean='1 values'; give one value per row of y",
    ),
    ("std", [1.0, 1.0, 1.0], r"std must have as many values as y \(2\), got std='3 values'"),
    ("y", [[1.0], [2.0]], r"y must be one-dimensional, got y='array of shape \(2, 1\)'; use its column"),
    ("mean", [[1.0], [2.0]], r"mean must be one-dimensional, got mean='array of shape \(2, 1\)'"),
    ("y", ["a", "b"], r"y must hold real numbers, got y='.*'; convert it to numbers first"),
]


@pytest.fixture(scope="module")
def triple():
    """Rows with a little of everything: narrow and wide, inside and far outside, no two std alike."""
    generator = np.random.default_rng(0)
    mean, std = generator.normal(5, 3, 300), np.exp(generator.normal(0, 1, 300))
    return mean + 1.4 * std * generator.standard_t(4, 300), mean, std


@st.composite
def triples(draw, max_size=40):
    """Hundredths: far enough apart that rounding neither makes nor breaks a tie when the unit changes."""
    n = draw(st.integers(1, max_size))
    hundredths = st.integers(-10_000, 10_000).map(lambda k: k / 100)
    y, mean = (np.array(draw(st.lists(hundredths, min_size=n, max_size=n))) for _ in range(2))
    std = np.array(draw(st.lists(st.integers(1, 1_000).map(lambda k: k / 100), min_size=n, max_size=n)))
    return y, mean, std


class TestAgainstOthers:
    """The same numbers as other libraries, as numerical integration, or as the definition written as a loop."""

    def test_calibration_error_is_the_sum_of_equation_3(self, triple):
        """Eq. 3 is a sum over six levels; a mean, or five levels, would be smaller and look better."""
        y, mean, std = triple
        expected = 0.0
        for level in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
            interval = Prediction(mean, std).interval(level)
            inside = sum(low <= truth <= high for truth, (low, high) in zip(y, interval, strict=True))
            expected += abs(level - inside / len(y))
        assert_allclose(metrics.ce(y, mean, std), expected, rtol=1e-12)

    def test_coverage_against_uncertainty_toolbox(self, triple):
        """Coverage, curve and calibration error count the same rows as uncertainty-toolbox."""
        y, mean, std = triple
        levels, observed = metrics_calibration.get_proportion_lists_vectorized(mean, std, y, num_bins=52)
        curve = metrics.calibration_curve(y, mean, std, levels=levels[1:-1])
        assert_allclose(curve.coverage, observed[1:-1], rtol=1e-12)
        total = np.abs(levels - observed)[1:-1].sum()
        assert_allclose(metrics.ce(y, mean, std, levels=levels[1:-1]), total, rtol=1e-12)
        expected = metrics_calibration.get_proportion_in_interval(mean, std, y, 0.8)
        assert_allclose(metrics.coverage(y, mean, std, level=0.8), expected, rtol=1e-12)

    def test_ends_of_the_interval_are_inside(self):
        """A row on the very end counts as covered, on both sides, in every metric that counts."""
        end = stats.norm.ppf(0.95)
        ends = [-end, end], [0.0, 0.0], [1.0, 1.0]
        assert metrics.coverage(*ends, level=0.9) == 1
        assert_allclose(metrics.ce(*ends, levels=0.9), 0.1)
        assert_array_equal(metrics.calibration_curve(*ends, levels=[0.9]).coverage, [1.0])
        assert_allclose(metrics.conditional_coverage_error(*ends, level=0.9), 0.1)

    def test_nll(self, triple):
        """The constant log(2 pi) / 2 is in; eq. 1 of the paper leaves it out."""
        y, mean, std = triple
        ours = metrics.nll(y, mean, std)
        assert_allclose(ours, np.mean(scoringrules.logs_normal(y, mean, std)), rtol=1e-10)
        assert_allclose(ours, metrics_scoring_rule.nll_gaussian(mean, std, y), rtol=1e-10)
        assert_allclose(ours, -stats.norm.logpdf(y, mean, std).mean(), rtol=1e-10)

    def test_crps(self, triple):
        """The closed form is the integral that defines the CRPS."""
        y, mean, std = triple
        ours = metrics.crps(y, mean, std)
        assert_allclose(ours, np.mean(scoringrules.crps_normal(y, mean, std)), rtol=1e-10)
        assert_allclose(ours, metrics_scoring_rule.crps_gaussian(mean, std, y), rtol=1e-10)
        for truth, mu, sigma in zip(y[:5], mean[:5], std[:5], strict=True):
            below = integrate.quad(lambda t, m=mu, s=sigma: stats.norm.cdf(t, m, s) ** 2, mu - 12 * sigma, truth)[0]
            above = integrate.quad(lambda t, m=mu, s=sigma: stats.norm.sf(t, m, s) ** 2, truth, mu + 12 * sigma)[0]
            assert_allclose(metrics.crps([truth], [mu], [sigma]), below + above, rtol=1e-6)

    @pytest.mark.parametrize("level", [0.1, 0.5, 0.9, 0.99])
    def test_interval_score_and_width(self, triple, level):
        """Width and fine of Winkler's score, from the ends of the interval instead of its half width."""
        y, mean, std = triple
        lower, upper = stats.norm.interval(level, mean, std)
        expected = np.mean(scoringrules.interval_score(y, lower, upper, 1 - level))
        assert_allclose(metrics.interval_score(y, mean, std, level), expected, rtol=1e-10)
        assert_allclose(metrics.interval_width(y, mean, std, level), np.mean(upper - lower), rtol=1e-10)

    def test_pinball_loss(self, triple):
        """Eq. 4, and its sides are not swapped: the default quantiles are symmetric and would not show it."""
        y, mean, std = triple
        for q in (0.05, 0.3, 0.8):
            expected = np.mean(scoringrules.quantile_score(y, stats.norm.ppf(q, mean, std), q))
            assert_allclose(metrics.pinball_loss(y, mean, std, quantiles=q), expected, rtol=1e-10)
        ours = metrics.pinball_loss(y, mean, std, quantiles=np.linspace(0.01, 0.99, 99))
        assert_allclose(ours, metrics_scoring_rule.check_score(mean, std, y), rtol=1e-10)

    def test_pinball_loss_over_all_quantiles_is_half_the_crps(self, triple):
        """Two closed forms of this file meet: the CRPS is twice the pinball loss integrated over q."""
        fine = (np.arange(4_000) + 0.5) / 4_000
        assert_allclose(2 * metrics.pinball_loss(*triple, quantiles=fine), metrics.crps(*triple), rtol=1e-4)

    def test_moments(self, triple):
        """RMSE, MAE and sharpness, although they are computed so that no square overflows."""
        y, mean, std = triple
        assert_allclose(metrics.rmse(y, mean), math.sqrt(np.mean((y - mean) ** 2)), rtol=1e-14)
        assert_allclose(metrics.mae(y, mean), np.mean(np.abs(y - mean)), rtol=1e-14)
        assert_allclose(metrics.sharpness(y, mean, std), metrics_calibration.sharpness(std), rtol=1e-14)

    def test_pit(self, triple):
        """One value per row, not a histogram."""
        y, mean, std = triple
        assert_allclose(metrics.pit(y, mean, std), stats.norm.cdf(y, mean, std), rtol=1e-12)

    @pytest.mark.parametrize("bins", [1, 10, 30, 300])
    def test_binned_metrics(self, triple, bins):
        """ENCE of Levi et al. and the coverage per bin, with bins cut by `numpy.array_split`."""
        y, mean, std = triple
        parts = np.array_split(np.argsort(std), bins)
        rmv = np.array([np.sqrt(np.mean(std[b] ** 2)) for b in parts])
        error = np.array([np.sqrt(np.mean((y[b] - mean[b]) ** 2)) for b in parts])
        assert_allclose(metrics.ence(y, mean, std, bins), np.mean(np.abs(rmv - error) / rmv), rtol=1e-10)
        lower, upper = stats.norm.interval(0.8, mean, std)
        gaps = [abs(np.mean((lower[b] <= y[b]) & (y[b] <= upper[b])) - 0.8) for b in parts]
        ours = metrics.conditional_coverage_error(y, mean, std, level=0.8, bins=bins)
        assert_allclose(ours, np.mean(gaps), rtol=1e-10)


def gaussian(mean, std):
    return Prediction(mean, std), stats.norm(mean, std)


def laplace(mean, std):
    return Prediction(mean, std, family=Laplace()), stats.laplace(mean, std / math.sqrt(2))


def student_t(mean, std):
    return Prediction(mean, std, family=StudentT(4.0)), stats.t(4.0, mean, std / math.sqrt(2))


def lognormal(mean, std):
    """Of exp(y): the prediction is made for the logarithm."""
    return TransformedPrediction(Prediction(mean, std), Log()), stats.lognorm(std, scale=np.exp(mean))


FAMILIES = {"gaussian": gaussian, "laplace": laplace, "student_t": student_t, "lognormal": lognormal}
CRPS = {
    "gaussian": lambda y, mean, std: scoringrules.crps_normal(y, mean, std),
    "laplace": lambda y, mean, std: scoringrules.crps_laplace(y, mean, std / math.sqrt(2)),
    "student_t": lambda y, mean, std: scoringrules.crps_t(y, 4.0, mean, std / math.sqrt(2)),
    "lognormal": lambda y, mean, std: scoringrules.crps_lognormal(y, mean, std),
}


@pytest.mark.parametrize("family", FAMILIES)
class TestFamilies:
    """A prediction in place of mean and std: every metric by its family, against scipy's distribution of that name."""

    @pytest.fixture
    def case(self, family, triple):
        """Truth (positive under the logarithm), prediction and the same distribution of scipy."""
        y, mean, std = triple
        if family == "lognormal":
            mean, std = mean / 5, np.clip(std, 0.2, 1.0) / 2
            y = np.exp(np.random.default_rng(1).normal(mean, 1.4 * std))
        return y, *FAMILIES[family](mean, std)

    def test_what_counts_rows(self, case):
        """Coverage, curve, calibration error and coverage by bins, from the ends of scipy's central intervals."""
        y, prediction, distribution = case

        def inside(level):
            lower, upper = distribution.interval(level)
            return (lower <= y) & (y <= upper)

        assert_allclose(metrics.coverage(y, prediction, level=0.8), inside(0.8).mean())
        expected = sum(abs(level - inside(level).mean()) for level in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99))
        assert_allclose(metrics.ce(y, prediction), expected)
        curve = metrics.calibration_curve(y, prediction, levels=[0.2, 0.6])
        assert_allclose(curve.coverage, [inside(0.2).mean(), inside(0.6).mean()])
        parts = np.array_split(np.argsort(y), 10)
        expected = np.mean([abs(inside(0.8)[rows].mean() - 0.8) for rows in parts])
        assert_allclose(metrics.conditional_coverage_error(y, prediction, level=0.8, by=y), expected)

    def test_density_and_distribution(self, case):
        """NLL and PIT are those of y, not of its logarithm."""
        y, prediction, distribution = case
        assert_allclose(metrics.nll(y, prediction), -distribution.logpdf(y).mean(), rtol=1e-10)
        assert_allclose(metrics.pit(y, prediction), distribution.cdf(y), rtol=1e-10)

    def test_intervals_and_quantiles(self, case):
        """Width, Winkler's score and pinball loss from ends and quantiles, which no transform keeps symmetric."""
        y, prediction, distribution = case
        for level in (0.5, 0.95):
            lower, upper = distribution.interval(level)
            expected = np.mean(scoringrules.interval_score(y, lower, upper, 1 - level))
            assert_allclose(metrics.interval_width(y, prediction, level=level), np.mean(upper - lower), rtol=1e-9)
            assert_allclose(metrics.interval_score(y, prediction, level=level), expected, rtol=1e-9)
        for q in (0.05, 0.8):
            expected = np.mean(scoringrules.quantile_score(y, distribution.ppf(q), q))
            assert_allclose(metrics.pinball_loss(y, prediction, quantiles=q), expected, rtol=1e-9)

    def test_crps(self, family, case):
        """Closed forms of scoringrules, and the integral of the docstring; 200 quantiles stand in under a transform."""
        y, prediction, _ = case
        base = getattr(prediction, "base", prediction)
        exact = CRPS[family](y, base.mean, base.std).mean()
        assert_allclose(metrics.crps(y, prediction), exact, rtol=1e-3 if family == "lognormal" else 1e-9)
        for row in range(3):
            only, distribution = FAMILIES[family](base.mean[[row]], base.std[[row]])
            ends = np.append(distribution.ppf([1e-8, 1 - 1e-8]), y[row])
            grid = np.linspace(ends.min(), ends.max(), 400_001)
            integral = np.trapezoid((distribution.cdf(grid) - (y[row] <= grid)) ** 2, grid)
            assert_allclose(metrics.crps(y[[row]], only), integral, rtol=1e-3)

    def test_moments(self, case):
        """RMSE, MAE, sharpness and ENCE know of a prediction its mean and std only."""
        y, prediction, _ = case
        mean, std = prediction.mean, prediction.std
        for metric in (metrics.rmse, metrics.mae, metrics.sharpness, metrics.ence):
            assert metric(y, prediction) == metric(y, mean, std)

    def test_evaluate_follows_the_family(self, case):
        """Each figure of the dict is that of the metric on the whole prediction."""
        y, prediction, _ = case
        result = metrics.evaluate(y, prediction)
        assert list(result) == list(metrics.evaluate([1.0], [1.0], [1.0]))
        assert result["crps"] == metrics.crps(y, prediction)
        assert result["nll"] == metrics.nll(y, prediction)
        assert result["ce"] == metrics.ce(y, prediction)
        assert result["interval_width_90"] == metrics.interval_width(y, prediction, level=0.9)
        assert result["verdict"] == str(metrics.judge(y, prediction))

    def test_calibrated_data_have_the_noise_floor(self, family):
        """y drawn by scipy, 1,000 times 101 rows; beyond 5 standard errors: one false alarm in 1.7 million."""
        n, generator = 101, np.random.default_rng(5)
        mean, std = generator.normal(size=n), generator.uniform(0.1, 2, n)
        prediction, distribution = FAMILIES[family](mean, std)
        samples = distribution.rvs((1_000, n), random_state=generator)
        errors = [metrics.ce(y, prediction) for y in samples]
        assert abs(np.mean(errors) - metrics.ce_noise_floor(n)) < 5 * np.std(errors) / math.sqrt(1_000)


class TestFamilyCounts:
    """What goes wrong if the family of a prediction is forgotten on the way."""

    def test_heavy_tails_read_as_gaussian_are_wrong_in_shape(self):
        """The same mean and std, 2,000 rows of Laplace noise: calibrated as Laplace, not as Gaussian."""
        y = stats.laplace.ppf((np.arange(2_000) + 0.5) / 2_000, 0, 1 / math.sqrt(2))
        mean, std = np.zeros(2_000), np.ones(2_000)
        assert metrics.ce(y, Prediction(mean, std, family=Laplace())) < 0.01
        assert metrics.ce(y, mean, std) > 0.2
        assert metrics.nll(y, Prediction(mean, std, family=Laplace())) < metrics.nll(y, mean, std)

    def test_intervals_of_a_skewed_family_are_not_symmetric(self):
        """What counts rows, by the ends of `interval`; a true model has the noise floor (5 standard errors)."""
        n, generator = 400, np.random.default_rng(0)
        family = Empirical(np.exp(SCORES / 2)).standardized()[2]
        mean, std = generator.normal(size=n), generator.uniform(0.1, 2, n)
        prediction, errors = Prediction(mean, std, family=family), []
        for _ in range(200):
            y = mean + std * family.quantile(generator.random(n))
            errors.append(metrics.ce(y, prediction))
        assert abs(np.mean(errors) - metrics.ce_noise_floor(n)) < 5 * np.std(errors) / math.sqrt(200)
        lower, upper = prediction.interval(0.8).T
        inside = (lower <= y) & (y <= upper)
        assert metrics.coverage(y, prediction, level=0.8) == inside.mean()
        assert metrics.calibration_curve(y, prediction, levels=[0.8]).coverage == inside.mean()
        above, below = (y > upper).mean(), (y < lower).mean()
        assert_allclose([above, below], 0.1, atol=5 * math.sqrt(0.09 / n))

    def test_gaussian_prediction_is_mean_and_std(self, triple):
        """One way through: not a bit differs."""
        y, mean, std = triple
        assert metrics.evaluate(y, Prediction(mean, std)) == metrics.evaluate(y, mean, std)

    @pytest.mark.parametrize("family", [GAUSSIAN, Laplace(), StudentT(3.0)], ids=lambda family: family.name)
    @pytest.mark.parametrize("std", [1e-300, 1e-170])
    def test_hopeless_std_has_limits_not_nan(self, family, std):
        """Where z or its square passes the range of floats, the CRPS is the absolute error, and nothing warns."""
        prediction = Prediction(np.zeros(2), np.full(2, std), family=family)
        y = [1e10, -3e10]
        assert_allclose(metrics.crps(y, prediction), 2e10)
        assert metrics.nll(y, prediction) > 1e2
        assert metrics.coverage(y, prediction) == 0
        assert_array_equal(metrics.pit(y, prediction), [1.0, 0.0])

    def test_value_that_the_transform_rules_out(self):
        """A y of 0 under the logarithm: density 0, outside of every interval, a finite CRPS; no NaN, no warning."""
        prediction = TransformedPrediction(Prediction(np.zeros(2), np.ones(2)), Log())
        y = [0.0, 1.0]
        assert metrics.nll(y, prediction) == math.inf
        assert metrics.coverage(y, prediction, level=0.999) == 0.5
        assert_array_equal(metrics.pit(y, prediction), [0.0, 0.5])
        assert 0 < metrics.crps(y, prediction) < 1


class TestSeveralTargets:
    """y of shape (n, k): one figure per target, each that of its column alone."""

    @pytest.fixture
    def columns(self, triple):
        y, mean, std = triple
        return np.column_stack([y, y[::-1], 2 * y]), np.column_stack([mean, mean, mean]), np.column_stack([std] * 3)

    @pytest.mark.parametrize("name", METRICS)
    def test_metric_of_each_column(self, columns, name):
        """As arrays, as data frames, and as a prediction with degrees of freedom per target."""
        metric = METRICS[name][0]
        expected = [metric(*(values[:, j] for values in columns)) for j in range(3)]
        figures = metric(*columns)
        assert figures.shape == (3,)
        assert_array_equal(figures, expected)
        assert_array_equal(metric(*(pd.DataFrame(values) for values in columns)), expected)
        y, mean, std = columns
        prediction = Prediction(mean, std, family=StudentT(np.array([3.0, 5.0, 50.0])))
        expected = [metric(y[:, j], prediction.target(j)) for j in range(3)]
        assert len({prediction.target(j).family.df for j in range(3)}) == 3
        assert_array_equal(metric(y, prediction), expected)

    @pytest.mark.parametrize("name", METRICS)
    def test_transform_of_each_column(self, columns, name):
        """Each target has a transform of its own."""
        y = np.exp(columns[0][:, :2] / 20)
        transform = PerTarget([Log(), YeoJohnson()]).fit(y, np.ones(len(y)))
        base = Prediction(columns[1][:, :2] / 20, columns[2][:, :2] / 20, family=Laplace())
        prediction = TransformedPrediction(base, transform)
        parts = [TransformedPrediction(base.target(j), transform.target(j)) for j in range(2)]
        expected = [METRICS[name][0](y[:, j], part) for j, part in enumerate(parts)]
        assert_array_equal(METRICS[name][0](y, prediction), expected)

    def test_one_column_is_still_several(self, columns):
        """The answer has the shape that the question had."""
        y, mean, std = (values[:, :1] for values in columns)
        assert_array_equal(metrics.crps(y, mean, std), [metrics.crps(y[:, 0], mean[:, 0], std[:, 0])])

    def test_settings_by_position_and_by_name(self, columns):
        """`by` is one value per row and serves all targets."""
        y, mean, std = columns
        by = np.arange(len(y))
        expected = [metrics.conditional_coverage_error(y[:, j], mean[:, j], std[:, j], 0.7, by, 5) for j in range(3)]
        assert_array_equal(metrics.conditional_coverage_error(y, mean, std, 0.7, by, 5), expected)
        assert_array_equal(metrics.conditional_coverage_error(y, mean, std, level=0.7, by=by, bins=5), expected)
        prediction = Prediction(mean, std)
        assert_array_equal(metrics.conditional_coverage_error(y, prediction, None, 0.7, by, 5), expected)
        assert_array_equal(metrics.rmse(y, mean), metrics.rmse(y, prediction))

    def test_pit_and_judge(self, columns):
        """Values per row have the shape of y; verdicts come as a list."""
        y, mean, std = columns
        parts = [tuple(values[:, j] for values in columns) for j in range(3)]
        assert_array_equal(metrics.pit(y, mean, std), np.column_stack([metrics.pit(*part) for part in parts]))
        assert metrics.judge(y, mean, std) == [metrics.judge(*part) for part in parts]

    def test_evaluate(self, columns):
        """(k,) arrays and k sentences; n and the noise floor are shared."""
        result = metrics.evaluate(*columns)
        each = [metrics.evaluate(*(values[:, j] for values in columns)) for j in range(3)]
        assert (result["n"], type(result["n"])) == (300, int)
        assert (result["ce_noise_floor"], type(result["ce_noise_floor"])) == (each[0]["ce_noise_floor"], float)
        assert list(result) == list(each[0])
        for key in set(result) - {"n", "ce_noise_floor"}:
            assert_array_equal(result[key], [scores[key] for scores in each], err_msg=key)
        assert isinstance(result["verdict"], list)

    def test_curve_is_of_one_target(self, columns):
        """Instead of a curve of all rows of all targets."""
        message = (
            r"y must be one-dimensional, got y='array of shape \(300, 3\)'; pass one target at a time: "
            r"y\[:, 0\] with prediction.target\(0\), or with mean\[:, 0\] and std\[:, 0\]"
        )
        with pytest.raises(ValueError, match=message):
            metrics.calibration_curve(*columns)


class TestInvariants:
    """What must hold for any data, searched by hypothesis."""

    @given(triples(), st.randoms(use_true_random=False))
    @thorough
    def test_order_of_rows_does_not_matter(self, data, random):
        """Ties in std included: hundredths make many."""
        order = list(range(len(data[0])))
        random.shuffle(order)
        for name, (metric, _) in METRICS.items():
            shuffled = metric(*(values[order] for values in data))
            assert_allclose(shuffled, metric(*data), rtol=1e-10, atol=1e-12, err_msg=name)

    @given(triples())
    @thorough
    def test_every_row_twice_changes_nothing(self, data):
        """Metrics are means over rows; bins, too, must not move when each row is there twice."""
        for name, (metric, _) in METRICS.items():
            doubled = metric(*(np.repeat(values, 2) for values in data))
            assert_allclose(doubled, metric(*data), rtol=1e-10, atol=1e-12, err_msg=name)

    @given(triples(), st.floats(-1e6, 1e6))
    @thorough
    def test_shift_changes_nothing(self, data, shift):
        """Zero of y is a convention."""
        y, mean, std = data
        for name, (metric, _) in METRICS.items():
            shifted = metric(y + shift, mean + shift, std)
            assert_allclose(shifted, metric(*data), rtol=1e-5, atol=1e-7, err_msg=name)

    @given(triples(), st.floats(-12, 12))
    @thorough
    def test_unit_of_y_only_scales(self, data, power):
        """From 1e-12 to 1e12: no absolute tolerance or floor hides in a formula; NLL shifts by log c."""
        c = 10.0**power
        for name, (metric, scaling) in METRICS.items():
            before, after = metric(*data), metric(*(c * values for values in data))
            expected, unit = (before + math.log(c), 1) if scaling is None else (before * c**scaling, c**scaling)
            assert_allclose(after, expected, rtol=1e-9, atol=1e-10 * unit, err_msg=name)

    @given(triples())
    @thorough
    def test_coverage_grows_with_the_level(self, data):
        """Intervals are nested, so that coverage and curve are monotone."""
        curve = metrics.calibration_curve(*data, levels=np.linspace(0.02, 0.98, 9))
        assert (np.diff(curve.coverage) >= 0).all()
        assert (np.diff([metrics.coverage(*data, level=level) for level in (0.1, 0.5, 0.9, 0.999)]) >= 0).all()

    @given(triples())
    @thorough
    def test_crps_is_positive_and_tends_to_mae(self, data):
        """As std tends to 0 a distribution becomes a point, and the CRPS its absolute error."""
        y, mean, std = data
        assert metrics.crps(y, mean, std) > 0
        tiny = metrics.crps(y, mean, 1e-9 * std)
        assert_allclose(tiny, metrics.mae(y, mean), rtol=1e-6, atol=1e-7)

    @given(st.floats(-2, 2), st.floats(-1.5, 1.5))
    @thorough
    def test_propriety(self, mu, log_sigma):
        """No statement about y ~ N(0, 1) scores better in expectation than the truth; gaming cannot pay."""
        y = stats.norm.ppf((np.arange(500) + 0.5) / 500)
        truth, claim = (0 * y, 1 + 0 * y), (mu + 0 * y, math.exp(log_sigma) + 0 * y)
        far = max(abs(mu), abs(log_sigma)) > 0.1
        for score in (metrics.nll, metrics.crps, metrics.interval_score, metrics.pinball_loss):
            # 500 quantiles stand for the distribution, up to 1e-2 in the parameters
            assert score(y, *claim) > score(y, *truth) - 1e-3
            assert not far or score(y, *claim) > score(y, *truth), score.__name__

    @given(triples())
    @thorough
    def test_float32_is_as_good_as_float64(self, data):
        """Sums run in float64 whatever comes in."""
        single = [values.astype(np.float32) for values in data]
        for name, (metric, _) in METRICS.items():
            as_float64 = metric(*(values.astype(np.float64) for values in single))
            assert_allclose(metric(*single), as_float64, rtol=1e-14, err_msg=name)
            if name in {"rmse", "mae", "sharpness", "interval_width", "crps", "interval_score", "pinball_loss"}:
                assert_allclose(metric(*single), metric(*data), rtol=1e-5, atol=1e-4, err_msg=name)


class TestInputs:
    """What goes in: any array-like, untouched; what is wrong: named, shown, with advice."""

    def test_float32_rows_in_large_numbers(self):
        """A million float32 squares, summed in float32, would be off in the third digit."""
        y = np.full(1_000_000, 0.1, dtype=np.float32)
        zero, one = np.zeros_like(y), np.ones_like(y)
        assert_allclose(metrics.rmse(y, zero), 0.1, rtol=1e-6)
        assert_allclose(metrics.mae(y, zero), 0.1, rtol=1e-6)
        assert_allclose(metrics.nll(y, zero, one), -stats.norm.logpdf(0.1), rtol=1e-6)

    def test_lists_integers_and_series(self, triple):
        """A list, a pandas column with any index, integers: all are rows by position."""
        y, mean, std = triple
        index = np.arange(len(y))[::-1]
        as_series = [pd.Series(values, index=index) for values in triple]
        assert metrics.evaluate(*as_series) == metrics.evaluate(y, mean, std)
        assert metrics.evaluate(*(values.tolist() for values in triple)) == metrics.evaluate(y, mean, std)
        assert metrics.crps([1, 2], [0, 2], [1, 3]) == metrics.crps([1.0, 2.0], [0.0, 2.0], [1.0, 3.0])

    def test_inputs_and_global_state_stay_untouched(self, triple):
        """Read-only arrays are accepted, and the global random generator does not move."""
        frozen = [values.copy() for values in triple]
        for values in frozen:
            values.setflags(write=False)
        state = np.random.get_state()[1].copy()  # noqa: NPY002 - the global state is what is watched here
        metrics.evaluate(*frozen)
        metrics.calibration_curve(*frozen)
        metrics.pit(*frozen)
        assert_array_equal(frozen, triple)
        assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002

    @pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
    def test_far_units(self, triple, scale):
        """Squares would overflow or vanish; the metrics must not."""
        far = [values * scale for values in triple]
        for name, (metric, scaling) in METRICS.items():
            expected = metric(*triple) + math.log(scale) if scaling is None else metric(*triple) * scale**scaling
            assert_allclose(metric(*far), expected, rtol=1e-9, err_msg=name)

    def test_hopeless_std_has_limits_not_nan(self):
        """A std far below the error: infinite NLL, CRPS equal to the error, and no warning (warnings are errors)."""
        hopeless = [1e10, -1e10], [0.0, 0.0], [1e-300, 1e-300]
        assert metrics.nll(*hopeless) == math.inf
        assert_allclose(metrics.crps(*hopeless), 1e10)
        assert metrics.coverage(*hopeless) == 0
        assert_array_equal(metrics.pit(*hopeless), [1.0, 0.0])

    @pytest.mark.parametrize(
        ("name", "argument", "value", "message"),
        [
            (name, *case)
            for name in METRICS
            for case in BAD_INPUTS
            if not (name in {"rmse", "mae"} and case[0] == "std")  # these need none
        ],
    )
    def test_bad_input_is_named(self, name, argument, value, message):
        """No NaN goes through without a word, and an (n, 1) column never broadcasts to (n, n)."""
        arguments = {"y": [1.0, 2.0], "mean": [1.0, 2.0], "std": [1.0, 1.0], argument: value}
        with pytest.raises((ValueError, TypeError), match=message):
            METRICS[name][0](**arguments)

    @pytest.mark.parametrize(
        "metric",
        [metrics.coverage, metrics.interval_score, metrics.interval_width, metrics.conditional_coverage_error],
    )
    def test_level_in_percent_is_refused(self, metric):
        """Level 95 means 0.95, and must not silently cover everything."""
        with pytest.raises(
            ValueError, match=r"level must be between 0 and 1, got level=95.*; give a fraction such as 0.95"
        ):
            metric([1.0], [1.0], [1.0], level=95)
        with pytest.raises(ValueError, match=r"level must be one number, got level=\[0.5, 0.9\]; call once per level"):
            metric([1.0], [1.0], [1.0], level=[0.5, 0.9])

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (
                lambda: metrics.ce([1], [1], [1], levels=[0.5, 95]),
                r"levels must be between 0 and 1, got",
            ),
            (lambda: metrics.ce([1], [1], [1], levels=[]), r"levels must hold at least one number"),
            (
                lambda: metrics.pinball_loss([1], [1], [1], quantiles=[0, 0.5]),
                r"quantiles must be between 0 and 1, got",
            ),
            (
                lambda: metrics.calibration_curve([1], [1], [1], confidence=95),
                r"confidence must be .* got confidence=95;",
            ),
            (
                lambda: metrics.ce_noise_floor(0),
                r"n must be at least 1, got n=0; choose a value in that range",
            ),
            (lambda: metrics.ce_noise_floor(2.5), r"n must be a whole number, got n=2.5; give a whole number"),
            (lambda: metrics.ce_quantile(9, 1.0), r"probability must be .* got probability=1.0;"),
            (lambda: metrics.ence([1], [1], [1], bins=0), r"bins must be at least 1, got bins=0"),
            (lambda: metrics.conditional_coverage_error([1], [1], [1], by=[1, 2]), r"by must have as many values as y"),
            (lambda: metrics.conditional_coverage_error([1], [1], [1], by=[np.nan]), r"by must be finite, got by=nan"),
        ],
    )
    def test_bad_settings_are_named(self, call, message):
        """Each message names the argument and shows its value."""
        with pytest.raises((ValueError, TypeError), match=message):
            call()


class TestBins:
    """Conditional metrics: equal counts, whole ties, any number of bins."""

    def test_constant_std_is_one_bin(self):
        """All std alike: one bin, not ten made by the order of the rows."""
        y = np.random.default_rng(0).normal(size=100)
        zero, two = np.zeros(100), np.full(100, 2.0)
        assert_allclose(metrics.ence(y, zero, two), abs(1 - metrics.rmse(y, zero) / 2))
        expected = abs(metrics.coverage(y, zero, two) - 0.9)
        assert_allclose(metrics.conditional_coverage_error(y, zero, two), expected)

    @given(st.lists(st.integers(0, 8), min_size=1, max_size=50), st.integers(1, 60))
    @thorough
    def test_bins_partition_the_rows_and_keep_ties_together(self, values, bins):
        """Each row once, no value in two bins, ascending, never more bins than asked, none empty."""
        values = np.array(values, dtype=float)
        groups = metrics.equal_count_bins(values, bins)
        assert_array_equal(np.sort(np.concatenate(groups)), np.arange(len(values)))
        assert 1 <= len(groups) <= min(bins, len(np.unique(values)))
        assert all(len(rows) for rows in groups)
        assert all(values[low].max() < values[high].min() for low, high in pairwise(groups))

    @given(st.integers(1, 200), st.integers(1, 60))
    @thorough
    def test_bins_without_ties_have_equal_counts(self, n, bins):
        """Counts differ by one at most; more bins than rows give one row each."""
        counts = [len(rows) for rows in metrics.equal_count_bins(np.arange(n, dtype=float), bins)]
        assert len(counts) == min(bins, n)
        assert max(counts) - min(counts) <= 1

    def test_by_a_feature_finds_what_the_average_hides(self):
        """Calibrated on average, wrong in each half: a constant std for two kinds of noise."""
        generator = np.random.default_rng(0)
        feature = np.repeat([0.0, 1.0], 2_000)
        y = generator.normal(0, np.where(feature == 1, 1.6, 0.4))
        zero, std = np.zeros(4_000), np.full(4_000, 1.06)
        assert abs(metrics.coverage(y, zero, std) - 0.9) < 0.05
        assert metrics.conditional_coverage_error(y, zero, std, by=feature) > 0.1
        assert metrics.conditional_coverage_error(y, zero, np.where(feature == 1, 1.6, 0.4), by=feature) < 0.02

"""The one rule: what it says, when it says it, and how often it is wrong."""

import json

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri
from scipy.stats import binom

from hetcal.distributions import TabulatedPrediction, TransformedPrediction
from hetcal.families import GAUSSIAN, Laplace, StudentT
from hetcal.metrics import coverage, evaluate, judge
from hetcal.metrics.evidence import Evidence, parts_above, typical_step
from hetcal.metrics.subgroups import Subgroup, check_coverage
from hetcal.metrics.verdict import LABELS, judge_evidence, power_against_low_coverage, rows_needed
from hetcal.prediction import Prediction
from hetcal.transforms import Log


def share_of(truth, median):
    return parts_above(truth, median, typical_step(truth), np.full(len(truth), np.nan)).mean()


def judge_z(z, **options):
    """The verdict on residuals that are z standard deviations each."""
    z = np.asarray(z, dtype=float)
    return judge(z, np.zeros(len(z)), np.ones(len(z)), **options)


def even(n, factor=1.0):
    """Residuals spread like a Gaussian's quantiles, times a factor."""
    return factor * GAUSSIAN.quantile((np.arange(n) + 0.5) / n)


def test_calibrated():
    """The sentence, word for word: label, coverage, how well it is known, what it means."""
    verdict = judge_z(even(400))
    assert str(verdict) == (
        "Reliable: 90 % intervals cover 90.0 % of 400 rows (95 % confidence interval 86.6 to 92.8 %), "
        "within sampling noise."
    )
    assert (verdict.status, verdict.finding, verdict.width_factor) == ("good", "calibrated", None)


@pytest.mark.parametrize(("factor", "status"), [(1.12, "caution"), (3.0, "bad")])
def test_too_narrow(factor, status):
    """By how much: the factor that was put in comes out. Far too narrow is worse than a little."""
    verdict = judge_z(even(800, factor))
    assert (verdict.status, verdict.finding) == (status, "narrow")
    assert verdict.width_factor == pytest.approx(factor, rel=0.02)
    assert f"; they are too narrow and must be {verdict.width_factor:.2f} times as wide" in verdict.text


def test_too_wide():
    verdict = judge_z(even(400, 0.5))
    assert (verdict.status, verdict.finding) == ("caution", "wide")
    assert verdict.width_factor == pytest.approx(0.5, rel=0.02)
    assert verdict.text.endswith("; they are wider than needed: 0.496 times their width is enough")


def test_no_factor():
    """No residual at all, or residuals beyond all bounds: no senseless factor."""
    assert judge_z(np.zeros(400)).text.endswith("; they are wider than needed")
    assert judge_z(np.tile([-1e9, 1e9], 200)).text.endswith("; they are too narrow")


FAMILIES = {"gaussian": GAUSSIAN, "laplace": Laplace(), "student_t": StudentT(4)}


@pytest.mark.parametrize("family", FAMILIES)
def test_factor_repairs_the_intervals(family):
    """Also where 1.645 is not the quantile of the family."""
    law = FAMILIES[family]
    y = 2 * law.quantile((np.arange(800) + 0.5) / 800)
    verdict = judge(y, Prediction(np.zeros(800), np.ones(800), family=law))
    assert verdict.finding == "narrow"
    repaired = Prediction(np.zeros(800), np.full(800, verdict.width_factor), family=law)
    assert coverage(y, repaired) == pytest.approx(0.9, abs=0.005)
    assert judge(y, Prediction(np.zeros(800), np.full(800, 2.0), family=law)).status == "good"


def test_transformed_target():
    """Behind a logarithm the factor is in the units of y: intervals stretched by it cover nine rows in ten."""
    y = np.exp(even(400, 2.0))
    prediction = TransformedPrediction(Prediction(np.zeros(400), np.ones(400)), Log())
    verdict = judge(y, prediction)
    lower, upper = prediction.interval(0.9).T
    factor = verdict.width_factor
    covered = (y >= 1 - factor * (1 - lower)) & (y <= 1 + factor * (upper - 1))
    assert np.mean(covered) == pytest.approx(0.9, abs=0.0025)


def test_a_factor_of_one_is_not_stated():
    """Whole numbers: 78 % lie inside, and the others just outside; "1.00 times as wide" would mean nothing."""
    z = np.where(np.arange(400) % 10 < 8, 0.5, 1.6449) * np.resize([1, -1], 400)
    verdict = judge_z(z)
    assert (verdict.finding, verdict.width_factor) == ("narrow", None)
    assert verdict.text.endswith("; they are too narrow")


def test_factor_covers_at_least_90_percent():
    """Of 36 rows 33 must be inside, not 32: the factor is 330 / 1.645."""
    verdict = judge_z(10.0 * np.arange(1, 37) * np.resize([1, -1], 36))
    assert verdict.width_factor == pytest.approx(330 / 1.6448536)


def test_wrong_in_shape():
    """90 % intervals may hold while others do not: not a green mark, and the sentence names the level."""
    verdict = judge_z(np.r_[even(360, 0.3), even(40) + np.tile([-9, 9], 20)])
    assert (verdict.status, verdict.finding) == ("caution", "shape")
    assert "cover 90.0 % of 400 rows" in verdict.text
    assert ", within sampling noise, but " in verdict.text
    assert " % intervals cover " in verdict.text.split("but")[1]
    assert verdict.text.endswith("they are wider than needed")


def test_small_gap_at_90_does_not_hide_the_curve():
    """89.4 % of 20,000 rows is a small gap; but the rows inside all lie near the prediction: no green mark."""
    verdict = judge_z(np.r_[even(17_880, 0.05), even(2_120) + np.tile([-9, 9], 1_060)])
    assert (verdict.status, verdict.finding) == ("caution", "shape")
    assert "cover 89.4 % of 20,000 rows" in verdict.text
    assert ", only 0.6 points off, but " in verdict.text
    assert verdict.text.count("but") == 1


def test_many_rows_detect_what_has_no_practical_importance():
    """Half a point of 40,000 rows is more than noise; the sentence says so, and the mark stays green."""
    verdict = judge_z(even(40_000, 1.02))
    assert (verdict.status, verdict.finding) == ("good", "slight")
    assert verdict.text.endswith(", only 0.69 points off")


# Too few rows.


@pytest.mark.parametrize("n", [1, 5, 29, 60, 100])
def test_few_rows_are_not_enough_for_a_green_mark(n):
    """A calibrated model on few rows: the verdict says that it cannot know, and how many rows would do."""
    verdict = judge_z(even(n, 0.9))
    assert (verdict.status, verdict.finding, verdict.label) == ("unknown", "few", "Too few rows to tell")
    assert f"evaluate the model on {rows_needed()} rows or more" in verdict.text
    assert ("of 1 row " in verdict.text) == (n == 1)


def test_few_rows_may_be_enough_for_a_red_mark():
    """Twenty rows that all miss are proof enough, but do not tell by how much."""
    verdict = judge_z(np.resize([-50.0, 50.0], 20))
    assert (verdict.status, verdict.finding, verdict.width_factor) == ("bad", "narrow", None)
    assert verdict.text.endswith("; they are too narrow")


def test_green_needs_the_power_to_see_a_coverage_of_80_percent():
    """By simulation: with the least number of rows a model that covers 80 % is accused in 90 % of samples or more.

    20,000 samples have a standard error of 0.2 points; five of them are allowed: one false alarm in 3 million.
    """
    n = rows_needed()
    hits = np.random.default_rng(0).binomial(n, 0.8, size=20_000)
    low = binom.ppf(0.025, n, 0.9)
    assert np.mean(hits < low) > 0.9 - 5 * 0.0021
    assert all(power_against_low_coverage(m) >= 0.9 for m in range(n, n + 300))
    assert power_against_low_coverage(n - 1) < 0.9
    assert power_against_low_coverage(60) < 0.7


def test_more_rows_never_take_the_green_mark_of_a_calibrated_model():
    """The power of the test is not monotone in the rows; the rule is."""
    statuses = [judge_z(even(n)).status for n in range(120, 160)]
    assert statuses == ["unknown"] * (rows_needed() - 120) + ["good"] * (160 - rows_needed())


# Bias.


def tilted(n, above):
    """Residuals as large as a Gaussian's, with this share of them above zero."""
    sizes = even(2 * n)[n:]
    turns = np.floor(np.arange(1, n + 1) * above) - np.floor(np.arange(n) * above)
    return np.where(turns > 0, sizes, -sizes)


@pytest.mark.parametrize(
    ("above", "status", "words"),
    [
        (1.0, "bad", "100.0 % of the true values lie above the predicted median"),
        (0.625, "bad", "62.5 % of the true values lie above the predicted median"),
        (0.5625, "caution", "56.2 % of the true values lie above the predicted median"),
        (0.25, "bad", "75.0 % of the true values lie below the predicted median"),
    ],
)
def test_bias(above, status, words):
    """Intervals as wide as they should be, around predictions that are not: coverage alone does not see it."""
    verdict = judge_z(tilted(5_000, above))
    assert (verdict.status, verdict.finding) == (status, "bias")
    assert verdict.share_above == pytest.approx(above, abs=1e-3)
    assert verdict.text.endswith(f", within sampling noise; {words}, where 50 % are expected")


def test_bias_sentence_is_true_for_a_skewed_target():
    """The median may be too low while the mean is too high: the sentence speaks of the median alone.

    True values are log-normal; the predicted Gaussian has a mean above theirs and a median below 42 % of them.
    """
    y = np.exp(1.5 * even(1_000))
    mean = np.full(1_000, 1.4 * y.mean())
    verdict = judge(y, mean, np.full(1_000, y.std()))
    assert mean[0] > y.mean()
    share_below = np.mean(y < mean)
    assert f"{100 * share_below:.1f} % of the true values lie below the predicted median" in verdict.text
    for claim in ("too high", "too low", "mean"):
        assert claim not in verdict.text


def test_bias_beside_other_findings():
    """The bias is named where the intervals fail too, and makes the mark worse."""
    verdict = judge_z(0.5 * tilted(400, 0.75))
    assert (verdict.status, verdict.finding) == ("bad", "bias")
    assert "is enough; 75.0 % of the true values lie above the predicted median" in verdict.text


def test_a_large_bias_is_not_hidden_by_slightly_narrow_intervals():
    """88 % covered is a reason to look closer; with 62 % of the true values on one side it is more than that."""
    verdict = judge(np.random.default_rng(0).normal(0.31, 1, 8_000), np.zeros(8_000), np.ones(8_000))
    assert 0.85 < verdict.coverage < 0.89
    assert (verdict.status, verdict.finding) == ("bad", "bias")
    assert "; they are too narrow and must be" in verdict.text
    assert "of the true values lie above the predicted median" in verdict.text


def test_bias_without_practical_importance():
    """Nine tenths of a point of 100,000 rows is more than noise, and no reason to look closer."""
    n = 100_000
    assert binom.sf(0.509 * n, n, 0.5) < 1e-6
    verdict = judge_z(tilted(n, 0.509))
    assert (verdict.status, verdict.finding) == ("good", "calibrated")
    assert "true values" not in verdict.text


def test_bias_of_few_rows():
    """Twenty rows on one side are named, but are not enough for a red mark."""
    verdict = judge_z(tilted(20, 1.0))
    assert (verdict.status, verdict.finding) == ("caution", "bias")
    assert "true values lie above" in verdict.text


def test_steps_are_no_bias():
    """Whole numbers around a median of 5.4, like wine quality: 5 is not below it, and 6 not above it, in full."""
    random = np.random.default_rng(0)
    mean = 5.4 + 0.05 * random.standard_normal(2_000)
    y = np.round(mean + 0.8 * random.standard_normal(2_000))
    assert abs(np.mean(y > mean) - 0.5) > 0.04  # the plain share would be an alarm
    assert share_of(y, mean) == pytest.approx(0.5, abs=0.02)
    assert share_of(y + 1, mean) > 0.8  # a true bias is still seen


def test_one_odd_value_does_not_change_the_steps():
    """A whole number with a rounding error among 2,000: the step stays 1, and so does the verdict."""
    random = np.random.default_rng(0)
    mean = 5.4 + 0.05 * random.standard_normal(2_000)
    y = np.round(mean + 0.8 * random.standard_normal(2_000))
    odd = y + np.where(np.arange(2_000) == 7, 1e-6, 0)
    assert share_of(odd, mean) == pytest.approx(share_of(y, mean), abs=1e-3)


def test_ties_are_said_to_count_in_part():
    """Half of all values 0, the others 1, and a median of 0.2: "70 % lie below" would not be what was counted."""
    y = np.resize([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0], 1_000)
    verdict = judge(y, np.full(1_000, 0.3), np.full(1_000, 0.46))
    assert "of the true values lie below the predicted median, counting ties in part, where 50 %" in verdict.text


def test_ties_count_half():
    """A true value that is the median itself is on neither side, with steps, without, and but for rounding."""
    assert share_of(np.zeros(3), np.zeros(3)) == 0.5
    assert share_of(np.full(3, 0.3), np.full(3, 0.1 + 0.2)) == pytest.approx(0.5, abs=1e-3)
    assert share_of(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 0.0])) == pytest.approx(2 / 3)
    assert share_of(np.array([1e308, -1e308]), np.zeros(2)) == 0.5


# One rule.


def test_weak_subgroups_take_the_green_mark():
    """The worst of them is named, unless all rows are too narrow."""
    evidence = Evidence.of(even(400), Prediction(np.zeros(400), np.ones(400)))
    assert judge_evidence(evidence).status == "good"
    outer = np.r_[:40, 360:400]  # half of them are outside
    both = [Subgroup("feature", "age", "= 3", outer), Subgroup("feature", "age", "= 2", np.r_[:39, 360:400])]
    verdict = judge_evidence(evidence, check_coverage(both, evidence.inside, 0.9))
    assert (verdict.status, verdict.finding) == ("caution", "subgroup")
    named = "; 90 % intervals are too narrow for rows with age = 2, where they cover 49.4 % of 79 rows"
    assert verdict.text.endswith(f"{named}, and for 1 other subgroup")
    assert judge_evidence(evidence, check_coverage(both[1:], evidence.inside, 0.9)).text.endswith(named)
    narrow = Evidence.of(even(400, 3.0), Prediction(np.zeros(400), np.ones(400)))
    assert "age" not in judge_evidence(narrow, check_coverage(both, narrow.inside, 0.9)).text


def test_evaluate_says_the_same():
    """The two rules that contradicted each other: y ~ N(0.35, 0.95) predicted as N(0, 1)."""
    y = np.random.default_rng(0).normal(0.35, 0.95, 1_000)
    verdict = judge(y, np.zeros(1_000), np.ones(1_000))
    assert verdict.status == "bad"
    assert evaluate(y, np.zeros(1_000), np.ones(1_000))["verdict"] == str(verdict)
    assert str(verdict).startswith("Not reliable: ")


def test_pooled_folds_are_judged_like_all_rows_together():
    """A comparison pools the held-out rows of its folds: the same rows give the same verdict."""
    for seed, scale in enumerate([1.0, 1.3, 0.7, 1.05]):
        y = np.random.default_rng(seed).normal(0.1 * seed, scale, 300)
        prediction = Prediction(np.linspace(-0.1, 0.1, 300), np.linspace(0.9, 1.1, 300))
        folds = [Evidence.of(y[rows], prediction.take(rows)) for rows in np.array_split(np.arange(300), 3)]
        assert judge_evidence(Evidence.pool(folds)).as_dict() == pytest.approx(judge(y, prediction).as_dict())


def test_a_weak_range_of_the_prediction_takes_the_green_mark():
    """A constant sigma for noise that grows: 90 % are covered overall, but far fewer where the noise is large."""
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, 4_000)
    y = x + (0.3 + 1.25 * x) * random.standard_normal(4_000)
    sigma = np.quantile(np.abs(y - x), 0.9) / 1.6448536
    verdict = judge(y, x, np.full(4_000, sigma))
    assert verdict.coverage == pytest.approx(0.9, abs=0.001)
    assert verdict.status == "caution"
    assert "90 % intervals are too narrow for rows with predicted value 0.799 to 1" in verdict.text


def test_verdict_is_json():
    verdict = judge_z(even(200)).as_dict()
    assert json.loads(json.dumps(verdict, allow_nan=False)) == verdict
    assert verdict["label"] in LABELS.values()


def test_confidence_interval_is_the_exact_one():
    """Clopper and Pearson's, by scipy."""
    verdict = judge_z(even(150, 1.2))
    expected = stats.binomtest(round(150 * verdict.coverage), 150).proportion_ci(0.95, method="exact")
    assert (verdict.coverage_low, verdict.coverage_high) == pytest.approx((expected.low, expected.high))


# How often it is wrong. The probabilities of every outcome are in docs/metrics.md.


@pytest.mark.parametrize("n", [200, 400])
def test_false_positive_rate(n):
    """A calibrated model is denied the green mark by four tests of at most 5 % each, so in at most 20 % of samples.

    300 samples; the bound is exceeded by chance once in 100,000 runs. A red mark takes a large gap (below 1.5 %).
    """
    generator = np.random.default_rng(n)
    statuses = [judge_z(generator.normal(size=n)).status for _ in range(300)]
    assert sum(status != "good" for status in statuses) <= binom.isf(1e-5, 300, 0.2)
    assert statuses.count("bad") <= binom.isf(1e-5, 300, 0.015)


@pytest.mark.parametrize("n", [30, 60, 120, 400])
def test_no_green_mark_for_intervals_far_too_narrow(n):
    """Sigma 30 % too small, a true coverage of 79 %: green in at most a tenth of samples, whatever the number of rows.

    300 samples; exceeded by chance once in 100,000 runs at the bound itself, and the true rate is far below it.
    """
    generator = np.random.default_rng(n)
    green = sum(judge_z(generator.normal(0, 1.3, n)).status == "good" for _ in range(300))
    assert green <= binom.isf(1e-5, 300, 0.1)


def grouped_z(rng, correlation=0.5, groups=40, size=10, factor=1.0):
    codes = np.repeat(np.arange(groups), size)
    shared, own = rng.normal(size=groups)[codes], rng.normal(size=groups * size)
    return codes, factor * (np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own)


def test_groups_are_taken_into_account():
    """40 groups of 10 whose errors have a correlation of 0.5: about half of all calibrated models were denied green.

    Given the groups, about 12 % are called "Look closer" or "Not reliable" (`benchmarks/verdict/run.py`); more than 16
    of 60 have a probability below 0.001.
    """
    rng = np.random.default_rng(0)
    told, alone = [], []
    for _ in range(60):
        codes, z = grouped_z(rng)
        told.append(judge_z(z, groups=codes).status)
        alone.append(judge_z(z).status)
    assert sum(status in ("caution", "bad") for status in told) <= 16
    assert sum(status in ("caution", "bad") for status in alone) >= 21


def test_narrow_intervals_are_detected_in_groups():
    rng = np.random.default_rng(1)
    found = [judge_z(z, groups=codes).status for codes, z in (grouped_z(rng, factor=1.3) for _ in range(20))]
    assert found.count("good") == 0
    assert found.count("bad") >= 15


def test_sentence_names_the_groups():
    codes, z = grouped_z(np.random.default_rng(2), correlation=0.2)
    verdict = judge_z(z, groups=[f"patient {code}" for code in codes])
    assert "of 400 rows in 40 groups (95 %" in verdict.text
    assert verdict.groups == 40
    assert verdict.effective_rows < verdict.rows == 400
    alone = judge_z(z)
    assert (alone.groups, alone.effective_rows) == (None, 400)
    assert verdict.coverage_low < alone.coverage_low < alone.coverage_high < verdict.coverage_high


def test_few_groups_are_not_enough_for_a_green_mark():
    """400 rows, but of 4 patients only."""
    codes, z = grouped_z(np.random.default_rng(3), correlation=0.3, groups=4, size=100)
    verdict = judge_z(z, groups=codes)
    assert verdict.finding == "few"
    assert "could look the same on so few groups, whose rows count as" in verdict.text
    assert verdict.text.endswith("evaluate the model on more groups")


def test_a_group_for_every_row_changes_nothing():
    z = even(400)
    assert judge_z(z, groups=np.arange(400)) == judge_z(z)


def test_groups_of_folds_are_pooled():
    rng = np.random.default_rng(4)
    codes, z = grouped_z(rng)
    whole = Evidence.of(z, Prediction(np.zeros(400), np.ones(400)), codes)
    halves = [Evidence.of(part, Prediction(np.zeros(200), np.ones(200)), codes[:200]) for part in (z[:200], z[200:])]
    assert judge_evidence(Evidence.pool(halves)) == judge_evidence(whole)


def test_only_what_a_table_of_quantiles_has_is_judged():
    """Exact 90 % intervals of a skewed distribution are reliable, whatever lies between their ends.

    (The seed is fixed; a new one would fail in at most 15 % of samples, the false-positive rate of the verdict.) With
    the median or the ends of other intervals among the quantiles, these are judged.
    """
    rng = np.random.default_rng(0)
    scale = rng.uniform(1, 3, 1000)
    y = scale * rng.lognormal(0, 1, 1000)

    def table(levels, factor=1.0):
        return TabulatedPrediction(levels, factor * scale[:, None] * np.exp(ndtri(levels)))

    assert judge(y, table([0.05, 0.95])).status == "good"
    assert judge(y, table([0.05, 0.95])).share_above == 0.5
    assert judge(y, table([0.05, 0.25, 0.5, 0.75, 0.95])).status == "good"
    wrong = table([0.05, 0.5, 0.95])
    wrong.quantiles[:, 1] *= 2
    assert judge(y, wrong).finding == "bias"
    wrong = table([0.05, 0.25, 0.75, 0.95])
    wrong.quantiles[:, 1:3] = wrong.quantiles[:, 1:3].mean(axis=1, keepdims=True) * [0.9, 1.1]
    assert judge(y, wrong).finding == "shape"
    assert "50 % intervals" in judge(y, wrong).text
    dense = np.arange(1, 100) / 100
    assert judge(y, TabulatedPrediction(dense, np.tile(np.quantile(y, dense), (1000, 1)) * 2)).status == "bad"


def test_intervals_of_other_levels_are_judged_at_their_level():
    """The verdict is about the given level nearest to 90 %, not about intervals that are interpolated."""
    y = even(400)

    def table(*levels, factor=1.0):
        q = sorted({*((1 - np.array(levels)) / 2), *((1 + np.array(levels)) / 2)})
        return TabulatedPrediction(q, np.tile(factor * ndtri(q), (400, 1)))

    for levels, expected in (([0.8], 0.8), ([0.5, 0.8, 0.99], 0.99), ([0.5, 0.9], 0.9), ([0.6827], 0.6827)):
        verdict = judge(y, table(*levels))
        assert (verdict.status, verdict.level) == ("good", pytest.approx(expected))
        assert verdict.coverage == pytest.approx(expected, abs=0.004)
    assert judge(y, table(0.6827)).text.startswith("68.3 % intervals cover 68.")
    narrow = judge(y, table(0.8, factor=0.7))
    assert (narrow.status, narrow.finding) == ("bad", "narrow")
    assert narrow.width_factor == pytest.approx(1 / 0.7, rel=0.02)
    few = judge(even(100), TabulatedPrediction([0.1, 0.9], np.tile(ndtri([0.1, 0.9]), (100, 1))))
    assert "a coverage of 70 % could look the same" in few.text
    assert f"on {rows_needed(0.8)} rows or more" in few.text
    assert judge(y, TabulatedPrediction([0.05, 0.9], np.tile(ndtri([0.05, 0.9]), (400, 1)))).level == 0.9

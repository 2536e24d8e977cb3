"""Tests of the coverage in subgroups: right ranges, exact p-values, and no subgroup named by chance."""

import numpy as np
from scipy.stats import binomtest

from hetcal.metrics.subgroups import (
    Subgroup,
    check_coverage,
    holm,
    is_testable,
    split_by_prediction,
    split_by_value,
)

RNG = np.random.default_rng(5)


def subgroups_of(*rows, kind="feature"):
    return [Subgroup(kind, "x", f"= {i}", numbers) for i, numbers in enumerate(rows)]


def test_holm_by_its_definition():
    """p_(i) counts if every smaller one times the number of those left is small: the textbook's loop."""
    p = RNG.random(50) ** 3
    expected = np.empty(50)
    largest = 0.0
    for rank, i in enumerate(np.argsort(p)):
        largest = max(largest, (50 - rank) * p[i])
        expected[i] = min(1.0, largest)
    np.testing.assert_allclose(holm(p), expected)


def test_p_values_are_the_exact_binomial_ones():
    inside = RNG.random(200) < 0.8
    subgroups = [np.arange(0, 60), np.arange(60, 200)]
    tests = check_coverage(subgroups_of(*subgroups), inside, 0.9)
    for i, rows in enumerate(subgroups):
        hits = int(inside[rows].sum())
        tails = [binomtest(hits, len(rows), 0.9, alternative=side).pvalue for side in ("less", "greater")]
        np.testing.assert_allclose(tests.p[i], min(1, 2 * min(tails)))
        np.testing.assert_allclose(tests.coverage[i], hits / len(rows))


def test_weak_is_significantly_and_far_too_narrow():
    """50 of 100 rows inside are weak; all rows inside stand out, but are not weak; 90 % do neither."""
    inside = np.r_[np.arange(100) < 50, np.ones(100, dtype=bool), np.arange(100) < 90]
    tests = check_coverage(subgroups_of(*np.split(np.arange(300), 3)), inside, 0.9)
    assert tests.is_weak.tolist() == [True, False, False]
    assert tests.stands_out.tolist() == [True, True, False]


def test_ranges_have_equal_counts_and_hold_every_row():
    values = RNG.permutation(500).astype(float)
    parts = split_by_value(values)
    assert [len(part) for part in parts] == [100] * 5
    assert sorted(np.concatenate(parts)) == list(range(500))
    assert [len(part) for part in split_by_value(np.array([1.0, 2.0, 2.0] * 40))] == [40, 80]
    assert split_by_value(np.full(100, 3.0)) == []


def test_small_subgroups_and_all_rows_are_not_tested():
    assert [is_testable(np.arange(n), rows=100) for n in (29, 30, 99, 100)] == [False, True, True, False]


def test_columns_do_not_make_the_test_of_the_prediction_more_lenient():
    """Subgroups by the prediction and those by columns are corrected by themselves, each by Holm."""
    inside = np.arange(300) % 10 > 0
    rows = np.split(np.arange(300), 3)
    inside[rows[0]] = np.arange(100) < 78
    predicted, others = subgroups_of(*rows, kind="prediction"), subgroups_of(*rows * 30)
    alone, together = check_coverage(predicted, inside, 0.9), check_coverage([*predicted, *others], inside, 0.9)
    np.testing.assert_array_equal(together.p_corrected[:3], alone.p_corrected)
    np.testing.assert_array_equal(together.p_corrected[3:], holm(together.p[3:]))
    assert alone.stands_out[0]
    assert not together.stands_out[3:].any()


def test_the_worst_comes_first():
    """Too narrow, the lowest coverage first; then too wide; then the others by their p-value."""
    shares = [1.0, 0.6, 0.9, 0.4, 0.88]
    inside = np.concatenate([np.arange(500) < 500 * share for share in shares])
    tests = check_coverage(subgroups_of(*np.split(np.arange(2500), 5)), inside, 0.9)
    assert tests.order.tolist() == [3, 1, 0, 4, 2]
    assert str(tests.subgroups[tests.order[0]]) == "x = 3"


def test_the_same_rows_are_tested_once():
    """Where wide intervals are those of large values, only ranges of the predicted value are left."""
    median = RNG.random(500)
    assert [one.name for one in split_by_prediction(median, 1 + median)] == ["predicted value"] * 5
    assert [one.name for one in split_by_prediction(median, 1 - median)] == ["predicted value"] * 5
    assert len(split_by_prediction(median, RNG.random(500))) == 10
    halves = split_by_prediction(np.repeat([1.0, 2.0], 250), np.where(np.arange(500) < 190, 1.0, 2.0))
    assert [str(one) for one in halves] == ["predicted value = 1", "predicted value = 2", "interval width = 1"]

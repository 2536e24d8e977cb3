"""Tests of the coverage in subgroups: right ranges, exact p-values, and no subgroup named by chance."""

import numpy as np
from scipy.stats import binomtest

from hetcal.metrics.subgroups import check_coverage, holm, large_enough, split_by_value

RNG = np.random.default_rng(5)


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
    tests = check_coverage(subgroups, inside, 0.9)
    for i, rows in enumerate(subgroups):
        hits = int(inside[rows].sum())
        tails = [binomtest(hits, len(rows), 0.9, alternative=side).pvalue for side in ("less", "greater")]
        np.testing.assert_allclose(tests.p[i], min(1, 2 * min(tails)))
        np.testing.assert_allclose(tests.coverage[i], hits / len(rows))


def test_weak_is_significantly_and_far_too_narrow():
    """50 of 100 rows inside are weak; all rows inside stand out, but are not weak; 90 % do neither."""
    inside = np.r_[np.arange(100) < 50, np.ones(100, dtype=bool), np.arange(100) < 90]
    tests = check_coverage([np.arange(100), np.arange(100, 200), np.arange(200, 300)], inside, 0.9)
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
    kept = large_enough([np.arange(29), np.arange(30), np.arange(100)], rows=100)
    assert [len(rows) for rows in kept] == [30]

"""Rows in groups count as fewer independent rows, by the correlation within groups and the number of groups."""

import numpy as np
import pytest

from hetcal.metrics.grouping import Grouping


def draw(groups, size, correlation, seed=0):
    """Codes, and one value per row with this correlation within groups."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(groups), size)
    shared, own = rng.normal(size=groups)[codes], rng.normal(size=groups * size)
    return Grouping(codes), np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_correlation_is_recovered(correlation):
    """2,000 groups of 5: the standard error is below 0.012, so that 0.05 fails by chance less than once in 10,000."""
    grouping, values = draw(2000, 5, correlation)
    assert grouping.correlation(values) == pytest.approx(correlation, abs=0.05)


def test_correlation_of_unequal_groups_by_another_route():
    """The mean product of the residuals of all pairs of a group, relative to their variance."""
    codes = np.repeat(np.arange(300), np.random.default_rng(1).integers(1, 9, 300))
    values = np.random.default_rng(2).normal(size=300)[codes] + np.random.default_rng(3).normal(size=len(codes))
    residuals = values - values.mean()
    products = [
        residuals[i] * residuals[j]
        for group in range(300)
        for i in np.flatnonzero(codes == group)
        for j in np.flatnonzero(codes == group)
        if i != j
    ]
    assert Grouping(codes).correlation(values) == pytest.approx(np.mean(products) / residuals.var(), abs=0.02)


def test_several_columns_are_averaged():
    grouping, values = draw(50, 4, 0.5)
    others = np.random.default_rng(5).normal(size=200)
    each = [grouping.correlation(column) for column in (values, others)]
    assert min(each) >= 0
    both = grouping.correlation(np.column_stack([values, values]))
    assert both == pytest.approx(each[0])
    assert min(each) <= grouping.correlation(np.column_stack([values, others])) <= max(each)


def test_effective_rows():
    """400 rows in 40 groups of 10: one per group if they are copies, nearly all of them if they are independent."""
    grouping = Grouping(np.repeat(np.arange(40), 10))
    assert grouping.effective_rows(1.0) == int(40 * grouping.certainty)
    assert grouping.effective_rows(0.0) == int(400 * grouping.certainty)
    assert 0.9 < grouping.certainty < 1
    assert grouping.effective_rows(0.5) == int(400 / 5.5 * grouping.certainty)
    one_group = np.arange(10)
    assert grouping.effective_rows(1.0, one_group) == 1
    assert grouping.effective_rows(0.0, one_group) == 9


def test_few_groups_know_little():
    """A single group cannot tell how much groups differ; one large group among small ones counts like that."""
    assert Grouping(np.zeros(100, dtype=int)).effective_rows(0.0) == 1
    assert Grouping(np.append(np.zeros(1000, dtype=int), np.arange(1, 21))).effective_rows(0.0) == 1
    five, fifty = (Grouping(np.repeat(np.arange(n), 500 // n)).effective_rows(0.0) for n in (5, 50))
    assert five < 300 < fifty


def test_constant_values_have_no_correlation():
    assert Grouping(np.array([0, 0, 1, 1])).correlation(np.ones(4)) == 0


def test_labels():
    """Any labels; a label of its own for every row is no grouping."""
    assert Grouping.of(["b", "a", "b", 7], 4).codes.tolist() == [0, 1, 0, 2]
    assert Grouping.of(["a", "b", "c"], 3) is None
    assert Grouping.of(None, 3) is None
    with pytest.raises(ValueError, match=r"groups must have one label per row of y \(3\), got groups='2 labels'"):
        Grouping.of(["a", "b"], 3)


def test_join_keeps_the_groups_of_parts_apart():
    joined = Grouping.join([Grouping(np.array([0, 0, 1])), None, Grouping(np.array([0, 0]))], [3, 2, 2])
    assert joined.codes.tolist() == [0, 0, 1, 2, 3, 4, 4]
    assert Grouping.join([None, None], [3, 2]) is None

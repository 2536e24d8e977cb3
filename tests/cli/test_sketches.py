"""Training rows are counted in other tables, by the hashes of a few of them."""

import numpy as np
import pytest

from hetcal.cli.columns import Observations
from hetcal.cli.sketches import SKETCH_SIZE, estimate_training_rows, hash_rows, sketch_of
from hetcal.model_files.schema import MOST_HASHES
from hetcal.tabular.columns import MISSING_LABEL, Table


def make_rows(n, seed=0):
    random = np.random.default_rng(seed)
    towns = random.choice(np.array(["Aix", "Bonn", MISSING_LABEL], dtype=object), n)
    days = np.datetime64("2024-01-01", "us") + random.integers(0, 9, n).astype("timedelta64[D]")
    numbers = np.where(random.random(n) < 0.1, np.nan, random.normal(size=n))
    return Observations(Table({"a": numbers, "town": towns, "day": days}), random.normal(size=n))


def test_a_hash_is_that_of_the_row():
    """It depends on every value and on its column, but not on other rows or on the order of the columns."""
    rows = make_rows(100)
    hashes = hash_rows(rows)
    assert len(np.unique(hashes)) == 100
    some = np.array([7, 3, 50])
    np.testing.assert_array_equal(hash_rows(rows.take(some)), hashes[some])
    turned = Table(dict(reversed(rows.X.columns.items())))
    np.testing.assert_array_equal(hash_rows(Observations(turned, rows.y)), hashes)
    zeros = [Observations(Table({"a": np.full(3, zero)}), np.zeros(3)) for zero in (0.0, -0.0)]
    np.testing.assert_array_equal(*map(hash_rows, zeros))
    for name, values in rows.X.columns.items():
        changed = Table({**rows.X.columns, name: np.roll(values, 1)})
        same = [a == b or a is b or (a != a and b != b) for a, b in zip(values, np.roll(values, 1), strict=True)]
        np.testing.assert_array_equal(hash_rows(Observations(changed, rows.y)) == hashes, same)
    swapped = [Observations(Table({"a": np.array([x]), "b": np.array([3.0 - x])}), np.zeros(1)) for x in (1.0, 2.0)]
    assert hash_rows(swapped[0]) != hash_rows(swapped[1])


def test_few_rows_are_counted_exactly():
    rows = make_rows(50)
    assert estimate_training_rows(rows.take(np.array([1, 2, 2])), sketch_of(rows), 50) == 3
    assert estimate_training_rows(make_rows(50, seed=1), sketch_of(rows), 50) == 0


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_many_rows_are_estimated(share):
    """Within four standard errors of 64 draws (the seed is fixed; another one fails in 1 of 16,000 cases)."""
    rows = make_rows(5000)
    sketch = sketch_of(rows)
    assert len(sketch) == SKETCH_SIZE == MOST_HASHES
    part = rows.take(np.arange(int(5000 * share)))
    error = 4 * 5000 * np.sqrt(share * (1 - share) / SKETCH_SIZE)
    assert abs(estimate_training_rows(part, sketch, 5000) - 5000 * share) <= error

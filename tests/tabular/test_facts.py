"""What is said about columns and target is what the encoder does, and what the numbers are."""

import numpy as np
import pandas as pd
import pytest

from hetcal.tabular.facts import find_step
from hetcal.tabular.inspection import inspect

RANDOM = np.random.default_rng(0)
N = 200
X = pd.DataFrame({"a": RANDOM.normal(size=N), "town": RANDOM.choice(["Aix", "Bonn", "Cork"], N)})
Y = RANDOM.normal(size=N)


def test_the_target():
    """Bounds, steps, skewness, and the share of the most frequent value."""
    y = np.repeat([10.0, 20.0, 50.0], [120, 60, 20])
    target = inspect(X, y, target="watt").target
    assert (target.low, target.high, target.step, target.different) == (10, 50, 10, 3)
    assert (target.commonest, target.commonest_share, target.share_low, target.share_high) == (10, 0.6, 0.6, 0.1)
    z = (y - y.mean()) / y.std()
    assert target.skewness == pytest.approx(np.mean(z**3))
    assert target.text == (
        "watt: from 10 to 50 in steps of 10, skewness 2.0, 3 different values; "
        "60.0 % of the rows have 10, the most frequent one"
    )


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([1, 2, 3], 1),
        ([0.1, 0.2, 0.3, 0.7], 0.1),
        ([0, 1, 2.5], None),
        ([0, 1e-9, 1, 2], None),
        ([-1e300, 1e300], 2e300),
    ],
)
def test_steps(values, step):
    found = find_step(np.array(values, dtype=float))
    assert found is None if step is None else found == pytest.approx(step)


def test_columns_and_their_use():
    frame = X.assign(
        b=np.where(np.arange(N) < 20, np.nan, X["a"] ** 2),
        word=[f"w{i // 3}" for i in range(N)],
        day=pd.date_range("2024-01-01", periods=N),
        same=1,
    )
    columns = {column.name: column for column in inspect(frame, Y).columns}
    assert [column.kind for column in columns.values()] == ["numbers", "text", "numbers", "text", "dates", "numbers"]
    assert columns["a"].use == "standardized number"
    assert columns["b"].use == "standardized number, and a mark where it is missing"
    assert (columns["b"].missing, columns["b"].different) == (0.1, 180)
    assert columns["town"].use == "text, one feature for each of 3 labels"
    assert columns["word"].use == "text, one feature for each of 49 labels, and one for all rare labels"
    assert columns["day"].use.startswith("date, as days since 1970")
    assert columns["same"].use == "ignored, because it is constant"

"""One voice for all error messages."""

import numpy as np
import pytest

from hetcal._checks import check_choice, check_levels, check_number, check_vector, must


def test_form():
    """`<name> must <rule>, got <name>=<value>; <what to do>`, and never a page of numbers."""
    error = must("level", "be between 0 and 1", 95, "give a fraction such as 0.95")
    assert str(error) == "level must be between 0 and 1, got level=95; give a fraction such as 0.95"
    assert len(str(must("x", "be small", list(range(1000)), "shorten it"))) < 200


@pytest.mark.parametrize(
    ("given", "nearest"), [("dropout-hc", "dropout_hc"), ("Dropout-HC", "dropout_hc"), ("quantil-hc", "quantile_hc")]
)
def test_nearest_suggestion(given, nearest):
    with pytest.raises(ValueError, match=f"did you mean '{nearest}'"):
        check_choice("method", given, ["dropout_hc", "quantile_hc", "hnn"])


def test_no_suggestion_where_nothing_is_near():
    with pytest.raises(ValueError, match="choose one of these"):
        check_choice("method", "xgboost", ["dropout_hc", "hnn"])


@pytest.mark.parametrize("value", [True, np.True_, "3", None, [3]])
def test_numbers_are_numbers(value):
    """Booleans and text are no numbers, although Python adds them."""
    with pytest.raises(TypeError, match="n must be a finite number"):
        check_number("n", value)


def test_numbers_of_every_kind():
    for value in (3, 3.0, np.float32(3), np.int64(3)):
        assert check_number("n", value, 1, 5) == 3
    assert check_number("n", np.int64(3), integer=True) == 3


def test_levels():
    assert check_levels("level", 0.5).shape == ()
    assert check_levels("level", [0.5, 0.9]).shape == (2,)
    with pytest.raises(ValueError, match="flat list"):
        check_levels("level", [[0.5]])


def test_vectors():
    """Objects that are numbers pass; the first bad row is named."""
    assert check_vector("y", np.array([1, 2.5], dtype=object)).dtype == np.float64
    with pytest.raises(
        ValueError, match=r"y must be finite, got y=nan; remove or repair the 2 such value\(s\), the first in row 1"
    ):
        check_vector("y", [0.0, np.nan, np.inf])
    with pytest.raises(TypeError, match="y must hold real numbers"):
        check_vector("y", ["a"])
    with pytest.raises(ValueError, match=r"y must be one-dimensional.*values.ravel\(\)"):
        check_vector("y", [[1.0], [2.0]])

"""Numbers are written to be read in any unit."""

import numpy as np
import pytest

from hetcal.metrics.wording import format_for, number, percent, range_labels


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.996, "10.0"),
        (0.09996, "0.100"),
        (99.96, "100"),
        (412, "412"),
        (123456.7, "123,457"),
        (-3.14159, "\N{MINUS SIGN}3.14"),
        (1e12, "1.00 \N{MULTIPLICATION SIGN} 10¹²"),
        (5e-324, "4.94 \N{MULTIPLICATION SIGN} 10⁻³²⁴"),
        (1e308, "1.00 \N{MULTIPLICATION SIGN} 10³⁰⁸"),
    ],
)
def test_number(value, text):
    """Rounding that adds a digit, thousands, signs and the ends of the range of floats."""
    assert number(value) == text


@pytest.mark.parametrize("unit", [1e-300, 1e-12, 1.0, 1e6, 1e12, 1e300])
def test_axis_labels_in_any_unit(unit):
    """Ticks one apart are told apart whatever the unit, and the unit says what to multiply them by."""
    ticks = [i * unit for i in range(5)]
    form = format_for(ticks, unit)
    labels = [form(tick) for tick in ticks]
    assert len(set(labels)) == 5
    assert max(map(len, labels)) <= 9
    power = 10.0 ** (form.exponent // 2) * 10.0 ** (form.exponent - form.exponent // 2)
    np.testing.assert_allclose([float(text.replace(",", "")) * power for text in labels], ticks, rtol=1e-9)


def test_offset_keeps_its_differences():
    """Values near 1e9 that differ by 1 are not all written as 10⁹."""
    form = format_for([1e9, 1e9 + 4], 1.0)
    assert form(1e9 + 1) != form(1e9)


def test_no_negative_zero():
    assert format_for([1.0], 0.1)(-0.001) == "0.0"


def test_percent_rounds_to_the_ends_only_if_exact():
    """99.99 % is not all, and 0.001 % is not none."""
    assert [percent(share) for share in (0.0, 1e-5, 0.5, 1 - 1e-5, 1.0)] == [
        "0.0 %",
        "0.1 %",
        "50.0 %",
        "99.9 %",
        "100.0 %",
    ]


def test_ranges_show_what_differs():
    """A range never looks like a single value, and two ranges never begin alike."""
    assert range_labels([1.0, 2.0], [1.0, 2.0]) == ["= 1", "= 2"]
    low, high = 1.0, 1.0 + 1e-9
    (label,) = range_labels([low], [high])
    assert label == "1 to 1.000000001"

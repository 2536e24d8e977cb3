"""The format of numbers, shares, counts and p-values in tables, reports and messages.

Numbers come in any unit, from 1e-300 to 1e300.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"


SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


# Orders of magnitude that are written out; others are written with a power of ten.
LEAST, MOST = 1e-4, 1e9


@dataclass(frozen=True)
class NumberFormat:
    """Format of the numbers of an axis or a column: divided by 10 ** exponent, with the same number of decimals."""

    exponent: int
    decimals: int

    def __call__(self, value: float | None) -> str:
        if value is None:
            return DASH
        text = f"{scale_by(value, -self.exponent):,.{self.decimals}f}"
        return text.replace("-", MINUS) if float(text.replace(",", "")) else text.replace("-", "")

    @property
    def unit(self) -> str:
        """The factor to write at the axis or above the column; empty if the numbers are not scaled."""
        return f"\N{MULTIPLICATION SIGN} {power_of_ten(self.exponent)}" if self.exponent else ""


def format_for(values: Iterable[float | None], resolution: float | None = None) -> NumberFormat:
    """Choose a format that shows differences of `resolution`, or by default three digits of the largest number.

    >>> shown = format_for([0.0, 1.5e12], resolution=5e11)
    >>> shown.unit, shown(1.5e12)
    ('× 10¹²', '1.5')
    """
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    if largest == 0:
        return NumberFormat(0, 0)
    resolution = resolution or 10.0 ** (order(largest) - 2)
    exponent = 0 if 1e-3 <= largest < 1e7 else 3 * math.floor(order(largest) / 3)
    decimals = exponent - order(resolution * (1 + 1e-9))
    return NumberFormat(exponent, min(max(decimals, 0), max(14 - (order(largest) - exponent), 0)))


def order(value: float) -> int:
    """The power of ten that a positive number begins with: 2 for 345."""
    return int(f"{value:e}".partition("e")[2])


def scale_by(value: float, exponent: int) -> float:
    """value * 10 ** exponent, in two steps, because the power alone may exceed the range of floats."""
    half = exponent // 2
    return value * 10.0**half * 10.0 ** (exponent - half)


def power_of_ten(exponent: int) -> str:
    return "10" + str(exponent).translate(SUPERSCRIPTS)


def number(value: float | None, digits: int = 3) -> str:
    """Format a single number with a few significant digits; the whole part is always written in full.

    >>> number(3.14159), number(1234567.0), number(0.0), number(-2.5e-12), number(None)
    ('3.14', '1,234,567', '0', '−2.50 × 10⁻¹²', '–')
    """
    if value is None:
        return DASH
    if value == 0:
        return "0"
    size = order(float(f"{abs(value):.{digits - 1}e}"))  # 9.996 is written 10.0
    if LEAST <= abs(value) < MOST:
        whole = value == round(value) and size >= digits - 1
        return f"{value:,.{0 if whole else max(digits - 1 - size, 0)}f}".replace("-", MINUS)
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa} \N{MULTIPLICATION SIGN} {power_of_ten(int(exponent))}".replace("-", MINUS)


def label(value: float, digits: int = 3) -> str:
    """Like `number`, without trailing zeros: for values of a column, where 3 is not a measured 3.00.

    >>> label(3.0), label(0.250), label(2.5e12)
    ('3', '0.25', '2.5 × 10¹²')
    """
    mantissa, cross, power = number(value, digits).partition(" \N{MULTIPLICATION SIGN}")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + cross + power


def range_labels(lows: Sequence[float], highs: Sequence[float]) -> list[str]:
    """Format ranges with enough digits, at least three, to distinguish each start from the next and from its end.

    >>> range_labels([1.0, 1.00012, 2.0], [1.00011, 1.9, 2.0])
    ['1 to 1.0001', '1.0001 to 1.9', '= 2']
    """
    starts: list[str] = []
    ends: list[str] = []
    for digits in range(3, 18):
        starts, ends = ([label(value, digits) for value in values] for values in (lows, highs))
        alike = [a == b for a, b in zip(starts, ends, strict=True)]
        if len(set(starts)) == len(set(lows)) and alike == [a == b for a, b in zip(lows, highs, strict=True)]:
            break
    return join_ranges(starts, ends)


def join_ranges(starts: Sequence[str], ends: Sequence[str]) -> list[str]:
    return [f"= {start}" if start == end else f"{start} to {end}" for start, end in zip(starts, ends, strict=True)]


def percent(share: float | None, decimals: int = 1) -> str:
    """Format a share in percent; 100 and 0 appear only if the share is exactly 1 or 0.

    >>> percent(0.894), percent(0.99996), percent(1.0), percent(0.9, 0)
    ('89.4 %', '99.9 %', '100.0 %', '90 %')
    """
    if share is None:
        return DASH
    step = 10.0**-decimals
    shown = round(100 * share, decimals)
    if 0 < share < 1:
        shown = min(max(shown, step), 100 - step)
    return f"{shown:.{decimals}f} %"


def nominal(level: float) -> str:
    """Format the level of an interval, with a decimal only if it has one.

    >>> nominal(0.9), nominal(0.6827)
    ('90 %', '68.3 %')
    """
    return percent(level, 0 if round(100 * level, 6) % 1 == 0 else 1)


def probability(p: float) -> str:
    """Format a p-value.

    >>> probability(0.0312), probability(1e-9), probability(1.0)
    ('0.031', '< 0.001', '1')
    """
    if p < 0.001:
        return "< 0.001"
    return "1" if p > 0.9995 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def count(n: int, noun: str) -> str:
    """Format a count with its noun.

    >>> count(1, "row"), count(1500, "row")
    ('1 row', '1,500 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def fixed(value: float, like: float | None = None) -> str:
    """Format with three digits for a column: 0.317, 3.43, 75.7; an error bar has the decimals of its mean (`like`).

    >>> fixed(3.4321), fixed(0.0512, like=3.4321)
    ('3.43', '0.05')
    """
    size = abs(value if like is None else like)
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"

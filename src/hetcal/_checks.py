"""Argument checks with one form of error message: `<name> must <rule>, got <name>=<value>; <what to do>`.

Every message names the argument, shows its value and states what to do.
"""

import difflib
import math
from collections.abc import Iterable
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def printable(text: str) -> str:
    """Replace the characters of a text that are unsafe on one line of a terminal: escape sequences, line breaks."""
    return "".join(character if character.isprintable() else "?" for character in text)


def reads_as_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))  # "nan" and "inf" may be labels
    except ValueError:
        return False


def must(name: str, rule: str, value: Any, advice: str, error: type[Exception] = ValueError) -> Exception:
    """Build the exception `<name> must <rule>, got <name>=<value>; <advice>`.

    >>> must("level", "be between 0 and 1", 95, "give a fraction such as 0.95")
    ValueError('level must be between 0 and 1, got level=95; give a fraction such as 0.95')
    """
    shown = repr(value)
    if len(shown) > 120:
        shown = shown[:117] + "..."
    return error(f"{name} must {rule}, got {name}={shown}; {advice}")


def underscored(name: str) -> str:
    """Write the name of a method with underscores; users may write hyphens, as in the paper's "Dropout-HC".

    >>> underscored("dropout-hc")
    'dropout_hc'
    """
    return str(name).replace("-", "_")


def check_choice(name: str, value: Any, known: Iterable[str]) -> str:
    """Return `value` if it is one of the known names; otherwise list them and suggest the nearest."""
    names = sorted(known)
    if value in names:
        return str(value)
    near = difflib.get_close_matches(str(value).lower().replace("-", "_"), [n.replace("-", "_") for n in names], n=1)
    nearest = next((n for n in names if near and n.replace("-", "_") == near[0]), None)
    advice = f"did you mean {nearest!r}?" if nearest else "choose one of these"
    raise must(name, f"be one of {names}", value, advice)


def check_number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
    integer: bool = False,
) -> Any:
    """Return `value` if it is a finite number (an integer if requested) in the range, ends included unless open."""
    kind = Integral if integer else Real
    is_number = isinstance(value, kind) and not isinstance(value, bool | np.bool_)
    if not is_number or not math.isfinite(value):
        noun = "a whole number" if integer else "a finite number"
        raise must(name, f"be {noun}", value, f"give {noun}", TypeError if not is_number else ValueError)
    too_low = value <= low if open_low else value < low
    too_high = value >= high if open_high else value > high
    if too_low or too_high:
        parts = []
        if low > -math.inf:
            parts.append(f"{'greater than' if open_low else 'at least'} {low:g}")
        if high < math.inf:
            parts.append(f"{'less than' if open_high else 'at most'} {high:g}")
        raise must(name, "be " + " and ".join(parts), value, "choose a value in that range")
    return value


def check_levels(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return one or more probabilities as a float array; each must lie strictly between 0 and 1."""
    try:
        levels = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise must(
            name, "be a number or a list of numbers", values, "give a fraction such as 0.95", TypeError
        ) from None
    if levels.ndim > 1:
        raise must(name, "be a number or a flat list of numbers", values, "give a list such as [0.5, 0.9]")
    if levels.size == 0:
        raise must(name, "hold at least one number", values, "give a fraction such as 0.95")
    wrong = levels[~((levels > 0) & (levels < 1))]
    if wrong.size:
        raise must(name, "be between 0 and 1", float(wrong.flat[0]), "give a fraction such as 0.95")
    return levels


def check_vector(name: str, values: ArrayLike, *, positive: bool = False) -> NDArray[np.float64]:
    """Return a non-empty, finite, one-dimensional float64 array (strictly positive if requested), or raise."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        try:
            if array.dtype.kind != "O" or not all(isinstance(value, Real | Decimal) for value in array.flat):
                raise TypeError
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise must(name, "hold real numbers", array.dtype.name, "convert it to numbers first", TypeError) from None
    if array.ndim != 1:
        advice = "use its column, for example values.ravel()" if array.size else "give one value per row"
        raise must(name, "be one-dimensional", f"array of shape {array.shape}", advice)
    if array.size == 0:
        raise must(name, "have at least one value", [], "give one value per row")
    array = array.astype(np.float64, copy=False)
    finite = np.isfinite(array)
    if not finite.all():
        row = int(np.argmin(finite))
        count = int(array.size - finite.sum())
        raise must(
            name, "be finite", float(array[row]), f"remove or repair the {count} such value(s), the first in row {row}"
        )
    if positive and not (array > 0).all():
        row = int(np.argmin(array > 0))
        raise must(name, "be greater than 0", float(array[row]), f"a standard deviation is positive; see row {row}")
    return array


def check_triple(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return true values, mean and standard deviation as float64 vectors of one length."""
    vectors = check_vector("y", y), check_vector("mean", mean), check_vector("std", std, positive=True)
    for name, vector in zip(("mean", "std"), vectors[1:], strict=True):
        if len(vector) != len(vectors[0]):
            raise must(
                name,
                f"have as many values as y ({len(vectors[0])})",
                f"{len(vector)} values",
                "give one value per row of y",
            )
    return vectors

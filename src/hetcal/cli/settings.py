"""`--set name=value`: settings of the regressor, from text."""

import contextlib
import inspect
from collections.abc import Sequence
from typing import Any

from hetcal._checks import check_choice, must
from hetcal.estimators import ESTIMATORS
from hetcal.methods import METHODS
from hetcal.regressor import HCRegressor
from hetcal.tabular.building import resolve_name

# Not for --set: Python objects, and settings that have their own option.
ELSEWHERE = {"network", "estimator", "objective", "random_state", "progress", "estimator_options", "column_order"}
LITERALS = {"true": True, "false": False, "none": None}


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse parameters of `HCRegressor`; those of its estimator, such as `samples`, become `estimator_options`.

    >>> parse_settings(["learning_rate=1e-3", "target_transform=auto", "samples=20"])
    {'learning_rate': 0.001, 'target_transform': 'auto', 'estimator_options': {'samples': 20}}
    """
    known = set(inspect.signature(HCRegressor).parameters) - ELSEWHERE
    options = {name for estimator in ESTIMATORS.values() for name in inspect.signature(estimator).parameters}
    options -= {"network", "n_targets", "seed"}
    settings: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        name = name.strip()
        if not separator:
            raise must("--set", "have the form name=value", pair, "write for example --set learning_rate=1e-3")
        if name not in known and name in options:
            chosen[name] = parse_value(text)
        else:
            settings[check_choice("--set", name, known | options)] = parse_value(text)
    return {**settings, "estimator_options": chosen} if chosen else settings


def parse_value(text: str) -> Any:
    """Parse a number, true, false or none; anything else is text."""
    text = text.strip()
    if text.lower() in LITERALS:
        return LITERALS[text.lower()]
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    return text


def check_estimator_settings(settings: dict[str, Any], methods: Sequence[str]) -> None:
    """Check that a setting of an estimator exists for every method that is trained with it."""
    known = HCRegressor.registries["estimator"]
    for option in settings.get("estimator_options", {}):
        for method in methods:
            estimator = METHODS[method].estimator
            if option not in inspect.signature(resolve_name("estimator", estimator, known)).parameters:
                advice = f"{method} does not have it; name only methods that have it"
                raise must("--set", "be a setting of every method that is trained", option, advice)

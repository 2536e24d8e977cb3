"""A fit that fails leaves the model as it was before: unfitted, or with its earlier fit."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from hetcal.exceptions import TrainingInterrupted

Parameters = ParamSpec("Parameters")
Model = TypeVar("Model")


def whole_or_not_at_all(fit: Callable[Parameters, Model]) -> Callable[Parameters, Model]:
    """Decorate a method `fit`: after an exception other than `TrainingInterrupted`, the attributes are as before."""

    @wraps(fit)
    def fit_or_restore(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Model:
        attributes = vars(args[0])
        before = dict(attributes)
        try:
            return fit(*args, **kwargs)
        except TrainingInterrupted:
            raise  # the model is fitted
        except BaseException:
            attributes.clear()
            attributes.update(before)
            raise

    return fit_or_restore

"""What metrics and plots accept: `(y, mean, std)` or `(y, prediction)`, for one target or several.

The formulas see only one target, as a vector of true values and a prediction. `predict_distribution` gets such a
prediction from any fitted regressor.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetcal._checks import check_triple, must
from hetcal.distributions import ByQuantiles, innermost
from hetcal.prediction import Prediction

Mean = ArrayLike | Prediction | ByQuantiles  # a prediction replaces mean and std
Std = ArrayLike | None
P = ParamSpec("P")


def per_target(metric: Callable[P, Any]) -> Callable[P, Any]:
    """Extend a metric of one target to several: numbers become a (k,) array, vectors (n, k), anything else a list."""
    of_one: Callable[..., Any] = metric

    @wraps(metric)
    def of_several(y: Any, mean: Any, std: Any = None, *args: Any, **settings: Any) -> Any:
        targets = split_targets(y, mean, std)
        if targets is None:
            return of_one(y, mean, std, *args, **settings)
        figures = [of_one(truth, prediction, None, *args, **settings) for truth, prediction in targets]
        return np.stack(figures, axis=-1) if isinstance(figures[0], float | np.ndarray) else figures

    return of_several  # type: ignore[return-value]


def read_prediction(y: ArrayLike, mean: Mean, std: Std = None) -> tuple[NDArray[np.float64], Any]:
    """Check and return true values and prediction of one target; mean and std become a Gaussian prediction."""
    prediction = as_prediction(mean, std)
    base = innermost(prediction)
    for name, values in (("y", y), ("mean", base.mean)):
        check_one_target(name, values)
    if base.std is None:
        advice = "give both mean and std, or one prediction, such as model.predict_dist(X)"
        raise must("std", "be given", None, advice, TypeError)
    truth, mu, sigma = check_triple(y, base.mean, base.std)
    return truth, replace(prediction, mean=mu, std=sigma) if isinstance(prediction, Prediction) else prediction


def check_one_target(name: str, values: Any) -> None:
    if np.ndim(values) == 2 and np.shape(values)[1] != 1:
        advice = "pass one target at a time: y[:, 0] with prediction.target(0), or with mean[:, 0] and std[:, 0]"
        raise must(name, "be one-dimensional", f"array of shape {np.shape(values)}", advice)


def as_prediction(mean: Any, std: Any = None) -> Any:
    """A prediction on arrays, not yet checked; without `std` only its mean can be used."""
    if not callable(getattr(mean, "interval", None)):
        return Prediction(np.asarray(mean), None if std is None else np.asarray(std))
    if std is not None:
        raise must("std", "be omitted if a prediction is given", std, "the prediction has its own", TypeError)
    return mean.numpy() if isinstance(mean, Prediction) else mean


def split_targets(y: Any, mean: Any, std: Any) -> list[tuple[Any, Any]] | None:
    """True values and prediction of each target; None unless both have columns."""
    if np.ndim(y) != 2:
        return None
    truth, prediction = np.asarray(y), as_prediction(mean, std)
    base = innermost(prediction)
    if np.ndim(base.mean) != 2:
        return None
    if truth.shape[1] == 0:
        raise must("y", "have at least one column", f"array of shape {truth.shape}", "give one column per target")
    for name, values in (("mean", base.mean), ("std", base.std)):
        if values is not None and np.shape(values) != truth.shape:
            advice = "give one row per row of y and one column per target"
            raise must(name, f"have the shape of y {truth.shape}", f"array of shape {np.shape(values)}", advice)
    return [(truth[:, j], prediction.target(j)) for j in range(truth.shape[1])]


def predict_distribution(regressor: Any, X: Any) -> Any:
    """Return the regressor's own `predict_dist(X)`, or else the Gaussian with its mean and standard deviation.

    A pipeline passes on `predict` but not `predict_dist`, so `predict_dist` of its last step is called.
    """
    from sklearn.pipeline import Pipeline  # slow to import, and no metric needs it

    if isinstance(regressor, Pipeline):
        return predict_distribution(regressor[-1], regressor[:-1].transform(X) if len(regressor) > 1 else X)
    if hasattr(regressor, "predict_dist"):
        return regressor.predict_dist(X)
    advice = "use one that does, such as HCRegressor, GaussianProcessRegressor or BayesianRidge"
    refusal = must("regressor", "support predict(X, return_std=True)", type(regressor).__name__, advice, TypeError)
    if not hasattr(regressor, "predict"):
        raise refusal
    try:
        answer = regressor.predict(X, return_std=True)
    except TypeError as error:
        if "return_std" not in str(error):
            raise
        raise refusal from error
    if not (isinstance(answer, tuple) and len(answer) == 2):  # some accept any keyword and ignore it
        raise refusal
    mean, std = answer
    return Prediction(np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64))

"""Anyone's regressor asked for its predictive distribution: for scorers and recalibrators, which take what comes."""

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from hetcal._checks import must
from hetcal.prediction import Prediction


def predict_distribution(regressor: Any, X: Any) -> Any:
    """Its own `predict_dist(X)` if it has one, else the Gaussian of its mean and standard deviation.

    A pipeline hands on `predict`, but no `predict_dist`: its last step is asked.
    """
    if isinstance(regressor, Pipeline):
        return predict_distribution(regressor[-1], regressor[:-1].transform(X) if len(regressor) > 1 else X)
    if hasattr(regressor, "predict_dist"):
        return regressor.predict_dist(X)
    advice = "use one that does, such as HCRegressor, GaussianProcessRegressor or BayesianRidge"
    refusal = must("regressor", "answer predict(X, return_std=True)", type(regressor).__name__, advice, TypeError)
    if not hasattr(regressor, "predict"):
        raise refusal
    try:
        answer = regressor.predict(X, return_std=True)
    except TypeError as error:
        if "return_std" not in str(error):
            raise
        raise refusal from error
    if not (isinstance(answer, tuple) and len(answer) == 2):  # some take any keyword and ignore it
        raise refusal
    mean, std = answer
    return Prediction(np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64))

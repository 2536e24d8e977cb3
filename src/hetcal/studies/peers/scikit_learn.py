"""Baselines that everybody knows: the quantiles of y, ridge regression with one sigma, and boosted trees per quantile.

They need nothing but scikit-learn, which is always installed.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.distributions import TabulatedPrediction
from hetcal.prediction import Prediction
from hetcal.recalibration import QuantileModels
from hetcal.studies.peers.base import QUANTILE_LEVELS, Peer

# A model is trained for each of them: the ends of the intervals of 99, 95, 90, 80 and 50 %, and the median.
BOOSTED_LEVELS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.995)


class NoModel(Peer):
    """The quantiles of the training targets, for every row: what is known about y without any feature."""

    title: ClassVar[str] = "No model"
    packages: ClassVar[tuple[str, ...]] = ()

    def _fit(self, x: Floats, y: Floats, groups: NDArray[Any] | None) -> None:
        self.quantiles_ = np.quantile(y, QUANTILE_LEVELS, method="weibull")  # the k-th of n values is k / (n + 1)
        self.moments_ = y.mean(), y.std()

    def _predict(self, x: Floats) -> TabulatedPrediction:
        quantiles = np.tile(self.quantiles_, (len(x), 1))
        mean, std = (np.full(len(x), value) for value in self.moments_)
        return TabulatedPrediction(QUANTILE_LEVELS, quantiles, mean, std)


class RidgeConstant(Peer):
    """`RidgeCV` on standardized columns; sigma is the root mean square of its leave-one-out errors, for every row."""

    title: ClassVar[str] = "Ridge, constant sigma"
    packages: ClassVar[tuple[str, ...]] = ()
    takes_missing: ClassVar[bool] = False

    def _fit(self, x: Floats, y: Floats, groups: NDArray[Any] | None) -> None:
        from sklearn.linear_model import RidgeCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self.model_ = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 5, 17))).fit(x, y)
        self.std_ = max(np.sqrt(-self.model_[-1].best_score_), np.finfo(float).tiny)

    def _predict(self, x: Floats) -> Prediction:
        return Prediction(self.model_.predict(x), np.full(len(x), self.std_))


class HistGradientBoosting(Peer):
    """`HistGradientBoostingRegressor(loss="quantile")`, one for each of eleven quantiles."""

    title: ClassVar[str] = "HistGradientBoosting"
    packages: ClassVar[tuple[str, ...]] = ()

    def _fit(self, x: Floats, y: Floats, groups: NDArray[Any] | None) -> None:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # it has no setting for the number of threads
            self.model_ = QuantileModels(
                {
                    q: HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=self.random_state).fit(
                        x, y
                    )
                    for q in BOOSTED_LEVELS
                }
            )

    def _predict(self, x: Floats) -> TabulatedPrediction:
        return self.model_.predict_dist(x)

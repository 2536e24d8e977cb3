"""MAPIE: cross-conformal intervals (CV+, five folds) around LightGBM."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.distributions import TabulatedPrediction
from hetcal.studies.peers.base import QUANTILE_LEVELS, Peer


class MapieLightGBM(Peer):
    """The ends of its central intervals at many levels are the quantiles; memory grows with training x test rows.

    With groups, the folds are whole groups, as MAPIE's documentation advises for rows that belong together.
    """

    title: ClassVar[str] = "MAPIE CV+ (LightGBM)"
    packages: ClassVar[tuple[str, ...]] = ("mapie", "lightgbm")

    def _fit(self, x: Floats, y: Floats, groups: NDArray[Any] | None) -> None:
        from lightgbm import LGBMRegressor
        from mapie.regression import CrossConformalRegressor
        from sklearn.model_selection import GroupKFold

        lower = QUANTILE_LEVELS[QUANTILE_LEVELS < 0.5]
        # Of n rows, no interval of a level above 1 - 1 / n is finite.
        self.lower_ = lower[2 * lower * len(y) > 1]
        self.model_ = CrossConformalRegressor(
            LGBMRegressor(n_jobs=1, random_state=self.random_state, verbose=-1),
            confidence_level=(1 - 2 * self.lower_).tolist(),
            method="plus",
            cv=5 if groups is None else GroupKFold(5),
            n_jobs=1,
            random_state=self.random_state,
        ).fit_conformalize(x, y, groups=groups)

    def _predict(self, x: Floats) -> TabulatedPrediction:
        mean, intervals = self.model_.predict_interval(x)  # (n,), (n, 2, levels)
        quantiles = np.hstack([intervals[:, 0], intervals[:, 1, ::-1]])
        return TabulatedPrediction(np.concatenate([self.lower_, 1 - self.lower_[::-1]]), quantiles, mean=mean)

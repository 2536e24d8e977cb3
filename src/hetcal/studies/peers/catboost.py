"""CatBoost: boosted trees for a mean and a variance (`RMSEWithUncertainty`)."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.prediction import Prediction
from hetcal.studies.peers.base import Peer


class CatBoost(Peer):
    """The Gaussian with the predicted mean and variance."""

    title: ClassVar[str] = "CatBoost"
    packages: ClassVar[tuple[str, ...]] = ("catboost",)

    def _fit(self, x: Floats, y: Floats, groups: NDArray[Any] | None) -> None:
        from catboost import CatBoostRegressor

        self.model_ = CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            random_seed=self.random_state,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
        ).fit(x, y)

    def _predict(self, x: Floats) -> Prediction:
        mean, variance = self.model_.predict(x).T
        return Prediction(mean, np.sqrt(variance))

"""NGBoost: natural gradient boosting of the mean and standard deviation of a Gaussian."""

from typing import Any, ClassVar

from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.prediction import Prediction
from hetcal.studies.peers.base import Peer


class NGBoost(Peer):
    """The Gaussian that NGBoost predicts."""

    title: ClassVar[str] = "NGBoost"
    packages: ClassVar[tuple[str, ...]] = ("ngboost",)

    def _fit(self, x: Floats, y: Floats, groups: NDArray[Any] | None) -> None:
        from ngboost import NGBRegressor
        from ngboost.distns import Normal

        self.model_ = NGBRegressor(Dist=Normal, random_state=self.random_state, verbose=False).fit(x, y)

    def _predict(self, x: Floats) -> Prediction:
        parameters = self.model_.pred_dist(x).params
        return Prediction(parameters["loc"], parameters["scale"])

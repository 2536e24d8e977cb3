"""quantile-forest: quantile regression forests (Meinshausen, 2006) with 300 trees."""

from typing import Any, ClassVar

from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.distributions import TabulatedPrediction
from hetcal.studies.peers.base import QUANTILE_LEVELS, Peer

TREES = 300


class QuantileForest(Peer):
    """Quantiles and mean of the training targets in the leaves of a row."""

    title: ClassVar[str] = "Quantile forest"
    packages: ClassVar[tuple[str, ...]] = ("quantile_forest",)
    takes_missing: ClassVar[bool] = False

    def _fit(self, x: Floats, y: Floats, groups: NDArray[Any] | None) -> None:
        from quantile_forest import RandomForestQuantileRegressor

        self.model_ = RandomForestQuantileRegressor(TREES, random_state=self.random_state, n_jobs=1).fit(x, y)

    def _predict(self, x: Floats) -> TabulatedPrediction:
        quantiles = self.model_.predict(x, quantiles=QUANTILE_LEVELS.tolist())
        return TabulatedPrediction(QUANTILE_LEVELS, quantiles, mean=self.model_.predict(x, quantiles="mean"))

"""RealMLP and TabM, networks for tables, with their tuned defaults, trained for many quantiles (`multi_pinball`)."""

import logging
from typing import Any, ClassVar

from numpy.typing import NDArray

from hetcal._checks import Floats
from hetcal.distributions import TabulatedPrediction
from hetcal.studies.peers.base import QUANTILE_LEVELS, Peer


class TabularNetwork(Peer):
    """A network of pytabkit; `regressor` is the name of its class."""

    regressor: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ("pytabkit",)
    takes_missing: ClassVar[bool] = False

    def _fit(self, x: Floats, y: Floats, groups: NDArray[Any] | None) -> None:
        import pytabkit

        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)  # it announces hardware and tips
        metric = f"multi_pinball({','.join(map(str, QUANTILE_LEVELS.tolist()))})"
        self.model_ = getattr(pytabkit, self.regressor)(
            device="cpu",
            n_threads=1,
            random_state=self.random_state,
            train_metric_name=metric,
            val_metric_name=metric,
            verbosity=0,
        ).fit(x, y)

    def _predict(self, x: Floats) -> TabulatedPrediction:
        return TabulatedPrediction(QUANTILE_LEVELS, self.model_.predict(x))


class RealMLP(TabularNetwork):
    """RealMLP-TD; Holzmüller, Grinsztajn and Steinwart (2024), Better by default."""

    title: ClassVar[str] = "RealMLP"
    regressor: ClassVar[str] = "RealMLP_TD_Regressor"


class TabM(TabularNetwork):
    """TabM-D; Gorishniy, Kotelnikov and Babenko (2025), TabM: advancing tabular deep learning."""

    title: ClassVar[str] = "TabM"
    regressor: ClassVar[str] = "TabM_D_Regressor"

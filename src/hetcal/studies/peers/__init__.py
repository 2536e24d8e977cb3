"""Peers: regressors of other libraries as methods of a study, on the same splits and measured in the same way.

One file per library. A library is imported only when one of its models is fitted; `pip install 'hetcal[peers]'`
installs all of them. Each has its own defaults and one thread; no setting of `HCRegressor` is passed on.
"""

from hetcal.studies.peers.base import Peer
from hetcal.studies.peers.catboost import CatBoost
from hetcal.studies.peers.mapie import MapieLightGBM
from hetcal.studies.peers.ngboost import NGBoost
from hetcal.studies.peers.pytabkit import RealMLP, TabM
from hetcal.studies.peers.quantile_forest import QuantileForest

PEERS: dict[str, type[Peer]] = {
    "catboost": CatBoost,
    "ngboost": NGBoost,
    "mapie_lightgbm": MapieLightGBM,
    "quantile_forest": QuantileForest,
    "realmlp": RealMLP,
    "tabm": TabM,
}

__all__ = ["PEERS", "Peer"]

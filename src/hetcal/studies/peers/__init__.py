"""Peers: regressors of other libraries as methods of a study, on the same splits and measured in the same way.

One file per library. A library is imported only when one of its models is fitted; `pip install 'hetcal[peers]'`
installs all of them. Each has its own defaults and one thread; no setting of `HCRegressor` is passed on.
`BASELINES` need scikit-learn alone.
"""

from importlib.util import find_spec

from hetcal.studies.peers.base import Peer
from hetcal.studies.peers.catboost import CatBoost
from hetcal.studies.peers.mapie import MapieLightGBM
from hetcal.studies.peers.ngboost import NGBoost
from hetcal.studies.peers.pytabkit import RealMLP, TabM
from hetcal.studies.peers.quantile_forest import QuantileForest
from hetcal.studies.peers.scikit_learn import HistGradientBoosting, NoModel, RidgeConstant

BASELINES: dict[str, type[Peer]] = {
    "no_model": NoModel,
    "ridge": RidgeConstant,
    "hist_gradient_boosting": HistGradientBoosting,
}
PEERS: dict[str, type[Peer]] = {
    **BASELINES,
    "catboost": CatBoost,
    "ngboost": NGBoost,
    "mapie_lightgbm": MapieLightGBM,
    "quantile_forest": QuantileForest,
    "realmlp": RealMLP,
    "tabm": TabM,
}

# Those that take seconds, not minutes.
QUICK_PEERS = ("catboost", "ngboost", "mapie_lightgbm", "quantile_forest")


def installed_peers() -> tuple[str, ...]:
    """The quick peers of other libraries that are installed."""
    return tuple(filter(is_installed, QUICK_PEERS))


def is_installed(peer: str) -> bool:
    return all(find_spec(package) is not None for package in PEERS[peer].packages)


__all__ = ["BASELINES", "PEERS", "Peer", "installed_peers", "is_installed"]

"""`hetcal methods`: the methods with which a model can be fitted."""

from typing import Any

from hetcal.cli.options import MethodsOptions
from hetcal.methods import METHODS
from hetcal.studies.compare import INFORMATIVE
from hetcal.studies.peers import PEERS, is_installed


def list_methods(options: MethodsOptions) -> dict[str, Any]:
    """The rows of `METHODS` with which a model can be fitted, and what `hetcal compare` can compare them with."""
    rows = [
        {"name": name, "title": row.title, "estimator": row.estimator, "objective": row.objective}
        for name, row in METHODS.items()
        if name in INFORMATIVE
    ]
    peers = [{"name": name, "title": peer.title, "installed": is_installed(name)} for name, peer in PEERS.items()]
    return {"command": options.command, "methods": rows, "peers": peers}

"""`--backend` and `--address`: where a command computes."""

from collections.abc import Collection
from typing import Any

from hetcal._checks import check_choice, must
from hetcal.studies.jobs import BACKENDS


def open_backend(options: Any, known: Collection[str] = BACKENDS) -> str | None:
    """Return the backend that was asked for, after a connection to the cluster: without one, no work is begun."""
    if options.backend is not None:
        check_choice("backend", options.backend, known)
    if options.backend == "ray":
        from hetcal.ray import connect

        connect(options.address)
    elif options.address is not None:
        raise must("address", "be given with --backend ray only", options.address, "add --backend ray")
    return None if options.backend is None else str(options.backend)

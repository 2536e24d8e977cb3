"""Settings of a model that suit its estimator, for those that are None. Model files need them too, without torch."""

from typing import Any

# Size of the built-in networks: of one network as in the paper, and of the members of a cross ensemble (True).
NETWORK_SIZES: dict[bool, dict[str, Any]] = {
    False: {"width": 128, "depth": 5, "dropout": 0.2},
    True: {"width": 128, "depth": 3, "dropout": None},
}


def usual_width(n_rows: int) -> int:
    """Width of the members of a cross ensemble: less for few rows, which is as accurate, and much faster."""
    width: int = NETWORK_SIZES[True]["width"]
    return 96 if n_rows <= 1000 else width

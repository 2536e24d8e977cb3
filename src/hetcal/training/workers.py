"""The processes that train one model together, each on a part of its rows.

Every process has the same weights and the same sample of rows, and so makes the same decisions; only the batches
differ. The loss is a mean over rows, whose sigma depends on no other row, so that the mean of the processes' gradients
is the gradient of all rows. What needs no batch is computed by the first process, for all.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

Result = TypeVar("Result")
State = dict[str, Any]  # tensors, numbers and lists of them


class Workers:
    """This process alone; `hetcal.ray` has those of a cluster."""

    count = 1

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over the processes."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag

    def compute_once(self, function: Callable[[], Result]) -> Result:
        """The result of a function that only the first process calls."""
        return function()

    def save(self, name: str, state: Callable[[], State]) -> None:
        """Keep the state of the training of this name, for a process that takes over after a failure."""

    def restore(self, name: str) -> State | None:
        """The last state that was kept for this name, or None."""
        return None


ALONE = Workers()

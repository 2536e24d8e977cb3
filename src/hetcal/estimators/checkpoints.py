"""The epoch whose weights are kept: the one with the best score on the validation rows."""

import copy
import math
from typing import Any

from torch import Tensor


class BestEpoch:
    """A copy of an estimator's weights from its best epoch so far; the first of equals."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.epoch = 0
        self.score = math.inf
        self.weights: dict[str, Any] | None = None

    def consider(self, epoch: int, score: float) -> bool:
        """Copy the weights if the score is the lowest so far, and return whether it is."""
        is_best = self.weights is None or score < self.score
        if is_best:
            weights = self.estimator.state_dict()
            # `copy.deepcopy` of the dict would swallow a Ctrl-C that comes within `copyreg._slotnames`.
            for name, value in weights.items():
                weights[name] = value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
            self.epoch, self.score, self.weights = epoch, score, weights  # all at once, whenever Ctrl-C comes
        return is_best

    def restore(self) -> None:
        """Load the weights of the best epoch into the estimator; without any epoch they stay as they are."""
        if self.weights is not None:
            self.estimator.load_state_dict(self.weights)

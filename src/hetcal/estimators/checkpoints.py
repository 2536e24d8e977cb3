"""The choice of the epoch whose weights are kept: the earliest that is not significantly worse than the best."""

import copy
import math
from typing import Any

from torch import Tensor

# Number of copies of the weights that are kept; more would cost memory and change little.
MAX_CHECKPOINTS = 10


class Checkpoints:
    """Copies of an estimator's weights from the epochs that may be chosen in the end.

    The choice is the earliest epoch whose mean score is within `standard_errors` of the best. Later epochs are not
    significantly better on the validation rows, and their sigma has had more time to adapt to the training rows, where
    residuals are smaller than on new rows. This is the one-standard-error rule of Breiman et al. (1984),
    Classification and Regression Trees, with the standard error of the difference row by row.

    Args:
        estimator: The module that is trained.
        weight: (n,) weights of the validation rows.
        standard_errors: 0 chooses the best epoch itself.
    """

    def __init__(self, estimator: Any, weight: Tensor, standard_errors: float = 1.0) -> None:
        self.estimator = estimator
        self.standard_errors = standard_errors
        self.weight = weight.double() / weight.sum()
        self.epoch = 0  # with the best score
        self.scores: Tensor | None = None
        self.candidates: list[tuple[int, Tensor, dict[str, Any]]] = []  # epoch, scores (n,), weights; earliest first

    def mean(self, scores: Tensor) -> float:
        mean = float((self.weight * scores).sum())
        return math.inf if math.isnan(mean) else mean

    def consider(self, epoch: int, scores: Tensor) -> None:
        """Record an epoch with its scores, (n,); lower is better."""
        if self.scores is None or self.mean(scores) < self.mean(self.scores):
            near = [candidate for candidate in self.candidates if self.is_near(candidate[1], scores)]
            best_epoch, best_scores = epoch, scores
        elif len(self.candidates) == MAX_CHECKPOINTS or not self.is_near(scores, self.scores):
            return
        else:
            near, best_epoch, best_scores = self.candidates, self.epoch, self.scores
        candidate = epoch, scores, copy.deepcopy(self.estimator.state_dict())
        # All at once: Ctrl-C must not leave it without the weights of the best epoch.
        self.candidates = [*near[: MAX_CHECKPOINTS - 1], candidate]
        self.epoch, self.scores = best_epoch, best_scores

    def is_near(self, scores: Tensor, best: Tensor) -> bool:
        excess = scores - best
        mean = (self.weight * excess).sum()
        variance = (self.weight * (excess - mean)).square().sum()
        return bool(mean <= self.standard_errors * variance.sqrt())

    @property
    def chosen_epoch(self) -> int:
        return self.candidates[0][0] if self.candidates else self.epoch

    def restore(self) -> None:
        """Load the weights of the chosen epoch into the estimator."""
        if self.candidates:
            self.estimator.load_state_dict(self.candidates[0][2])

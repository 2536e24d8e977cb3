"""Any estimator with a family other than the Gaussian; the degrees of freedom of Student's t are learned here."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hetcal._checks import must
from hetcal.families import FAMILIES, Family, StudentT, check_family
from hetcal.prediction import Prediction

# The variance must exist; near 2 degrees of freedom the ratio of sigma to scale grows without bounds.
LEAST_DF = 2.1
FIRST_DF = 6.0
# A single number is learned in as many steps as thousands of weights, so its steps are larger by this factor.
SPEED = 10.0


class WithFamily(nn.Module):
    """An estimator with another family: the same mean and std, the same members and network, another likelihood.

    Args:
        estimator: Any object with the estimator's members.
        family: "gaussian", "laplace", "student_t" (degrees of freedom are learned, one per target), or a `Family` such
            as `StudentT(df=4)`.

    >>> from hetcal.estimators import VarianceHead
    >>> estimator = WithFamily(VarianceHead(nn.Linear(3, 2)), "student_t")
    >>> estimator(torch.zeros(5, 3)).family.numpy()
    StudentT(df=6.0)
    """

    def __init__(self, estimator: Any, family: str | Family) -> None:
        super().__init__()
        self.estimator = estimator
        self.n_outputs = estimator.n_outputs
        family = check_family(family)
        self.fixed = family if isinstance(family, Family) else None
        n_targets = getattr(estimator, "n_targets", 1)
        if isinstance(family, StudentT) and np.ndim(family.df) and np.size(family.df) != n_targets:
            raise must("df", f"be one number, or one per target ({n_targets})", family.df, "give as many")
        if family == StudentT.name:
            raw = torch.tensor(FIRST_DF - LEAST_DF, dtype=torch.float32).expm1().log() / SPEED
            # Named raw_*, so that it does not decay (estimators.base.parameter_groups).
            self.raw_df = nn.Parameter(raw if n_targets == 1 else raw.expand(n_targets).clone())
        elif isinstance(family, str):
            self.fixed = FAMILIES[family]()

    @property
    def family(self) -> Family:
        return self.fixed if self.fixed is not None else StudentT(LEAST_DF + F.softplus(SPEED * self.raw_df))

    def forward(self, x: Tensor) -> Prediction:
        prediction: Prediction = self.estimator(x)
        return prediction.with_family(self.family)

    def for_prediction(self) -> Callable[[Tensor], Prediction]:
        ready = self.estimator.for_prediction() if hasattr(self.estimator, "for_prediction") else self.estimator
        return lambda x: ready(x).with_family(self.family)

    def own_loss(self, prediction: Prediction, y: Tensor, n_train: int) -> Tensor:
        loss: Tensor = self.estimator.own_loss(prediction, y, n_train)
        return loss

    def at_rows(self, index: Tensor, n_train: int) -> None:
        if hasattr(self.estimator, "at_rows"):
            self.estimator.at_rows(index, n_train)

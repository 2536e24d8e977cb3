"""Write your own estimator: here sigma comes from noise levels that all rows share.

Two instruments took the measurements, a precise and a rough one, and it was not recorded which. So there are two
unknown noise levels, and the network only has to predict which of them a row has. The likelihood learns both in one
training run.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hetcal import HCRegressor, Prediction, evaluate
from hetcal.estimators import AbstractEstimator
from hetcal.testing import check_estimator


class NoiseLevels(AbstractEstimator):
    """sigma^2 = share_1 * level_1^2 + share_2 * level_2^2, with shares from the network and levels for all rows."""

    n_outputs = 3  # columns that it needs from the network: a mean and a score for each level

    def __init__(self, network: nn.Module, *, seed: int = 0) -> None:
        super().__init__(network, seed=seed)
        self.raw_levels = nn.Parameter(torch.tensor([-2.0, 0.5]))  # raw_*: without weight decay

    def forward(self, x: Tensor) -> Prediction:
        outputs = self.outputs(x)  # (n, 3)
        shares, levels = outputs[:, 1:].softmax(1), F.softplus(self.raw_levels)  # (n, 2), (2,); sigma is positive
        return Prediction(outputs[:, 0], (shares @ levels.square()).sqrt())


check_estimator(NoiseLevels)  # the same contract as for the library's own estimators; put this line into your tests

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (2000, 2))
noise = np.where(X[:, 0] > 0, 0.8, 0.2)  # the rough instrument covers the right half
y = np.sin(3 * X[:, 0]) + X[:, 1] + rng.normal(0, noise)

model = HCRegressor(NoiseLevels, width=64, depth=2, dropout=0.0, random_state=0)
prediction = model.fit(X[:1500], y[:1500]).predict_dist(X[1500:])
print(evaluate(y[1500:], prediction)["verdict"])
precise, rough = (prediction.std[noise[1500:] == level].mean() for level in (0.2, 0.8))
print(f"sigma {precise:.2f} for the precise instrument (true: 0.2), {rough:.2f} for the rough one (true: 0.8)")

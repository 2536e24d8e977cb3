"""An estimator of your own, another answer to "sigma from where?": from noise levels that all rows share.

Two instruments took the measurements, a fine and a rough one, and nobody wrote down which. So there are two noise
levels, both unknown, and the network has to say only which of them a row has. With the likelihood both are learned in
the one training run.
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

    n_outputs = 3  # what it wants from the network: a mean and a vote for each level

    def __init__(self, network: nn.Module, *, seed: int = 0) -> None:
        super().__init__(network, seed=seed)
        self.raw_levels = nn.Parameter(torch.tensor([-2.0, 0.5]))  # raw_*: weight decay leaves them alone

    def forward(self, x: Tensor) -> Prediction:
        outputs = self.outputs(x)  # (n, 3)
        shares, levels = outputs[:, 1:].softmax(1), F.softplus(self.raw_levels)  # (n, 2), (2,); sigma cannot be 0
        return Prediction(outputs[:, 0], (shares @ levels.square()).sqrt())


check_estimator(NoiseLevels)  # the contract of the library's own estimators; put this line into your tests

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (2000, 2))
noise = np.where(X[:, 0] > 0, 0.8, 0.2)  # the rough instrument covers the right half
y = np.sin(3 * X[:, 0]) + X[:, 1] + rng.normal(0, noise)

model = HCRegressor(NoiseLevels, width=64, depth=2, dropout=0.0, max_epochs=100, random_state=0)
prediction = model.fit(X[:1500], y[:1500]).predict_dist(X[1500:])
print(evaluate(y[1500:], prediction)["verdict"])
fine, rough = (prediction.std[noise[1500:] == level].mean() for level in (0.2, 0.8))
print(f"sigma {fine:.2f} for the fine instrument, in truth 0.2; {rough:.2f} for the rough one, in truth 0.8")

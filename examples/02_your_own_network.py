"""Use your own network in the regressor: a residual network with sigma from quantiles, then an ensemble of eight.

The regressor calls the class itself, because only the regressor knows how many inputs the encoded table has and how
many outputs the estimator needs: three for a mean and two quantiles, two for the mean and the spread of each member.
"""

import torch
from torch import nn

from hetcal import HCRegressor, evaluate
from hetcal.datasets import heteroscedastic


class Residual(nn.Module):
    """Two hidden layers with a skip connection around each."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_inputs, 64)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Dropout(0.1), nn.Linear(64, 64), nn.SiLU()) for _ in range(2))
        self.last = nn.Sequential(nn.Dropout(0.1), nn.Linear(64, n_outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first(x))
        for block in self.blocks:
            h = h + block(h)
        return self.last(h)


train, test = heteroscedastic(1000, seed=0), heteroscedastic(500, seed=1)

for estimator in ("quantile_range", "ensemble"):
    model = HCRegressor(estimator, network=Residual, max_epochs=40, random_state=0).fit(train.X, train.y)
    scores = evaluate(test.y, model.predict_dist(test.X))
    print(f"{estimator}: CE {scores['ce']:.2f} (a perfect model: {scores['ce_noise_floor']:.2f}); {scores['verdict']}")

"""An estimator of your own, another answer to "sigma from where?": from errors in the inputs.

A car's speed was measured, and its braking distance, which grows with the square of the speed. The speedometer is off by
a little; what that does to the distance depends on how steep the distance is there, and the network knows, for it has a
derivative. So sigma is the network's slope times the error of the speedometer. How large that is, the likelihood finds
out by itself; squared error never could.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hetcal import HCRegressor, Prediction, evaluate
from hetcal.estimators import AbstractEstimator
from hetcal.testing import check_estimator


class InputError(AbstractEstimator):
    """sigma^2 = |slope|^2 * input_std^2 + output_std^2, both learnt, the same for all rows."""

    n_outputs = 1  # columns that it wants from the network

    def __init__(self, network: nn.Module, *, seed: int = 0) -> None:
        super().__init__(network, seed=seed)
        self.raw_input_std = nn.Parameter(torch.tensor(-1.0))  # raw_*: weight decay leaves it alone
        self.raw_output_std = nn.Parameter(torch.tensor(-1.0))

    def forward(self, x: Tensor) -> Prediction:
        mean, slope_of = torch.func.vjp(lambda x: self.outputs(x)[:, 0], x)
        (slope,) = slope_of(torch.ones_like(mean))  # (n, d): each row's mean depends on its own x only
        input_std, output_std = F.softplus(self.raw_input_std), F.softplus(self.raw_output_std)
        return Prediction(mean, (slope.square().sum(1) * input_std**2 + output_std**2).sqrt())


check_estimator(InputError)  # the contract, as the library's own estimators must keep it; put it into your tests

rng = np.random.default_rng(0)
speed = rng.uniform(5, 50, 2000)  # metres per second
distance = speed**2 / 16 + rng.normal(0, 2, 2000)  # metres
measured = (speed + rng.normal(0, 1, 2000))[:, None]

model = HCRegressor(InputError, width=64, depth=2, dropout=0.0, input_noise=0.0, learning_rate=0.01, max_epochs=100)
model.set_params(random_state=0).fit(measured[:1500], distance[:1500])
print(evaluate(distance[1500:], model.predict_dist(measured[1500:]))["verdict"])

_, (slow, fast) = model.predict([[10.0], [45.0]], return_std=True)
error = F.softplus(model.estimator_.raw_input_std).item() * measured[:1500].std()  # the regressor standardised it
print(f"sigma {slow:.1f} m at 10 m/s, {fast:.1f} m at 45 m/s; speedometer off by {error:.2f} m/s, in truth by 1")

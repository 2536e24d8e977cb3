"""Your own network and your own loop: the sigma of dropout goes into the likelihood in two lines."""

import torch
from torch import nn

from hetcal.estimators import MCDropout, predict
from hetcal.metrics import evaluate
from hetcal.objectives import gaussian_nll

generator = torch.Generator().manual_seed(0)
x = 2 * torch.rand(1500, 1, generator=generator) - 1
y = torch.sin(3 * x[:, 0]) + (0.1 + 0.4 * (x[:, 0] > 0)) * torch.randn(1500, generator=generator)
x_train, y_train, x_test, y_test = x[:1000], y[:1000], x[1000:], y[1000:]


class Residual(nn.Module):
    """A skip connection round a hidden layer with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1, 64), nn.Linear(64, 1)
        self.block = nn.Sequential(nn.Dropout(0.2), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first(x))
        return self.last(h + self.block(h))


torch.manual_seed(0)
estimator = MCDropout(Residual())
optimiser = torch.optim.AdamW(estimator.parameters(), lr=3e-3)
for _ in range(150):
    for batch in torch.randperm(1000, generator=generator).split(128):
        prediction = estimator(x_train[batch])
        loss = gaussian_nll(prediction, y_train[batch]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

prediction = predict(estimator, x_test).numpy()
print(evaluate(y_test.numpy(), prediction.mean, prediction.std)["verdict"])

"""Write your own training loop: the core is two lines, the same for every estimator.

    prediction = estimator(x)
    loss = objective(prediction, y) + estimator.own_loss(prediction, y, n_train)

Nothing else depends on this library: you choose optimizer, batches, schedule and device. Standardize x and y first, as
for any network. A loop as short as this one, without validation rows, comes close to the noise floor; the verdict may
still detect a small deviation. `hetcal.training.train` adds early stopping and more.
"""

import torch

from hetcal import evaluate
from hetcal.datasets import heteroscedastic
from hetcal.estimators import MCDropout, QuantileRange, predict
from hetcal.networks import MLP
from hetcal.objectives import gaussian_nll

# Inputs and target of this data set are already of the order of 1.
train, test = heteroscedastic(1000, seed=0), heteroscedastic(500, seed=1)
x_train, y_train, x_test = (torch.tensor(values, dtype=torch.float32) for values in (train.X, train.y, test.X))
generator = torch.Generator().manual_seed(0)

for Estimator in (MCDropout, QuantileRange):
    network = MLP(2, Estimator.n_outputs, width=64, depth=2, dropout=0.1, generator=generator)
    estimator = Estimator(network)
    optimizer = torch.optim.AdamW(estimator.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    for _ in range(60):
        for batch in torch.randperm(1000, generator=generator).split(100):
            prediction = estimator(x_train[batch])  # mean and std, differentiable in both
            loss = gaussian_nll(prediction, y_train[batch])
            loss = loss + estimator.own_loss(prediction, y_train[batch], n_train=1000)
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
        schedule.step()

    prediction = predict(estimator, x_test).numpy()  # in evaluation mode, in bounded memory
    scores = evaluate(test.y, prediction)
    ce, floor = scores["ce"], scores["ce_noise_floor"]
    print(f"{Estimator.__name__}: CE {ce:.2f} (a perfect model: {floor:.2f}); {scores['verdict']}")

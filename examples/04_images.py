"""Images: a convolutional network predicts by which angle a handwritten digit was rotated, and with what uncertainty.

Some images are grainy, and a grainy image contains less information about the angle. So the noise of y depends on the
image, and sigma must reflect it. The estimator uses the dropout layers inside the network, including those for whole
channels; x keeps its shape (n, 1, 8, 8). The verdict is strict: it may report a median that is off by a few points, at
the edge of what 500 images can show.
"""

import numpy as np
import torch
from scipy.ndimage import rotate
from sklearn.datasets import load_digits
from torch import nn

from hetcal import evaluate
from hetcal.estimators import MCDropout, predict
from hetcal.objectives import gaussian_nll
from hetcal.training import train

rng = np.random.default_rng(0)
images = rng.permutation(load_digits().images / 16)  # (1797, 8, 8); the file is ordered by writer
angle = rng.uniform(-60, 60, len(images))  # degrees
grain = rng.uniform(0, 0.8, len(images))
images = np.stack([rotate(image, degrees, reshape=False) for image, degrees in zip(images, angle, strict=True)])
images += grain[:, None, None] * rng.standard_normal(images.shape)

x = torch.tensor(images, dtype=torch.float32)[:, None]  # (n, 1, 8, 8)
y = torch.tensor(angle / angle.std(), dtype=torch.float32)

torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(1, 8, 3),
    nn.ReLU(),
    nn.Dropout2d(0.1),
    nn.Conv2d(8, 16, 3, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Dropout(0.2),
    nn.Linear(64, 1),
)
# Sigma is the spread of sampled outputs. With torch's smaller initial weights it would start near zero.
for layer in network:
    if isinstance(layer, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(layer.weight)

estimator = MCDropout(network)
train(estimator, gaussian_nll, x[:1300], y[:1300], max_epochs=40)
prediction = predict(estimator, x[1300:]).numpy().scaled(angle.std())  # in degrees

angle, grain = angle[1300:], grain[1300:]
print(evaluate(angle, prediction)["verdict"])
for name, rows in {"clear": grain < 0.2, "grainy": grain > 0.6}.items():
    scores = evaluate(angle[rows], prediction.take(rows))
    print(f"{name} images: sigma {scores['sharpness']:.0f} degrees, error {scores['rmse']:.0f} degrees")

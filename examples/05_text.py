"""Text: predict the rating of a short review from its words, with a wider interval where the words are vague.

x holds token ids, integers of shape (n, length), and the network begins with an embedding. Nothing in the library
requires floating-point columns; only `input_noise` has no meaning for token ids and stays 0, its default in `train`.
The intervals are slightly too wide: dropout is noise in training that prediction does not have. Without it, the network
learns the training reviews by heart, and the intervals are too narrow.
"""

import numpy as np
import torch
from torch import nn

from hetcal import evaluate
from hetcal.estimators import VarianceHead, predict
from hetcal.objectives import gaussian_nll
from hetcal.training import train

# Every word changes the rating; "somehow" and "perhaps" only indicate that the author is not sure.
WORTH = {
    "great": 2.0,
    "fine": 0.7,
    "slow": -0.7,
    "awful": -2.0,
    "friendly": 1.0,
    "cold": -1.0,
    "somehow": 0,
    "perhaps": 0,
}
THINGS = ["food", "service", "room", "coffee"]
LENGTH = 8  # words of a review; shorter reviews are padded with 0
TOKEN_IDS = {word: token for token, word in enumerate([*WORTH, *THINGS], start=1)}


def write_review(rng: np.random.Generator) -> tuple[str, float]:
    words = [str(word) for _ in range(rng.integers(1, 5)) for word in (rng.choice(THINGS), rng.choice(list(WORTH)))]
    vague = sum(word in ("somehow", "perhaps") for word in words)
    return " ".join(words), sum(WORTH.get(word, 0) for word in words) + rng.normal(0, 0.3 * 2**vague)


def to_token_ids(reviews: list[str]) -> torch.Tensor:
    rows = [[TOKEN_IDS[word] for word in review.split()] for review in reviews]
    return torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])  # (n, LENGTH), int64


rng = np.random.default_rng(0)
reviews, ratings = map(list, zip(*(write_review(rng) for _ in range(2500)), strict=True))
x, y = to_token_ids(reviews), torch.tensor(ratings, dtype=torch.float32)

torch.manual_seed(0)
network = nn.Sequential(
    nn.EmbeddingBag(len(TOKEN_IDS) + 1, 32, mode="sum", padding_idx=0),  # (n, LENGTH) -> (n, 32)
    nn.Linear(32, 64),
    nn.ReLU(),
    nn.Dropout(0.1),
    nn.Linear(64, 2),
)
estimator = VarianceHead(network)
train(estimator, gaussian_nll, x[:2000], y[:2000] / y.std(), max_epochs=60)

prediction = predict(estimator, x[2000:]).numpy().scaled(float(y.std()))
print(evaluate(y[2000:].numpy(), prediction)["verdict"])
for review in ("food great service fine", "food great service somehow room perhaps"):
    lower, upper = predict(estimator, to_token_ids([review])).numpy().scaled(float(y.std())).interval(0.9)[0]
    print(f"{review}: {lower:.1f} to {upper:.1f}")

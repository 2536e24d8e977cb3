"""Which epoch's weights are kept."""

import math

import pytest
from torch import nn

from hetcal.estimators.checkpoints import BestEpoch


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([3.0, 1.0, 2.0], 1),
        ([2.0, 1.0, 1.0], 1),  # the first of equals
        ([math.inf, math.inf, 2.0], 2),
        ([math.inf, math.inf], 0),
    ],
)
def test_the_weights_of_the_best_epoch_are_restored(scores, best):
    """Not those of the last one. An infinite score is the worst, but with nothing better the first epoch is kept."""
    network = nn.Linear(1, 1)
    kept = BestEpoch(network)
    for epoch, score in enumerate(scores):
        nn.init.constant_(network.weight, epoch)
        kept.consider(epoch, score)
    kept.restore()
    assert kept.epoch == network.weight.item() == best


def test_without_any_epoch_the_weights_stay():
    network = nn.Linear(1, 1)
    before = network.weight.item()
    BestEpoch(network).restore()
    assert network.weight.item() == before

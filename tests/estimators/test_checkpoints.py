"""Which epoch's weights are kept: the one-standard-error rule, and how many copies it costs."""

import pytest
import torch
from torch import nn

from hetcal.estimators.checkpoints import MAX_CHECKPOINTS, Checkpoints


def chosen(epochs, weight=None, **settings):
    """The epoch that `Checkpoints` choose among rows of scores, and its bookkeeping."""
    scores = torch.tensor(epochs, dtype=torch.float64)
    weight = torch.ones(scores.shape[1]) if weight is None else torch.tensor(weight)
    best = Checkpoints(nn.Linear(1, 1), weight, **settings)
    for epoch, row in enumerate(scores):
        best.consider(epoch, row)
    return best


def test_the_earliest_epoch_within_one_standard_error_is_chosen():
    """By hand: excess over the best (1, 0, 2, 1) has mean 1 and a standard error of sqrt(2) / 4, so it is not near.

    Excess (1, -1, 1, -0.8) has mean 0.05 and standard error near 0.48, so it is near.
    """
    best, far, near = [0.0] * 4, [1.0, 0.0, 2.0, 1.0], [1.0, -1.0, 1.0, -0.8]
    assert chosen([far, best]).chosen_epoch == 1
    assert chosen([near, best]).chosen_epoch == 0
    assert chosen([far, near, best, near]).chosen_epoch == 1
    assert chosen([far, near, best, near]).epoch == 2
    # A better epoch drops what was near the old best.
    assert chosen([near, best, [-5.0] * 4]).chosen_epoch == 2
    # Only rows with weight count: near is better on the second and fourth row, far off on the others.
    assert chosen([near, best], weight=[1.0, 0.0, 1.0, 0.0]).chosen_epoch == 1


def test_more_or_fewer_standard_errors():
    """None: the best epoch itself, the first of equals. Four: the excess (1, 0, 2, 1), 2.8 of them, is near."""
    best, far, near = [0.0] * 4, [1.0, 0.0, 2.0, 1.0], [1.0, -1.0, 1.0, -0.8]
    assert chosen([near, best, best], standard_errors=0).chosen_epoch == 1
    assert chosen([far, best], standard_errors=4).chosen_epoch == 0


def test_few_copies_of_the_weights_are_kept():
    """A long plateau costs the memory of ten networks, and the best epoch is among them."""
    plateau = [[0.1 + (n % 3) * 1e-3, -0.1] for n in range(100)]
    best = chosen([*plateau, [-0.01, -0.01]])
    assert len(best.candidates) == MAX_CHECKPOINTS == 10
    assert best.chosen_epoch == 0
    assert best.candidates[-1][0] == best.epoch == 100


def test_the_chosen_weights_are_restored():
    """Those of the chosen epoch, not those of the last; without any epoch the weights stay as they are."""
    network = nn.Linear(1, 1)
    checkpoints = Checkpoints(network, torch.ones(2))
    checkpoints.restore()
    for epoch, score in enumerate([3.0, 1.0, 2.0]):
        nn.init.constant_(network.weight, epoch)
        checkpoints.consider(epoch, torch.full((2,), score, dtype=torch.float64))
    checkpoints.restore()
    assert checkpoints.chosen_epoch == network.weight.item() == 1


def test_interrupt_during_the_copy_keeps_the_best_so_far(monkeypatch):
    """Ctrl-C while the weights of a better epoch are copied."""

    def interrupt():
        raise KeyboardInterrupt

    network = nn.Linear(1, 1)
    checkpoints = Checkpoints(network, torch.ones(2))
    nn.init.constant_(network.weight, 7)
    checkpoints.consider(0, torch.full((2,), 3.0, dtype=torch.float64))
    nn.init.constant_(network.weight, 8)
    monkeypatch.setattr(network, "state_dict", interrupt)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.consider(1, torch.full((2,), 1.0, dtype=torch.float64))
    checkpoints.restore()
    assert (checkpoints.chosen_epoch, checkpoints.epoch, network.weight.item()) == (0, 0, 7)

"""Which epoch's weights are kept."""

import math
import sys

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


def test_interrupt_during_the_copy_keeps_the_best_so_far(monkeypatch):
    """Ctrl-C while the weights of a better epoch are copied."""

    def interrupt():
        raise KeyboardInterrupt

    network = nn.Linear(1, 1)
    kept = BestEpoch(network)
    nn.init.constant_(network.weight, 7)
    kept.consider(0, 3.0)
    nn.init.constant_(network.weight, 8)
    monkeypatch.setattr(network, "state_dict", interrupt)
    with pytest.raises(KeyboardInterrupt):
        kept.consider(1, 1.0)
    kept.restore()
    assert (kept.epoch, network.weight.item()) == (0, 7)


def test_no_interrupt_is_swallowed():
    """Ctrl-C at any line that runs while weights are copied ends the call, in our code and in what it calls."""
    kept, lines = BestEpoch(nn.Linear(1, 1)), 0
    while interrupted_at_line(lines, lambda: kept.consider(0, 1.0)):
        lines += 1
    assert lines > 20
    assert kept.weights is not None


def interrupted_at_line(number, function):
    """Raise KeyboardInterrupt at a line, and return whether there was such a line; it has to leave the function."""
    line = -1

    def trace(_frame, event, _argument):
        nonlocal line
        line += event == "line"
        if line == number:
            raise KeyboardInterrupt
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(previous)
    assert line < number, f"the interrupt at line {number} was swallowed"
    return False

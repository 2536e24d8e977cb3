"""The curves of a training run: weighted means over the batches of an epoch, for tensors and arrays."""

import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from hetcal.exceptions import HetcalWarning, TrainingInterrupted, TrainingWarning
from hetcal.families import Laplace, StudentT
from hetcal.metrics import ce
from hetcal.metrics.history import CURVES, EpochRecord, History, ProgressBar
from hetcal.prediction import Prediction

RNG = np.random.default_rng(0)
Y, MEAN, STD, LOSS = RNG.normal(size=(3, 50)), RNG.normal(size=50), RNG.uniform(0.5, 2, 50), RNG.normal(size=50)
WEIGHT = RNG.uniform(0.5, 2, 50)


def curves(record):
    values = {name: [] for name in CURVES}
    record.append_to(values)
    return values


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor])
def test_curves_are_weighted_means_over_all_batches(convert):
    """Two batches of different size; the own loss of the second is one number for all of its rows."""
    y, record = Y[0], EpochRecord()
    for rows, own in ((slice(0, 30), 2 * LOSS[:30]), (slice(30, 50), np.float64(7.0))):
        prediction = Prediction(convert(MEAN[rows]), convert(STD[rows]), family=Laplace())
        record.add(convert(y[rows]), convert(WEIGHT[rows]), prediction, convert(LOSS[rows]), convert(own))
    got = curves(record)
    assert_allclose(got["objective"], [np.average(LOSS, weights=WEIGHT)])
    own = np.concatenate([2 * LOSS[:30], np.full(20, 7.0)])
    assert_allclose(got["own_loss"], [np.average(own, weights=WEIGHT)])
    assert_allclose(got["rmse"], [np.sqrt(np.average((y - MEAN) ** 2, weights=WEIGHT))])
    assert_allclose(got["ce"], [ce(y, Prediction(MEAN, STD, family=Laplace()))])


def test_tensors_leave_their_graph():
    """What is kept for the curves keeps no graph alive, not even that of learned degrees of freedom."""
    std, df = torch.ones(50, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    record = EpochRecord()
    record.add(torch.zeros(50), torch.ones(50), Prediction(std * 0, std * 2, family=StudentT(df)), std, std.sum())
    assert record.family == StudentT(5.0)
    assert all(isinstance(column, np.ndarray) for column in record.batches[0])


def test_several_targets_classes_and_a_spread_that_is_not_finite():
    """Means over the targets; no rmse and ce for classes; no ce where it has no meaning."""
    record, two = EpochRecord(), np.stack([MEAN, MEAN], axis=1)
    record.add(Y[:2].T, WEIGHT, Prediction(two, np.ones((50, 2))), LOSS, LOSS)
    assert_allclose(curves(record)["rmse"], [np.sqrt(np.average(((Y[:2].T - two) ** 2).mean(1), weights=WEIGHT))])
    record = EpochRecord()
    record.add(np.zeros(50, dtype=np.int64), WEIGHT, Prediction(two, np.ones((50, 2))), LOSS, LOSS)
    assert curves(record)["rmse"] == curves(record)["ce"] == []
    record = EpochRecord()
    record.add(Y[0], WEIGHT, Prediction(MEAN, np.full(50, np.inf)), LOSS, LOSS)
    assert math.isnan(curves(record)["ce"][0])


@pytest.mark.parametrize(
    ("train", "validation", "criterion", "finished"),
    [
        ([3, 3, 3, 3], [3, 3, 3, 3], 3, 3),
        ([3, 2, 2, 2], [2, 2, 2, 2], 2, 2),  # while the curves of the training rows grew
        ([3, 3, 3, 3], [3, 3, 2, 2], 2, 2),  # while those of the validation rows grew
        ([1, 1, 1, 1], [1, 0, 0, 0], 0, 0),  # before the first epoch was judged
        ([3, 3, 2, 2], [0, 0, 0, 0], 0, 2),  # without validation rows
        ([2, 2, 0, 0], [2, 2, 0, 0], 2, 2),  # classes
        ([0, 0, 0, 0], [0, 0, 0, 0], 0, 0),
    ],
)
def test_interrupted_history_ends_with_a_finished_epoch(train, validation, criterion, finished):
    """Ctrl-C may hit between any two values; then what is kept, drawn and saved has curves of equal length."""
    history = History(best_epoch=2)
    for curves_, lengths in ((history.train, train), (history.validation, validation)):
        for name, length in zip(CURVES, lengths, strict=True):
            curves_[name] += range(length)
    history.criterion += range(criterion)
    assert history.end_interrupted(is_validated=any(validation) or not any(train)) == (finished > 0)
    assert {len(curve) for curve in [*history.train.values(), *history.validation.values()]} <= {0, finished}
    assert len(history) == finished
    assert history.best_epoch == min(2, finished - 1)
    with pytest.raises(TrainingInterrupted) as end:
        history.raise_if_interrupted()
    assert end.value.history is history


def test_history_that_was_not_interrupted():
    History().raise_if_interrupted()


def test_an_empty_history():
    assert len(History()) == 0
    assert set(History().train) == set(History().validation) == set(CURVES)


@pytest.mark.parametrize(
    ("criterion", "expected"),
    [
        ([], False),  # without validation rows nothing is known
        ([1.0], True),  # one epoch is not the end
        ([1.0, 0.5], True),
        ([1.0, 1.1], False),
        ([1.0, 0.5, 0.4, 0.4, 0.4, 0.39, 0.39, 0.38], False),  # 0.01 of 0.62 in the last two of eight
        ([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3], True),
        ([1.0, 0.5, 0.2, 0.3, 0.4, 0.5, 0.3, 0.25], False),  # the best is long past
        ([math.inf, math.inf, math.inf, math.inf], False),
        ([-1.0, -2.0, -3.0, -4.0], True),  # a criterion need not be positive
    ],
)
def test_improving_until_the_end(criterion, expected):
    assert History(criterion=criterion).is_improving == expected


def test_warnings_of_an_early_end():
    """They are scikit-learn's, and hetcal's; a limit of which nothing is known to be lost is no reason to warn."""
    falling = [1.0, 0.5, 0.3, 0.1]
    with pytest.warns(
        ConvergenceWarning, match=r"^training reached max_seconds after 3 steps; the best weights"
    ) as one:
        History(criterion=falling, stopped="max_seconds").warn_of_early_end("3 steps", None)
    assert one[0].category is TrainingWarning
    assert issubclass(TrainingWarning, HetcalWarning)
    assert pickle.loads(pickle.dumps(TrainingWarning)) is TrainingWarning  # jobs send it to their parent
    for stopped in ("max_steps", "max_epochs"):
        with pytest.warns(TrainingWarning, match="^training ended at max_steps=4 while it was still improving; raise"):
            History(criterion=falling, stopped=stopped).warn_of_early_end("", "max_steps=4")
    for quiet, limit in (
        (History(criterion=falling, stopped="max_steps"), None),
        (History(criterion=falling, stopped="patience"), "max_steps=4"),
        (History(criterion=[1.0, 0.1, 0.1, 0.1, 0.1], stopped="max_steps"), "max_steps=4"),
        (History(criterion=falling, stopped="interrupted"), "max_steps=4"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quiet.warn_of_early_end("", limit)


def test_progress_is_drawn_or_reported(capsys):
    seen = []
    for progress in (True, False, lambda *steps: seen.append(steps)):
        with ProgressBar(progress, 10) as bar:
            bar.update()
            bar.set_postfix(held_out="0.5")
            bar.update(3)
            assert bar.done == 4
        drawn = capsys.readouterr().err
        assert ("training" in drawn and "/10" in drawn) == (progress is True)
    assert seen == [(1, 10), (4, 10)]

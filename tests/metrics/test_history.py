"""The curves of a training run: weighted means over the batches of an epoch, for tensors and arrays."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from hetcal.families import Laplace, StudentT
from hetcal.metrics import ce
from hetcal.metrics.history import CURVES, EpochRecord, History
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


def test_an_empty_history():
    assert len(History()) == 0
    assert set(History().train) == set(History().validation) == set(CURVES)

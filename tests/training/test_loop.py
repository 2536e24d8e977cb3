"""The training loop: it learns, stops, weights, reports, and survives bad losses and Ctrl-C."""

import dataclasses
import inspect
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal import HCClassifier, HCRegressor
from hetcal.estimators import MCDropout, QuantileRange, VarianceHead, predict
from hetcal.exceptions import TrainingDivergedError, TrainingInterrupted, TrainingWarning
from hetcal.networks import MLP
from hetcal.objectives import gaussian_nll, nll_loss, scaled_crps, squared_error
from hetcal.prediction import Prediction
from hetcal.training import TrainingSettings, train
from hetcal.training.loop import TrainingRun
from hetcal.training.rows import batches, check_rows, split_tensors
from hetcal.training.step import rate_factor

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(400, 2, generator=GENERATOR)
Y = X[:, 0] + 0.1 * torch.randn(400, generator=GENERATOR)
SETTINGS = TrainingSettings()


def head(**settings):
    return VarianceHead(MLP(2, 2, width=16, depth=2, generator=torch.Generator().manual_seed(1), **settings))


class Scripted:
    """An objective with prescribed values, to see what the loop does with them."""

    def __init__(self, values):
        # an epoch of one training batch and one validation block, which is judged twice: objective and criterion
        self.values = iter([value for train, validation in values for value in (train, validation, validation)])

    def __call__(self, prediction, y):
        return next(self.values) + 0 * squared_error(prediction, y)


def test_learns():
    """Two hundred epochs on a straight line with noise 0.1 find both the line and the noise."""
    estimator = head()
    train(estimator, gaussian_nll, X, Y, max_epochs=200, learning_rate=3e-3)
    prediction = predict(estimator, X)
    assert (prediction.mean - X[:, 0]).square().mean().sqrt() < 0.1
    assert_allclose(prediction.std.mean(), 0.1, rtol=0.5)


def test_history_has_every_curve():
    """Objective, own loss, RMSE and CE of training and validation rows, one value an epoch."""
    estimator = QuantileRange(MLP(2, 3, width=8))
    history = train(estimator, gaussian_nll, X, Y, max_epochs=5)
    for curves in (history.train, history.validation):
        assert set(curves) == {"objective", "own_loss", "rmse", "ce"}
        for values in curves.values():
            assert len(values) == len(history) == 5
            assert np.isfinite(values).all()
    assert min(history.validation["own_loss"]) > 0


def test_best_weights_are_restored():
    """The estimator ends with the weights of the epoch that the history names."""
    estimator = head()
    history = train(estimator, gaussian_nll, X, Y, max_epochs=30, learning_rate=0.05)
    assert 0 < history.best_epoch == int(np.argmin(history.criterion))
    _, validation = split_tensors(check_rows(X, Y, None, SETTINGS), 0.1, torch.Generator().manual_seed(0))
    prediction = predict(estimator, validation.x)
    kept = history.criterion[history.best_epoch]
    assert_allclose(scaled_crps(prediction, validation.y).mean(), kept, rtol=1e-4)
    expected = history.validation["objective"][history.best_epoch]
    assert_allclose(gaussian_nll(prediction, validation.y).mean(), expected, rtol=1e-4)
    assert not estimator.training


def test_history_knows_the_validation_rows():
    """Their indices among the given rows: the criterion can be recomputed from them."""
    estimator = head()
    history = train(estimator, squared_error, X, Y, max_epochs=5, seed=3)
    rows = history.validation_rows
    assert len(rows) == len(set(rows)) == 40
    error = squared_error(predict(estimator, X[rows]), Y[rows]).mean()
    assert_allclose(error, history.criterion[history.best_epoch], rtol=1e-4)
    assert train(head(), gaussian_nll, X, Y, max_epochs=1, validation_fraction=0).validation_rows == []
    groups = torch.arange(400) // 40
    rows = train(head(), gaussian_nll, X, Y, max_epochs=1, groups=groups).validation_rows
    assert len(set(groups[rows].tolist())) == 1


def test_several_targets_weigh_the_same():
    """Losses, criterion and curves are means over the targets."""
    network = MLP(2, 4, width=16, depth=2, generator=torch.Generator().manual_seed(1))
    estimator = VarianceHead(network, n_targets=2)
    before = predict(estimator, X).numpy()
    y = torch.stack([Y, 3 * Y - 1], dim=1)
    history = train(estimator, gaussian_nll, X, y, max_epochs=8, batch_size=400, validation_fraction=0.2)
    training = np.setdiff1d(np.arange(400), history.validation_rows)
    z = (y.numpy() - before.mean)[training] / before.std[training]
    loss = (z**2 / 2 + np.log(before.std[training])).mean()
    assert_allclose(history.train["objective"][0], loss, rtol=1e-4)
    rmse = np.sqrt(((y.numpy() - before.mean)[training] ** 2).mean())
    assert_allclose(history.train["rmse"][0], rmse, rtol=1e-4)
    rows = history.validation_rows
    kept = scaled_crps(predict(estimator, X[rows]), y[rows]).mean()
    assert_allclose(kept, history.criterion[history.best_epoch], rtol=1e-4)


def test_labels_have_no_rmse():
    """Integers are classes: the mean is of logits, and only the losses have curves."""

    def cross_entropy(prediction, y):
        return nn.functional.cross_entropy(prediction.mean, y, reduction="none")

    estimator = VarianceHead(MLP(2, 6, width=8, depth=1), n_targets=3)
    history = train(estimator, cross_entropy, X, (X[:, 0] > 0).long(), max_epochs=3)
    assert len(history) == len(history.criterion) == 3
    assert history.train["rmse"] == history.validation["ce"] == []


class Told(VarianceHead):
    """Records which rows are announced, and which rows it sees."""

    def __init__(self, network):
        super().__init__(network)
        self.told, self.seen = [], []

    def at_rows(self, index, n_train):
        assert self.training
        self.told.append((index.tolist(), n_train))

    def forward(self, x):
        if self.training:
            self.seen.append(x)
        return super().forward(x)


def test_at_rows_announces_every_batch():
    """In training only, before every batch: indices below n_train, each once per epoch, always for the same row."""
    estimator = Told(MLP(2, 2, width=8, depth=1))
    train(estimator, gaussian_nll, X, Y, max_epochs=3, batch_size=100)
    predict(estimator, X)
    assert len(estimator.told) == len(estimator.seen) == 3 * 4
    rows = {}
    for epoch in range(3):
        told = estimator.told[4 * epoch : 4 * epoch + 4]
        assert {n_train for _, n_train in told} == {360}
        assert sorted(number for index, _ in told for number in index) == list(range(360))
    for (index, _), x in zip(estimator.told, estimator.seen, strict=True):
        for number, row in zip(index, x.tolist(), strict=True):
            assert rows.setdefault(number, row) == row


def test_weight_decay():
    """Without any gradient a weight shrinks, and what is named raw_* stays."""

    class Idle(nn.Module):
        n_outputs = 1

        def __init__(self):
            super().__init__()
            self.weight, self.raw_rate = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))

        def forward(self, x):
            return Prediction(0 * x[:, 0] * self.weight * self.raw_rate, torch.ones(len(x)))

        def own_loss(self, prediction, y, n_train):
            return torch.zeros(())

    estimator = Idle()
    train(estimator, squared_error, X, Y, max_epochs=20, weight_decay=1.0, validation_fraction=0)
    assert estimator.weight < 0.99
    assert estimator.raw_rate == 1


@pytest.mark.parametrize(
    ("n", "decay", "noise"), [(9, 0.5, 0.3), (400, 0.5, 0.1), (1000, 0.5, 2 / 1000**0.5), (4000, 0.125, 2 / 4000**0.5)]
)
def test_weight_decay_and_input_noise_depend_on_the_number_of_rows(n, decay, noise):
    """One unit for `train` and the models above it: decay fades beyond 1,000 rows, noise as 1 / sqrt(n), at most 0.3.

    n is the number of all rows, those for validation included.
    """
    settings = TrainingSettings(weight_decay=0.5, input_noise=2.0)
    rows = check_rows(torch.zeros(n, 2), torch.zeros(n), None, settings)
    run = TrainingRun(head(), gaussian_nll, rows, None, settings)
    assert run.noise_std == noise
    assert {group["weight_decay"] for group in run.step.optimizer.param_groups} == {decay}


def test_settings_are_immutable_and_have_the_defaults_of_the_models():
    """Of those that both have; those of the regressor are None, which is what suits the estimator."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        SETTINGS.max_epochs = 3
    defaults = {field.name: field.default for field in dataclasses.fields(TrainingSettings)}
    for model, same in ((HCClassifier, defaults), (HCRegressor, dict.fromkeys(defaults) | {"objective_weight": 1.0})):
        parameters = inspect.signature(model).parameters
        shared = set(defaults) & set(parameters) - {"device", "progress"}
        assert len(shared) >= 9
        assert {name: parameters[name].default for name in shared} == {name: same[name] for name in shared}


def test_an_unknown_setting_is_refused():
    with pytest.raises(
        ValueError, match=r"setting must be one of .*got setting='max_epoch'; did you mean 'max_epochs'?"
    ):
        train(head(), gaussian_nll, X, Y, max_epoch=3)


class Recorder(VarianceHead):
    """Records the share of its dropout rate that is in force in each training step."""

    shares: list[float]

    def at_rows(self, index, n_train):
        self.shares = [*getattr(self, "shares", []), self.network[2].share]


@pytest.mark.parametrize(
    ("settings", "last"), [({}, 0.0), ({"validation_fraction": 0.0}, 1.0)], ids=["validation rows", "none"]
)
def test_dropout_of_a_regularizer_falls_with_the_learning_rate(settings, last):
    """It starts in full and is all but gone in the last step; without validation rows nothing would stop overfitting.

    Afterwards the layer is what it was.
    """
    estimator = Recorder(MLP(2, 2, width=8, depth=1, dropout=0.3))
    train(estimator, gaussian_nll, X, Y, max_epochs=30, **settings)
    assert estimator.shares[0] == 1
    assert_allclose(estimator.shares[-1], last, atol=1e-3)
    assert sorted(estimator.shares, reverse=True) == estimator.shares
    assert estimator.network[2].share == 1


def test_dropout_that_sigma_comes_from_stays():
    """Otherwise sigma would vanish by itself."""
    estimator = MCDropout(MLP(2, 1, width=8, depth=1, dropout=0.3))
    rows = check_rows(X, Y, None, SETTINGS)
    assert TrainingRun(estimator, gaussian_nll, rows, None, SETTINGS).dropout == []


def test_patience():
    """Training stops `patience` steps after the best epoch; 50 rows are one step an epoch."""
    script = [(5.0, 1.0), (5.0, 0.5), *[(5.0, 0.7)] * 20]
    history = train(head(), Scripted(script), X[:50], Y[:50], max_epochs=20, patience=3)
    assert history.stopped == "patience"
    assert history.best_epoch == 1
    assert len(history) == 5


def test_patience_counts_steps():
    """Without learning no epoch is better than the first; 100 steps later training stops, 1 or 3 steps an epoch."""
    for n, epochs in ((50, 101), (400, 35)):
        history = train(head(), gaussian_nll, X[:n], Y[:n], learning_rate=1e-30, patience=100)
        assert (history.stopped, len(history)) == ("patience", epochs)


def test_max_steps_bounds_the_training(monkeypatch):
    """400 rows, 360 to train, are 3 steps an epoch: the tenth step is the first of the fourth epoch, and the last."""
    taken = []
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: taken.append(1))
    history = train(head(), gaussian_nll, X, Y, max_steps=10)
    assert history.stopped == "max_steps"
    assert len(history) == 4
    assert len(taken) == 10


@pytest.mark.parametrize("n", [50, 400])
def test_the_learning_rate_falls_to_nothing_for_few_rows_too(n, monkeypatch):
    """Over the planned steps, however few: the last is far below the peak."""
    rates = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(
        torch.optim.AdamW, "step", lambda self: (rates.append(self.param_groups[0]["lr"]), step(self))[1]
    )
    train(head(), gaussian_nll, X[:n], Y[:n], max_epochs=40)
    assert max(rates) > 1.9e-3
    assert rates[-1] < 2e-5


def test_learning_rate_rises_then_falls_to_nothing():
    """A hundredth in the first step, the whole at 100, half of it half-way, none at the end and beyond."""
    assert_allclose(
        [rate_factor(step, 10_000) for step in (0, 100, 5000, 10_000, 20_000)], [0.01, 1, 0.5, 0, 0], atol=3e-4
    )


def test_rows_get_new_noise_in_each_step_and_stay_what_they_are():
    """Noise of the requested size (20,000 draws: within 3 %), different each time; the data do not change."""
    rows = check_rows(torch.zeros(2000, 10), torch.zeros(2000), None, SETTINGS)
    generator = torch.Generator().manual_seed(0)
    first, second = (next(batches(rows, 2000, generator, noise_std=0.2)).x for _ in range(2))
    assert_allclose([first.std(), second.std()], 0.2, rtol=0.03)
    assert (first != second).all()
    assert (rows.x == 0).all()


def test_without_validation_the_last_epoch_counts():
    """No validation rows: all rows train for max_epochs, and nothing is thrown away."""
    history = train(head(), gaussian_nll, X, Y, max_epochs=4, validation_fraction=0)
    assert len(history) == 4
    assert history.best_epoch == 3
    assert history.validation["objective"] == []
    assert len(train(head(), gaussian_nll, X[:5], Y[:5], max_epochs=2)) == 2


def test_batches_are_balanced_and_complete():
    """129 rows in batches of 128 are two of 64 and 65, never 128 and 1; each row once."""
    rows = check_rows(X[:129], torch.arange(129.0), None, SETTINGS)
    parts = list(batches(rows, 128, torch.Generator()))
    assert sorted(len(part) for part in parts) == [64, 65]
    assert sorted(torch.cat([part.y for part in parts]).tolist()) == list(range(129))


def test_split_is_random_disjoint_and_complete():
    rows = check_rows(X, torch.arange(400.0), None, SETTINGS)
    training, validation = split_tensors(rows, 0.1, torch.Generator().manual_seed(0))
    assert len(validation) == 40
    assert sorted([*training.y.tolist(), *validation.y.tolist()]) == list(range(400))


def test_split_keeps_groups_together():
    """No group is on both sides, about the requested fraction is held out, and both sides have rows."""
    groups = torch.arange(200) // 8
    rows = check_rows(torch.arange(200.0)[:, None], groups.float(), None, SETTINGS)
    for seed in range(20):
        training, validation = split_tensors(rows, 0.1, torch.Generator().manual_seed(seed), groups.numpy())
        assert not set(training.y.tolist()) & set(validation.y.tolist())
        assert sorted([*training.x[:, 0].tolist(), *validation.x[:, 0].tolist()]) == list(range(200))
        assert 16 <= len(validation) <= 24

    two = torch.tensor([0] * 190 + [1] * 10)
    training, validation = split_tensors(rows, 0.9, torch.Generator().manual_seed(0), two.numpy())
    assert {len(training), len(validation)} == {190, 10}


def test_weights_count_like_repetition():
    """Full batches: weights 1 and 3 give the gradient steps of rows given once and three times."""
    weights = torch.tensor([1.0, 3.0] * 10)
    repeated = torch.arange(20).repeat_interleave(weights.long())
    weighted, plain = head(), head()
    train(weighted, gaussian_nll, X[:20], Y[:20], sample_weight=weights, validation_fraction=0, max_epochs=5)
    train(plain, gaussian_nll, X[repeated], Y[repeated], validation_fraction=0, max_epochs=5)
    assert_allclose(predict(weighted, X).mean, predict(plain, X).mean, atol=1e-5)


def test_bad_steps_are_skipped():
    """A non-finite loss in between is skipped, and training goes on with finite weights."""
    script = [(5.0, 1.0), (math.nan, 0.9), (math.inf, 0.8), *[(5.0, 0.7)] * 5]
    estimator = head()
    history = train(estimator, Scripted(script), X[:50], Y[:50], max_epochs=8)
    assert len(history) == 8
    assert all(torch.isfinite(parameter).all() for parameter in estimator.parameters())


def test_divergence_is_an_error_with_advice_and_keeps_the_best_weights():
    """A loss that stays NaN ends in a clear error; the weights are those of the best epoch before it."""
    estimator = head()
    script = [(5.0, 1.0), *[(math.nan, 1.0)] * 100]
    message = (
        r"the loss must be finite, got loss=nan in 21 steps in a row \(step 22, epoch 21\); lower the learning_rate"
    )
    with pytest.raises(TrainingDivergedError, match=message):
        train(estimator, Scripted(script), X[:50], Y[:50], max_epochs=90, patience=80)
    assert all(torch.isfinite(parameter).all() for parameter in estimator.parameters())


def interrupting(call):
    """The likelihood, which presses Ctrl-C when it is called for the given time."""
    calls = iter(range(1, 1000))

    def objective(prediction, y):
        if next(calls) == call:
            raise KeyboardInterrupt
        return gaussian_nll(prediction, y)

    return objective


@pytest.mark.parametrize("validation_fraction", [0.1, 0])
def test_interrupt_keeps_the_best_so_far(validation_fraction):
    """Ctrl-C is passed on, with the history up to the last finished epoch; the weights are those of its best epoch."""
    estimator, settings = head(), {"max_epochs": 100, "validation_fraction": validation_fraction}
    with pytest.raises(
        TrainingInterrupted, match=r"^training was interrupted; the best weights so far are kept$"
    ) as end:
        train(estimator, interrupting(14), X[:100], Y[:100], **settings)
    history = end.value.history
    assert history.stopped == "interrupted"
    assert {len(curve) for curve in history.train.values()} == {len(history)}
    # Calls per epoch: one step, and with validation rows their objective and their criterion.
    assert len(history) == (4 if validation_fraction else 13)
    if validation_fraction:
        assert len(history.criterion) == 4
        rows = history.validation_rows
        kept = gaussian_nll(predict(estimator, X[rows]), Y[rows]).mean()
        assert_allclose(float(kept), history.criterion[history.best_epoch], rtol=1e-4)
    assert not estimator.training


@pytest.mark.parametrize("call", [1, 2])
def test_interrupt_before_the_first_finished_epoch_keeps_nothing(call):
    """In the first step and in the first validation: nothing was chosen, so nothing claims to be kept."""
    with pytest.raises(KeyboardInterrupt) as end:
        train(head(), interrupting(call), X[:100], Y[:100], max_epochs=100)
    assert not isinstance(end.value, TrainingInterrupted)


def test_large_targets_do_not_break_the_first_steps():
    """Rows a thousand standard deviations away give clipped, finite steps."""
    estimator = head()
    y = Y.clone()
    y[0] = 1e6
    history = train(estimator, gaussian_nll, X, y, max_epochs=3)
    assert np.isfinite(history.train["objective"]).all()


def test_progress_bar(capsys):
    """Off by default, on when asked for."""
    train(head(), gaussian_nll, X, Y, max_epochs=2)
    assert capsys.readouterr().err == ""
    train(head(), gaussian_nll, X, Y, max_epochs=2, progress=True)
    assert "training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"y": Y[:, None]},
            r"y must be \(n,\), or \(n, k\) for k > 1 targets, got y='tensor of shape \(400, 1\)'; use y\[:, 0\]",
        ),
        ({"y": X}, r"the estimator's mean must have the shape of y, \(\d+, 2\), got .*; for k targets give y as"),
        ({"y": Y[:-1]}, r"y must have one value per row of x \(400\)"),
        ({"x": X * math.nan}, "x and y must be finite"),
        ({"sample_weight": -torch.ones(400)}, "sample_weight must be at least 0"),
        ({"sample_weight": torch.zeros(400)}, "sample_weight must be at least 0, not all 0"),
        ({"objective": nn.MSELoss()}, None),
        ({"objective": lambda prediction, y: y.mean()}, "objective must return one loss per row"),
        ({"device": "abacus"}, "device must be one that torch finds on this machine, got device='abacus'"),
        ({"gradient_clip": 0.5}, "gradient_clip must be at least 1"),
        ({"input_noise": -1}, "input_noise must be at least 0, got input_noise=-1"),
        ({"max_steps": 0}, "max_steps must be at least 1, got max_steps=0"),
        ({"weight_decay": -1}, "weight_decay must be at least 0, got weight_decay=-1"),
        ({"validation_fraction": 1}, "validation_fraction must be at least 0 and less than 1"),
        ({"learning_rate": 0}, "learning_rate must be greater than 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number, got batch_size=2.5"),
        ({"x": (10 * X).long(), "input_noise": 1.0}, r"input_noise must be 0 for x of type torch.int64.*token ids"),
        ({"groups": torch.zeros(400)}, r"groups must name at least 2 groups, got groups=\[0.0\]; omit groups"),
        ({"groups": torch.zeros(3)}, r"groups must have one number per row \(400\), got groups='shape \(3,\)'"),
    ],
)
def test_wrong_arguments(change, message):
    """Each wrong argument is named. An (n, 1) target would broadcast silently."""
    arguments = {"estimator": head(), "objective": gaussian_nll, "x": X, "y": Y, **change}
    with pytest.raises((ValueError, TypeError, AttributeError), match=message):
        train(**arguments)


def test_a_batch_without_gradient_does_not_stop_training():
    """The usual norm of the gradient is learned from batches that have one."""
    calls = []

    def silent_at_first(prediction, y):
        calls.append(len(y))
        return squared_error(prediction, y) * (len(calls) > 1)

    estimator = VarianceHead(MLP(1, 2, width=8))
    x = torch.linspace(-1, 1, 64)[:, None]
    before = predict(estimator, x).mean
    train(estimator, silent_at_first, x, x[:, 0], max_epochs=20, validation_fraction=0, batch_size=64)
    assert (predict(estimator, x).mean - before).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((nll_loss, [[1.0]] * 20, torch.zeros(20)), r"x must be a torch tensor, got x='list'"),
        ((nll_loss, torch.zeros(20, 1), np.zeros(20)), r"y must be a torch tensor, got y='ndarray'"),
        (("nll", torch.zeros(20, 1), torch.zeros(20)), r"objective must be a function .*got objective='nll'"),
    ],
)
def test_wrong_types(arguments, message):
    with pytest.raises(TypeError, match=message):
        train(VarianceHead(MLP(1, 2)), *arguments)


def test_limit_that_ends_training_too_early():
    """A limit of the user's own, under which the criterion still falls; the default ones are the planned end."""
    limit = TrainingSettings(max_steps=5).limit_for(100)
    assert limit == "max_steps=5"
    assert TrainingSettings(max_epochs=5).limit_for(100) == "max_epochs=5"
    assert TrainingSettings(max_steps=9_000, max_epochs=600).limit_for(100) is None
    assert TrainingSettings(max_steps=8_000).limit_for(10**6) is None
    with pytest.warns(TrainingWarning, match="^training ended at max_epochs=3 while it was still improving"):
        train(head(), gaussian_nll, X[:100], 10 * X[:100, 0], max_epochs=3, learning_rate=1e-3)


def test_progress_counts_steps():
    """Up to the planned ones, of which early stopping may need fewer."""
    seen = []
    train(head(), gaussian_nll, X[:100], Y[:100], max_epochs=3, batch_size=50, progress=lambda *s: seen.append(s))
    assert seen == [(2, 6), (4, 6), (6, 6)]

"""Training with held-out rows: who sees what, when it stops, and which weights are kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from hetcal.estimators.cross_ensemble import CrossEnsemble
from hetcal.estimators.network_members import MemberMLPs
from hetcal.estimators.stacked import MemberNetworks
from hetcal.exceptions import TrainingDivergedError, TrainingWarning
from hetcal.families import Laplace
from hetcal.objectives import crps_loss
from hetcal.prediction import Prediction
from hetcal.training import cross_fitting
from hetcal.training.cross_fitting import CrossFit, FitRows, cross_fit
from hetcal.training.parts import draw_parts, number_of_parts
from hetcal.training.settings import CrossFitSettings

GROUPS, PARTS = 2, 4
MEMBERS = GROUPS * PARTS


def table(n=61, n_targets=1, groups=None, are_repeated=False, seed=0):
    """Rows that a tiny network can learn something from, with weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    y = x[:, :1] + 0.3 * rng.normal(size=(n, n_targets))
    weight = rng.uniform(0.5, 1.5, n)
    x, y, weight = (torch.tensor(values, dtype=torch.float32) for values in (x, y, weight / weight.mean()))
    return FitRows(x, y, weight, groups, are_repeated)


def ensemble_for(rows, parts=PARTS, dropout=0.1, seed=0):
    n_targets, members = rows.y.shape[1], GROUPS * parts
    networks = MemberMLPs(
        2,
        2 * n_targets,
        n_numbers=2,
        dropout=[dropout] * members,
        frequency_scale=[0.1] * members,
        width=8,
        depth=1,
        generator=torch.Generator().manual_seed(seed),
    )
    return CrossEnsemble(networks, n_groups=GROUPS, n_parts=parts, n_inputs=2, n_numbers=2, n_targets=n_targets)


def started(rows, parts=PARTS, objective=crps_loss, **settings):
    return CrossFit(ensemble_for(rows, parts), objective, rows, CrossFitSettings(**settings))


@pytest.fixture
def never_in_vain(monkeypatch):
    """No cycle of the learning rate is taken for one that brought nothing."""
    monkeypatch.setattr(CrossFit, "goes_on_after", lambda self, step: True)


# --- who holds out what ---------------------------------------------------------------------------------------------


def test_parts_are_of_equal_size_and_random():
    sizes = np.bincount(draw_parts(10, None, 4, np.random.default_rng(0)))
    assert sorted(sizes) == [2, 2, 3, 3]
    first, second = (draw_parts(50, None, 4, np.random.default_rng(seed)) for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_parts_of_groups_are_whole_and_balanced():
    """Ten groups of 1 to 10 rows in four parts: no part is larger than another by more than the largest group."""
    groups = np.repeat(np.arange(10), np.arange(1, 11))
    part = draw_parts(len(groups), groups, 4, np.random.default_rng(0))
    assert all(len(set(part[groups == group])) == 1 for group in range(10))
    sizes = np.bincount(part, minlength=4)
    assert np.ptp(sizes) <= 10
    assert sizes.min() > 0


def test_a_group_of_most_rows_is_a_part_of_its_own():
    groups = np.append(np.zeros(80, dtype=np.int64), np.repeat(np.arange(1, 11), 2))
    part = draw_parts(100, groups, 4, np.random.default_rng(0))
    assert set(groups[part == part[0]]) == {0}
    assert len(set(part)) == 4


def test_more_parts_for_few_rows():
    """The number of rows decides, not that of the groups, which only limit it."""
    assert [number_of_parts(n, None) for n in (3, 10, 600, 601)] == [2, 5, 8, 4]
    assert [number_of_parts(n, np.arange(n) % 7) for n in (600, 601)] == [3, 3]
    assert [number_of_parts(n, np.arange(n) % 300) for n in (600, 601)] == [8, 4]


@pytest.mark.parametrize(("n", "groups"), [(2, None), (3, None), (5, None), (8, None), (1000, None), (40, 2), (40, 5)])
def test_no_part_is_empty_and_every_member_has_rows(n, groups):
    """From two rows, or two groups, on."""
    codes = None if groups is None else np.arange(n) % groups
    parts = number_of_parts(n, codes)
    assert 2 <= parts <= (n if groups is None else groups)
    run = started(table(n, groups=codes), parts)
    assert all(len(rows) for rows in (*run.own, *run.seen))


@pytest.mark.parametrize("kind", ["rows", "groups", "one large group"])
def test_every_row_is_held_out_once_per_group(kind):
    """Own parts cover all rows once; a member trains on exactly the rest, less the rows it shares with the next."""
    n = 80
    codes = {
        "rows": None,
        "groups": np.arange(n) % 20,
        "one large group": np.where(np.arange(n) < 64, 0, np.arange(n)) % 80,
    }[kind]
    run = started(table(n, groups=codes))
    for group in range(GROUPS):
        members = range(PARTS * group, PARTS * (group + 1))
        assert_array_equal(np.sort(np.concatenate([run.own[member] for member in members])), np.arange(n))
        for number, member in enumerate(members):
            following = PARTS * group + (number + 1) % PARTS
            assert set(run.shared[member]) < set(run.own[following])
            held = set(run.own[member]) | set(run.shared[member])
            assert set(run.seen[member].tolist()) == set(range(n)) - held
            if codes is not None:
                assert not set(codes[run.seen[member]]) & set(codes[list(held)])
    if kind != "one large group":
        assert any(len(shared) for shared in run.shared)
    assert not np.array_equal(run.own[0], run.own[PARTS])  # groups of members have parts of their own


def test_shared_rows_are_unseen_by_two_members():
    run = started(table(200))
    for group in range(GROUPS):
        unseen = np.zeros(200)
        for member in range(PARTS * group, PARTS * (group + 1)):
            unseen += ~np.isin(np.arange(200), run.seen[member])
        shared = np.concatenate(run.shared[PARTS * group : PARTS * (group + 1)])
        assert_array_equal(np.flatnonzero(unseen == 2), np.sort(shared))
        assert_array_equal(unseen[np.setdiff1d(np.arange(200), shared)], 1)


def test_repeated_rows_train_on_all_rows():
    """There all members train on all rows, and nobody has a second opinion on rows that it has not seen."""
    run = started(table(are_repeated=True), max_steps=2)
    assert all(len(seen) == 61 for seen in run.seen)
    run.train()
    assert run.finish().seconds == []


# --- batches and steps ----------------------------------------------------------------------------------------------


def test_no_member_trains_on_rows_that_it_holds_out(monkeypatch, never_in_vain):
    """Batches of equal size; in each pass a member sees each of its rows at most once."""
    run = started(table(), max_epochs=3, batch_size=8)
    seen, original = [], CrossFit.orders
    monkeypatch.setattr(CrossFit, "orders", lambda self: (seen.append(index) or index for index in original(self)))
    run.train()
    assert {tuple(index.shape) for index in seen} == {(MEMBERS, 8)}
    steps_per_pass = run.n_train // 8
    assert len(seen) == 3 * steps_per_pass
    for member in range(MEMBERS):
        allowed = set(run.seen[member].tolist())
        for start in range(0, len(seen), steps_per_pass):
            rows = torch.cat([index[member] for index in seen[start : start + steps_per_pass]]).tolist()
            assert len(set(rows)) == len(rows)
            assert set(rows) <= allowed
    assert not torch.equal(seen[0], seen[steps_per_pass])  # another order in each pass


@pytest.mark.parametrize("max_steps", [1, 2, 7, 10, 31])
def test_max_steps_is_exact(never_in_vain, max_steps):
    run = started(table(), max_steps=max_steps)
    run.train()
    assert run.steps_done == max_steps
    assert run.history.stopped == "max_steps"
    assert len(run.history) >= 1


def test_few_steps_are_not_taken_for_a_cycle():
    """Of ten steps all are taken: a cycle of a step or two brings little even where training helps."""
    run = started(table(), max_steps=10, learning_rate=0.05)
    run.train()
    assert run.steps_done == 10


def test_max_epochs_is_exact(never_in_vain):
    """So many passes over the rows of a member, counted in whole batches."""
    run = started(table(), max_epochs=2, batch_size=10)
    run.train()
    assert run.steps_done == 2 * (run.n_train // 10)


def test_a_short_first_cycle_is_what_the_second_is_judged_by():
    """The first of 1,300 steps ends before any cycle is judged, but its scores are remembered."""
    run = started(table())
    ends = [round(end * run.steps) for end in cross_fitting.CYCLE_ENDS]
    assert ends[0] < cross_fitting.LEAST_STEPS < ends[1]
    run.lowest = torch.tensor([0.5, 0.6])
    assert run.goes_on_after(ends[0])
    assert not run.goes_on_after(ends[1])


def test_the_end_after_a_cycle_in_vain():
    """Less than 2 % better than at the end of the cycle before, in all groups; a gain in one of them is enough."""
    run = started(table())
    run.steps = 1500
    ends = [round(end * run.steps) for end in cross_fitting.CYCLE_ENDS]
    run.lowest = torch.tensor([0.5, 0.6])
    assert run.goes_on_after(ends[0])  # there is nothing to compare with
    run.lowest = torch.tensor([0.495, 0.58])
    assert run.goes_on_after(ends[1])
    run.lowest = torch.tensor([0.49, 0.57])
    assert run.goes_on_after(ends[2] - 1)
    assert not run.goes_on_after(ends[2])
    assert run.goes_on_after(ends[3])  # the last step ends training anyway


def test_max_seconds_stops_and_says_so(monkeypatch, never_in_vain):
    """With a clock that ticks once a step: training stops when the time is over, after a last look."""
    ticks = iter(range(1000))
    monkeypatch.setattr(cross_fitting, "monotonic", lambda: float(next(ticks)))
    rows = table()
    ensemble = ensemble_for(rows)
    with pytest.warns(TrainingWarning, match=r"^training reached max_seconds after 6 of 100 steps; the best"):
        history, _ = cross_fit(ensemble, crps_loss, rows, CrossFitSettings(max_steps=100, max_seconds=5))
    assert history.stopped == "max_seconds"
    assert len(history) >= 1
    assert next(ticks) == 7  # one at the start, then one for each of six steps


@pytest.mark.parametrize("n_train", [1, 2, 31, 100, 5000, 10**6])
def test_batches_and_steps_for_any_number_of_rows(n_train):
    """A batch is never larger than the rows; given settings are upper limits."""
    settings = CrossFitSettings()
    assert 1 <= settings.batch_for(n_train) <= n_train
    assert settings.steps_for(n_train) >= 1
    assert CrossFitSettings(batch_size=50).batch_for(n_train) == min(50, n_train)
    assert CrossFitSettings(max_steps=3).steps_for(n_train) == 3
    assert CrossFitSettings(max_steps=10**9).steps_for(n_train) == settings.steps_for(n_train)
    one_pass = CrossFitSettings(max_epochs=1)
    assert one_pass.steps_for(n_train) == min(settings.steps_for(n_train), n_train // one_pass.batch_for(n_train))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0}, "learning_rate must be greater than 0, got learning_rate=0"),
        ({"weight_decay": -1}, "weight_decay must be at least 0, got weight_decay=-1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got batch_size=0"),
        ({"max_steps": 0}, "max_steps must be at least 1, got max_steps=0"),
        ({"max_epochs": 1.5}, "max_epochs must be a whole number, got max_epochs=1.5"),
        ({"max_seconds": 0}, "max_seconds must be greater than 0, got max_seconds=0"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        CrossFitSettings(**settings)


def test_only_decaying_weights_decay():
    """With gradients of 0, a step changes the hidden layers only; parameters are views of what the optimizer has."""
    run = started(table(), weight_decay=0.3)
    before = weights_of(run.ensemble)
    run.optimizer.step()
    hidden = {f"weights.{layer}" for layer in range(len(run.ensemble.networks.weights))}
    changed = {name for name, value in weights_of(run.ensemble).items() if not torch.equal(value, before[name])}
    assert changed == hidden


# --- which weights are kept -----------------------------------------------------------------------------------------


def held_out_scores(run):
    """Weighted mean CRPS over all held-out rows of each group, member by member, in evaluation mode."""
    with torch.no_grad():
        members = run.ensemble.member_predictions(run.rows.x)
    scores, weight = np.zeros(GROUPS), run.rows.weight.double().numpy()
    for member, own in enumerate(run.own):
        mean, std = (values[member, own].double().numpy() for values in (members.mean, members.std))
        crps = Prediction(mean, std).crps(run.rows.y[own].double().numpy()).mean(1)
        scores[member // PARTS] += (weight[own] * crps).sum() / weight.sum()
    return scores


def weights_of(ensemble):
    return {name: value.detach().clone() for name, value in ensemble.networks.named_parameters()}


@pytest.fixture
def looks(monkeypatch):
    """The scores of each group and all weights at every look, computed beside the training."""
    original, seen = CrossFit.look, []

    def look(self, index, weight):
        self.ensemble.eval()
        seen.append((held_out_scores(self), weights_of(self.ensemble)))
        self.ensemble.train()
        original(self, index, weight)

    monkeypatch.setattr(CrossFit, "look", look)
    return seen


def assert_best_look_kept(ensemble, looks):
    scores = np.stack([scores for scores, _ in looks])
    best = scores.argmin(0)
    for name, value in ensemble.networks.named_parameters():
        for group in range(GROUPS):
            at = slice(PARTS * group, PARTS * (group + 1))
            assert torch.equal(value[at], looks[best[group]][1][name][at]), name
    return best


@pytest.mark.parametrize("n_targets", [1, 2])
def test_each_group_keeps_the_weights_of_its_best_look(looks, never_in_vain, n_targets):
    """By the mean CRPS over the held-out rows of all its members; the groups may differ in it."""
    rows = table(n_targets=n_targets)
    ensemble = ensemble_for(rows)
    wrong_later = Trouble(range(31, 61), lambda prediction, y: crps_loss(prediction, y + 5))
    history, _ = cross_fit(ensemble, wrong_later, rows, CrossFitSettings(max_steps=60, learning_rate=0.05))
    best = assert_best_look_kept(ensemble, looks)
    assert len(history) == len(looks)
    assert (best < len(looks) - 1).all()
    assert history.best_epoch == best.max()
    assert_allclose(history.criterion, [scores.mean() for scores, _ in looks], rtol=1e-4)


def test_statistics_of_a_network_are_those_of_its_best_look(never_in_vain):
    """The running means of batch norm belong to the weights that are kept, not to the last step."""
    rows = table()
    network = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    ensemble = CrossEnsemble(
        MemberNetworks(network, MEMBERS, 1, seed=0), n_groups=GROUPS, n_parts=PARTS, n_inputs=2, n_numbers=2
    )
    wrong_later = Trouble(range(21, 41), lambda prediction, y: crps_loss(prediction, y + 5))
    run = CrossFit(ensemble, wrong_later, rows, CrossFitSettings(max_steps=40, learning_rate=0.05))
    states, original = [], run.look

    def look(*arguments):
        before = run.lowest.clone()
        original(*arguments)
        states.append((run.lowest < before, {name: value.clone() for name, value in ensemble.networks.named_buffers()}))

    run.look = look
    run.train()
    run.finish()
    for name, value in ensemble.networks.named_buffers():
        for group in range(GROUPS):
            at = slice(PARTS * group, PARTS * (group + 1))
            best = [kept for is_better, kept in states if is_better[group]][-1]
            assert torch.equal(value[at], best[name][at])
    assert len(states[0][1]) == 3
    assert not states[-1][0].any()


def test_parts_of_different_size_are_padded_without_effect(looks, never_in_vain):
    """The largest part has 64 rows, the smallest 5: rows that fill up a part must not count."""
    groups = np.where(np.arange(80) < 64, 0, np.arange(80) - 63)
    rows = table(80, groups=groups)
    ensemble = ensemble_for(rows)
    history, held = cross_fit(ensemble, crps_loss, rows, CrossFitSettings(max_steps=5))
    assert_best_look_kept(ensemble, looks)
    assert_allclose(history.criterion, [scores.mean() for scores, _ in looks], rtol=1e-4)
    assert np.isfinite(held.mean).all()


def test_held_out_predictions_are_those_of_members_that_have_not_seen_the_row():
    """Of every group, linear models and trees included; second opinions by the members before, division by division."""
    rows = table(n_targets=2)
    run = started(rows, max_steps=3)
    run.train()
    held = run.finish()
    with torch.no_grad():
        mean, std = (values.numpy() for values in run.ensemble.group_predictions(rows.x))
    total = GROUPS + 4
    assert held.mean.shape == held.std.shape == (total, 61, 2)
    for group in range(total):
        first = PARTS * group if group < GROUPS else 0
        for row in range(61):
            number = next(j for j in range(PARTS) if row in run.own[first + j])
            assert row not in run.seen[first + number]
            assert_allclose(held.mean[group, row], mean[group, number, row], rtol=1e-5, atol=1e-5)
            assert_allclose(held.std[group, row], std[group, number, row], rtol=1e-5)
    assert [opinion.groups for opinion in held.seconds] == [
        [0, *range(GROUPS, total)],
        *([g] for g in range(1, GROUPS)),
    ]
    for first, opinion in zip(range(0, PARTS * GROUPS, PARTS), held.seconds, strict=True):
        assert sorted(opinion.rows) == sorted(np.concatenate(run.shared[first : first + PARTS]))
        for place, row in enumerate(opinion.rows):
            number = next(j for j in range(PARTS) if row in run.shared[first + j])
            assert row not in run.seen[first + number]
            assert_allclose(opinion.mean[:, place], mean[opinion.groups, number, row], rtol=1e-5, atol=1e-5)
            assert_allclose(opinion.std[:, place], std[opinion.groups, number, row], rtol=1e-5)


def test_other_members_do_not_see_their_held_out_rows():
    """A target changed in one part changes neither the linear model, nor the forest, nor a tree that holds it out.

    The number of boosted trees is common to all members, so only those that both runs have are compared.
    """
    rows = table()
    run = started(rows, max_steps=1)
    changed = FitRows(rows.x, rows.y.clone(), rows.weight)
    changed.y[run.own[0]] += 100.0
    other = started(changed, max_steps=1)
    for one in (run, other):
        one.train()
        one.finish()
    (linear, boosted, forests), others = run.ensemble.fitted, other.ensemble.fitted
    for before, after in ((linear(rows.x)[0], others[0](rows.x)[0]), (forests(rows.x)[0], others[2](rows.x)[0])):
        assert_allclose(before[:, 0], after[:, 0])
        assert (before[:, 1] - after[:, 1]).abs().max() > 1
    common = min(boosted.mean_trees.used, others[1].mean_trees.used)
    assert common > 0
    before, after = (members.mean_trees(rows.x)[:2, :common] for members in (boosted, others[1]))
    assert_allclose(before[0], after[0])
    assert (before[1] - after[1]).abs().max() > 1
    assert_allclose(boosted.mean_start[0], others[1].mean_start[0])


# --- reproducibility and trouble ------------------------------------------------------------------------------------


def test_same_seed_same_bits():
    """Training, held-out predictions and all; another seed gives other parts."""
    results = []
    for seed in (3, 3, 4):
        rows = table()
        ensemble = ensemble_for(rows)
        _, held = cross_fit(ensemble, crps_loss, rows, CrossFitSettings(max_steps=8, seed=seed))
        results.append((weights_of(ensemble), held))
    for name, value in results[0][0].items():
        assert torch.equal(value, results[1][0][name])
    assert_array_equal(results[0][1].mean, results[1][1].mean)
    assert not np.array_equal(results[0][1].mean, results[2][1].mean)


def test_global_generator_is_not_used():
    state = torch.random.get_rng_state()
    rows = table()
    cross_fit(ensemble_for(rows), crps_loss, rows, CrossFitSettings(max_steps=3))
    assert torch.equal(state, torch.random.get_rng_state())


class Trouble:
    """The CRPS, except in some of the training steps, in which `happen` replaces it."""

    def __init__(self, steps, happen):
        self.count, self.steps, self.happen = 0, steps, happen

    def __call__(self, prediction, y):
        if torch.is_grad_enabled():
            self.count += 1
            if self.count in self.steps:
                return self.happen(prediction, y)
        return crps_loss(prediction, y)


def interrupt(prediction, y):
    raise KeyboardInterrupt


def nan_loss(prediction, y):
    return crps_loss(prediction, y) * float("nan")


def test_interruption_keeps_the_best_weights(looks, never_in_vain):
    rows = table()
    ensemble = ensemble_for(rows)
    objective = Trouble({41}, interrupt)
    history, held = cross_fit(ensemble, objective, rows, CrossFitSettings(max_steps=60, learning_rate=0.3))
    assert history.stopped == "interrupted"
    assert_best_look_kept(ensemble, looks)
    assert np.isfinite(held.mean).all()
    assert not ensemble.training


def test_interruption_before_the_first_look_keeps_nothing():
    rows = table()
    with pytest.raises(KeyboardInterrupt):
        cross_fit(ensemble_for(rows), Trouble({3}, interrupt), rows, CrossFitSettings(max_steps=60))


def test_interruption_while_weights_are_kept(looks, never_in_vain, monkeypatch):
    """Ctrl-C between two tensors of the second look that improves: all weights are those of the first."""
    rows, calls, states = table(), iter(range(1000)), CrossFit.states
    ensemble = ensemble_for(rows)

    def break_off(run):
        if next(calls) != 2:  # at the start; the first look; the second one
            yield from states(run)
        else:
            yield states(run)[0]
            raise KeyboardInterrupt

    monkeypatch.setattr(CrossFit, "states", break_off)
    history, _ = cross_fit(ensemble, crps_loss, rows, CrossFitSettings(max_steps=60))
    assert (history.best_epoch, history.stopped) == (0, "interrupted")
    for name, value in ensemble.networks.named_parameters():
        assert torch.equal(value, looks[0][1][name]), name


def test_a_step_that_is_not_finite_is_omitted(never_in_vain):
    """The weights stay finite, and training goes on."""
    run = started(table(), objective=Trouble({2, 5}, nan_loss), max_steps=20)
    run.train()
    assert run.steps_done == 20
    assert all(torch.isfinite(value).all() for value in run.ensemble.networks.parameters())
    assert np.isfinite(run.history.criterion).all()


@pytest.mark.parametrize(("first", "steps"), [(3, 100), (0, 5), (0, 1)])
def test_loss_that_stays_not_finite_is_an_error(never_in_vain, first, steps):
    """Also if there are so few steps that none is left: initial weights are not a fit."""
    rows = table()
    objective = Trouble(set(range(first, 1000)), nan_loss)
    with pytest.raises(TrainingDivergedError, match=r"^the loss must be finite, got loss=nan in \d+ steps in a row"):
        cross_fit(ensemble_for(rows), objective, rows, CrossFitSettings(max_steps=steps))


def test_gradients_are_clipped_to_their_usual_norm():
    """A loss a million times as large in one step does not throw the weights away."""
    huge = Trouble({30}, lambda prediction, y: 1e6 * crps_loss(prediction, y))
    changes = []
    for objective in (crps_loss, huge):
        run = started(table(), objective=objective, max_steps=40)
        run.train()
        changes.append(run.history.criterion[-1])
    assert_allclose(changes[1], changes[0], rtol=0.2)


def test_history_has_the_family_of_the_members(monkeypatch):
    """Its calibration errors are those of the members' own distributions, not of Gaussian ones."""
    families = []

    class Watched(cross_fitting.EpochRecord):
        def add(self, y, weight, prediction, *losses):
            families.append(prediction.family)
            super().add(y, weight, prediction, *losses)

    monkeypatch.setattr(cross_fitting, "EpochRecord", Watched)
    run = started(replace(table(), family=Laplace()), max_steps=3)
    run.train()
    assert len(families) >= 2
    assert all(family == Laplace() for family in families)


def test_limit_that_ends_training_too_early():
    """A limit of the user's own, under which the criterion still falls; the planned steps are the planned end."""
    assert CrossFitSettings().limit_for(100) is None
    assert CrossFitSettings(max_steps=10**6).limit_for(100) is None
    assert CrossFitSettings(max_steps=50).limit_for(100) == "max_steps=50"
    assert CrossFitSettings(max_epochs=2).limit_for(100) == "max_epochs=2"
    rows = table()
    with pytest.warns(TrainingWarning, match="^training ended at max_steps=4 while it was still improving"):
        cross_fit(ensemble_for(rows), crps_loss, rows, CrossFitSettings(max_steps=4))

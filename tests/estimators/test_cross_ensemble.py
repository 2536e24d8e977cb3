"""The pool of members that hold out rows: its equations, and calibration from held-out predictions alone."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from torch import nn

from hetcal.estimators import predict
from hetcal.estimators.boosted_members import MEAN_ABSOLUTE
from hetcal.estimators.cross_ensemble import LEAST_LOG_STD, MOST_LOG_STD, CrossEnsemble, plan_groups
from hetcal.estimators.held_out import HeldOut, SecondOpinion, Stack
from hetcal.estimators.network_members import MemberMLPs
from hetcal.families import SCORES, Empirical
from hetcal.metrics import ce, ce_noise_floor, ce_quantile

GROUPS, PARTS = 2, 3


def ensemble_of(n_targets=1, seed=0, n_inputs=4):
    """Small members with drawn weights, all other members fitted, weights of groups, a widening and a skewed shape."""
    generator = torch.Generator().manual_seed(seed)
    networks = MemberMLPs(
        n_inputs,
        2 * n_targets,
        n_numbers=2,
        dropout=[0.2] * GROUPS * PARTS,
        frequency_scale=[0.3] * GROUPS * PARTS,
        width=8,
        depth=2,
        generator=generator,
    )
    ensemble = CrossEnsemble(
        networks, n_groups=GROUPS, n_parts=PARTS, n_inputs=n_inputs, n_numbers=2, n_targets=n_targets
    )
    x = training_rows(n_inputs)
    y = x[:, :n_targets] + torch.randn(30, n_targets, generator=generator)
    with torch.no_grad():
        networks.output.copy_(torch.randn(networks.output.shape, generator=generator))
        for module in ensemble.fitted:
            module.fit(x, y, torch.ones(30), [torch.arange(10 * part, 30) for part in range(PARTS)], seed=0)
    ensemble.group_weights.copy_(torch.tensor([0.4, 0.2, 0.15, 0.1, 0.1, 0.05]))
    ensemble.power.fill_(1.0)
    ensemble.floors[-2:] = 0.3
    ensemble.widening.fill_(1.7)
    ensemble.factor.copy_(torch.linspace(0.8, 0.9, n_targets))
    shapes = [Empirical(np.exp(SCORES / (2 + j))) for j in range(n_targets)]
    ensemble.set_shapes(shapes)
    return ensemble.eval()


def training_rows(n_inputs=4):
    return torch.randn(30, n_inputs, generator=torch.Generator().manual_seed(3))


def rows(n=9, n_inputs=4):
    """Some of them lie beyond the range of the training rows."""
    return 1.5 * torch.randn(n, n_inputs, generator=torch.Generator().manual_seed(5))


def nearest_inside(x):
    known = training_rows(x.shape[1])
    inside = torch.minimum(torch.maximum(x, known.amin(0)), known.amax(0))
    assert (inside != x).any(1).sum() in range(1, len(x))
    return inside


def pooled(ensemble, x, j):
    """Location, scale and widened scale of one target by the docstring's equations, in NumPy."""
    linear, *trees = ensemble.fitted
    inside = nearest_inside(x)
    members = ensemble.member_predictions(inside)
    shape = GROUPS, PARTS, len(x)
    mean, std = (values[..., j].detach().double().numpy().reshape(shape) for values in (members.mean, members.std))
    step = (linear(x)[0] - linear(inside)[0])[0]
    mean = mean + step[..., j].numpy()
    answers = [linear(x), *((mean + step, std) for mean, std in (module(inside) for module in trees))]
    others = [np.concatenate(values)[..., j] for values in zip(*answers, strict=True)]
    all_means, all_stds = np.concatenate([mean, others[0]]), np.concatenate([std, others[1]])
    all_stds[-2:] = np.hypot(all_stds[-2:], 0.3)  # the floor of the forests
    w = ensemble.group_weights.numpy()[:, None, None] / all_stds
    w /= w.sum(0)
    location, scale = (w * all_means).sum(0), (w * all_stds).sum(0)
    center = (w[0] * mean[0] + w[1] * mean[1]) / (w[0] + w[1])
    between = w[0] * (mean[0] - center) ** 2 + w[1] * (mean[1] - center) ** 2
    widened = np.sqrt(scale**2 + float(ensemble.widening) * between)
    return [values.mean(0) for values in (location, scale, widened)]


@pytest.mark.parametrize("n_targets", [1, 2])
def test_pool_is_its_equations(n_targets):
    ensemble, x = ensemble_of(n_targets), rows()
    with torch.no_grad():
        prediction = ensemble(x).numpy()
        for j in range(n_targets):
            one = prediction if n_targets == 1 else prediction.target(j)
            location, scale, widened = pooled(ensemble, x, j)
            shape, rho = Empirical(ensemble.shape[j].numpy()), float(ensemble.factor[j])
            for q in (0.01, 0.3, 0.5, 0.95):  # y = location + rho * s * T(z)
                assert_allclose(one.quantile(q), location + rho * widened * shape.quantile(q), rtol=1e-4, atol=1e-4)
            t_mean, t_std, _ = shape.standardized()
            assert_allclose(one.mean, location + rho * widened * t_mean, rtol=1e-4, atol=1e-4)
            assert_allclose(one.std, rho * widened * t_std, rtol=1e-4)
            means, _ = (values[..., j].double().numpy() for values in ensemble.group_predictions(x))
            shares = ensemble.shares(ensemble.group_predictions(x)[1])[..., j].numpy()
            between = (shares * (means - location) ** 2).sum(0).mean(0)
            assert_allclose(one.aleatoric_std, one.std * scale / np.sqrt(scale**2 + between), rtol=1e-4)
            assert_allclose(one.epistemic_std**2 + one.aleatoric_std**2, one.std**2, rtol=1e-5)


def test_members_have_a_mean_and_a_bounded_sigma():
    """Raw sigmas are logarithms; absurd ones are bounded, so that neither 0 nor infinity arises."""
    ensemble, x = ensemble_of(), rows() / 2
    mean, raw = ensemble.networks(x).chunk(2, dim=-1)
    assert_allclose(ensemble.member_predictions(x).mean.detach(), mean.detach())
    assert_allclose(ensemble.member_predictions(x).std.detach(), raw.exp().detach(), rtol=1e-5)
    for bias, bound in ((1e4, MOST_LOG_STD), (-1e4, LEAST_LOG_STD)):
        nn.init.constant_(ensemble.networks.output_bias, bias)
        assert_allclose(ensemble.member_predictions(rows()).std.detach(), np.exp(bound), rtol=1e-5)


def test_groups_are_networks_then_linear_members_then_trees():
    """For rows in the range of the training rows, every member predicts as it does alone."""
    ensemble, x = ensemble_of(n_targets=2), nearest_inside(rows())
    mean, std = ensemble.group_predictions(x)
    assert mean.shape == std.shape == (GROUPS + 4, PARTS, 9, 2)
    assert_allclose(mean[:2].flatten(0, 1).detach(), ensemble.member_predictions(x).mean.detach())
    places = slice(2, 3), slice(3, 4), slice(4, 6)
    for groups, module, floor in zip(places, ensemble.fitted, (0.0, 0.0, 0.3), strict=True):
        assert_allclose(mean[groups].detach(), module(x)[0])
        assert_allclose(std[groups].detach(), (module(x)[1] ** 2 + floor**2).sqrt())


def test_all_members_go_on_alike_beyond_the_training_rows():
    """From the nearest row inside, by the slope of the linear member of the same part; sigma is that of this row."""
    ensemble, x = ensemble_of(), rows()
    linear, inside = ensemble.linear_members, nearest_inside(rows())
    mean, std = ensemble.group_predictions(x)
    mean_inside, std_inside = ensemble.group_predictions(inside)
    step = (linear(x)[0] - linear(inside)[0])[0]
    assert step.abs().max() > 0.1
    assert_allclose((mean - mean_inside).detach(), step.expand(6, -1, -1, -1), atol=1e-6)
    assert_allclose(std.detach(), std_inside.detach())


def test_pool_is_the_average_of_predictions_like_held_out_ones():
    """Of one member per group each, pooled by the function that held-out predictions are calibrated with."""
    ensemble, x = ensemble_of(n_targets=2), rows()
    mean, std = (values.detach().numpy() for values in ensemble.group_predictions(x))
    stack = Stack(ensemble.group_weights.numpy(), float(ensemble.power), float(ensemble.widening), GROUPS)
    expected = np.mean([stack.pool(mean[:, part], std[:, part]) for part in range(PARTS)], axis=0)
    found = ensemble.pool(torch.from_numpy(mean), torch.from_numpy(std), is_widened=True)
    assert_allclose(np.stack(found), expected)
    assert_allclose(found[2] > found[1], True)


def test_epistemic_part_does_not_need_a_widening():
    """Members disagree whether or not that widens the prediction."""
    ensemble = ensemble_of()
    ensemble.widening.zero_()
    prediction = ensemble(rows()).numpy()
    assert (prediction.epistemic_std > 0).all()
    assert (prediction.epistemic_std < prediction.std).all()


def test_prediction_writes_no_state():
    """A pure function, so that threads can share a model: no buffer, weight, attribute or generator changes."""
    ensemble = ensemble_of()
    state = copy.deepcopy(ensemble.state_dict())
    drawn = ensemble.networks.generator.get_state()
    names = {id(module): set(module.__dict__) for module in ensemble.modules()}
    global_state = torch.random.get_rng_state()
    first, second = predict(ensemble, rows(70)), predict(ensemble, rows(70))
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.std, second.std)
    assert all(torch.equal(value, state[name]) for name, value in ensemble.state_dict().items())
    assert torch.equal(drawn, ensemble.networks.generator.get_state())
    assert torch.equal(global_state, torch.random.get_rng_state())
    assert names == {id(module): set(module.__dict__) for module in ensemble.modules()}


def test_prediction_of_a_row_does_not_depend_on_the_others():
    ensemble, x = ensemble_of(), rows(70)
    alone = predict(ensemble, x[60:61])
    assert_allclose(predict(ensemble, x).mean[60], alone.mean[0], rtol=1e-6)
    assert_allclose(predict(ensemble, x).std[60], alone.std[0], rtol=1e-6)


class Recorded(nn.Module):
    """Networks whose outputs for a row are known: x is the number of the row, `outputs` (members, n, 2)."""

    def __init__(self, outputs):
        super().__init__()
        self.register_buffer("outputs", torch.tensor(outputs, dtype=torch.float32))

    def forward(self, x):
        return self.outputs[:, x[:, 0].long()]


NOISES = {
    "normal": stats.norm(),
    "skewed": stats.expon(loc=-1),
    "heavy": stats.t(3, scale=3**-0.5),
}


def simulate(noise, n, seed, parts=4, sigmas=(0.3, 1.5), wrong_by=0.6):
    """Members with errors of their own and a sigma that is wrong by a factor; the noise depends on the row."""
    rng = np.random.default_rng(seed)
    truth, sigma = rng.normal(0, 2, n), rng.uniform(*sigmas, n)
    y = truth + sigma * noise.rvs(n, random_state=rng)
    errors = np.outer(np.array([0.3, 0.6]).repeat(parts), sigma)
    mean = truth + errors * rng.normal(size=(2 * parts, n))
    return y, mean, wrong_by * np.tile(sigma, (2 * parts, 1))


def held_out_of(mean, std, parts=4):
    """What would be held out: the first member of each group, a second opinion on some rows, and 0 by all others."""
    n = mean.shape[1]
    at = np.arange(n // 4)
    firsts = [parts * g for g in range(2)]
    seconds = [
        SecondOpinion([g], at, mean[None, first + 1, at, None], std[None, first + 1, at, None])
        for g, first in enumerate(firsts)
    ]
    means = np.concatenate([mean[firsts], np.zeros((4, n))])[..., None]
    stds = np.concatenate([std[firsts], np.full((4, n), 2.0)])[..., None]
    return HeldOut(means, stds, seconds)


@pytest.mark.parametrize("kind", NOISES)
def test_calibration_reaches_the_noise_floor(kind):
    """Calibrated on 4,000 held-out rows, the whole pool is calibrated on 2,000 rows that it has not seen.

    The bound is the 99 % quantile of the calibration error of a perfect model on so many rows, times 1.3, because the
    calibration rows have noise, too (the seed is fixed; false-alarm rate below 1 % for a new one). Before
    calibration the error is many times larger: sigma is too small by a factor, and the noise is not normal.
    """
    n, n_test = 4000, 2000
    y, mean, std = simulate(NOISES[kind], n + n_test, seed=3)
    test = slice(n, None)
    networks = Recorded(np.stack([mean[:, test], np.log(std[:, test])], axis=-1))
    ensemble = CrossEnsemble(networks, n_groups=2, n_parts=4, n_inputs=1, n_numbers=0)
    x = torch.arange(n_test, dtype=torch.float32)[:, None]
    ensemble.linear_members.inputs.fit(x, torch.ones(n_test))
    ensemble.linear_members.std.fill_(2.0)
    ensemble.boosted_members.std_start.fill_(np.log(2.0 * MEAN_ABSOLUTE))
    ensemble.forest_members.trees.values[:, 1].fill_(4.0)
    calibration = ensemble.calibrate(held_out_of(mean[:, :n], std[:, :n]), y[:n, None], np.ones(n))
    held = calibration.calibrated(ensemble)
    assert ce(y[:n], held) < ce_noise_floor(n)
    assert ce(y[test], mean[:, test].mean(0), std[:, test].mean(0)) > 3 * ce_noise_floor(n_test)
    assert ce(y[test], ensemble(x).numpy()) < 1.3 * ce_quantile(n_test, 0.99)


def test_calibration_learns_what_the_pool_gains():
    """The pool errs less than single members: without the factor it would be underconfident."""
    y, mean, std = simulate(stats.norm(scale=0.3), 8000, seed=0, sigmas=(1.0, 1.0))
    ensemble = CrossEnsemble(nn.Identity(), n_groups=2, n_parts=4, n_inputs=1, n_numbers=0)
    calibration = ensemble.calibrate(held_out_of(mean, std), y[:, None], np.ones(8000))
    held_std = torch.tensor([0.6, 0.6, 2, 2, 2, 2], dtype=torch.float64)[:, None, None, None]  # the same for all rows
    w = ensemble.shares(held_std)[:2, 0, 0, 0].numpy()
    one = y - np.tensordot(w, mean[::4], 1) / w.sum()
    pool = y - np.tensordot(w, mean.reshape(2, 4, -1).mean(1), 1) / w.sum()
    assert pool.std() / one.std() < 0.9
    assert_allclose(float(ensemble.factor[0]), pool.std() / one.std(), rtol=0.04)
    assert_allclose(calibration.location[:, 0], np.tensordot(w, mean[::4], 1), rtol=1e-5)


def test_calibration_of_several_targets():
    """Weights and widening are common, shapes and factors of each target its own."""
    y, mean, std = simulate(NOISES["skewed"], 2000, seed=0)
    one = held_out_of(mean, std)
    both = HeldOut(
        np.concatenate([one.mean, -one.mean], 2),
        np.concatenate([one.std, one.std], 2),
        [
            SecondOpinion(o.groups, o.rows, np.concatenate([o.mean, -o.mean], 2), np.concatenate([o.std, o.std], 2))
            for o in one.seconds
        ],
    )
    ensemble = CrossEnsemble(nn.Identity(), n_groups=2, n_parts=4, n_inputs=1, n_numbers=0, n_targets=2)
    ensemble.calibrate(both, np.column_stack([y, -y]), np.ones(2000))
    assert_allclose(ensemble.shape[1], -ensemble.shape[0].flip(0), rtol=1e-6, atol=1e-6)
    assert_allclose(ensemble.factor[0], ensemble.factor[1])
    single = CrossEnsemble(nn.Identity(), n_groups=2, n_parts=4, n_inputs=1, n_numbers=0)
    single.calibrate(one, y[:, None], np.ones(2000))
    assert_allclose(single.group_weights, ensemble.group_weights, atol=0.02)
    assert_allclose(single.shape[0], ensemble.shape[0], atol=0.05)


def test_certainty_is_preferred_unless_groups_are_held_out():
    """Where sigma varies a little and means nothing, certainty costs less than 1 %, so that the preference decides."""
    y, mean, std = simulate(NOISES["heavy"], 300, seed=0)
    held = held_out_of(mean, np.exp(0.15 * np.random.default_rng(1).normal(size=std.shape)))
    powers = []
    for are_groups in (False, True):
        ensemble = CrossEnsemble(nn.Identity(), n_groups=2, n_parts=4, n_inputs=1, n_numbers=0)
        ensemble.calibrate(replace(held, are_groups=are_groups), y[:, None], np.ones(300))
        powers.append(float(ensemble.power))
    assert powers == [1.0, 0.0]


def test_held_out_predictions_of_one_target():
    """`prediction` of one shape and `calibrated` of the ensemble's own agree."""
    y, mean, std = simulate(NOISES["heavy"], 500, seed=0)
    ensemble = CrossEnsemble(nn.Identity(), n_groups=2, n_parts=4, n_inputs=1, n_numbers=0)
    calibration = ensemble.calibrate(held_out_of(mean, std), y[:, None], np.ones(500))
    own = calibration.calibrated(ensemble)
    other = calibration.prediction(Empirical(ensemble.shape[0].numpy()))
    assert own.mean.shape == (500,)
    for a, b in zip((own.mean, own.std, own.quantile(0.9)), (other.mean, other.std, other.quantile(0.9)), strict=True):
        assert_allclose(a, b)


@pytest.mark.parametrize("n_inputs", [1, 10, 5000])
def test_groups_for_any_table(n_inputs):
    """Two or more groups with valid settings, which differ from each other."""
    for n in (2, 30, 1000, 1500, 1501, 10_000, 10**6):
        groups = plan_groups(n, n_inputs)
        assert len(set(groups)) == len(groups) > 1
        assert all(0 <= group.dropout < 1 and group.frequency_scale > 0 for group in groups)

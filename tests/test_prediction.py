"""Prediction: a distribution per row, on tensors and arrays, for one target and several."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.stats import norm

from hetcal.distributions import TabulatedPrediction
from hetcal.estimators.atoms import AtomicPrediction
from hetcal.families import GAUSSIAN, Laplace, StudentT
from hetcal.prediction import DistributionMixin, Prediction, column_names, join_predictions

MEAN, STD = np.array([0.0, -3.0, 100.0]), np.array([1.0, 0.5, 20.0])
EPISTEMIC, ALEATORIC = 0.6 * STD, 0.8 * STD  # squares add up
levels = st.floats(0.001, 0.999)
REFERENCES = {
    "gaussian": (GAUSSIAN, lambda mean, std: norm(mean, std)),
    "laplace": (Laplace(), lambda mean, std: stats.laplace(mean, std / np.sqrt(2))),
    "student_t": (StudentT(5.0), lambda mean, std: stats.t(5, mean, std * np.sqrt(3 / 5))),
}
every_family = pytest.mark.parametrize(("family", "reference"), REFERENCES.values(), ids=REFERENCES)


def test_against_scipy():
    """Interval, quantile and log density agree with scipy's normal distribution (eq. 2 and eq. 1)."""
    prediction = Prediction(MEAN, STD)
    assert_allclose(prediction.interval(0.9).T, norm.interval(0.9, MEAN, STD))
    assert_allclose(prediction.quantile(0.2), norm.ppf(0.2, MEAN, STD))
    y = np.array([1.0, -2.0, 90.0])
    assert_allclose(prediction.log_prob(y), norm.logpdf(y, MEAN, STD))


def test_shapes():
    """One level gives (n, 2), a list (n, 2, k); one quantile (n,), a list (n, k)."""
    prediction = Prediction(MEAN, STD)
    assert prediction.interval(0.9).shape == (3, 2)
    assert prediction.interval([0.5, 0.9, 0.95]).shape == (3, 2, 3)
    assert prediction.quantile(0.5).shape == (3,)
    assert prediction.quantile([0.1, 0.9]).shape == (3, 2)
    assert_allclose(prediction.interval([0.5, 0.9])[:, :, 1], prediction.interval(0.9))


def test_tensors_agree_with_arrays_and_keep_the_graph():
    """The same numbers on tensors, differentiable in mean and std."""
    mean = torch.tensor(MEAN, requires_grad=True)
    std = torch.tensor(STD, requires_grad=True)
    tensors, arrays = Prediction(mean, std), Prediction(MEAN, STD)
    assert_allclose(tensors.interval([0.5, 0.9]).detach(), arrays.interval([0.5, 0.9]))
    assert_allclose(tensors.log_prob(mean + std).detach(), arrays.log_prob(MEAN + STD))
    tensors.interval(0.9).sum().backward()
    assert_allclose(mean.grad, np.full(3, 2.0))
    assert_allclose(tensors.numpy().std, STD)
    assert isinstance(tensors.numpy().mean, np.ndarray)


@given(st.lists(levels, min_size=2, max_size=5).map(sorted))
def test_intervals_nest_and_quantiles_rise(several):
    """A higher level contains a lower one; quantiles never cross."""
    prediction = Prediction(MEAN, STD)
    lower, upper = prediction.interval(several)[:, 0], prediction.interval(several)[:, 1]
    assert (np.diff(lower, axis=1) <= 0).all()
    assert (np.diff(upper, axis=1) >= 0).all()
    assert (np.diff(prediction.quantile(several), axis=1) >= 0).all()


@pytest.mark.parametrize("wrong", [95, 0, 1, -0.1, np.nan, [0.5, 2.0], []])
def test_levels_are_fractions(wrong):
    """A level outside (0, 1) is refused with advice."""
    with pytest.raises(ValueError, match="level must"):
        Prediction(MEAN, STD).interval(wrong)


@every_family
def test_families_against_scipy(family, reference):
    """Interval, quantile, density, distribution function, and mean and std as they were given."""
    prediction, truth = Prediction(MEAN, STD, family=family), reference(MEAN, STD)
    y = np.array([1.0, -2.0, 90.0])
    assert_allclose(truth.mean(), MEAN)
    assert_allclose(truth.std(), STD)
    assert_allclose(prediction.interval(0.9).T, truth.interval(0.9))
    assert_allclose(prediction.quantile(0.2), truth.ppf(0.2))
    assert_allclose(prediction.log_prob(y), truth.logpdf(y))
    assert_allclose(prediction.cdf(y), truth.cdf(y))
    assert_allclose(prediction.z(y), (y - MEAN) / STD)


@every_family
def test_crps_is_in_the_units_of_y(family, reference):
    """Half the expected distance of two draws less that of a draw from y, by quantiles; and it scales with y."""
    prediction, truth = Prediction(MEAN, STD, family=family), reference(MEAN[:, None], STD[:, None])
    y = np.array([1.0, -2.0, 90.0])
    q = (np.arange(20_000) + 0.5) / 20_000
    draws = truth.ppf(q)  # (3, 20000), sorted
    spread = 2 * (draws * (2 * q - 1)).mean(axis=1)  # E |Y - Y'|
    expected = np.abs(draws - y[:, None]).mean(axis=1) - spread / 2
    assert_allclose(prediction.crps(y), expected, rtol=1e-3)
    assert_allclose(prediction.scaled(7.0, -2.0).crps(7 * y - 2), 7 * prediction.crps(y))


@every_family
def test_families_on_tensors(family, reference):
    """The same numbers, differentiable; `numpy` leaves the graph."""
    arrays = Prediction(MEAN, STD, family=family)
    mean, std = (torch.tensor(values, requires_grad=True) for values in (MEAN, STD))
    tensors = Prediction(mean, std, family=family)
    y = torch.tensor([1.0, -2.0, 90.0], dtype=torch.float64)
    for method in ("log_prob", "crps", "z"):
        assert_allclose(getattr(tensors, method)(y).detach(), getattr(arrays, method)(y.numpy()), rtol=1e-8)
    assert_allclose(tensors.quantile([0.1, 0.9]).detach(), arrays.quantile([0.1, 0.9]))
    tensors.crps(y).sum().backward()
    assert torch.isfinite(mean.grad).all()
    assert torch.isfinite(std.grad).all()
    assert tensors.numpy().family == family


def test_with_family():
    """The same mean and std with another shape; tails differ."""
    prediction = Prediction(MEAN, STD, EPISTEMIC, ALEATORIC)
    heavy = prediction.with_family(StudentT(3))
    assert heavy.family == StudentT(3)
    assert prediction.family == GAUSSIAN
    assert_allclose(heavy.std, STD)
    assert_allclose(heavy.epistemic_std, EPISTEMIC)
    assert (np.ptp(heavy.interval(0.999), axis=1) > np.ptp(prediction.interval(0.999), axis=1)).all()


@every_family
def test_shapes_of_several_targets(family, reference):
    """(n, k) in, (n, k, 2), (n, k, 2, L) and (n, k, L) out, as the docstrings say."""
    mean, std = np.arange(12.0).reshape(4, 3), np.arange(1.0, 13).reshape(4, 3)
    prediction, y = Prediction(mean, std, family=family), mean + 1
    assert prediction.interval(0.9).shape == (4, 3, 2)
    assert prediction.interval([0.5, 0.8, 0.9, 0.95, 0.99]).shape == (4, 3, 2, 5)
    assert prediction.quantile(0.5).shape == (4, 3)
    assert prediction.quantile([0.1, 0.9]).shape == (4, 3, 2)
    for method in ("log_prob", "crps", "cdf", "z"):
        assert getattr(prediction, method)(y).shape == (4, 3)
    for j in range(3):
        one = prediction.target(j)
        assert one.family == family
        assert_allclose(one.mean, mean[:, j])
        assert_allclose(one.interval([0.5, 0.9]), prediction.interval([0.5, 0.9])[:, j])
        assert_allclose(one.quantile(0.1), prediction.quantile(0.1)[:, j])
        assert_allclose(one.crps(y[:, j]), prediction.crps(y)[:, j])


def test_one_df_per_target():
    """Each target keeps its own tails, on arrays and tensors, and `target` picks them."""
    mean, std = np.arange(8.0).reshape(4, 2), np.arange(1.0, 9).reshape(4, 2)
    df = np.array([2.5, 20.0])
    y, q = mean + 1, [0.01, 0.5, 0.9]
    prediction = Prediction(mean, std, family=StudentT(df))
    learned = torch.tensor(df, requires_grad=True)
    tensors = Prediction(torch.tensor(mean), torch.tensor(std), family=StudentT(learned))
    assert isinstance(tensors.numpy().family.df, np.ndarray)
    for j in range(2):
        truth = stats.t(df[j], mean[:, j], std[:, j] * np.sqrt((df[j] - 2) / df[j]))
        assert prediction.target(j).family == StudentT(df[j])
        assert tensors.numpy().target(j).family == StudentT(df[j])
        assert_allclose(prediction.quantile(q)[:, j], truth.ppf(np.array(q)[:, None]).T)
        assert_allclose(tensors.quantile(q)[:, j].detach(), truth.ppf(np.array(q)[:, None]).T)
        assert_allclose(prediction.interval([0.5, 0.9])[:, j, :, 1].T, truth.interval(0.9))
        assert_allclose(prediction.target(j).interval(0.9).T, truth.interval(0.9))
        assert_allclose(prediction.log_prob(y)[:, j], truth.logpdf(y[:, j]))
        assert_allclose(tensors.log_prob(torch.tensor(y))[:, j].detach(), truth.logpdf(y[:, j]))
        assert_allclose(prediction.cdf(y)[:, j], truth.cdf(y[:, j]))
    tensors.target(1).log_prob(torch.tensor(y[:, 1])).sum().backward()
    assert learned.grad[0] == 0  # the other target's
    assert learned.grad[1] != 0
    shared = Prediction(mean, std, family=StudentT(4))
    assert shared.target(0).family == StudentT(4)


def columns(prediction):
    return [None if values is None else np.asarray(values) for values in prediction.columns]


@pytest.mark.parametrize("known", [True, False])
def test_parts_of_the_std_go_along(known):
    """Epistemic and aleatoric part, or their absence, through take, scaled, numpy, target and join; family too."""
    parts = (EPISTEMIC, ALEATORIC) if known else (None, None)
    family = StudentT(4.0)
    prediction = Prediction(MEAN, STD, *parts, family)

    def assert_is(result, mean, factor, rows=slice(None)):
        assert result.family == family
        expected = [mean, *(None if values is None else factor * values[rows] for values in (STD, *parts))]
        for got, wanted in zip(columns(result), expected, strict=True):
            assert (got is None) == (wanted is None)
            if wanted is not None:
                assert_allclose(got, wanted)

    assert_is(prediction.take([2, 0]), MEAN[[2, 0]], 1, [2, 0])
    assert_is(prediction.take(slice(1, 3)), MEAN[1:], 1, slice(1, 3))
    assert_is(prediction.scaled(10.0, 5.0), 10 * MEAN + 5, 10)
    assert_is(join_predictions([prediction.take([0]), prediction.take([1, 2])], np.concatenate), MEAN, 1)
    tensors = Prediction(*(None if values is None else torch.tensor(values) for values in prediction.columns), family)
    assert_is(join_predictions([tensors.take(slice(0, 2)), tensors.take(slice(2, 3))], torch.cat), MEAN, 1)
    assert_is(tensors.numpy(), MEAN, 1)
    assert all(values is None or values.dtype == np.float64 for values in tensors.numpy().columns)
    several = Prediction(*(None if v is None else np.column_stack([v + 1, v]) for v in prediction.columns), family)
    assert_is(several.target(1), MEAN, 1)
    if known:
        assert_allclose(prediction.epistemic_std**2 + prediction.aleatoric_std**2, prediction.std**2)


class Given(DistributionMixin):
    """A regressor that predicts what it is given."""

    def __init__(self, prediction):
        self.prediction = prediction

    def predict_dist(self, X):
        return self.prediction


X = np.arange(6).reshape(3, 2)
ROWS = Prediction(np.array([0.0, 10.0, 20.0]), np.array([1.0, 2.0, 3.0]))
TARGETS = Prediction(np.stack([ROWS.mean, -ROWS.mean], axis=1), np.ones((3, 2)))


def test_one_sided_bounds():
    """An upper bound of level 0.95 is the upper end of the central interval of level 0.9, not of 0.95."""
    model = Given(ROWS)
    assert_allclose(model.predict_bound(X), norm.ppf(0.95, ROWS.mean, ROWS.std))
    assert_allclose(model.predict_bound(X, 0.95, side="lower"), model.predict_interval(X, 0.9)[:, 0])
    assert_allclose(model.predict_bound(X, [0.5, 0.8], "lower"), ROWS.quantile([0.5, 0.2]))
    assert Given(TARGETS).predict_bound(X, [0.5, 0.8]).shape == (3, 2, 2)
    with pytest.raises(ValueError, match="side must be one of"):
        model.predict_bound(X, side="both")
    with pytest.raises(ValueError, match=r"level must be between 0 and 1, got level=95\.0"):
        model.predict_bound(X, 95)


def test_bounds_of_counts_hold_at_least_their_level():
    """A bound that is an atom has at least its probability on its side, itself included."""
    counts = AtomicPrediction(
        ROWS, np.arange(30.0), np.append(-np.inf, np.arange(29) + 0.5), np.append(np.arange(29) + 0.5, np.inf)
    )
    for level in (0.5, 0.9, 0.95):
        upper, lower = (Given(counts).predict_bound(X, level, side) for side in ("upper", "lower"))
        assert (counts.cdf(upper) >= level).all()
        assert (1 - counts.cdf_below(lower) >= level).all()
        assert (counts.cdf_below(upper) < level).all()


def test_frame_of_pandas_keeps_the_index():
    frame = pd.DataFrame(X, columns=["a", "b"], index=pd.Index(["x", "y", "y"], name="id"))
    got = Given(ROWS).predict_frame(frame, levels=[0.9, 0.5])
    assert got.columns.tolist() == ["mean", "std", "lower_90", "upper_90", "lower_50", "upper_50"]
    pd.testing.assert_index_equal(got.index, frame.index)
    assert_allclose(got[["lower_50", "upper_50"]], ROWS.interval(0.5))
    assert_allclose(got["mean"], ROWS.mean)


def test_frames_of_other_libraries_and_arrays():
    for frame in (pl.DataFrame({"a": [1, 2, 3]}), pa.table({"a": [1, 2, 3]})):
        got = Given(ROWS).predict_frame(frame)
        assert type(got) is type(frame)
        assert_allclose(np.asarray(got["upper_90"]), ROWS.interval(0.9)[:, 1])
    got = Given(ROWS).predict_frame(X, levels=0.9)
    assert isinstance(got, pd.DataFrame)
    assert got.columns.tolist() == ["mean", "std", "lower_90", "upper_90"]


def test_frame_of_several_targets():
    got = Given(TARGETS).predict_frame(X)
    assert got.columns.tolist() == [f"{name}_{j}" for j in (0, 1) for name in ("mean", "std", "lower_90", "upper_90")]
    assert_allclose(got["upper_90_1"], TARGETS.interval(0.9)[:, 1, 1])


def test_names_of_levels():
    """No rounding error of the level is seen in a name."""
    assert column_names([0.9, 0.29, 0.58])[2::2] == ["lower_90", "lower_29", "lower_58"]
    assert column_names([], lower=[0.999], upper=[0.07])[2:] == ["lower_bound_99.9", "upper_bound_7"]


def cells(html):
    return [re.findall(r"<t[dh]>(.*?)</t[dh]>", line) for line in re.findall(r"<tr>(.*?)</tr>", html)]


def test_notebooks_show_a_table():
    """The first and last rows, whatever the number; tensors and distributions by quantiles, too."""
    assert cells(ROWS._repr_html_()) == [
        ["", "mean", "std", "lower_90", "upper_90"],
        ["0", "0", "1", "-1.6449", "1.6449"],
        ["1", "10", "2", "6.7103", "13.29"],
        ["2", "20", "3", "15.065", "24.935"],
    ]
    assert ROWS._repr_html_().endswith("<p>Prediction of 3 rows</p>")
    tensors = Prediction(torch.tensor([5.0], requires_grad=True), torch.ones(1))
    assert cells(tensors._repr_html_())[1][:3] == ["0", "5", "1"]
    long = Prediction(1e5 * np.arange(1000.0), np.ones(1000))
    assert [line[0] for line in cells(long._repr_html_())] == ["", *"01234", "…", *map(str, range(995, 1000))]
    assert cells(long._repr_html_())[-1][1] == "99900000"
    assert [line[0] for line in cells(long.take(slice(10))._repr_html_())] == ["", *map(str, range(10))]
    table = TabulatedPrediction([0.1, 0.5, 0.9], [[-1.0, 0.0, 3.0]])
    assert table._repr_html_().endswith("<p>TabulatedPrediction of 1 row</p>")
    assert cells(Prediction(TARGETS.mean, TARGETS.std)._repr_html_())[0][-1] == "upper_90_1"
    assert Prediction(0.0, 1.0)._repr_html_() is None

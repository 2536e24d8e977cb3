"""Hostile input: every case either works (finite mean, finite positive std) or raises one clear sentence.

No silent garbage, no cryptic exception, for every estimator of the registry.
"""

import datetime
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError
from torch import nn

from hetcal import HCRegressor
from hetcal.estimators import ESTIMATORS, VarianceHead
from hetcal.exceptions import DegenerateDataWarning
from hetcal.families import StudentT
from hetcal.networks import MLP

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = X[:, 0] + 0.1 * RNG.normal(size=N)


@pytest.fixture(params=sorted(ESTIMATORS))
def model(request):
    few = {"members": 4} if request.param in ("ensemble", "ensemble_spread") else None
    return HCRegressor(request.param, estimator_options=few, width=8, depth=2, max_epochs=8, random_state=0)


def with_cell(value, dtype=float):
    changed = X.astype(dtype)
    changed[4, 1] = value
    return changed


def frame(**columns):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **columns})


WORKS = {
    "missing values": (with_cell(np.nan), Y),
    "float16": (X.astype(np.float16), Y),
    "float32": (X.astype(np.float32), Y.astype(np.float32)),
    "integers": ((X * 10).astype(np.int32), (Y * 10).astype(int)),
    "unsigned bytes": (np.abs(X * 10).astype(np.uint8), Y),
    "booleans": (X > 0, Y),
    "boolean target": (X, Y > 0),
    "object numbers": (X.astype(object), Y.astype(object)),
    "integers beyond float32": (
        np.int64(2**53) - (X * 1e6).astype(np.int64),
        np.int64(2**40) + (Y * 1e3).astype(np.int64),
    ),
    "not contiguous": (np.asfortranarray(np.hstack([X, X]))[:, ::2], Y[::-1][::-1]),
    "read only": (np.frombuffer(X.tobytes()).reshape(X.shape), np.frombuffer(Y.tobytes())),
    "lists": (X.tolist(), Y.tolist()),
    "one column": (X[:, :1], Y),
    "more columns than rows": (RNG.normal(size=(N, 200)), Y),
    "X in 1e12": (X * 1e12, Y),
    "X in 1e-12": (X * 1e-12, Y),
    "X in 1e200": (X * 1e200, Y),
    "X in 1e-200": (X * 1e-200, Y),
    "X beyond float32": (X * 1e39, Y),
    "X with an outlier of 1e30": (with_cell(1e30), Y),
    "X shifted by 1e9": (X + 1e9, Y),
    "y in 1e12": (X, Y * 1e12),
    "y in 1e-12": (X, Y * 1e-12),
    "y in 1e200": (X, Y * 1e200),
    "y in 1e-200": (X, Y * 1e-200),
    "y shifted by 1e9": (X, Y + 1e9),
    "y with an outlier of 1e15": (X, np.where(np.arange(N) == 3, 1e15, Y)),
    "y without noise": (X, X[:, 0]),
    "y of two values": (X, np.sign(Y)),
    "constant column": (np.column_stack([X, np.full(N, 7.0)]), Y),
    "missing column": (np.column_stack([X, np.full(N, np.nan)]), Y),
    "two rows": (X[:2], Y[:2]),
    "three rows": (X[:3], Y[:3]),
    "equal rows of unequal target": (np.repeat(X[:6], 10, axis=0), Y),
    "pandas": (frame(), Y),
    "pandas, mixed types": (
        frame(
            text=np.where(X[:, 2] > 0, "red", "blue"),
            flag=X[:, 2] > 0,
            label=pd.Categorical(np.where(X[:, 2] > 0, "u", "v")),
            holes=[None if i % 5 == 0 else f"t{i % 3}" for i in range(N)],
            nullable=pd.array([None if i % 7 == 0 else i for i in range(N)], dtype="Int64"),
            tristate=pd.array([None if i % 7 == 0 else i % 2 == 0 for i in range(N)], dtype="boolean"),
            objects=pd.Series([1, 2.5, True] * (N // 3), dtype=object),
            empty=[None] * N,
        ),
        Y,
    ),
    "pandas, odd index": (frame().set_index(np.arange(N)[::-1] * 3), pd.Series(Y, index=range(100, 100 + N))),
    "pandas, names that are numbers": (pd.DataFrame(X), Y),
    "polars": (pl.DataFrame({"a": X[:, 0], "t": ["x", None] * (N // 2), "f": [True, False] * (N // 2)}), pl.Series(Y)),
    "object array with text": (np.column_stack([X.astype(object), np.array(["p", "q"] * (N // 2), dtype=object)]), Y),
    "unused labels": (frame(label=pd.Categorical(["u", "v"] * (N // 2), categories=["u", "v", "w"])), Y),
}

DEGENERATE = {
    "constant y": (X, np.full(N, 5.0)),
    "zero y": (X, np.zeros(N)),
    "y constant but for rounding": (X, 1e9 + 1e-6 * Y),
    "all columns constant": (np.ones((N, 2)), Y),
    "all columns missing": (np.full((N, 2), np.nan), Y),
}

REFUSED = {
    "NaN in y": (X, np.where(np.arange(N) == 7, np.nan, Y), ValueError, r"y must be finite, got y=nan; .* row 7"),
    "inf in y": (X, np.where(np.arange(N) == 7, np.inf, Y), ValueError, r"y must be finite, got y=inf; .* row 7"),
    "inf in X": (with_cell(-np.inf), Y, ValueError, r"column 'x1' of X must not contain infinity.*row 4"),
    "text in y": (X, ["a"] * N, ValueError, r"y must hold numbers, got y='str.*HCClassifier.*convert"),
    "text objects in y": (
        X,
        np.array(["a"] * N, dtype=object),
        TypeError,
        r"y must hold numbers.*HCClassifier.*convert",
    ),
    "dates in y": (X, np.array(["2020-01-01"] * N, dtype="datetime64[D]"), ValueError, r"y must hold numbers"),
    "no y": (X, None, ValueError, r"y must be given"),
    "y too short": (X, Y[:-1], ValueError, r"y must have one value per row of X \(60\), got y='59 values'"),
    "three-dimensional y": (X, np.zeros((len(Y), 2, 2)), ValueError, r"y must be \(n,\), or \(n, k\) for k targets"),
    "y of rank 3": (X, Y[:, None, None], ValueError, r"y"),
    "complex X": (X * 1j, Y, ValueError, r"Complex data not supported"),
    "complex y": (X, Y * 1j, ValueError, r"Complex data not supported"),
    "one row": (X[:1], Y[:1], ValueError, r"at least 2 different rows.*n_samples=1"),
    "no rows": (X[:0], Y[:0], ValueError, r"0 sample"),
    "no columns": (X[:, :0], Y, ValueError, r"0 feature"),
    "empty frame": (frame().iloc[:0], Y[:0], ValueError, r"X must have at least one sample"),
    "frame without columns": (frame()[[]], Y, ValueError, r"X must have at least one feature"),
    "one-dimensional X": (X[:, 0], Y, ValueError, r"Expected 2D array"),
    "three-dimensional X": (X[:, :, None], Y, ValueError, r"dim 3"),
    "sparse X": (sparse.csr_array(X), Y, TypeError, r"X must be dense.*sparse.*toarray"),
    "text array": (np.full((N, 2), "a"), Y, ValueError, r"X must hold numbers if it is an array.*data frame"),
    "dict in X": (with_cell({"k": 1}, object), Y, TypeError, r"column 'x1' must hold numbers or text.*row 4"),
    "text among numbers": (with_cell("n/a", object), Y, ValueError, r"column 'x1' must hold numbers or text, not both"),
    "numbers as text": (frame(c=[str(v) for v in Y]), Y, ValueError, r"column 'c' must not hold numbers as text"),
    "durations": (frame(c=pd.to_timedelta(Y, unit="s")), Y, ValueError, r"column 'c' must hold .*turn durations"),
    "date objects": (
        frame(c=[datetime.date(2020, 1, 1)] * N),
        Y,
        ValueError,
        r"column 'c' must hold .*give the column a date type",
    ),
    "numbers as text in y": (
        X,
        np.array([str(v) for v in Y], dtype=object),
        TypeError,
        r"y must hold numbers.*convert",
    ),
    "lists in a frame": (pl.DataFrame({"a": [[1, 2]] * N}), Y, TypeError, r"column 'a' must hold"),
    "equal column names": (pd.DataFrame(X, columns=["a", "b", "a"]), Y, ValueError, r"names that differ.*\['a'\]"),
    "text as X": ("data.csv", Y, TypeError, r"y must be the name of a column of X"),  # a name is that of a file
    "None as X": (None, Y, ValueError, r"array"),
}


def check_finite(mean, std, n):
    assert mean.shape == std.shape == (n,)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()


@pytest.mark.parametrize("case", WORKS)
def test_works(model, case):
    """Unusual but honest data are fitted and predicted without a warning."""
    table, target = WORKS[case]
    mean, std = model.fit(table, target).predict(table, return_std=True)
    check_finite(mean, std, len(target))


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_data_warn(model, case):
    """Data that leave nothing to learn give finite numbers and a warning of its own class."""
    table, target = DEGENERATE[case]
    with pytest.warns(DegenerateDataWarning):
        model.fit(table, target)
    mean, std = model.predict(table, return_std=True)
    check_finite(mean, std, len(target))
    assert np.abs(mean - target).max() <= 5 * max(np.std(target), 1e-3 * np.abs(target).max(), 1e-6)


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_clear_sentence(case):
    """Wrong data raise an error that names the argument, its value and what to do."""
    table, target, error, message = REFUSED[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error, match=message):
            HCRegressor(max_epochs=2, random_state=0).fit(table, target)


TOO_WIDE = nn.Sequential(nn.Linear(7, 4), nn.Dropout(0.2), nn.Linear(4, 1))
SAMPLED = {"estimator": "mc_dropout"}
SETTINGS = [
    ({"estimator": "mc_droput"}, r"estimator must be one of .* got estimator='mc_droput'; did you mean 'mc_dropout'\?"),
    ({"objective": "gausian_nll"}, r"objective must be one of .*did you mean 'gaussian_nll'\?"),
    ({"estimator": 3}, r"estimator must be one of .*got estimator=3; choose one"),
    ({"estimator": dict}, r"estimator must be a name or a class with the member\(s\)"),
    ({"column_order": "by_nam"}, r"column_order must be one of .*did you mean 'by_name'\?"),
    ({"estimator": "mc_dropout", "dropout": 0}, r"dropout must be greater than 0 for mc_dropout, got dropout=0"),
    ({"dropout": 1.0}, r"dropout must be at least 0 and less than 1, got dropout=1.0"),
    ({"dropout": "high"}, r"dropout must be a finite number, got dropout='high'"),
    ({"width": 0}, r"width must be at least 1, got width=0"),
    ({"depth": 2.5}, r"depth must be a whole number, got depth=2.5"),
    ({"learning_rate": -1}, r"learning_rate must be greater than 0, got learning_rate=-1"),
    ({"learning_rate": float("nan")}, r"learning_rate must be a finite number, got learning_rate=nan"),
    ({"batch_size": True}, r"batch_size must be a whole number, got batch_size=True"),
    ({"max_epochs": 0}, r"max_epochs must be at least 1"),
    ({"estimator": "variance_head", "patience": 0}, r"patience must be at least 1"),
    (
        {"estimator": "variance_head", "validation_fraction": 1},
        r"validation_fraction must be at least 0 and less than 1",
    ),
    ({"estimator": "variance_head", "objective_weight": -0.5}, r"objective_weight must be at least 0"),
    ({"random_state": "seed"}, r"random_state must be a whole number"),
    ({"random_state": -1}, r"random_state must be at least 0"),
    (SAMPLED | {"estimator_options": {"sample": 3}}, r"estimator_options must be one of .*did you mean 'samples'\?"),
    (SAMPLED | {"estimator_options": {"samples": 3}}, r"samples must be at least 4 and at most 10000, got samples=3"),
    (
        SAMPLED | {"estimator_options": {"masks": "row"}},
        r"masks must be one of \['per_row', 'shared'\], got masks='row'",
    ),
    (
        {"network": nn.Sequential(nn.Linear(7, 4), nn.Dropout(0.2), nn.Linear(4, 1))},
        r"network must accept rows of 3 numbers, .*give a class or function",
    ),
    ({"network": lambda: None}, r"network must be callable as network\(n_inputs, n_outputs\)"),
    ({"network": 5}, r"network must be None, an nn.Module, or a class or function"),
    ({"estimator": VarianceHead(MLP(3, 2))}, r"estimator must be a name or a class, not an instance.*give the class"),
    ({"estimator_options": ["samples"]}, r"estimator_options must be a dict of settings, got estimator_options="),
    (SAMPLED | {"estimator_options": {"samples": 1}}, r"samples must be at least 4 for an objective that trains sigma"),
    (SAMPLED | {"estimator_options": {"samples": 4.0}}, r"samples must be a whole number, got samples=4.0"),
    (SAMPLED | {"objective_weight": 0.0}, r"objective_weight must be greater than 0.*no loss of its own"),
    (
        {"estimator": "variance_head", "family": StudentT([3, 4])},
        r"df must be one number, or one per target \(1\), got df=\[3, 4\]",
    ),
    ({"family": StudentT([3, 4])}, r"df must be one number for 'cross_ensemble', got df=\[3, 4\]"),
    ({"family": "student_t"}, r"family must have no parameter to learn for 'cross_ensemble'"),
    ({"patience": 5}, r"patience must be None for the estimator 'cross_ensemble', got patience=5"),
    ({"estimator_options": {"samples": 4}}, r"estimator_options must be None for 'cross_ensemble'"),
    ({"objective_weight": 0.5}, r"objective_weight must be 1 for 'cross_ensemble', got objective_weight=0.5"),
    ({"max_seconds": 0}, r"max_seconds must be greater than 0"),
    ({"target_transform": "sqrt"}, r"target_transform must be one of"),
    ({"device": "gpu"}, r"device must be .*got device='gpu'"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=[message[:40] for _, message in SETTINGS])
def test_wrong_settings(settings, message):
    """A wrong setting is refused by name, with the nearest right one."""
    with pytest.raises((ValueError, TypeError), match=message):
        HCRegressor(**settings).fit(X, Y)


@pytest.fixture(scope="module")
def fitted():
    return HCRegressor(width=8, depth=2, max_epochs=10, random_state=0).fit(frame(c=["u", "v"] * (N // 2)), Y)


def test_levels_are_fractions(fitted):
    """95 is not a level, nor are 0, 1 and NaN."""
    table = frame(c=["u", "v"] * (N // 2))
    message = r"level must be between 0 and 1, got level=95.0; give a fraction such as 0.95"
    with pytest.raises(ValueError, match=message):
        fitted.predict_interval(table, level=95)
    for wrong in (0, 1, np.nan, [0.5, 1.5], []):
        with pytest.raises(ValueError, match="level must"):
            fitted.predict_interval(table, level=wrong)
        with pytest.raises(ValueError, match="q must"):
            fitted.predict_quantiles(table, wrong)
    with pytest.raises(TypeError, match="level must be a number"):
        fitted.predict_interval(table, level="90%")


def test_predict_before_fit():
    """An unfitted model says so."""
    for method in ("predict", "predict_interval", "predict_quantiles", "predict_dist"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(HCRegressor(), method)(X)


def test_wrong_columns_in_predict(fitted):
    """Missing, extra and renamed columns are refused by name; a changed type too."""
    table = frame(c=["u", "v"] * (N // 2))
    with pytest.raises(ValueError, match=r"seen at fit time, yet now missing:\n- b"):
        fitted.predict(table[["a", "c"]])
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- extra"):
        fitted.predict(table.assign(extra=1.0))
    with pytest.raises(ValueError, match="expecting 3 features"), pytest.warns(UserWarning, match="feature names"):
        fitted.predict(np.hstack([X, X]))
    with pytest.raises(ValueError, match=r"column 'c' must hold text as in fit, got column 'c'='numbers'"):
        fitted.predict(table.assign(c=1.0))
    with pytest.raises(ValueError, match=r"column 'a' must hold numbers as in fit"):
        fitted.predict(table.assign(a="text"))
    with pytest.raises(ValueError, match=r"column 'a' of X must not contain infinity"):
        fitted.predict(table.assign(a=np.inf))


def test_predict_far_out_stays_finite(fitted):
    """Inputs far beyond the training rows, which overflow float32, still give finite numbers."""
    for value in (1e6, 1e39, -1e300):
        far = frame(c=["u", "v"] * (N // 2)).assign(a=value)
        check_finite(*fitted.predict(far, return_std=True), N)


def test_unseen_and_missing_labels(fitted):
    """Labels not seen in fit, and missing ones, are predicted."""
    for values in (["w"] * N, [None] * N, [np.nan, "u"] * (N // 2)):
        check_finite(*fitted.predict(frame(c=values), return_std=True), N)


def test_a_refused_refit_leaves_the_model_whole():
    """Predictions before and after a fit that fails are the same."""
    model = HCRegressor("variance_head", width=8, depth=1, max_epochs=3, random_state=0).fit(X, Y)
    before = model.predict(X)
    model.set_params(target_transform="log")
    with pytest.raises(ValueError, match="y must be greater than 0"):
        model.fit(10 * X + 3, Y - Y.max())
    assert_array_equal(model.predict(X), before)


def test_labels_that_read_as_numbers_are_labels_where_fit_saw_text():
    """A row's meaning does not depend on its neighbors: "10" alone is the label it was among "S" and "M"."""
    table = pd.DataFrame({"size": ["S", "M", "10", "nan"] * (N // 4)})
    model = HCRegressor("variance_head", width=8, depth=1, max_epochs=3, random_state=0).fit(table, Y)
    whole = model.predict(table)
    assert_array_equal(model.predict(table[2:3]), whole[2:3])
    assert_array_equal(model.predict(table[3:4]), whole[3:4])


def test_one_group_with_weight():
    """Groups whose rows have no weight do not count as groups."""
    weights = np.where(np.arange(N) < N // 2, 1.0, 0.0)
    with pytest.raises(ValueError, match=r"groups must name at least 2 groups"):
        HCRegressor(max_epochs=2).fit(X, Y, sample_weight=weights, groups=np.arange(N) // (N // 2))

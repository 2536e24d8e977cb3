"""One cell: the split is the documented one, the same for every method, and the figures are those of the model."""

import json
import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hetcal.datasets import heteroscedastic, skewed
from hetcal.methods import make
from hetcal.metrics import calibration_curve, evaluate
from hetcal.metrics.verdict import judge, judge_evidence
from hetcal.prediction import Prediction
from hetcal.studies.cells import Part, check_protocol, load_part, measure, run_cell, split_by_rule
from hetcal.studies.protocol import Cell, parse_protocol
from tests.studies.samples import TINY

SMALL = {"width": 8, "depth": 2, "max_epochs": 2}


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("n", [10, 506, 1000, 1999])
def test_random_split(n, seed):
    """A permutation of the rows with the seed, of which the first 80 % are for training: easy to reproduce."""
    train, test = split_by_rule("random", n, None, seed, test_fraction=0.2)
    order = np.random.default_rng(seed).permutation(n)
    assert len(train) == n * 8 // 10
    assert_array_equal(np.concatenate([train, test]), order)


def test_inner_split_leaves_the_test_rows_alone():
    """Settings are chosen on rows of the training part, which is split 80 to 20 once more."""
    outer, hidden = split_by_rule("random", 1000, None, 3, test_fraction=0.2)
    train, judge = split_by_rule("inner", 1000, None, 3, test_fraction=0.2)
    assert (len(train), len(judge)) == (640, 160)
    assert_array_equal(np.concatenate([train, judge]), outer)
    assert not set(hidden) & {*train, *judge}


def test_random_split_ignores_groups():
    groups = np.arange(100) // 10
    with_groups = split_by_rule("random", 100, groups, 3, 0.2)
    for part, expected in zip(with_groups, split_by_rule("random", 100, None, 3, 0.2), strict=True):
        assert_array_equal(part, expected)


@pytest.mark.parametrize("seed", range(5))
def test_grouped_split(seed):
    """Every row is on one side, no group on both, a fifth of the groups is tested, and another seed draws others."""
    groups = np.random.default_rng(0).integers(0, 50, size=1000)
    train, test = split_by_rule("grouped", 1000, groups, seed, test_fraction=0.2)
    assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(1000))
    assert not set(groups[train]) & set(groups[test])
    assert len(set(groups[test])) == 10
    again, _ = split_by_rule("grouped", 1000, groups, seed, test_fraction=0.2)
    assert_array_equal(train, again)
    other, _ = split_by_rule("grouped", 1000, groups, seed + 1, test_fraction=0.2)
    assert set(train) != set(other)
    # A limit on the rows takes the first ones, which must come from many groups.
    assert len(set(groups[train[:200]])) > 30


def test_grouped_split_without_groups():
    message = "data set must have groups for a grouped split, got data set=None; omit it from the grouped study"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        split_by_rule("grouped", 100, None, 0, 0.2)


@pytest.mark.parametrize("method", ["hnn", "quantile_hc", "dropout_hc"])
def test_figures_are_those_of_the_model(method):
    """Every method on the same rows of the same split, recomputed with the regressor alone."""
    options = {"estimator_options": {"prediction_samples": 5}} if method == "dropout_hc" else {}
    text = TINY.replace('"quantile_hc"', '"quantile_hc", "dropout_hc"')
    text += "\n[methods.dropout_hc]\nestimator_options = { prediction_samples = 5 }\n"
    protocol = parse_protocol(text)
    result = run_cell(protocol, Cell("table", "skewed", method, seed=1))

    data = skewed()
    order = np.random.default_rng(1).permutation(1000)
    train, test = order[:800], order[800:]
    model = make(method, random_state=1, **SMALL, **options).fit(data.X[train], data.y[train])
    mean, std = model.predict(data.X[test], return_std=True)
    metrics = {name: value for name, value in result["metrics"].items() if name != "seconds"}
    assert metrics == evaluate(data.y[test], mean, std)
    assert result["coverage"] == calibration_curve(data.y[test], mean, std).coverage.tolist()
    assert result["std_quantiles"] == [np.quantile(std, level / 100) for level in range(1, 100)]
    assert result["split"] == {"rule": "random", "n_train": 800, "n_test": 200}
    assert result["training"] == {
        "epochs": 2,
        "best_epoch": model.history_.best_epoch,
        "stopped": "max_epochs",
    }
    assert result["protocol"] == protocol.hash
    assert result["error"] is None
    assert result["settings"].items() >= {**SMALL, **options, "random_state": 1}.items()
    assert json.loads(json.dumps(result)) == result


def test_measure():
    """Every number is that of the prediction, and the seconds are those of fit and predict together."""
    y, mean, std = np.random.default_rng(0).normal(size=(3, 50))
    prediction = Prediction(mean, np.exp(std))

    class Known:
        def predict_dist(self, X):
            assert X == "table"
            return prediction

    measured = measure(Known, Part("table", y))
    seconds = measured.metrics.pop("seconds")
    assert measured.metrics == evaluate(y, prediction)
    assert seconds == pytest.approx(measured.fit_seconds + measured.predict_seconds)
    assert min(measured.fit_seconds, measured.predict_seconds) > 0
    assert measured.rows == 50
    assert_array_equal(measured.coverage, calibration_curve(y, prediction).coverage)
    assert_array_equal(measured.std_quantiles, np.quantile(prediction.std, np.arange(1, 100) / 100))
    assert judge_evidence(measured.evidence) == judge(y, prediction)


def test_max_train_rows():
    """A limit shortens only the training part; the test rows remain the same, for comparison."""
    protocol = parse_protocol("max_train_rows = 100\n" + TINY)
    result = run_cell(protocol, Cell("table", "heteroscedastic", "hnn", seed=0))
    assert result["split"] == {"rule": "random", "n_train": 100, "n_test": 200}
    data, order = heteroscedastic(), np.random.default_rng(0).permutation(1000)
    model = make("hnn", random_state=0, **SMALL).fit(data.X[order[:100]], data.y[order[:100]])
    mean, std = model.predict(data.X[order[800:]], return_std=True)
    assert result["metrics"]["rmse"] == evaluate(data.y[order[800:]], mean, std)["rmse"]


def test_equal_wines_stay_together(load_raw):
    """No test row of a grouped split is in the training part; of a random split, many are."""
    load_raw("red-wine")
    data = load_part("red-wine")
    rows = np.column_stack(list(data.X.columns.values()))
    twins = {}
    for rule in ("grouped", "random"):
        train, test = split_by_rule(rule, len(data), data.groups, 0, 0.2)
        seen = set(map(tuple, rows[train]))
        twins[rule] = sum(tuple(row) in seen for row in rows[test])
    assert twins["grouped"] == 0 < 50 < twins["random"]


def test_grouped_cell(load_raw):
    """Patients of the test part are new, and the regressor is given the groups for its validation part."""
    load_raw("parkinsons")
    text = TINY.replace('"heteroscedastic", "skewed"', '"parkinsons"') + 'split = "grouped"\n'
    protocol = parse_protocol("max_train_rows = 1000\n" + text)
    result = run_cell(protocol, Cell("table", "parkinsons", "hnn", seed=0))

    data = load_raw("parkinsons")
    X, y, groups = data.X.iloc, data.y, data.groups
    train, test = split_by_rule("grouped", len(y), groups, 0, 0.2)
    assert not set(groups[train]) & set(groups[test])
    train = train[:1000]
    assert result["split"] == {"rule": "grouped", "n_train": 1000, "n_test": len(test)}
    rmse = {}
    for name, labels in {"given": groups[train], "not given": None}.items():
        model = make("hnn", random_state=0, **SMALL).fit(X[train], y[train], groups=labels)
        rmse[name] = evaluate(y[test], *model.predict(X[test], return_std=True))["rmse"]
    assert result["metrics"]["rmse"] == rmse["given"] != rmse["not given"]


def test_frames_keep_their_categories(load_raw):
    """Text remains text in any rows of a real data set, and the rows are the ones asked for, in that order."""
    frame, data = load_raw("auto-mpg").X, load_part("auto-mpg")
    rows = np.array([5, 3, 200])
    part = data.take(rows)
    assert part.X.kind("origin") == "text"
    assert part.X.columns["origin"].tolist() == frame["origin"].iloc[rows].astype(str).tolist()
    assert_array_equal(part.X.columns["weight"], frame["weight"].iloc[rows])
    assert_array_equal(part.y, data.y[rows])
    assert (len(data), len(part), data.groups) == (392, 3, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"hnn"',
            '"hhn"',
            r"line 11: method must be one of .*'dropout_hc', .*, got method='hhn'; did you mean 'hnn'\?",
        ),
        (
            "width",
            "widht",
            r"line 4: setting must be one of \['batch_size', .*\], got setting='widht'; did you mean 'width'\?",
        ),
        ("width", "random_state", r"line 4: setting must be one of .*, got setting='random_state'; .*"),
        (
            "[settings]",
            "[methods.hnn]\npatiense = 1\n[settings]",
            r"line 4: setting must be one of .*, got setting='patiense'; did you mean 'patience'\?",
        ),
        (
            "[settings]",
            "[methods.quantile-hcc]\npatience = 1\n[settings]",
            r"line 3: method must be one of .*, got method='quantile_hcc'; did you mean 'quantile_hc'\?",
        ),
        (
            "seeds = 2",
            "seeds = 2\nvary = { droput = [0.1] }",
            r"line 13: setting must be one of .*, got setting='droput'; did you mean 'dropout'\?",
        ),
    ],
    ids=["method", "setting", "seed", "setting of method", "settings of what", "varied"],
)
def test_unknown_methods_and_settings(old, new, message):
    """Detected before the first cell is run, with the line of the file."""
    assert TINY.count(old) == 1
    with pytest.raises(ValueError, match=f"^{message}$"):
        check_protocol(parse_protocol(TINY.replace(old, new)))


def test_settings_of_a_quick_look_are_checked():
    quick = parse_protocol(TINY + "[quick]\nseed = 1\n").made_quick()
    with pytest.raises(ValueError, match=r"^line 14: setting must be one of .*, got setting='seed'; .*$"):
        check_protocol(quick)


def test_all_known_settings_pass():
    protocol = parse_protocol(TINY)
    check_protocol(protocol)


def test_a_recalibrated_method_gives_up_rows():
    """ "name+recalibrator" trains on four fifths of the training part and recalibrates on the rest."""
    protocol = parse_protocol(TINY.replace('"hnn"', '"constant_sigma", "constant_sigma+isotonic"'))
    check_protocol(protocol)
    plain, bent = (
        run_cell(protocol, next(cell for cell in protocol.cells() if cell.method == method))
        for method in ("constant_sigma", "constant_sigma+isotonic")
    )
    assert bent["split"]["n_train"] == int(0.8 * plain["split"]["n_train"])
    assert (plain["title"], bent["title"]) == ("Constant sigma", "Constant sigma + isotonic")
    assert plain["settings"]["estimator"] == "ConstantSigma"
    assert bent["metrics"]["ce"] < plain["metrics"]["ce"]
    with pytest.raises(ValueError, match=r"line 11: recalibrator must be one of .*, got recalibrator='isotonik'"):
        check_protocol(parse_protocol(TINY.replace('"hnn"', '"hnn+isotonik"')))

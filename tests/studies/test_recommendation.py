"""The recommendation: the rule, and the numbers and the verdict that its text gives."""

import numpy as np
import pytest

from hetcal.families import GAUSSIAN
from hetcal.metrics import judge
from hetcal.studies.cells import method_title
from hetcal.studies.compare import describe_figure
from hetcal.studies.recommendation import recommend

HNN, ENSEMBLE, DROPOUT = "hnn", "ensemble_hc", "dropout_hc"
RELIABLE = (
    'the verdict on its held-out rows is "Reliable": 90 % intervals cover 90.0 % of 1,000 rows '
    "(95 % confidence interval 88.0 to 91.8 %), within sampling noise."
)


def method(name, scores, factor=1.0, rows=1000):
    """A method with these values of the CRPS, and errors that are `factor` times as large as predicted."""
    y = factor * GAUSSIAN.quantile((np.arange(rows) + 0.5) / rows)
    return {
        "name": name,
        "title": method_title(name),
        "failed": None,
        "metrics": {"crps": describe_figure(scores)},
        "verdict": judge(y, np.zeros(rows), np.ones(rows)).as_dict(),
    }


@pytest.mark.parametrize(
    ("methods", "expected", "text"),
    [
        pytest.param(
            [method(HNN, [0.36, 0.37]), method(DROPOUT, [0.38, 0.40]), method(ENSEMBLE, [0.34, 0.35])],
            ENSEMBLE,
            "Ensemble-HC: lowest CRPS, 0.345 ± 0.0050, 5.5 % below HNN, more than fold noise; " + RELIABLE,
            id="clear",
        ),
        pytest.param(
            [method(HNN, [0.36, 0.33, 0.39]), method(ENSEMBLE, [0.33, 0.34, 0.35])],
            ENSEMBLE,
            "Ensemble-HC: lowest CRPS, 0.340 ± 0.0058, 5.6 % below HNN, within fold noise; " + RELIABLE,
            id="noisy but not small",
        ),
        pytest.param(
            [method(ENSEMBLE, [0.350, 0.360]), method(HNN, [0.356, 0.358]), method(DROPOUT, [0.356, 0.358])],
            HNN,
            "HNN: CRPS 0.357 ± 0.0010, 0.6 % above the lowest (Ensemble-HC), within fold noise, "
            "but cheaper: a prediction takes 1 instead of 8 passes through a network; " + RELIABLE,
            id="small and noisy: the cheaper",
        ),
        pytest.param(
            [method(HNN, [0.353, 0.3631]), method(ENSEMBLE, [0.350, 0.360])],
            ENSEMBLE,
            "Ensemble-HC: lowest CRPS, 0.355 ± 0.0050, 0.9 % below HNN, more than fold noise; " + RELIABLE,
            id="small but not noise",
        ),
        pytest.param(
            [method(HNN, [0.35, 0.36], factor=1.2), method(DROPOUT, [0.35, 0.36])],
            HNN,
            "HNN: lowest CRPS, 0.355 ± 0.0050, 0.0 % below Dropout-HC, within fold noise; the verdict on its "
            'held-out rows is "Not reliable": 90 % intervals cover 83.0 % of 1,000 rows '
            "(95 % confidence interval 80.5 to 85.3 %); they are too narrow and must be 1.20 times as wide.",
            id="overconfident",
        ),
        pytest.param(
            [method(HNN, [0.0, 0.0]), method(DROPOUT, [0.0, 0.0])],
            HNN,
            "HNN: lowest CRPS, 0 ± 0, 0.0 % below Dropout-HC, within fold noise; " + RELIABLE,
            id="no error at all",
        ),
    ],
)
def test_recommendation(methods, expected, text):
    """The lowest CRPS, unless a cheaper method is as good; the text gives the numbers behind it, and the verdict."""
    assert recommend(methods, rows=1000) == {"method": expected, "text": text}


def test_the_verdict_is_that_of_the_recommended_method():
    """Not that of the method with the lowest CRPS, which may be more expensive."""
    narrow = method(ENSEMBLE, [0.350, 0.360], factor=3.0)
    text = recommend([narrow, method(HNN, [0.356, 0.358])], rows=1000)["text"]
    assert text.endswith(RELIABLE)
    assert "Not reliable" not in text


@pytest.mark.parametrize(
    ("ridge", "expected"),
    [
        (
            [0.70, 0.72],
            "Its CRPS is 0.500 times that of the nearest baseline, Ridge, constant sigma; the difference is more",
        ),
        (
            [0.30, 0.45],
            "Its CRPS is 0.947 times that of the nearest baseline, Ridge, constant sigma; the difference is with",
        ),
    ],
)
def test_the_nearest_baseline_is_the_measure(ridge, expected):
    """Not one that is further away; and a baseline with a lower CRPS is already named as such."""
    methods = [method(HNN, [0.35, 0.36]), method("no_model", [2.0, 2.0]), method("ridge", ridge)]
    assert expected in recommend(methods, rows=1000)["text"]
    better = recommend([method(HNN, [0.35, 0.36]), method("ridge", [0.3, 0.31])], rows=1000)["text"]
    assert "has a lower CRPS: 0.305, 14.1 % below" in better
    assert "nearest baseline" not in better
    assert "nearest baseline" not in recommend([method(HNN, [0.35, 0.36])], rows=1000)["text"]


def test_failed_methods_are_named():
    failed = {"name": DROPOUT, "title": "Dropout-HC", "failed": "fold 1 of 2: sorry", "metrics": {}, "verdict": None}
    recommended = recommend([failed, method(HNN, [1.0, 2.0])], rows=1000)
    assert recommended["method"] == HNN
    assert recommended["text"].endswith(". Not evaluated, because of an error: Dropout-HC.")


def test_few_rows_are_mentioned():
    text = recommend([method(HNN, [1.0, 2.0], rows=40)], rows=40)["text"]
    assert '"Too few rows to tell": ' in text
    assert text.endswith("rows or more. With only 40 rows, another seed may well rank the methods differently.")
    assert "only" not in recommend([method(HNN, [1.0, 2.0], rows=300)], rows=300)["text"]

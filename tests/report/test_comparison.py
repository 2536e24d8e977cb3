"""The dict of a comparison: figures as given, what is best and as good, and JSON whatever comes in."""

import html as markup
import json

import numpy as np
import pytest

from hetcal.metrics import calibration_band
from hetcal.report import describe_comparison, render
from tests.report.samples import HOSTILE, LEVELS, figure, make_comparison, make_method


def describe_some(comparison, **options):
    content = describe_comparison(comparison, title="Which method?", **options)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    return content


def marks(content, metric):
    methods = content["blocks"][0]["methods"]
    return {method["name"]: method["metrics"][metric]["mark"] for method in methods if not method["failed"]}


def test_figures_are_those_given():
    comparison = make_comparison()
    content = describe_some(comparison, settings={"max_epochs": 5}, reproduce=["hetcal compare /data/x.csv"])
    (block,) = content["blocks"]
    assert [method["title"] for method in block["methods"]] == ["MC Dropout", "Dropout-HC", "HNN", "Bayes by Backprop"]
    for given, said in zip(comparison["methods"], block["methods"], strict=True):
        for name, values in given["metrics"].items():
            assert said["metrics"][name]["mean"] == values["mean"]
            assert said["metrics"][name]["standard_error"] == values["standard_error"]
    assert block["ce_noise_floor"] == 0.12
    assert block["methods"][1]["curve"] == comparison["methods"][1]["curve"]
    assert block["methods"][3]["failed"] == "the loss was not finite in fold 2"
    assert content["recommendation"] == {
        "method": "dropout_hc",
        "title": "Dropout-HC",
        "status": "good",
        "label": "Recommended: Dropout-HC",
        "text": "Dropout-HC has the lowest CRPS.",
    }
    assert [method["recommended"] for method in block["methods"]] == [False, True, False, False]
    assert content["reproduce"] == ["hetcal compare x.csv"]
    assert {"label": "Folds", "value": 5} in content["data"]
    assert {"label": "Groups kept together", "value": None} not in content["data"]


def test_band_is_that_of_all_rows():
    """Every row is held out once, so that the pooled curve has the noise of all rows."""
    band = describe_some(make_comparison())["blocks"][0]["band"]
    lower, upper = calibration_band(200, LEVELS)
    np.testing.assert_array_equal(band["lower"], lower)
    np.testing.assert_array_equal(band["upper"], upper)


def test_best_and_ties():
    """The smallest mean is best, what is within its standard error is as good; for coverage the nearest to 90 %."""
    content = describe_some(make_comparison())
    assert marks(content, "crps") == {"mc_dropout": None, "dropout_hc": "best", "hnn": "tie"}
    assert marks(content, "coverage_90") == {"mc_dropout": None, "dropout_hc": "best", "hnn": "tie"}
    assert set(marks(content, "interval_width_90").values()) == {None}  # narrow alone is no merit
    assert set(marks(content, "seconds").values()) == {None}


def test_below_the_noise_floor_nothing_is_better():
    comparison = make_comparison()
    for method in comparison["methods"][:3]:
        method["metrics"]["ce"]["standard_error"] = 1e-6
    assert marks(describe_some(comparison), "ce") == {"mc_dropout": None, "dropout_hc": "tie", "hnn": "best"}


def test_nothing_is_best_alone():
    comparison = make_comparison()
    comparison["methods"] = comparison["methods"][:1]
    assert marks(describe_some(comparison), "crps") == {"mc_dropout": None}


def test_not_finite_and_missing_figures():
    """An infinite likelihood, a single fold without error, a metric that one method lacks."""
    comparison = make_comparison()
    first, second, third = comparison["methods"][:3]
    first["metrics"]["nll"] = figure(float("inf"), float("nan"))
    second["metrics"]["crps"]["standard_error"] = None
    del third["metrics"]["rmse"]
    content = describe_some(comparison)
    methods = content["blocks"][0]["methods"]
    assert methods[0]["metrics"]["nll"] == {"mean": None, "standard_error": None, "mark": None}
    assert marks(content, "crps")["dropout_hc"] == "best"
    assert "rmse" not in methods[2]["metrics"]
    assert "not finite" in render(content)


def test_all_failed():
    comparison = make_comparison()
    comparison["methods"] = comparison["methods"][3:]
    comparison["recommendation"] = {"method": None, "text": "No method could be fitted."}
    html = render(describe_some(comparison))
    assert "No recommendation" in html
    assert "the loss was not finite in fold 2" in html


@pytest.mark.parametrize(
    ("verdict", "status", "label"),
    [
        ("good", "good", "Recommended: Dropout-HC"),
        ("caution", "caution", "Recommended, but look closer: Dropout-HC"),
        ("bad", "bad", "Recommended, but not reliable: Dropout-HC"),
        ("unknown", "unknown", "Recommended, but too few rows to tell whether it is reliable: Dropout-HC"),
        (None, "caution", "Recommended, but look closer: Dropout-HC"),
    ],
)
def test_the_best_of_the_bad(verdict, status, label):
    """A method that is not calibrated may be the best there is; the page says so, with the mark of its verdict."""
    comparison = make_comparison()
    comparison["methods"][1]["verdict"] = None if verdict is None else {"status": verdict}
    content = describe_some(comparison)
    assert (content["recommendation"]["status"], content["recommendation"]["label"]) == (status, label)
    html = render(content)
    assert f'class="verdict {status}" id="verdict"' in html
    assert label in html
    assert ('class="chosen closer"' in html) == (status == "caution")


def test_without_recommendation():
    comparison = make_comparison()
    comparison["recommendation"] = None
    content = describe_some(comparison)
    assert "recommendation" not in content
    assert 'id="verdict"' not in render(content)


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_units(unit):
    comparison = make_comparison()
    for method in comparison["methods"][:3]:
        method["metrics"]["crps"] = figure(unit * method["metrics"]["crps"]["mean"], unit * 0.05)
    html = render(describe_some(comparison))
    assert "CRPS (\N{MULTIPLICATION SIGN} 10" in html


def test_hostile_titles():
    """Titles and reasons from outside are shown, not run."""
    comparison = make_comparison()
    comparison["target"] = HOSTILE[0]
    comparison["methods"][0]["title"] = HOSTILE[1]
    comparison["methods"][3]["failed"] = HOSTILE[0]
    comparison["methods"].append(make_method(HOSTILE[2], HOSTILE[3], crps=9.0, ce=1.0))
    html = render(describe_some(comparison, data={HOSTILE[0]: HOSTILE[1]}))
    assert "<script" not in html
    assert "<img" not in html
    shown = markup.unescape(html)
    assert all(shown.count(name) >= 2 for name in HOSTILE[:2])

"""The dict of a model's report: its figures by another route, its order, and JSON whatever comes in."""

import json

import numpy as np
import pandas as pd
import pytest

from hetcal.distributions import TransformedPrediction
from hetcal.families import SCORES, Empirical, Laplace, StudentT
from hetcal.metrics import calibration_curve, ce_noise_floor, ce_quantile, evaluate, judge
from hetcal.prediction import Prediction
from hetcal.report import describe, render
from hetcal.report.content import MOST_INTERVALS, MOST_POINTS
from hetcal.tabular.columns import read_table
from hetcal.transforms import Log, Quantile, YeoJohnson
from tests.report.samples import HOSTILE, ROWS, make_features, make_history, make_truth

SECTIONS = [
    *("kind", "made_by", "title", "target", "rows", "level", "verdict", "figures", "metrics", "calibration"),
    *("sharpness", "intervals", "residuals", "subgroups", "history", "data", "settings", "reproduce"),
]


@pytest.fixture(scope="module")
def content():
    y, prediction = make_truth()
    return describe(
        y,
        prediction,
        target="price",
        features=make_features(),
        title="House prices",
        history=make_history(),
        data={"File": "/home/ada/train.csv"},
        settings={"Seed": 0},
        reproduce=["hetcal fit /home/ada/train.csv"],
    )


def check(content):
    """JSON without NaN, and a page that shows it."""
    text = json.dumps(content, allow_nan=False)
    assert json.loads(text) == content
    html = render(content)
    assert len(html.encode()) < 1_000_000
    return html


def test_order_of_the_page(content):
    """Sections come as the issue orders them."""
    assert list(content) == SECTIONS
    check(content)


def test_sections_without_data_are_left_out():
    y, prediction = make_truth(rows=20)
    content = describe(y, prediction, target="price", title="t")
    assert set(SECTIONS) - set(content) == {"subgroups", "history", "data", "settings", "reproduce"}
    html = check(content)
    for heading in ("Where it is worst", "Training", "Data and settings", "How to reproduce"):
        assert heading not in html


def test_metrics(content):
    """Those of `evaluate`, all of them, as plain numbers."""
    expected = evaluate(*make_truth())
    del expected["verdict"]
    assert content["metrics"] == pytest.approx(expected)
    assert content["metrics"]["n"] == content["rows"] == ROWS


def test_coverage_by_another_route(content):
    """The verdict's coverage is the share of rows between the ends of their interval."""
    y, prediction = make_truth()
    lower, upper = prediction.interval(0.9).T
    assert content["verdict"]["coverage"] == np.mean((lower <= y) & (y <= upper)) == content["metrics"]["coverage_90"]


def test_calibration(content):
    """The curve and band of the metrics; in and out of the band is said in words."""
    curve = calibration_curve(*make_truth())
    for name in ("levels", "coverage", "lower", "upper"):
        assert content["calibration"][name] == getattr(curve, name).tolist()
    assert content["calibration"]["inside_band"] is True
    assert "stays inside the noise band" in content["calibration"]["text"]
    narrow = describe(*make_truth(factor=2.0), target="y", title="t")["calibration"]
    assert narrow["inside_band"] is False
    coverage, lower = np.array(narrow["coverage"]), np.array(narrow["lower"])
    below = int((coverage < lower).sum())
    assert narrow["text"] == (
        f"The curve leaves the noise band at {below} of 99 levels, below it: the intervals are too narrow."
    )


def test_sharpness(content):
    """Every row is in one bar, and a bar's count is that of the widths between its edges."""
    _, prediction = make_truth()
    width = np.diff(prediction.interval(0.9))[:, 0]
    sharpness = content["sharpness"]
    assert sum(sharpness["counts"]) + sharpness["above"] == ROWS
    edges = sharpness["edges"]
    assert sharpness["counts"][3] == int(((width >= edges[3]) & (width < edges[4])).sum())
    assert len(edges) <= 27
    assert sharpness["median"] == pytest.approx(np.median(width)) == content["verdict"]["width"]
    assert sharpness["p05"] == pytest.approx(np.sort(width)[ROWS // 20 - 1])


def test_widths_of_a_skewed_shape():
    """Those of the intervals, whose ends are not at equal distances from the mean: the default has such shapes."""
    *_, shape = Empirical(np.exp(0.8 * SCORES)).standardized()
    y, normal = make_truth(rows=200)
    prediction = normal.with_family(shape)
    width = np.diff(prediction.interval(0.9))[:, 0]
    assert describe(y, prediction, target="y", title="t")["sharpness"]["median"] == pytest.approx(np.median(width))


def test_far_tail_is_counted_not_drawn():
    """One width of a million does not squeeze all others into one bar."""
    std = np.r_[np.linspace(1, 2, 399), 1e6]
    sharpness = describe(np.zeros(400), Prediction(np.zeros(400), std), target="y", title="t")["sharpness"]
    assert sharpness["above"] >= 1
    assert len([count for count in sharpness["counts"] if count]) > 10


def test_intervals(content):
    """A sample in the order of the prediction; inside is inside. The same rows each time; no row number is told."""
    rows = content["intervals"]["rows"]
    assert len(rows) == MOST_INTERVALS
    assert set(rows[0]) == {"y", "center", "lower", "upper", "inside"}
    assert [row["center"] for row in rows] == sorted(row["center"] for row in rows)
    assert all(row["inside"] == (row["lower"] <= row["y"] <= row["upper"]) for row in rows)
    assert content["intervals"]["outside"] == sum(not row["inside"] for row in rows)
    y, prediction = make_truth()
    known = set(zip(y.tolist(), prediction.mean.tolist(), strict=True))
    assert {(row["y"], row["center"]) for row in rows} <= known
    assert describe(y, prediction, target="y", title="t")["intervals"]["rows"] == rows


def test_residuals(content):
    """RMSE and root mean variance of each bin by formula; together the bins hold all rows."""
    y, prediction = make_truth()
    bins, order = content["residuals"]["bins"], np.argsort(prediction.std)
    assert sum(one["rows"] for one in bins) == ROWS
    first = order[: bins[0]["rows"]]
    squares = (y - prediction.mean)[first] ** 2
    assert bins[0]["rmse"] == pytest.approx(np.sqrt(squares.mean()))
    assert bins[0]["std"] == pytest.approx(np.sqrt((prediction.std[first] ** 2).mean()))
    noise = 1.96 * squares.std(ddof=1) / np.sqrt(len(first))
    assert bins[0]["upper"] == pytest.approx(np.sqrt(squares.mean() + noise))
    assert all(one["lower"] <= one["rmse"] <= one["upper"] for one in bins)
    assert len(content["residuals"]["points"]) == MOST_POINTS


def test_noise_bars_hold_what_they_say():
    """In a calibrated model about 95 % of the bars reach the stated std; 88 % of 400 at least, but for 1 in 1e6."""
    reached = [
        one["lower"] <= one["std"] <= one["upper"]
        for seed in range(40)
        for one in describe(*make_truth(seed=seed), target="y", title="t")["residuals"]["bins"]
    ]
    assert len(reached) == 400
    assert np.mean(reached) > 0.88


def test_history(content):
    assert content["history"]["text"].startswith("The weights of epoch 26 of 30 were kept; training stopped early")
    assert content["history"]["validation"][0] == pytest.approx(1.1)
    y, prediction = make_truth(rows=20)
    broken = {"train": {"objective": [float("nan"), 1.0]}, "validation": {}, "best_epoch": 1, "stopped": "odd"}
    some = describe(y, prediction, target="y", title="t", history=broken)
    assert some["history"]["train"] == [None, 1.0]
    assert some["history"]["text"] == "The weights of epoch 2 of 2 were kept."
    check(some)


@pytest.mark.parametrize("stopped", ["patience", "max_steps", "max_epochs", "max_seconds", "interrupted"])
def test_history_says_why_training_ended(stopped):
    y, prediction = make_truth(rows=20)
    history = {"train": {"objective": [2.0, 1.0]}, "best_epoch": 1, "stopped": stopped}
    text = describe(y, prediction, target="y", title="t", history=history)["history"]["text"]
    assert text.startswith("The weights of epoch 2 of 2 were kept; training ")
    empty = {"train": {"objective": [float("inf")]}, "validation": {"objective": []}, "best_epoch": 0}
    assert "history" not in describe(y, prediction, target="y", title="t", history=empty)


def test_lists_tell_nothing_of_the_machine(content):
    assert content["data"] == [{"label": "File", "value": "train.csv"}]
    assert content["settings"] == [{"label": "Seed", "value": 0}]
    assert content["reproduce"] == ["hetcal fit train.csv"]
    assert "ada" not in render(content)


@pytest.mark.parametrize("unit", [1e-300, 1e-12, 1e12, 1e200, 1e300])
def test_units_do_not_matter(unit):
    """In other units the verdict is the same but for the width, and the width is that in the new units."""
    base = describe(*make_truth(), target="y", title="t")
    scaled = describe(*make_truth(unit=unit), target="y", title="t")
    check(scaled)
    assert scaled["verdict"]["text"].split("typical")[0] == base["verdict"]["text"].split("typical")[0]
    assert scaled["verdict"]["width"] == pytest.approx(base["verdict"]["width"] * unit)
    assert len(scaled["sharpness"]["counts"]) > 5
    assert "10" in scaled["verdict"]["text"].split("width")[1]


def test_offset():
    """Values near 1e9 with a spread of 1 are drawn with their spread."""
    y, prediction = make_truth()
    moved = Prediction(prediction.mean + 1e9, prediction.std)
    content = describe(y + 1e9, moved, target="y", title="t")
    check(content)
    assert content["verdict"]["width"] == pytest.approx(np.median(2 * 1.6448536 * prediction.std), rel=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 5, 31])
def test_few_rows(rows):
    y, prediction = make_truth(rows=rows)
    content = describe(y, prediction, target="y", title="t", features=make_features(rows))
    check(content)
    assert content["rows"] == rows == len(content["intervals"]["rows"])


DEGENERATE = {
    "no residual": (np.linspace(1, 2, 50), Prediction(np.linspace(1, 2, 50), np.ones(50))),
    "all alike": (np.zeros(50), Prediction(np.zeros(50), np.ones(50))),
    "tiny std": (np.zeros(50), Prediction(np.ones(50), np.full(50, 1e-310))),
    "stds of all sizes": (np.zeros(50), Prediction(np.ones(50), np.logspace(-200, 200, 50))),
    "laplace": (np.zeros(50), Prediction(np.ones(50), np.ones(50), family=Laplace())),
    "student": (np.zeros(50), Prediction(np.ones(50), np.ones(50), family=StudentT(3.0))),
    "log": (np.linspace(1, 9, 50), TransformedPrediction(Prediction(np.zeros(50), np.linspace(1, 2, 50)), Log())),
    "log of huge std": (np.ones(50), TransformedPrediction(Prediction(np.zeros(50), np.full(50, 900.0)), Log())),
    "below the log's range": (-np.ones(50), TransformedPrediction(Prediction(np.zeros(50), np.ones(50)), Log())),
    "yeo-johnson": (
        np.linspace(-1, 9, 50),
        TransformedPrediction(
            Prediction(np.zeros(50), np.ones(50)), YeoJohnson().fit(np.linspace(-1, 9, 50), np.ones(50))
        ),
    ),
    "quantile": (
        np.linspace(-1, 9, 50),
        TransformedPrediction(
            Prediction(np.zeros(50), np.ones(50)), Quantile().fit(np.linspace(-1, 9, 50), np.ones(50))
        ),
    ),
}


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate(case):
    """Whatever was predicted, the dict is JSON and the page is made, without a warning."""
    check(describe(*DEGENERATE[case], target="y", title="t"))


def test_transformed_coverage_by_another_route():
    """Coverage and widths behind a transform are those of the mapped interval ends."""
    rng = np.random.default_rng(0)
    base = Prediction(rng.normal(size=200), np.exp(0.2 * rng.normal(size=200)))
    y = np.exp(base.mean + base.std * rng.normal(size=200))
    content = describe(y, TransformedPrediction(base, Log()), target="y", title="t")
    lower, upper = np.exp(base.interval(0.9)).T
    assert content["verdict"]["coverage"] == np.mean((lower <= y) & (y <= upper))
    assert content["verdict"]["width"] == pytest.approx(np.median(upper - lower))


def test_hostile_names_are_kept_and_cut():
    """Names reach the dict as they are, for escaping is the page's task, but never at full length."""
    features = pd.DataFrame({name: np.arange(ROWS) for name in HOSTILE})
    y, prediction = make_truth(factor=3.0)
    content = describe(
        y,
        prediction,
        target=HOSTILE[0],
        title=HOSTILE[1],
        features=features,
        groups=[HOSTILE[0]] * ROWS,
        group_name="g",
    )
    names = {place["name"] for place in content["subgroups"]["worst"]}
    assert HOSTILE[0] in names | {content["target"]}
    assert max(map(len, names)) <= 120
    check(content)


def test_many_features_and_odd_ones():
    """500 columns, one of them constant, one without any value."""
    frame = pd.DataFrame(np.random.default_rng(0).random((ROWS, 500)))
    frame[0], frame[1] = 1.0, np.nan
    content = describe(*make_truth(), target="y", title="t", features=frame)
    assert content["subgroups"]["tested"] == 5 * 498 + 10
    assert len(content["subgroups"]["worst"]) == 10
    check(content)


def test_many_rows_make_a_small_page():
    """Figures of all rows, points of some: 30,000 rows have a page of the same size as 1,000."""
    sizes = []
    for rows in (1_000, 30_000):
        content = describe(*make_truth(rows=rows), target="y", title="t", features=make_features(rows))
        assert content["metrics"]["n"] == sum(content["sharpness"]["counts"]) + content["sharpness"]["above"] == rows
        sizes.append(len(check(content)))
    assert sizes[1] < 1.2 * sizes[0]


def test_infinite_scores_are_none():
    """A density of 0 has an infinite score; JSON has none."""
    content = describe(*DEGENERATE["below the log's range"], target="y", title="t")
    assert content["metrics"]["nll"] is None


@pytest.mark.parametrize("name", ["features", "groups"])
def test_length_is_checked(name):
    given = {"features": make_features(3), "groups": ["a"] * 3}[name]
    message = rf"{name} must have as many rows as y \(5\), got {name}='3 rows'; give one row per row of y"
    with pytest.raises(ValueError, match=message):
        describe(*make_truth(rows=5), target="y", title="t", **{name: given})


@pytest.mark.parametrize(("rows", "expected"), [(1, "0.1"), (4, "0.4"), (9, "0.9"), (10, "1"), (60, "6")])
def test_rows_outside_to_be_expected(rows, expected):
    """A tenth of four rows is not none."""
    content = describe(*make_truth(rows=rows), target="price", title="t")
    assert f"interval, where about {expected} are expected." in content["intervals"]["text"]


def test_verdict_is_the_one_rule():
    """The page says what `evaluate` says, and adds the width."""
    for seed in range(5):
        y, prediction = make_truth(seed=seed, factor=1 + 0.2 * seed)
        content = describe(y, prediction, target="y", title="t")
        verdict = judge(y, prediction)
        assert content["verdict"]["status"] == verdict.status
        assert content["verdict"]["text"].startswith(verdict.text)
        assert evaluate(y, prediction)["verdict"] == f"{content['verdict']['label']}: {verdict.text}."


def test_a_weak_subgroup_takes_the_green_mark():
    """Overall 90 %, but 60 % where it matters: look closer."""
    labels = np.repeat(["a", "b"], [60, 540])
    z = np.r_[np.tile([9, 9, 0, 0, 0], 12), np.tile(np.r_[np.full(1, 9), np.zeros(14)], 36)]
    frame = make_features(600).assign(label=labels)[["label"]]
    prediction = Prediction(np.zeros(600), np.ones(600))
    content = describe(z, prediction, target="y", title="t", features=frame)
    assert content["verdict"]["coverage"] == pytest.approx(0.9, abs=1e-9)
    assert content["verdict"]["status"] != "good"
    named = "; 90 % intervals are too narrow for rows with label = a, where they cover 60.0 % of 60 rows."
    assert named in content["verdict"]["text"]
    assert "The worst is label = a: 90 % intervals cover 60.0 % of 60 rows there" in content["subgroups"]["text"]
    assert content["subgroups"]["worst"][0]["where"] == "= a"
    assert content["subgroups"]["weak"] == 1


def test_features_may_be_a_table_that_was_read_before():
    """The same subgroups from a frame and from the table that `fit` makes of it; missing labels stay missing."""
    y, prediction = make_truth()
    frame = make_features().drop(columns="organic")  # truth values are numbers in a table
    frame.loc[:99, "color"] = None
    contents = [
        describe(y, prediction, target="y", title="t", features=features)["subgroups"]
        for features in (frame, read_table(frame))
    ]
    assert contents[0] == contents[1]


def test_figures():
    """The handful of figures, by formula; the noise floor stands beside the calibration error, in words too."""
    y, prediction = make_truth()
    content = describe(y, prediction, target="price", title="t")
    figures = {figure["name"]: figure for figure in content["figures"]}
    assert list(figures) == ["width", "rmse", "crps", "ce"]
    assert figures["rmse"]["value"] == pytest.approx(np.sqrt(np.mean((y - prediction.mean) ** 2)))
    assert figures["width"]["value"] == pytest.approx(np.median(2 * 1.6448536269514722 * prediction.std))
    assert figures["ce"]["noise_floor"] == ce_noise_floor(ROWS)
    assert figures["ce"]["noise_limit"] == ce_quantile(ROWS)
    assert "On 400 rows a perfect model has 0.0842 on average" in figures["ce"]["text"]
    assert all("price" in figures[name]["text"] for name in ("width", "rmse"))

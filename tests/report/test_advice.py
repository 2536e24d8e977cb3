"""The next steps: for every finding, with a command that carries the options of the one that was run."""

import shlex

import numpy as np
import pytest

from hetcal.distributions import TransformedPrediction
from hetcal.metrics import judge
from hetcal.metrics.verdict import LABELS
from hetcal.prediction import Prediction
from hetcal.report import describe, render
from hetcal.report.advice import Situation, advise, is_transformed, quantile_skew
from hetcal.transforms import Log

FIT = "hetcal fit train.csv --target 'net price' --out m.hetcal"
EVEN = np.random.default_rng(0).normal(size=400)


def steps_for(factor=1.0, truth=EVEN, rows=400, command=FIT, groups=None, dates=(), worst=None, transformed=False):
    z = EVEN[:rows]
    verdict = judge(factor * z, np.zeros(rows), np.ones(rows), groups=groups)
    return advise(Situation(verdict, truth, transformed, dates, worst, command, "net price"))


def flags(steps):
    """The options that each step adds to the command."""
    return [step["command"].removeprefix(FIT).removesuffix(" --force").strip() for step in steps if step["command"]]


def test_reliable_models_need_no_advice():
    assert steps_for() == []


def test_narrow_intervals():
    assert flags(steps_for(2.0)) == ["--group COLUMN", "--recalibrate std"]


def test_skewed_targets_are_transformed():
    assert flags(steps_for(2.0, truth=np.exp(EVEN)))[0] == "--set target_transform=log"
    assert flags(steps_for(2.0, truth=np.exp(EVEN) - 5))[0] == "--set target_transform=yeo-johnson"
    assert "--set target_transform=log" not in flags(steps_for(2.0, truth=np.exp(EVEN), transformed=True))
    given = f"{FIT} --set target_transform=auto"
    assert not any("log" in step["command"] for step in steps_for(2.0, truth=np.exp(EVEN), command=given))


def test_dates():
    assert flags(steps_for(2.0, dates=["day", "other"]))[0] == "--time day"
    forward = steps_for(2.0, dates=["day"], command=f"{FIT} --time day")
    assert forward[0]["text"].startswith("The later rows differ")
    assert "--group" not in " ".join(step["command"] or "" for step in forward)


def test_what_was_tried_is_not_advised_again():
    tried = steps_for(2.0, command=f"{FIT} --group a --recalibrate std", groups=np.arange(400) // 2)
    assert tried == []


def test_few_rows():
    assert flags(steps_for(rows=80)) == ["--test-size 0.36"]
    (step,) = steps_for(rows=40)
    assert step["command"] == "hetcal compare train.csv --target 'net price'"
    (step,) = steps_for(rows=100, groups=np.arange(100) // 50)
    assert step["text"] == "Evaluate on more than 2 groups; more rows of the same groups help little."
    assert step["command"] is None


def test_subgroups_are_named():
    assert "color = red" in steps_for(2.0, worst="color = red")[-1]["text"]


def test_a_trial_is_not_repeated():
    """Settings that cut training short are not part of the advised command; others are."""
    trial = "hetcal fit t.csv --target y --out m.hetcal --set max_steps=100 --set width=64 --set max_seconds=5"
    for step in steps_for(2.0, command=trial):
        assert step["command"].startswith("hetcal fit t.csv --target y --out m.hetcal --set width=64 --")


def test_without_the_command_of_a_fit():
    """From Python, and from `hetcal evaluate`, files have placeholders; a command that cannot be read is ignored."""
    for command in (None, "hetcal evaluate m.hetcal new.csv", "hetcal fit 'broken"):
        (step,) = (one for one in steps_for(2.0, command=command) if "--recalibrate" in one["command"])
        assert step["command"] == "hetcal fit TABLE --target 'net price' --out MODEL.hetcal --recalibrate std"


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.0])
def test_dict_and_page_say_the_same(factor):
    content = describe(factor * EVEN, Prediction(np.zeros(400), np.ones(400)), target="y", title="t", reproduce=[FIT])
    assert content["verdict"]["label"] in LABELS.values()
    assert ("advice" in content) == (content["verdict"]["status"] != "good")
    html = render(content)
    assert ("What to do next" in html) == ("advice" in content)
    for step in content.get("advice", ()):
        assert shlex.split(step["command"])[:2] == ["hetcal", "fit"]


def test_transform_inside_a_prediction():
    plain = Prediction(np.zeros(3), np.ones(3))
    assert not is_transformed(plain)
    assert is_transformed(TransformedPrediction(plain, Log()))


def test_skew():
    assert quantile_skew(np.arange(101.0)) == pytest.approx(0)
    assert quantile_skew(np.exp(EVEN)) > 0.5
    assert quantile_skew(np.ones(5)) == 0

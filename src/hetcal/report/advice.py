"""What to do next if intervals cannot be called reliable: sentences, each with a command where there is one.

The only home of such advice; terminal, page and JSON show the same list.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hetcal._checks import Floats
from hetcal.distributions import TransformedPrediction
from hetcal.metrics.verdict import Verdict, rows_needed, sufficient_test_size
from hetcal.metrics.wording import count

MOST_STEPS = 4
# From this on a target is skewed: the distances of the 95 % and the 5 % quantile from the median have a ratio above 2.
SKEWED = 1 / 3
DEFAULT_TEST_SIZE = 0.2
# Which recalibration corrects what: one factor for all widths, or the whole curve.
RECALIBRATIONS = {"narrow": "std", "wide": "std", "shape": "isotonic", "bias": "isotonic"}

# Settings that end training before it has converged.
TRIAL_SETTINGS = ("max_steps", "max_epochs", "max_seconds")


@dataclass(frozen=True, eq=False)
class Situation:
    """What the advice depends on.

    Attributes:
        verdict: The verdict.
        truth: (n,) true values.
        is_transformed: Whether the model predicts a transform of the target.
        dates: Names of the columns of dates.
        worst: The subgroup with the worst coverage, in words; None if none stands out.
        command: The command that was run, None from Python.
        target: Name of the target.
    """

    verdict: Verdict
    truth: Floats
    is_transformed: bool
    dates: Sequence[str]
    worst: str | None
    command: str | None
    target: str

    @property
    def words(self) -> list[str]:
        try:
            return shlex.split(self.command or "")
        except ValueError:  # not a command that hetcal wrote
            return []

    @property
    def is_fit(self) -> bool:
        return self.words[:2] == ["hetcal", "fit"]

    def has(self, flag: str) -> bool:
        return flag in self.words

    def with_flags(self, *flags: str) -> str:
        """The command of the fit with further options, without settings that cut its training short for a trial.

        Its files have other names if it is not the one that was run.
        """
        if self.is_fit:
            return f"{shlex.join(without_trial_settings(self.words))} {shlex.join(flags)} --force"
        return f"hetcal fit TABLE --target {shlex.quote(self.target)} --out MODEL.hetcal {shlex.join(flags)}"


def without_trial_settings(words: Sequence[str]) -> list[str]:
    """
    >>> without_trial_settings(["hetcal", "fit", "t.csv", "--set", "max_steps=100", "--set", "width=64"])
    ['hetcal', 'fit', 't.csv', '--set', 'width=64']
    """
    is_trial = [a == "--set" and b.split("=")[0].strip() in TRIAL_SETTINGS for a, b in pairwise([*words, ""])]
    return [word for i, word in enumerate(words) if not is_trial[i] and not (i and is_trial[i - 1])]


Step = dict[str, Any]  # `text`, and `command` or None


def advise(situation: Situation) -> list[Step]:
    """The next steps, the most promising first; none for a model that is reliable."""
    finding = situation.verdict.finding
    if finding in ("calibrated", "slight"):
        return []
    if finding == "few":
        return [more_rows(situation)]
    steps = [
        transform_target(situation),
        split_by_time(situation),
        keep_groups_together(situation),
        recalibrate(situation),
        describe_worst(situation),
    ]
    return [step for step in steps if step is not None][:MOST_STEPS]


def step(text: str, command: str | None = None) -> Step:
    return {"text": text, "command": command}


def more_rows(situation: Situation) -> Step:
    rows, groups = situation.verdict.rows, situation.verdict.groups
    if groups is not None:
        return step(f"Evaluate on more than {count(groups, 'group')}; more rows of the same groups help little.")
    if situation.is_fit and not situation.has("--test"):
        needed = sufficient_test_size(rows / DEFAULT_TEST_SIZE)
        if needed is not None and not situation.has("--test-size"):
            text = f"Hold out a larger part of the table: {rows_needed()} test rows are enough to tell."
            return step(text, situation.with_flags("--test-size", f"{needed:g}"))
    text = f"Collect more rows: there are {rows}, and {rows_needed()} are enough to tell. Until then, compare methods "
    return step(text + "by cross-validation, which evaluates on every row.", compare_command(situation))


def compare_command(situation: Situation) -> str:
    table = situation.words[2] if situation.is_fit else "TABLE"
    return shlex.join(["hetcal", "compare", table, "--target", situation.target])


def word_after(words: Sequence[str], flag: str) -> str | None:
    return next((after for word, after in pairwise(words) if word == flag), None)


def transform_target(situation: Situation) -> Step | None:
    is_set = any(word.startswith("target_transform=") for word in situation.words)
    if situation.is_transformed or is_set or abs(quantile_skew(situation.truth)) < SKEWED:
        return None
    is_positive = bool((situation.truth > 0).all())
    name = "log" if is_positive else "yeo-johnson"
    also = ", and its intervals stay positive" if is_positive else ""
    text = f"The target is skewed. A model of its transform often has better intervals{also}."
    return step(text, situation.with_flags("--set", f"target_transform={name}"))


def quantile_skew(values: Floats) -> float:
    """From -1 to 1: how much further the 95 % quantile lies from the median than the 5 % quantile does."""
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    return float(((high - median) - (median - low)) / (high - low)) if high > low else 0.0


def split_by_time(situation: Situation) -> Step | None:
    if situation.has("--time"):
        text = "The later rows differ from what the model expects: train on recent rows, train anew more often, and "
        return step(text + "evaluate again before you rely on the intervals.")
    if not situation.dates or situation.has("--group"):
        return None
    text = f"The rows have dates ({situation.dates[0]}). If you will predict later rows, train on the earlier ones and "
    return step(text + "evaluate on the later ones.", situation.with_flags("--time", situation.dates[0]))


def keep_groups_together(situation: Situation) -> Step | None:
    if situation.verdict.groups is not None or situation.has("--group") or situation.has("--time"):
        return None
    text = "If rows belong together (a patient, a day, a machine), name their column: the model then learns how much "
    return step(text + "groups differ, and is evaluated on new ones.", situation.with_flags("--group", "COLUMN"))


def recalibrate(situation: Situation) -> Step | None:
    name = RECALIBRATIONS.get(situation.verdict.finding)
    if name is None or situation.has("--recalibrate"):
        return None
    what = "the width of all intervals" if name == "std" else "the intervals of all levels"
    text = f"Correct {what} on rows that are held out for this; the same rows are then not used for training."
    return step(text, situation.with_flags("--recalibrate", name))


def describe_worst(situation: Situation) -> Step | None:
    if situation.worst is None:
        return None
    text = f"Look at the rows with {situation.worst}: give the model more of them, or a column that tells them apart."
    return step(text)


def is_transformed(prediction: Any) -> bool:
    """Whether a transform lies anywhere in a prediction."""
    while prediction is not None:
        if isinstance(prediction, TransformedPrediction):
            return True
        prediction = getattr(prediction, "base", None)
    return False

"""Ctrl-C, by real signals in processes of their own: a person keeps the best weights so far, and every loop stops."""

import json
import os
import pty
import re
import select
import signal
import termios

import numpy as np
import pandas as pd
import pytest

from hetcal.model_files.archive import read_model_file
from tests.processes import DEADLINE_SECONDS, wait_until

# Every case runs in one process, because importing torch takes most of the time.
SCRIPT = '''
import io, json, os, random, signal, tempfile, warnings
import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.validation import check_is_fitted
from torch import nn
from hetcal import HCRegressor, load
from hetcal.exceptions import TrainingInterrupted
from hetcal.objectives import crps_loss
from hetcal.studies.compare import compare

X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0]
calls = 0


def press(at):
    """Ctrl-C in the given call."""
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGINT)


def pressing(prediction, y):
    press(30)
    return crps_loss(prediction, y)


def pressing_at_once(prediction, y):
    press(1)
    return crps_loss(prediction, y)


class Pressing(nn.Module):
    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_inputs, 4), nn.ReLU(), nn.Linear(4, n_outputs))

    def forward(self, x):
        press(30)
        return self.layers(x)


def ended(function):
    """How it ended, and how often the objective or the network was called."""
    global calls
    calls = 0
    try:
        function()
    except BaseException as error:
        return type(error).__name__, calls
    return "finished", calls


def is_fitted(model):
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return bool(np.isfinite(model.predict_interval(X)).all()) and model.history_.stopped == "interrupted"


results = {}
for estimator in ("cross_ensemble", "variance_head"):
    small = dict(width=4, depth=1, max_steps=100, random_state=0)
    late = HCRegressor(estimator, pressing, **small)
    early = HCRegressor(estimator, pressing_at_once, **small)
    results[estimator] = [*ended(lambda: late.fit(X, Y)), is_fitted(late)]
    results[estimator + ", at once"] = [*ended(lambda: early.fit(X, Y)), is_fitted(early)]
    fresh = HCRegressor(estimator, pressing, **small)
    results[estimator + ", cross_val_score"] = ended(lambda: cross_val_score(fresh, X, Y, cv=3))
    search = GridSearchCV(fresh, {"learning_rate": [1e-3, 1e-2]}, cv=2)
    results[estimator + ", GridSearchCV"] = [*ended(lambda: search.fit(X, Y)), hasattr(search, "best_estimator_")]
settings = {"network": Pressing, "max_epochs": 50}
results["compare"] = ended(lambda: compare(X, Y, methods=["hnn"], folds=2, settings=settings))

# At any moment, even between two lines that belong together.
signal.signal(signal.SIGALRM, signal.default_int_handler)
moments, kept = random.Random(0), 0
with tempfile.TemporaryDirectory() as folder:
    for number in range(20):
        endless = dict(max_steps=10**9, max_epochs=10**9, patience=10**9)
        model = HCRegressor("variance_head", width=4, depth=1, random_state=0, **endless)
        signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.02, 0.2))
        try:
            model.fit(X, Y)
        except TrainingInterrupted:
            kept += 1
            curves = [*model.history_.train.values(), *model.history_.validation.values(), model.history_.criterion]
            assert {len(curve) for curve in curves} == {len(model.history_)}, "curves of equal length"
            assert 0 <= model.history_.best_epoch < len(model.history_)
            model.save(folder + "/model")
            assert (load(folder + "/model").predict(X) == model.predict(X)).all()
        except KeyboardInterrupt:
            assert vars(model) == model.get_params(), "unfitted"
results["kept"] = kept
print(json.dumps(results))
'''


def test_fits_and_loops(warm_python, tmp_path):
    """After the first finished epoch the fit is kept; and no loop begins the next fit."""
    done = warm_python.run("-c", SCRIPT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert results.pop("kept") > 0
    assert results.pop("compare") == ["TrainingInterrupted", 30]
    for name, result in results.items():
        if "at once" in name:
            assert result == ["KeyboardInterrupt", 1, False], name
        elif "GridSearchCV" in name:
            assert result == ["TrainingInterrupted", 30, False], name
        else:
            assert result[:2] == ["TrainingInterrupted", 30], name
            assert result[2:] in ([], [True]), name
    assert len(results) == 8


@pytest.fixture
def endless(tmp_path):
    """The arguments of a `hetcal fit` that does not end by itself."""
    rows = np.random.default_rng(0).normal(size=(60, 3))
    pd.DataFrame(rows, columns=["a", "b", "y"]).to_csv(tmp_path / "train.csv", index=False)
    sizes = ["width=4", "depth=1", *(f"{name}=1000000000" for name in ("max_steps", "max_epochs", "patience"))]
    settings = [word for size in sizes for word in ("--set", size)]
    fit = ["fit", "train.csv", "--target", "y", "--out", "model.hetcal", "--method", "hnn"]
    return ["-m", "hetcal.cli", *fit, *settings]


def test_person_at_a_terminal_keeps_the_model(warm_python, endless, tmp_path):
    """The bar shows the number of fits; after Ctrl-C the model is evaluated and saved, and a warning says why."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    seen, shown = "", r"(?!00:00)\d\d:\d\d passed, .* left, fit 1 of 1, HNN on 48 rows \(Ctrl-C keeps the best\)"
    with warm_python.start(*endless, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            while not re.search(shown, seen):
                assert process.poll() is None, seen
                seen += read(ours)
            process.send_signal(signal.SIGINT)
            while chunk := read(ours):
                seen += chunk
            assert process.wait(DEADLINE_SECONDS) == 0, seen
        finally:
            process.kill()
            os.close(ours)
    assert "hetcal: warning: training was interrupted; the best weights so far are kept" in seen
    assert read_model_file(tmp_path / "model.hetcal").summary.history.stopped == "interrupted"


def read(descriptor):
    """What a terminal shows next; nothing if the process has ended."""
    assert select.select([descriptor], [], [], DEADLINE_SECONDS)[0], "nothing is shown"
    try:
        return os.read(descriptor, 10_000).decode(errors="replace")
    except OSError:
        return ""


def test_script_stops(warm_python, endless, tmp_path):
    """Without a terminal, one line for every stage; Ctrl-C ends the command, and nothing is saved."""
    with (tmp_path / "said").open("w") as said, warm_python.start(*endless, cwd=tmp_path, stderr=said) as process:
        try:
            wait_until(lambda: "hetcal: training" in (tmp_path / "said").read_text(), process)
            process.send_signal(signal.SIGINT)
            # Python itself ends by the signal if it came within `exec`, as in imports; a shell then reports 130, too.
            assert process.wait(DEADLINE_SECONDS) in (130, -signal.SIGINT)
        finally:
            process.kill()
    lines = [line for line in (tmp_path / "said").read_text().splitlines() if line]
    assert lines[0] == "train.csv: 60 rows, 2 features"  # what was seen before training
    assert lines[-2:] == ["hetcal: training HNN on 48 rows", "hetcal: stopped"]
    assert not (tmp_path / "model.hetcal").exists()

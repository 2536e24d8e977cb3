"""`kill -9` at any moment of `hetcal fit` and `hetcal predict` leaves the old file whole.

A new process would spend its life importing torch, so a warm one forks a child for every kill.
"""

import os
import random
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
from tqdm.auto import tqdm

from hetcal.model_files.archive import read_model_file
from tests.processes import needs_proc

FITS, PREDICTIONS = 50, 20
SEED = 0


def run_and_kill(hetcal_main, arguments, seconds):
    """Whether the child was still running when it was killed."""
    child = os.fork()
    if child == 0:
        os.setsid()
        # Parent and child share the lock of progress bars: a child that is killed inside would lock out its parent.
        tqdm.set_lock(threading.RLock())
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        try:
            hetcal_main(arguments)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def main(arguments):
    from hetcal.cli.app import app

    app([str(word) for word in arguments], standalone_mode=False)


@needs_proc
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_kills_leave_the_old_file_whole(hetcal, tmp_path):
    """The moment follows the end of the run: earlier after a run that came through, later after one that did not. So
    most kills fall on writing, and both sides of it are met."""
    rows = np.random.default_rng(SEED).normal(size=(60, 3))
    pd.DataFrame(rows, columns=["a", "b", "y"]).to_csv("train.csv", index=False)
    tiny = ["--method", "hnn", "--set", "max_epochs=3", "--set", "width=8", "--set", "depth=1"]
    fit = ["fit", "train.csv", "--target", "y", "--out", "model.hetcal", *tiny, "--force", "--quiet"]
    predict = ["predict", "model.hetcal", "train.csv", "--out", "predictions.csv", "--force", "--quiet"]
    for command in (fit, predict):
        code, _, err = hetcal(*command)  # warms this process too
        assert code == 0, err
    whole = (tmp_path / "predictions.csv").read_bytes()

    jitter = random.Random(SEED)
    for command, kills in ((fit, FITS), (predict, PREDICTIONS)):
        delay, killed, replaced = 0.2, 0, 0
        for number in range(kills):
            seed = ["--seed", number] if command is fit else []
            before = (tmp_path / "model.hetcal").read_bytes()
            was_killed = run_and_kill(main, [*command, *seed], delay * jitter.uniform(0.7, 1.3))
            delay *= 1.25 if was_killed else 0.8
            killed += was_killed
            replaced += (tmp_path / "model.hetcal").read_bytes() != before
            read_model_file(tmp_path / "model.hetcal")  # whole, or it would be refused
            assert (tmp_path / "predictions.csv").read_bytes() == whole  # the same model each time
        assert 0 < killed < kills
        if command is fit:
            assert 0 < replaced < kills
            hetcal(*fit)  # seed 0: the model of the predictions
    leftovers = [path.name for path in tmp_path.iterdir() if path.name not in ("train.csv", "model.hetcal")]
    assert all(name == "predictions.csv" or name.endswith(".part") for name in leftovers)

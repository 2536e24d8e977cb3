"""Jobs in processes of their own: whatever happens to one of them does not affect the others."""

import os
import re
import signal
import struct
import subprocess
import sys
import time

import pytest

from hetcal.studies.jobs import Outcome, run_jobs
from tests.processes import DEADLINE_SECONDS, members, needs_proc, wait_until

SEEN = []


def double(job):
    return 2 * job


def fail_on_two(job):
    if job == 2:
        raise ValueError("two is too many")
    return job


def die_on_two(job):
    if job == 2:
        os._exit(3)
    return job


def kill_itself_on_two(job):
    if job == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def die_in_the_middle_of_a_message(job):
    """Announce 1000 bytes, send four."""
    sender = sys._getframe(1).f_locals["sender"]
    os.write(sender.fileno(), struct.pack("!i", 1000) + b"half")
    os._exit(0)


def exit_politely(job):
    sys.exit("good bye")


def return_what_cannot_be_sent(job):
    return lambda: job


def remember(job):
    SEEN.append(job)
    return list(SEEN)


def meet(job):
    """Return only if the other job runs at the same time."""
    folder, mine, other = job
    (folder / mine).touch()
    wait_until((folder / other).exists)
    return mine


def count_neighbors(folder):
    mine = folder / str(os.getpid())
    mine.touch()
    time.sleep(0.05)
    count = len(list(folder.iterdir()))
    mine.unlink()
    return count


def sleep_or_not(job):
    if job is None:
        return "awake"
    job.write_text(str(os.getpid()))
    time.sleep(DEADLINE_SECONDS)
    return "slept"


def outcomes(function, jobs, processes=1):
    return list(run_jobs(function, jobs, processes))


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_job_is_done():
    """One process keeps the order; two give the same results. No jobs, no outcomes."""
    expected = [Outcome(job, 2 * job) for job in range(4)]
    assert outcomes(double, range(4)) == expected
    assert sorted(outcomes(double, iter(range(4)), 2), key=lambda outcome: outcome.job) == expected
    assert outcomes(double, []) == []


def test_an_error_is_told_and_the_rest_goes_on():
    done = outcomes(fail_on_two, [1, 2, 3])
    assert [(outcome.job, outcome.result) for outcome in done] == [(1, 1), (2, None), (3, 3)]
    assert [outcome.error is None for outcome in done] == [True, False, True]
    assert done[1].error.startswith("Traceback")
    assert done[1].error.endswith("ValueError: two is too many\n")


@pytest.mark.parametrize(("function", "code"), [(die_on_two, 3), (kill_itself_on_two, -9)], ids=["exit", "kill"])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_dead_process_is_told_and_the_rest_goes_on(function, code, processes):
    """A job that crashes its process, or is killed for its memory, does not affect the others."""
    done = sorted(outcomes(function, [1, 2, 3], processes), key=lambda outcome: outcome.job)
    message = f"the process ended with exit code {code}; it may have run out of memory"
    assert done == [Outcome(1, 1), Outcome(2, None, message), Outcome(3, 3)]


def test_other_ways_to_leave():
    """Half a message is an error, sys.exit ends only the job, and so does a result that cannot be sent."""
    (half,) = outcomes(die_in_the_middle_of_a_message, [0])
    assert half.error == "the process ended with exit code 0; it may have run out of memory"
    (polite,) = outcomes(exit_politely, [0])
    assert polite.error == "the process ended with exit code 1; it may have run out of memory"
    (unsent,) = outcomes(return_what_cannot_be_sent, [0])
    assert re.search(r"(PicklingError|AttributeError): Can't pickle", unsent.error)


def test_jobs_do_not_see_each_other():
    """The memory of a job ends with its process, so the order of the cells cannot matter."""
    assert [outcome.result for outcome in outcomes(remember, ["a", "b"])] == [["a"], ["b"]]
    assert SEEN == []


def test_side_by_side_but_not_more(tmp_path):
    """Two jobs that wait for each other both finish; of six jobs at most two run at once."""
    met = outcomes(meet, [(tmp_path, "a", "b"), (tmp_path, "b", "a")], 2)
    assert sorted(outcome.result for outcome in met) == ["a", "b"]
    (tmp_path / "crowd").mkdir()
    counts = [outcome.result for outcome in outcomes(count_neighbors, 6 * [tmp_path / "crowd"], 2)]
    assert len(counts) == 6
    assert max(counts) <= 2


def test_jobs_end_with_the_iteration(tmp_path):
    """When the caller stops iterating, no process is left behind."""
    path = tmp_path / "pid"
    jobs = run_jobs(sleep_or_not, [path, None], 2)
    assert next(jobs) == Outcome(None, "awake")
    wait_until(lambda: path.exists() and path.read_text())
    jobs.close()
    assert not is_running(int(path.read_text()))


def test_number_of_processes():
    with pytest.raises(ValueError, match=r"^processes must be at least 1, got processes=0; choose a value in that"):
        outcomes(double, [1], 0)


SCRIPT = """\
import os, sys, time
from pathlib import Path
from hetcal.studies.jobs import run_jobs

def work(path):
    path.write_text(str(os.getpid()))
    time.sleep(1000)

if __name__ == "__main__":
    try:
        list(run_jobs(work, [Path("pid")], preload=sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
"""
SLOW = "import time; from pathlib import Path; Path('importing').touch(); time.sleep(1)"


@pytest.fixture
def script(tmp_path):
    """A process of its own (and group) that runs SCRIPT in `tmp_path`, killed at the end."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "slow.py").write_text(SLOW)
    started = []

    def start(*preload):
        process = subprocess.Popen(
            [sys.executable, "script.py", *preload],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@needs_proc
def test_ctrl_c_while_the_server_imports(script, tmp_path):
    """No traceback of the server, and the job that waits for it never starts."""
    process = script("slow")
    wait_until((tmp_path / "importing").exists, process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=DEADLINE_SECONDS) == (None, "")
    assert process.returncode == 130
    wait_until(lambda: not members(process.pid))
    assert not (tmp_path / "pid").exists()


@needs_proc
def test_ctrl_c_in_the_middle(script, tmp_path):
    """The job is terminated without a message."""
    process = script()
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=DEADLINE_SECONDS) == (None, "")
    assert process.returncode == 130
    assert not is_running(int((tmp_path / "pid").read_text()))


@needs_proc
def test_a_job_does_not_outlive_its_parent(script, tmp_path):
    """Even if the parent is killed with -9 and cannot terminate it."""
    process = script()
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), process)
    process.kill()
    wait_until(lambda: not members(process.pid))

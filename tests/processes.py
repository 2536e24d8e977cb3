"""Looking at processes from outside, for tests that kill them."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found through /proc")
DEADLINE_SECONDS = 120  # against hanging; nothing is measured by it


def wait_until(condition: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Wait for a condition, while the process (if given) runs."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process is None or process.poll() is None, "the process ended too early"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.03)


def members(group: int) -> dict[int, tuple[int, float]]:
    """The living processes of a group: parent and seconds of CPU by process number."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        state, parent, its_group, ticks = fields[0], int(fields[1]), int(fields[2]), int(fields[11]) + int(fields[12])
        if its_group == group and state not in "ZX":
            found[int(path.parent.name)] = parent, ticks / os.sysconf("SC_CLK_TCK")
    return found

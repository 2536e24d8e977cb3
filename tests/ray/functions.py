"""What workers and other processes import by name: nothing slow, because each of them would have to wait for it."""

import os
import signal

READERS = []  # the processes that called `read_rows`, as far as this one knows


def double(job):
    return 2 * job


def fail_on_two(job):
    if job == 2:
        raise ValueError("two is too many")
    return os.environ["OMP_NUM_THREADS"]


def look_at(data, job):
    return bool(data.flags.writeable), float(data[job])


def die(folder, job):
    """Job 1 loses its worker once, job 2 always, as the kernel ends a process that takes too much memory."""
    with (folder / str(job)).open("a") as file:
        file.write("x")
    if job == 2 or (job == 1 and len((folder / "1").read_text()) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def take_memory(gigabytes):
    """Write to so much memory."""
    return len([b"\1" * 10**9 for _ in range(gigabytes)])


def load_table(name):
    if name == "lost":
        raise FileNotFoundError("lost.csv is not there")
    return name.upper()


def read_rows(path, table):
    """The rows of a table of one's own; whatever its file holds."""
    import numpy as np
    import pandas as pd

    from hetcal.tabular.columns import read_table

    READERS.append(os.getpid())
    x = np.arange(40.0)
    return read_table(pd.DataFrame({"x": x % 7})), x, None


class Busy:
    """Holds the CPUs of a node."""

    def ready(self):
        return True

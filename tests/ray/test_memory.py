"""A worker that takes too much memory, on a cluster of its own, which has a limit."""

import pytest

from tests.ray.conftest import Cluster, run_script

pytestmark = pytest.mark.cluster
SPARE_GIGABYTES = 4
JOBS = f"""\
import sys
from hetcal.ray import connect
from hetcal.studies.jobs import run_jobs
from tests.ray.functions import take_memory
connect(sys.argv[1])
outcomes = {{outcome.job: outcome for outcome in run_jobs(take_memory, [0, {2 * SPARE_GIGABYTES}], backend="ray")}}
print(outcomes[0].error, outcomes[{2 * SPARE_GIGABYTES}].error, sep="\\n")
"""


def test_out_of_memory():
    """Ray ends a worker that takes too much memory; its job is then an error, and the others are not affected."""
    from ray._private.utils import estimate_available_memory

    if estimate_available_memory() < 2 * SPARE_GIGABYTES * 10**9:
        pytest.skip(f"needs {2 * SPARE_GIGABYTES} GB of memory")
    cluster = Cluster(spare_gigabytes=SPARE_GIGABYTES, script="ray.scripts.scripts")  # no worker needs torch
    try:
        cluster.start_head()
        ended = run_script(JOBS, cluster.address)
    finally:
        cluster.stop()
    modest, greedy = ended.stdout.splitlines() or [ended.stderr, ""]
    if "OutOfMemoryError" in modest:
        pytest.skip("Ray counts the memory of this machine differently")
    assert modest == "None"
    assert greedy == "the worker was lost 3 times (OutOfMemoryError); it may have run out of memory"

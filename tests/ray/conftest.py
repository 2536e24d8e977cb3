"""A real cluster for the tests of a file: a head and a second node, as `ray start` makes them."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.processes import wait_until
from tests.ray.warm_node import WORKERS

REPOSITORY = Path(__file__).parents[2]
pytest.importorskip("ray", reason="needs Ray: pip install 'hetcal[ray]'")
# Neither logs nor a cloud are watched: their processes use the CPUs even if there is nothing to see.
NODE = ["--object-store-memory=100000000", "--block", "--disable-usage-stats", "--include-log-monitor=false"]
SETTINGS = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_idle_worker_killing_time_threshold_ms": "600000",  # workers are used again, as they import torch for seconds
    # A dead node, which refuses connections at once, is missed after a second; one that is only slow has 20 seconds.
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "2",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # of a cloud, too
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # the controller sees that workers have ended when it looks at them
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # in its handlers died servers for clients, see `hetcal.ray.cluster`
}
PORTS = ["--min-worker-port=0", "--max-worker-port=0"]  # any


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """Nodes as process groups, so that one can be killed with all its workers, like a machine without power."""

    def __init__(self, second_cpus=2, spare_gigabytes=None, script="tests.ray.warm_node"):
        """Ray ends workers when this machine uses so much more memory than now; by default when it is nearly full.

        The script is that of `ray`, or one with workers that have imported torch already.
        """
        if not Path("/proc/self/stat").exists():
            pytest.skip("nodes are killed through /proc")
        self.folder = Path(tempfile.mkdtemp(prefix="hcray"))  # short, because names of sockets must be short
        self.address, self.nodes = f"127.0.0.1:{free_port()}", []
        self.client = f"ray://127.0.0.1:{free_port()}"
        self.second_cpus, self.limits, self.script = second_cpus, {}, script
        if spare_gigabytes is not None:
            from ray._private.utils import get_system_memory, get_used_memory  # as Ray itself counts it

            share = (get_used_memory() + spare_gigabytes * 10**9) / get_system_memory()
            self.limits["RAY_memory_usage_threshold"] = f"{min(share, 0.95):.4f}"

    def start(self, *options):
        """Start a node; it belongs to the cluster as soon as Ray counts it."""
        agent = f"--dashboard-agent-listen-port={free_port()}"
        command = [sys.executable, "-m", self.script, "start", *NODE, *PORTS, agent, *options]
        paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]  # workers import functions by name
        workers = {WORKERS: str(self.folder / f"workers-{len(self.nodes)}")}
        environment = {**os.environ, **SETTINGS, **self.limits, **workers, "PYTHONPATH": os.pathsep.join(paths)}
        for name in ("RAY_ADDRESS", "OMP_NUM_THREADS"):
            environment.pop(name, None)
        with (self.folder / f"node-{len(self.nodes)}.log").open("w") as log:
            node = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True, preexec_fn=end_with_parent
            )
        self.nodes.append(node)
        return node

    def start_head(self):
        """Start the first node, and wait until it accepts drivers."""
        ports = [
            f"--port={self.address.rpartition(':')[2]}",
            f"--ray-client-server-port={self.client.rpartition(':')[2]}",
        ]
        unneeded = ["--include-dashboard=false", "--no-monitor"]
        head = self.start("--head", "--num-cpus=2", *ports, *unneeded, f"--temp-dir={self.folder}")
        wait_until(lambda: "Ray runtime started" in self.log() or head.poll() is not None)
        assert head.poll() is None, self.log()
        return head

    def start_second(self):
        return self.start(f"--address={self.address}", f"--num-cpus={self.second_cpus}", '--resources={"second": 4}')

    def log(self):
        return "\n".join(path.read_text() for path in self.folder.glob("node-*.log"))

    def stop(self):
        for node in self.nodes:
            kill(node)
        shutil.rmtree(self.folder, ignore_errors=True)


def run_script(code, address):
    """Run a driver in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", code, address], env=environment, capture_output=True, text=True, check=False
    )


def end_with_parent():
    """Let the kernel end a node when the process of the tests is killed, and no finalizer can stop it."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def kill(node):
    """Kill a node with everything that it started."""
    for pid in descendants(node.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    node.wait()


def descendants(pid):
    """The process and all that it has started, the process first: it would restart what ends before it."""
    found, children = [pid], {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    for one in found:
        found += children.get(one, [])
    return found


@pytest.fixture(scope="module")
def second_cpus():
    """CPUs of the second node, in addition to two of the head."""
    return 2


@pytest.fixture(scope="module")  # not longer: the processes of a cluster use the CPUs even if they have nothing to do
def cluster(second_cpus):
    import ray

    from hetcal.ray import connect
    from hetcal.ray.cluster import count_cpus

    made = Cluster(second_cpus)
    try:
        head = made.start_head()
        made.start_second()
        connect(made.address)
        wait_until(lambda: count_cpus() == 2 + second_cpus, head)
        yield made
    finally:
        ray.shutdown()
        made.stop()

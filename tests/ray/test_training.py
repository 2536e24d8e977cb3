"""`hetcal.ray.fit`: one model by several workers, which may be lost, and the same gradients as by one."""

import socket
import threading

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hetcal import HCRegressor, load
from hetcal.metrics import coverage
from hetcal.ray.cluster import count_cpus
from hetcal.tabular import streaming
from tests.processes import wait_until
from tests.ray.conftest import kill
from tests.ray.functions import Busy
from tests.ray.networks import WaitingNetwork, gradients_of_part

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'hetcal[ray]'")
pytestmark = [
    pytest.mark.cluster,
    # Ray's own, when it leaves files and sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning:ray"),
]


def frame(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    x, kind = rng.normal(size=n), rng.choice(["oak", "ash"], n)
    y = 2 * x + (kind == "oak") + (0.2 + 0.3 * (kind == "ash")) * rng.normal(size=n)
    return pd.DataFrame({"x": x, "kind": kind, "y": y})


@pytest.fixture
def data(cluster, monkeypatch):
    """A data set of two blocks, whose sample is much smaller."""
    if count_cpus() < 4:  # after a test that has killed the second node
        cluster.start_second()
        wait_until(lambda: count_cpus() == 4)
    monkeypatch.setattr(streaming, "SAMPLE_ROWS", 600)
    return ray.data.from_pandas([frame()[:1000], frame()[1000:]])


def test_a_model_of_two_workers_is_like_any_other(data, tmp_path):
    from hetcal.ray import fit

    regressor = HCRegressor(max_steps=20, random_state=0)
    model = fit(regressor, data, "y", num_workers=2, storage_path=str(tmp_path / "store"))
    assert not hasattr(regressor, "estimator_")
    new = frame(1000, seed=1)
    X, y = new[["x", "kind"]], new["y"]
    assert np.mean((model.predict(X) - y) ** 2) < 0.3
    assert 0.85 < coverage(y, model.predict_dist(X), level=0.9) < 0.95  # 5 standard errors of 1,000 rows
    model.save(tmp_path / "model.hetcal")
    assert_array_equal(load(tmp_path / "model.hetcal").predict(X), model.predict(X))
    assert model.get_params()["max_steps"] == 20


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda data: data, {"target": "price"}, r"target must be one of \['x', 'kind', 'y'\], got target='price'"),
        (lambda data: data, {"target": "y", "group": "town"}, "group must be one of"),
        (lambda data: data, {"target": "y", "num_workers": 9}, "num_workers must leave at least one of the 4 CPUs"),
        (lambda data: data.limit(0), {"target": "y"}, "dataset must have rows"),
        (
            lambda data: ray.data.from_pandas(frame(50)).union(ray.data.from_pandas(frame(50)[["x", "y"]])),
            {"target": "y"},
            "a part of dataset must have",
        ),
        (
            lambda data: ray.data.from_pandas(frame(50)).union(ray.data.from_pandas(frame(50).assign(y=np.nan))),
            {"target": "y"},
            "y must be fini",
        ),
    ],
)
def test_bad_input(data, change, arguments, message):
    from hetcal.ray import fit

    with pytest.raises((ValueError, TypeError), match=message):
        fit(HCRegressor(max_steps=5), change(data), **arguments)


def test_a_node_dies_during_training(data, cluster, tmp_path):
    """The only worker is on a node that loses its power; another one goes on from its last checkpoint."""
    from hetcal.ray import fit

    log, store = tmp_path / "log", tmp_path / "store"
    head = ray.get_runtime_context().get_node_id()
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(head, soft=False)
    busy = ray.remote(Busy).options(num_cpus=2, scheduling_strategy=affinity).remote()
    ray.get(busy.ready.remote())  # no worker fits on the head

    class Network(WaitingNetwork):
        def __init__(self, n_inputs, n_outputs):
            super().__init__(n_inputs, n_outputs, log, waits_at=45)

    named = '"checkpoint_dir_name"'  # in the list of Ray Train, as soon as it has registered the checkpoint of an epoch

    def pull_the_plug():
        wait_until(lambda: log.exists() and len(log.read_text().splitlines()) == 46)
        wait_until(lambda: any(named in path.read_text() for path in store.glob("*/checkpoint_manager_snapshot.json")))
        kill(cluster.nodes[-1])
        ray.kill(busy)

    end = threading.Thread(target=pull_the_plug)
    end.start()
    regressor = HCRegressor("variance_head", network=Network, max_steps=60, batch_size=64, random_state=0)
    model = fit(regressor, data, "y", num_workers=1, storage_path=str(store), checkpoint_seconds=0)
    end.join()
    # From scratch it would be 46 and 60 steps.
    assert 60 <= len(log.read_text().splitlines()) < 90
    assert len(model.history_) > 0


def test_two_workers_have_the_gradient_of_one(cluster):
    """The mean of the gradients of two halves of a batch is that of the batch: sigma of a row depends on no other.

    The last test, because its workers end with it, and those of other tests would have to import torch again.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        store = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    task = ray.remote(num_cpus=1, max_calls=1)(gradients_of_part)
    names = ["cross_ensemble", "variance_head", "quantile_range"]
    parts = ray.get([task.remote(names, rank, 2, store) for rank in (0, 1)])
    whole = gradients_of_part(names, 0, 1, None)
    for name in names:
        for part in parts:
            assert_allclose(part[name], whole[name], rtol=1e-4, atol=1e-5 * np.abs(whole[name]).max(), err_msg=name)
        assert np.isfinite(whole[name]).all()

"""A real cluster on loopback. One file, because every test process would start a cluster of its own."""

import json
import os
import re
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pandas as pd
import pytest
import ray.data

from hetcal import HCRegressor
from hetcal.ray import predict
from hetcal.ray.cluster import count_cpus
from hetcal.ray.jobs import share
from hetcal.studies.jobs import Outcome, count_slots, run_jobs
from hetcal.studies.protocol import parse_protocol, read_protocol
from hetcal.studies.run import run_protocol
from tests.processes import wait_until
from tests.ray.conftest import kill, run_script
from tests.ray.functions import READERS, die, fail_on_two, load_table, look_at, read_rows
from tests.studies.samples import TINY, cell_files, fingerprint, without_seconds

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.usefixtures("cluster"),
    # Ray's own, when it leaves files and sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning:ray"),
]


@pytest.fixture(scope="module")
def second_cpus():
    """One, because most tests here use all CPUs, and a worker on each of them imports torch first."""
    return 1


def by_job(function, jobs, **options):
    return sorted(run_jobs(function, jobs, backend="ray", **options), key=lambda outcome: outcome.job)


def test_jobs_and_threads():
    """A result or the traceback of an error for each job, and one thread for one CPU."""
    one, two, three = by_job(fail_on_two, [1, 2, 3])
    assert (one, three) == (Outcome(1, "1"), Outcome(3, "1"))
    assert two.error.startswith("Traceback")
    assert two.error.endswith("ValueError: two is too many\n")
    assert (count_slots("ray", None), count_slots("ray", 2), count_slots("ray", 99)) == (3, 2, 3)


def test_data_are_shared():
    """A job sees the data in the object store of its machine, which is read-only, and not a copy of its own."""
    data = np.arange(2_000_000.0)
    assert by_job(partial(look_at, data), range(8), processes=2) == [Outcome(k, (False, k)) for k in range(8)]


def test_lost_workers(tmp_path):
    """A job is run again if its worker is lost, but not for ever, and the others are not affected."""
    zero, one, two = by_job(partial(die, tmp_path), [0, 1, 2])
    assert (zero, one) == (Outcome(0, 0), Outcome(1, 1))
    assert re.fullmatch(r"the worker was lost 3 times \(\w+\); it may have run out of memory", two.error)
    assert [len((tmp_path / str(job)).read_text()) for job in range(3)] == [1, 2, 3]


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"size": random.normal(size=200), "kind": random.choice(["a", "b"], 200)})
    return frame.assign(id=np.arange(200), y=frame["size"] + random.normal(size=200))


@pytest.fixture(scope="module")
def model(table):
    model = HCRegressor(estimator="variance_head", max_epochs=3, random_state=0)
    return model.fit(table[["size", "kind"]], table["y"])


def test_commands(hetcal, table):
    """`compare` and `fit --method auto` give the numbers that they give without Ray."""
    table.to_csv("rows.csv", index=False)
    options = ("--target", "y", "--drop", "id", "--set", "max_epochs=2", "--json")
    methods, model = (
        ("--methods", "hnn,ridge", "--folds", "2"),
        ("--method", "auto", "--out", "model.hetcal", "--force"),
    )
    for command, own in (("compare", methods), ("fit", model)):
        shown = []
        for backend in ("serial", "ray"):
            code, out, err = hetcal(command, "rows.csv", *own, *options, "--backend", backend)
            assert code == 0, err
            shown.append(without_times(json.loads(out)))
        assert shown[0] == shown[1]


def without_times(value):
    """A result without the seconds that it took."""
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in ("seconds", "created")}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def test_a_table_that_cannot_be_read():
    """It is an error of the jobs that need it, not of the whole run."""
    good, lost = by_job(share(load_table, ["good", "lost"]), ["good", "lost"])
    assert good == Outcome("good", "GOOD")
    assert lost.error.endswith("FileNotFoundError: lost.csv is not there\n")


def test_predict(table, model, tmp_path):
    """The columns of the data set and those of `predict_frame`; a model file may be named instead."""
    model.save(tmp_path / "model.hetcal")
    expected = model.predict_frame(table[["size", "kind"]], levels=(0.5, 0.9))
    # Several blocks once: each of them may get a worker of its own, which imports torch.
    for given, keep, blocks in ((model, None, 3), (tmp_path / "model.hetcal", ["id"], 1)):
        dataset = ray.data.from_pandas(table).repartition(blocks)
        predicted = predict(given, dataset, levels=(0.5, 0.9), keep=keep).to_pandas().sort_values("id")
        assert list(predicted) == [*(keep or table), *expected]
        np.testing.assert_allclose(predicted[list(expected)].astype(float), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop(columns="size"), r"dataset must have the columns \['size'\], got dataset=\['kind', "),
        (lambda table: table.head(0), "dataset must have at least one row, got dataset='0 rows'; check how it was"),
        (lambda table: table.assign(mean=0.0), r"dataset must not have a column of the predictions, got dataset=\['me"),
    ],
    ids=["features", "empty", "clash"],
)
def test_bad_data_sets(table, model, change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        predict(model, ray.data.from_pandas(change(table)))


def test_predict_command(hetcal, table, model):
    """From Parquet to Parquet, in the order of the rows, with the numbers of the command without Ray."""
    table.to_parquet("rows.parquet", row_group_size=50)
    model.save("model.hetcal")
    command = ("predict", "model.hetcal", "rows.parquet", "--keep", "id", "--upper", "0.95", "--out")
    assert hetcal(*command, "here.parquet")[0] == 0
    code, out, err = hetcal(*command, "there.parquet", "--backend", "ray")
    assert code == 0, err
    assert "there.parquet" in out
    here, there = pd.read_parquet("here.parquet"), pd.read_parquet("there.parquet")
    pd.testing.assert_frame_equal(here, there, check_dtype=False, rtol=1e-5)
    code, _, err = hetcal("predict", "model.hetcal", "rows.csv", "--out", "there.csv", "--backend", "ray")
    assert (code, err.startswith("hetcal: table must end in .parquet for --backend ray, got table='rows.csv'")) == (
        2,
        True,
    )


def test_a_node_dies_during_a_study(cluster, tmp_path):
    """Nothing finished is lost, lost cells are run again, and all backends have the same results, bit for bit.

    The node stays dead: tests that need it come before.
    """
    (tmp_path / "mine.csv").touch()
    text = TINY.replace("seeds = 2", "seeds = 3").replace('"skewed"', '"skewed", "mine"')
    (tmp_path / "study.toml").write_text(text + '[tables.mine]\nfile = "mine.csv"\ntarget = "y"\n')
    protocol, folder, at_death = read_protocol(tmp_path / "study.toml"), tmp_path / "ray", []

    def strike():
        wait_until(lambda: cell_files(folder))
        kill(cluster.nodes[-1])
        at_death.append(fingerprint(folder))

    thread = threading.Thread(target=strike)
    thread.start()
    READERS.clear()
    results = run_protocol(protocol, folder, backend="ray", read=read_rows)
    thread.join()
    assert set(READERS) == {os.getpid()}
    assert len(READERS) == 2  # once to check its columns and once for all cells, always here
    assert 1 <= len(at_death[0]) < len(results.done) == 18
    assert fingerprint(folder).items() >= at_death[0].items()
    run_protocol(protocol, tmp_path / "serial", backend="serial", read=read_rows)
    assert without_seconds(tmp_path / "serial") == without_seconds(folder)
    run_protocol(protocol, tmp_path / "processes", backend="processes", jobs=2, read=read_rows, seeds=[0])
    one_seed = without_seconds(tmp_path / "processes")
    assert len(one_seed) == 6
    assert without_seconds(folder).items() >= one_seed.items()
    wait_until(lambda: count_cpus() == 2)


def test_the_driver_is_killed_and_resumes(cluster, tmp_path):
    (tmp_path / "study.toml").write_text(TINY.replace("seeds = 2", "seeds = 6"))
    backend = ["--backend", "ray", "--address", cluster.address, "--jobs", "1"]
    command = ["bench", "run", "study.toml", "--out", "out", *backend]
    driver = subprocess.Popen([sys.executable, "-m", "hetcal.cli", *command], cwd=tmp_path, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(cell_files(tmp_path / "out")) > 1, driver)
    driver.kill()
    driver.wait()
    before = fingerprint(tmp_path / "out")
    protocol = parse_protocol((tmp_path / "study.toml").read_text())
    results = run_protocol(protocol, tmp_path / "out", backend="serial")
    assert (len(results.done), results.failed, results.damaged) == (24, {}, [])
    assert len(before) < 24
    assert fingerprint(tmp_path / "out").items() >= before.items()


CLIENT = """\
import sys
from hetcal.studies.jobs import run_jobs
from hetcal.ray import connect
connect(sys.argv[1])
from tests.ray.functions import double
print(sorted((outcome.job, outcome.result, outcome.error) for outcome in run_jobs(double, [1, 2], backend="ray")))
"""
MISMATCH = "import sys, ray; ray.__version__ = '2.0.0'; from hetcal.ray import connect; connect(sys.argv[1])"


def test_client(cluster):
    """From outside of the cluster; functions are pickled by their name."""
    pytest.importorskip("grpc", reason="ray:// addresses need grpcio: pip install 'hetcal[ray]'")
    ended = run_script(CLIENT, cluster.client)
    assert ended.stdout == "[(1, 2, None), (2, 4, None)]\n", ended.stderr


def test_another_version(cluster):
    ended = run_script(MISMATCH, cluster.address)
    rule = "RuntimeError: address must name a cluster with the versions of Ray and Python that this process has, got"
    assert rule in ended.stderr
    assert "2.0.0" in ended.stderr.splitlines()[-1]

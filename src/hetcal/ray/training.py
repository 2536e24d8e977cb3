"""`hetcal.ray.fit`: one model on the rows of a cluster, by the workers of Ray Train.

A pass over the data draws a random sample, from which every worker learns the encoder, the scale of the target and all
that needs many rows at once, and by which it judges and calibrates. Every worker then writes its part of the rows to a
scratch file of its own (`tabular.spool`), takes batches from it, and the workers average their gradients.
"""

import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, cast

import numpy as np
import pyarrow as pa
import ray
import ray.train
import torch
import torch.distributed as dist
from sklearn.base import clone
from torch import Tensor

from hetcal._checks import check_number, must
from hetcal.model_files.load import load
from hetcal.ray.cluster import count_cpus
from hetcal.regressor import HCRegressor
from hetcal.tabular import streaming
from hetcal.tabular.rows import draw_seed
from hetcal.tabular.sources import ROWS_OF_A_BATCH, RowSource, check_column_names, check_same_columns
from hetcal.tabular.streaming import Sample, Shard, keys_of
from hetcal.tabular.targets import check_regression_target
from hetcal.training.workers import Result, State, Workers

STATE, MODEL = "state.pt", "model.hetcal"
# More rows than the sample needs, so that chance does not leave too few.
MARGIN = 1.2


def fit(
    regressor: HCRegressor,
    dataset: Any,
    target: str | Sequence[str],
    *,
    group: str | None = None,
    num_workers: int = 2,
    cpus_per_worker: int = 1,
    use_gpu: bool = False,
    storage_path: str | None = None,
    max_failures: int = 3,
    checkpoint_seconds: float = 60.0,
) -> HCRegressor:
    """Fit a model to a Ray data set, and return it: the same object that a local fit gives.

    Args:
        regressor: Its settings are used; it is not changed.
        dataset: A `ray.data.Dataset`, of which every worker reads a part.
        target: The column or columns of y.
        group: A column of labels of rows that belong together, or None; whole groups are held out.
        num_workers: Processes that train together. Each batch is divided among them.
        cpus_per_worker: CPUs, and threads, of each of them.
        use_gpu: Give each worker a GPU.
        storage_path: A folder that all machines can reach, for checkpoints; None is that of Ray, on this machine.
        max_failures: How often workers that were lost are replaced; training then goes on from the last checkpoint.
        checkpoint_seconds: Least time between two checkpoints.

    Raises:
        RuntimeError: Training failed more often than `max_failures`; the error names the reason and the checkpoints.
    """
    for argument, value in (("num_workers", num_workers), ("cpus_per_worker", cpus_per_worker)):
        check_number(argument, value, 1, integer=True)
    check_number("max_failures", max_failures, 0, integer=True)
    check_number("checkpoint_seconds", checkpoint_seconds, 0)
    check_resources(num_workers, cpus_per_worker)
    targets = check_column_names("target", target)
    seed = draw_seed(regressor.random_state)
    sample = draw_sample(dataset, targets, group, seed)
    settings = {"random_state": seed, "progress": False, **({"device": "cuda"} if use_gpu else {})}
    config = {
        "regressor": ray.put(clone(regressor).set_params(**settings)),
        "sample": ray.put(sample),
        "target": targets if len(targets) > 1 else targets[0],
        "group": group,
        "threads": cpus_per_worker,
        "checkpoint_seconds": checkpoint_seconds,
    }
    resources = {"num_workers": num_workers, "use_gpu": use_gpu, "resources_per_worker": {"CPU": cpus_per_worker}}
    checkpoint = train_together(config, dataset, resources, storage_path, max_failures)
    own = {key: getattr(regressor, key) for key in ("network", "estimator", "objective")}
    handed = {key: value for key, value in own.items() if value is not None and not isinstance(value, str)}
    with checkpoint.as_directory() as folder:
        model = load(Path(folder) / MODEL, **handed)
    assert isinstance(model, HCRegressor)
    return model


def check_resources(num_workers: int, cpus_per_worker: int) -> None:
    """Refuse more workers than the cluster can run beside the tasks that read the data; they would wait forever."""
    cpus = count_cpus()
    if num_workers * cpus_per_worker >= cpus:
        rule = f"leave at least one of the {cpus} CPUs of the cluster for reading the data"
        raise must("num_workers", rule, num_workers, "give fewer workers, or a cluster with more CPUs")


def draw_sample(dataset: Any, targets: list[str], group: str | None, seed: int) -> Sample:
    """Draw the sample of all workers, in one pass over the data on the cluster."""
    schema = dataset.schema()
    names = [] if schema is None else list(schema.names)
    total = dataset.count() if names else 0
    if not total:
        raise must("dataset", "have rows", "none", "check the files that it reads")
    for argument, column in [*(("target", one) for one in targets), *([("group", group)] if group else [])]:
        if column not in names:
            raise must(argument, f"be one of {names}", column, "name a column of the data set")
    share = min(1.0, MARGIN * streaming.SAMPLE_ROWS / total)
    options = {"names": names, "targets": targets, "group": group, "seed": seed, "share": share}
    # Whole blocks: Ray would fill in missing columns if it joined blocks to a batch.
    parts = dataset.map_batches(sample_of_block, batch_format="pyarrow", batch_size=None, fn_kwargs=options)
    whole = Sample(streaming.SAMPLE_ROWS, np.random.default_rng(seed), limit=share)
    for row in sorted(parts.take_all(), key=lambda row: row["order"]):  # whichever task was faster
        part = pickle.loads(row["sample"])  # written by `sample_of_block` a moment ago
        if isinstance(part, Exception):
            raise part
        whole.merge(part)
    return whole


def sample_of_block(
    block: pa.Table, *, names: list[str], targets: list[str], group: str | None, seed: int, share: float
) -> pa.Table:
    """On a worker: the part of the sample that is in these rows, or the error of these rows, as one row."""
    part, order = Sample(streaming.SAMPLE_ROWS, np.random.default_rng(seed), limit=share), 0
    try:
        check_same_columns("a part of dataset", block.column_names, names)
        target = targets if len(targets) > 1 else targets[0]
        for rows in RowSource([block.select(names)], target, group, check_regression_target):
            order = int(keys_of(rows).sum(dtype=np.uint64) >> np.uint64(1))
            part.generator = np.random.default_rng([seed, order])
            part.add(rows)
    except (ValueError, TypeError) as error:  # as a value, because Ray would wrap it in errors of its own
        return pa.table({"order": [-1], "sample": [pickle.dumps(error)]})
    return pa.table({"order": [order], "sample": [pickle.dumps(part)]})


def train_together(
    config: dict[str, Any], dataset: Any, resources: dict[str, Any], storage_path: str | None, max_failures: int
) -> Any:
    """Run the workers, and return the checkpoint with the model."""
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    failure, kept = FailureConfig(max_failures=max_failures), CheckpointConfig(num_to_keep=1)
    trainer = TorchTrainer(
        train_worker,
        train_loop_config=config,
        scaling_config=ScalingConfig(**resources),
        run_config=RunConfig(storage_path=storage_path, failure_config=failure, checkpoint_config=kept),
        datasets={"rows": dataset},
    )
    try:
        result = trainer.fit()
    except Exception as error:  # the classes of Ray Train's errors differ between its versions
        raise reason_of(error) from error
    if result.error is not None:
        raise reason_of(result.error) from result.error
    return result.checkpoint


def reason_of(error: BaseException) -> Exception:
    """The error of our own code behind an error of Ray, or one that says what to do."""
    causes: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is not None and one not in causes:
            causes.append(one)
            pending += [getattr(one, "cause", None), one.__cause__, *getattr(one, "worker_failures", {}).values()]
    for one in causes:
        if isinstance(one, ValueError | TypeError) and not isinstance(one, ray.exceptions.RayError):
            return type(one)(str(one))
    text = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
    if any("OutOfMemory" in type(one).__name__ or "OutOfMemory" in str(one) for one in causes):
        text = "a worker ran out of memory; give machines with more memory, or fewer workers on each"
    return RuntimeError(f"training on the cluster failed: {text}; its checkpoints are kept in storage_path")


def train_worker(config: dict[str, Any]) -> None:
    """What every worker runs; the first one reports the model."""
    torch.set_num_threads(config["threads"])
    regressor: HCRegressor = ray.get(config["regressor"])
    shard = ray.train.get_dataset_shard("rows")

    def frames() -> Any:
        return shard.iter_batches(batch_format="pyarrow", batch_size=ROWS_OF_A_BATCH)

    context = ray.train.get_context()
    workers = ClusterWorkers(context.get_world_size(), context.get_world_rank(), config["checkpoint_seconds"])
    regressor.fit(Shard(frames, ray.get(config["sample"]), workers), config["target"], groups=config["group"])
    workers.report(lambda folder: regressor.save(folder / MODEL))


class ClusterWorkers(Workers):
    """The workers of one run of Ray Train; they have the process group of torch that it has set up."""

    def __init__(self, count: int, rank: int, checkpoint_seconds: float = 0.0) -> None:
        self.count, self.rank, self.checkpoint_seconds, self.saved = count, rank, checkpoint_seconds, monotonic()

    def average_(self, tensors: Sequence[Tensor]) -> None:
        if self.count > 1:
            whole = torch.cat([tensor.flatten().to(torch.float32) for tensor in tensors])
            dist.all_reduce(whole)
            whole /= self.count
            for tensor, mean in zip(tensors, whole.split([tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(mean.view_as(tensor))

    def any(self, flag: bool) -> bool:
        if self.count == 1:
            return flag
        flags = torch.tensor([float(flag)], device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    def compute_once(self, function: Callable[[], Result]) -> Result:
        if self.count == 1:
            return function()
        results = [function() if self.rank == 0 else None]
        dist.broadcast_object_list(results, src=0)
        return cast(Result, results[0])

    def save(self, name: str, state: Callable[[], State]) -> None:
        # The clock of the first worker decides for all.
        if self.any(self.rank == 0 and monotonic() - self.saved >= self.checkpoint_seconds):
            self.saved = monotonic()
            self.report(lambda folder: torch.save({"name": name, "state": state()}, folder / STATE))

    def restore(self, name: str) -> State | None:
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return None
        with checkpoint.as_directory() as folder:
            path = Path(folder) / STATE
            if not path.exists():
                return None
            saved = torch.load(path, weights_only=True)
        return saved["state"] if saved["name"] == name else None

    def report(self, write: Callable[[Path], Any]) -> None:
        """Report a checkpoint to Ray Train: all workers must call this, and the first one writes it."""
        if self.rank != 0:
            ray.train.report({})
            return
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))
            ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(folder))

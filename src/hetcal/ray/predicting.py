"""Predictions for the rows of a Ray data set, batch by batch on all CPUs of the cluster."""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import ray
import torch

from hetcal._checks import check_levels, must
from hetcal.model_files.load import load
from hetcal.prediction import predicted_columns
from hetcal.ray.cluster import count_cpus

if TYPE_CHECKING:
    from ray.data import Dataset

ROWS_PER_BATCH = 4096


def predict(
    model: Any,
    dataset: "Dataset",
    *,
    levels: Sequence[float] = (0.9,),
    q: Sequence[float] = (),
    lower: Sequence[float] = (),
    upper: Sequence[float] = (),
    keep: Sequence[str] | None = None,
) -> "Dataset":
    """The data set with the columns mean, std, lower_90, upper_90, ... of a fitted regressor, computed when it is used.

    Every worker loads the model once and computes with one thread. Ray Data may change the order of the rows, unless
    `ray.data.DataContext.get_current().execution_options.preserve_order` is set: keep a column that identifies them.
    Numbers agree with `predict_frame` up to the rounding of floats, which depends on the size of a batch.

    Args:
        model: A fitted `HCRegressor`, or the name of a model file, which only this process has to read.
        dataset: A `ray.data.Dataset` with the features of the model; further columns are ignored.
        levels, q, lower, upper: Levels of intervals, probabilities of quantiles, and levels of one-sided bounds.
        keep: Columns of the data set to keep; all by default.

    Raises:
        ValueError: The data set is empty, lacks features, or has a column with the name of a predicted one.
    """
    wanted = {"levels": levels, "q": q, "lower": lower, "upper": upper}
    for name, values in wanted.items():
        if len(values):
            check_levels(name, values)
    if isinstance(model, str | PathLike):
        model = load(model)
    first = dataset.limit(1).to_pandas()
    if not len(first):
        raise must("dataset", "have at least one row", "0 rows", "check how it was made")
    kept = list(first.columns if keep is None else keep)
    require_columns(kept, list(first.columns))
    # In this process, so that a data set without the features is refused now and not by a worker.
    predicted = predicted_columns(model.predict_dist(select_features(model, first)), **wanted)
    clash = sorted(set(kept) & predicted.keys())
    if clash:
        raise must("dataset", "not have a column of the predictions", clash, "rename it, or omit it from `keep`")
    return dataset.map_batches(
        Predictor,
        fn_constructor_args=(ray.put(model), wanted, kept),
        batch_format="pandas",
        batch_size=ROWS_PER_BATCH,
        num_cpus=1,
        concurrency=(1, max(1, count_cpus())),
    )


class Predictor:
    """On a worker: loads the model once, and predicts batches with it."""

    def __init__(self, model: Any, wanted: dict[str, Sequence[float]], kept: list[str]) -> None:
        torch.set_num_threads(1)  # one for the CPU that this worker has
        self.model, self.wanted, self.kept = ray.get(model), wanted, kept

    def __call__(self, batch: Any) -> Any:
        predicted = predicted_columns(self.model.predict_dist(select_features(self.model, batch)), **self.wanted)
        return batch[self.kept].assign(**predicted)


def select_features(model: Any, frame: Any) -> Any:
    """The columns that the model was fitted with; a model of arrays has no names, and gets all columns."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return frame
    require_columns(list(names), list(frame.columns))
    return frame[list(names)]


def require_columns(needed: list[str], present: list[str]) -> None:
    missing = [name for name in needed if name not in present]
    if missing:
        raise must("dataset", f"have the columns {missing}", present, "give the columns that the model had in fit")

"""`hetcal predict`: intervals for the rows of a file, chunk by chunk, in memory that does not grow with the file."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetcal._checks import check_levels, must
from hetcal.cli.evaluate import warn_of_strange_rows
from hetcal.cli.models import read_regressor
from hetcal.cli.progress import is_watched, steps
from hetcal.cli.tables import Format, open_writer, read_chunks

if TYPE_CHECKING:
    from pandas import DataFrame


def predict_file(
    model: Path,
    source: str,
    out: str,
    *,
    levels: Sequence[float] = (0.9,),
    quantiles: Sequence[float] = (),
    keep: Sequence[str] = (),
    format: Format = Format(),  # noqa: B008 (frozen)
    quiet: bool = False,
) -> dict[str, Any]:
    """Write mean, std, interval ends and quantiles for every row of `source`, over `out` if it exists."""
    import pandas as pd

    for name, values in (("level", levels), ("quantiles", quantiles)):
        if len(values):
            check_levels(name, values)
    twice = sorted(name for name, count in Counter(names(levels, quantiles)).items() if count > 1)
    if twice:
        raise must("level and quantiles", "differ from each other", twice, "give each once")
    regressor, _ = read_regressor(model)
    clash = sorted(set(keep) & set(names(levels, quantiles)))
    if clash:
        raise must("keep", "name no column that the predictions have", clash, "rename it in the input")
    rows, unseen, outside = 0, Counter[str](), Counter[str]()
    with open_writer(out, force=True) as writer, steps(is_watched(quiet), "rows") as show:
        for chunk in read_chunks(source, regressor.encoder_.kinds, format, keep=keep):
            predicted = predicted_columns(regressor.predict_dist(chunk.frame), levels, quantiles)
            kept = chunk.kept.reset_index(drop=True)
            writer.write(pd.concat([kept, predicted], axis=1) if keep else predicted)
            rows += len(predicted)
            unseen.update(regressor.count_unseen(chunk.frame))
            outside.update(regressor.count_outside(chunk.frame))
            show(rows, round(rows / chunk.share) if chunk.share else None)
    warn_of_strange_rows(unseen, outside, rows)
    strange = {"unseen_labels": dict(unseen), "outside_range": dict(outside)}
    return {"command": "predict", "out": str(out), "rows": rows, **strange}


def names(levels: Sequence[float], quantiles: Sequence[float]) -> list[str]:
    ends = [f"{end}_{percent(level)}" for level in levels for end in ("lower", "upper")]
    return ["mean", "std", *ends, *(f"quantile_{q:.10g}" for q in quantiles)]


def predicted_columns(prediction: Any, levels: Sequence[float], quantiles: Sequence[float]) -> "DataFrame":
    """The columns mean, std, lower_90, upper_90, ..., quantile_0.05, ..."""
    import pandas as pd

    columns = [prediction.mean, prediction.std]
    for level in levels:
        columns += list(prediction.interval(level).T)
    columns += [prediction.quantile(q) for q in quantiles]
    return pd.DataFrame(np.column_stack(columns), columns=names(levels, quantiles))


def percent(level: float) -> str:
    """
    >>> percent(0.9), percent(0.975), percent(0.29)
    ('90', '97.5', '29')
    """
    return f"{100 * level:.10g}"

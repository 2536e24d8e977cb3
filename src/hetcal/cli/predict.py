"""`hetcal predict`: prediction intervals for the rows of a file, in memory that does not grow with the file."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hetcal._checks import check_levels, must
from hetcal.cli.arguments import split_words
from hetcal.cli.judging import warn_of_unusual_rows
from hetcal.cli.models import read_regressor
from hetcal.cli.options import PredictOptions
from hetcal.cli.progress import is_watched, steps
from hetcal.cli.tables import open_writer, read_chunks

if TYPE_CHECKING:
    from pandas import DataFrame


def predict_file(options: PredictOptions) -> dict[str, Any]:
    """Write mean, std, interval ends and quantiles for every row of a table, chunk by chunk."""
    import pandas as pd

    levels = parse_fractions("level", ",".join(options.level))
    quantiles = parse_fractions("quantiles", options.quantiles)
    check_distinct_names(predicted_names(levels, quantiles), options.keep)
    regressor, _ = read_regressor(options.model)
    rows, unseen, outside = 0, Counter[str](), Counter[str]()
    # The command has checked that an existing file may be replaced.
    with open_writer(options.out, force=True) as writer, steps(is_watched(options.quiet), "rows") as show:
        for chunk in read_chunks(options.table, regressor.encoder_.kinds, options.csv_format, keep=options.keep):
            predicted = predicted_columns(regressor.predict_dist(chunk.table), levels, quantiles)
            writer.write(pd.concat([chunk.kept, predicted], axis=1) if options.keep else predicted)
            rows += len(predicted)
            unseen.update(regressor.count_unseen(chunk.table))
            outside.update(regressor.count_outside(chunk.table))
            show(rows, round(rows / chunk.share) if chunk.share else None)
    warn_of_unusual_rows(unseen, outside, rows, regressor.encoder_.kinds)
    unusual = {"unseen_labels": dict(unseen), "outside_range": dict(outside)}
    return {"command": options.command, "out": options.out, "rows": rows, **unusual}


def parse_fractions(name: str, text: str | None) -> list[float]:
    """Probabilities separated by commas.

    >>> parse_fractions("quantiles", "0.05, 0.5")
    [0.05, 0.5]
    """
    try:
        values = [float(word) for word in split_words(text) or ()]
    except ValueError:
        raise must(name, "be numbers separated by commas", text, "write 0.5,0.95") from None
    if values:
        check_levels(name, values)
    return values


def check_distinct_names(names: Sequence[str], keep: Sequence[str]) -> None:
    """Check that all written columns have different names."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise must("level and quantiles", "differ from each other", twice, "give each once")
    clash = sorted(set(keep) & set(names))
    if clash:
        raise must("keep", "not name a column of the predictions", clash, "rename it in the input")


def predicted_names(levels: Sequence[float], quantiles: Sequence[float]) -> list[str]:
    ends = [f"{end}_{level_name(level)}" for level in levels for end in ("lower", "upper")]
    return ["mean", "std", *ends, *(f"quantile_{q:.10g}" for q in quantiles)]


def predicted_columns(prediction: Any, levels: Sequence[float], quantiles: Sequence[float]) -> "DataFrame":
    """The columns mean, std, lower_90, upper_90, ..., quantile_0.05, ..."""
    import pandas as pd

    columns = [prediction.mean, prediction.std]
    for level in levels:
        columns += list(prediction.interval(level).T)
    columns += [prediction.quantile(q) for q in quantiles]
    return pd.DataFrame(np.column_stack(columns), columns=predicted_names(levels, quantiles))


def level_name(level: float) -> str:
    """
    >>> level_name(0.9), level_name(0.975), level_name(0.29)
    ('90', '97.5', '29')
    """
    return f"{100 * level:.10g}"

"""`hetcal predict`: prediction intervals for the rows of a file, in memory that does not grow with the file."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetcal._checks import check_levels, must
from hetcal.cli.arguments import split_words
from hetcal.cli.backends import open_backend
from hetcal.cli.judging import warn_of_unusual_rows
from hetcal.cli.models import read_regressor
from hetcal.cli.options import PredictOptions
from hetcal.cli.progress import is_watched, rows_bar
from hetcal.cli.tables import open_writer, read_chunks
from hetcal.prediction import column_names, predicted_columns
from hetcal.regressor import HCRegressor


def predict_file(options: PredictOptions) -> dict[str, Any]:
    """Write mean, std, interval ends, quantiles and bounds for every row of a table, chunk by chunk."""
    import pandas as pd

    wanted = {
        "levels": parse_fractions("level", ",".join(options.level)),
        "q": parse_fractions("quantiles", options.quantiles),
        "lower": parse_fractions("lower", ",".join(options.lower)),
        "upper": parse_fractions("upper", ",".join(options.upper)),
    }
    check_distinct_names(column_names(**wanted), options.keep)
    regressor, _ = read_regressor(options.model)
    if open_backend(options, ("serial", "ray")) == "ray":
        return {"command": options.command, "out": options.out, **predict_on_ray(options, regressor, wanted)}
    rows, unseen, outside = 0, Counter[str](), Counter[str]()
    # The command has checked that an existing file may be replaced.
    with open_writer(options.out, force=True) as writer, rows_bar(is_watched(options.quiet)) as show:
        for chunk in read_chunks(options.table, regressor.encoder_.kinds, options.csv_format, keep=options.keep):
            predicted = pd.DataFrame(predicted_columns(regressor.predict_dist(chunk.table), **wanted))
            writer.write(pd.concat([chunk.kept, predicted], axis=1) if options.keep else predicted)
            rows += len(predicted)
            unseen.update(regressor.count_unseen(chunk.table))
            outside.update(regressor.count_outside(chunk.table))
            show(rows, round(rows / chunk.share) if chunk.share else None)
    warn_of_unusual_rows(unseen, outside, rows, regressor.encoder_.kinds)
    unusual = {"unseen_labels": dict(unseen), "outside_range": dict(outside)}
    return {"command": options.command, "out": options.out, "rows": rows, **unusual}


def predict_on_ray(options: PredictOptions, regressor: HCRegressor, wanted: dict[str, Any]) -> dict[str, Any]:
    """The same from Parquet to Parquet on a cluster, which reads and predicts; this process writes the rows, in order.

    Unusual rows are not counted.
    """
    import ray.data

    from hetcal.ray import predict

    for name in ("table", "out"):
        if not getattr(options, name).endswith(".parquet"):
            raise must(
                name, "end in .parquet for --backend ray", getattr(options, name), "convert it, or omit --backend"
            )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars, context.execution_options.preserve_order = False, True
    path = options.table if "://" in options.table else str(Path(options.table).absolute())
    dataset = predict(regressor, ray.data.read_parquet(path), keep=options.keep, **wanted)
    rows = 0
    with open_writer(options.out, force=True) as writer, rows_bar(is_watched(options.quiet)) as show:
        for batch in dataset.iter_batches(batch_size=None, batch_format="pandas"):
            writer.write(batch)
            rows += len(batch)
            show(rows, None)
    return {"rows": rows}


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
        raise must("levels, quantiles and bounds", "differ from each other", twice, "give each once")
    clash = sorted(set(keep) & set(names))
    if clash:
        raise must("keep", "not name a column of the predictions", clash, "rename it in the input")

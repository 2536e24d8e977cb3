"""`hetcal predict`: prediction intervals for the rows of a file, in memory that does not grow with the file."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hetcal._checks import check_levels, must
from hetcal.cli.arguments import split_words
from hetcal.cli.judging import warn_of_unusual_rows
from hetcal.cli.models import read_regressor
from hetcal.cli.options import PredictOptions
from hetcal.cli.progress import is_watched, rows_bar
from hetcal.cli.tables import open_writer, read_chunks
from hetcal.prediction import column_names, predicted_columns


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

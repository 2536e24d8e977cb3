"""Tables that were read, as pandas frames, which are easy to compare."""

import pandas as pd

from hetcal.cli.tables import read_file


def frame_of(data):
    """Columns as the table has them, but None for missing text; the index holds the numbers of the rows."""
    columns = {}
    for name, values in data.table.columns.items():
        columns[name] = pd.Series(values, data.rows, dtype=values.dtype)
        if data.table.kind(name) == "text":
            columns[name][data.table.missing(name)] = None
    return pd.DataFrame(columns, data.rows)


def read_frame(*arguments, **options):
    return frame_of(read_file(*arguments, **options))

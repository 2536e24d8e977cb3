"""Tables for the command line: CSV, Parquet and Feather in, the same out, in bounded memory and without torch.

Whatever is wrong with a file is said in one sentence that names the file, the row and the column. Rows are counted as a
spreadsheet shows a CSV (the header is row 1); in Parquet and Feather the first record is row 1.
"""

try:
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "hetcal.cli.tables needs pandas and pyarrow; install them with: pip install 'hetcal[cli]'"
    ) from error

from hetcal.cli.tables.dialect import Format
from hetcal.cli.tables.kinds import Kinds
from hetcal.cli.tables.reading import Chunk, read_chunks, read_frame
from hetcal.cli.tables.writing import Writer, open_writer

__all__ = ["Format", "Kinds", "Chunk", "Writer", "open_writer", "read_chunks", "read_frame"]

"""Files of tables for the command line: CSV, Parquet and Feather, read and written in bounded memory, without torch.

An error in a file is reported in one sentence that names the file, the row and the column. The rows of a CSV file are
numbered as in a spreadsheet (the header is row 1); in Parquet and Feather files the first record is row 1.
"""

try:
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "hetcal.cli.tables needs pandas and pyarrow; install them with: pip install 'hetcal[cli]'"
    ) from error

from hetcal.cli.tables.dialect import CsvFormat
from hetcal.cli.tables.reading import Chunk, NumberedTable, read_chunks, read_file
from hetcal.cli.tables.writing import Writer, open_writer

__all__ = ["Chunk", "CsvFormat", "NumberedTable", "Writer", "open_writer", "read_chunks", "read_file"]

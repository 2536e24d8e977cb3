"""Parquet and Feather: all types of cells, bounded batches, and one sentence for damaged files."""

import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from hetcal.cli.tables import arrow, read_chunks, records
from hetcal.cli.tables.arrow import FeatherTable, ParquetTable
from hetcal.cli.tables.messages import largest_batch
from tests.cli.tables.frames import read_frame

NAN = float("nan")
WRITERS = {
    "parquet": lambda table, path, size: pq.write_table(table, path, row_group_size=size),
    "feather": lambda table, path, size: pyarrow.feather.write_feather(table, path, chunksize=size),
}


@pytest.fixture(params=WRITERS)
def write(request, tmp_path):
    """Writes columns to a file and returns its path; the name does not show the format."""

    def to_file(columns, size=None):
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        WRITERS[request.param](table, str(tmp_path / "table"), size)
        return tmp_path / "table"

    return to_file


COLUMNS = {
    "bool": (pa.array([True, None, False]), [1, NAN, 0]),
    "int": (pa.array([2**60 + 1, None, -3]), [2.0**60, NAN, -3]),
    "uint": (pa.array([2**64 - 1, None, 3], pa.uint64()), [2.0**64, NAN, 3]),
    "float": (pa.array([0.1, NAN, None]), [0.1, NAN, NAN]),
    "float32": (pa.array([0.5, None, 2], pa.float32()), [0.5, NAN, 2]),
    "half": (pa.array([0.5, None, 2], pa.float16()), [0.5, NAN, 2]),
    "decimal": (pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-3")]), [1.25, NAN, -3]),
    "numbers as text": (pa.array(["1.5", "NA", None]), [1.5, NAN, NAN]),
    "null": (pa.nulls(3), [NAN, NAN, NAN]),
    "text": (pa.array(["oak", None, "ash"]), ["oak", None, "ash"]),
    "large text": (pa.array(["oak", None, "ash"], pa.large_string()), ["oak", None, "ash"]),
    "categories": (pa.array(["oak", None, "ash"]).dictionary_encode(), ["oak", None, "ash"]),
}
DATES = {
    "date": pa.array([19753, None, 19754], pa.date32()),
    "date64": pa.array([19753 * 86_400_000, None, 19754 * 86_400_000], pa.date64()),
    "seconds": pa.array([19753 * 86_400, None, 19754 * 86_400], pa.timestamp("s")),
    "nanoseconds": pa.array([19753 * 86_400 * 10**9 + 1, None, 19754 * 86_400 * 10**9], pa.timestamp("ns")),
    "zone": pa.array([19753 * 86_400, None, 19754 * 86_400], pa.timestamp("s", "Europe/Berlin")),
    "dates as text": pa.array(["2024-01-31", None, "2024-02-01T00:00:00"]),
}


def test_types(write):
    """Every type of cell becomes numbers, text or dates; the first record is row 1."""
    types = {name: values for name, (values, _) in COLUMNS.items()} | DATES
    frame = read_frame(write(types))
    assert list(frame) == list(types)
    assert list(frame.index) == [1, 2, 3]
    for name, (_, expected) in COLUMNS.items():
        if isinstance(expected[0], str):
            assert [None if pd.isna(value) else value for value in frame[name]] == expected, name
        else:
            assert frame[name].dtype == np.float64, name
            np.testing.assert_array_equal(frame[name], expected, err_msg=name)
    for name in DATES:
        assert frame[name].dtype == "datetime64[us]", name
        assert frame[name].to_list() == [pd.Timestamp("2024-01-31"), pd.NaT, pd.Timestamp("2024-02-01")], name


def test_categories_of_numbers(tmp_path):
    """Whoever wrote numbers as categories meant labels."""
    path = tmp_path / "a.feather"
    pyarrow.feather.write_feather(pa.table({"a": pa.array([7, None, 8]).dictionary_encode()}), str(path))
    assert read_frame(path)["a"].to_list()[::2] == ["7", "8"]


def test_types_as_the_model_knows_them(write):
    """Integers for a text column become labels; text for a column of numbers is converted."""
    path = write(
        {
            "code": pa.array([1, None, 20]),
            "with gaps": pa.array([1.0, None, 20.0]),
            "flag": pa.array([True, None, False]),
            "number": pa.array(["1.5", "", "2"]).dictionary_encode(),
            "day": pa.array([19753, None, 19754], pa.date32()),
            "ignored": pa.array([[1], [2], [3]]),
        }
    )
    kinds = {"number": "numbers", "with gaps": "text", "code": "text", "flag": "text", "day": "text"}
    frame = read_frame(path, kinds=kinds)
    assert list(frame) == list(kinds)
    assert frame["number"].to_list()[::2] == [1.5, 2.0]
    for name, expected in {
        "code": ["1", "20"],
        "with gaps": ["1", "20"],
        "flag": ["true", "false"],
        "day": ["2024-01-31", "2024-02-01"],
    }.items():
        assert frame[name].to_list()[::2] == expected
        assert pd.isna(frame[name].iloc[1])


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (pa.array([1, 2]), "dates", "column 'x' of {path} must hold dates, got int64; give it the type it had in fit"),
        (pa.array([1], pa.date32()), "numbers", "column 'x' of {path} must hold numbers, got date32[day]; give it"),
        (pa.array(["1", "oak"]), "numbers", "column 'x' of {path} must hold numbers, got 'oak' in row 2; repair it"),
        (pa.array([1.0, -np.inf]), None, "column 'x' of {path} must hold finite numbers, got -inf in row 2; repair it"),
        (pa.array([[1.0]]), None, "column 'x' of {path} must hold numbers, text or dates, got list<"),
        (pa.array([b"a"]), "text", "column 'x' of {path} must hold numbers, text or dates, got binary; convert it"),
        (
            pa.array([2**62], pa.timestamp("ms")),
            None,
            "column 'x' of {path} cannot be read: Casting from timestamp[ms]",
        ),
    ],
)
def test_wrong_types(write, values, kind, message):
    """A wrong type, wrong cells, and types that are not cells: the column is named."""
    path = write({"x": values})
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        read_frame(path, kinds=kind and {"x": kind})
    assert str(raised.value).startswith(message.format(path=path))


def test_bad_schemas(write):
    """Names that are missing or not unique, columns without rows, an index without a name."""
    for table, message in [
        (pa.table([[1], [2]], names=["a", "a"]), "has two columns named 'a' (columns 1 and 2); rename one of them"),
        (pa.table({"a": pa.array([], pa.int64())}), "has columns but no rows; give a file with rows"),
    ]:
        path = write(table)
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            read_frame(path)
        assert str(raised.value) == f"{path} {message}"
    assert list(read_frame(write({"__index_level_0__": [7], "a": [1]}))) == ["a"]


def test_kept_columns_keep_their_types(write):
    """Long integers with missing values, decimals and dates are passed on as they are, categories as their labels."""
    columns = {
        "id": pa.array([2**60 + 1, None]),
        "price": pa.array([decimal.Decimal("1.10"), None]),
        "day": pa.array([19753, None], pa.date32()),
        "kind": pa.array(["oak", None]).dictionary_encode(),
    }
    (chunk,) = read_chunks(write(columns | {"x": pa.array([1, 2])}), {"x": "numbers"}, keep=list(columns))
    assert pa.Table.from_pandas(chunk.kept, preserve_index=False).to_pydict() == pa.table(columns).to_pydict()
    assert chunk.kept["id"].dtype == "int64[pyarrow]"
    assert list(chunk.rows) == [1, 2]


def test_chunks(write):
    """However a file is divided, chunks are in order and no larger than requested, and small batches are joined."""
    numbers = pa.table({"a": np.arange(1000.0), "b": np.arange(1000.0)})
    for size in (7, 1000):
        chunks = list(read_chunks(write(numbers, size), {"b": "numbers"}, rows=300))
        lengths = [len(chunk.table) for chunk in chunks]
        assert sum(lengths) == 1000
        assert all(300 - size < length <= 300 for length in lengths[:-1])
        assert [chunk.rows[0] for chunk in chunks] == [1, *(1 + np.cumsum(lengths[:-1]))]
        assert np.concatenate([chunk.table.columns["b"] for chunk in chunks]).tolist() == list(range(1000))


def test_row_groups_are_judged_by_their_metadata(tmp_path, monkeypatch):
    """A row group that claims to be huge is refused before any of it is read."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": np.random.default_rng(0).normal(size=10_000)}), path)
    monkeypatch.setattr(arrow, "MAX_GROUP_BYTES", 1 << 16)
    monkeypatch.setattr(ParquetTable, "_read", None)
    with pytest.raises(ValueError, match=r"a.parquet has a row group that decompresses to \d\.\d GiB; write it in"):
        read_frame(path)


@pytest.mark.parametrize("packing", [None, "zstd"])
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_record_batches_are_judged_by_their_metadata(tmp_path, monkeypatch, packing, is_dictionary):
    """A record batch, or a dictionary, that decompresses to more than the limit is refused before any of it is read."""
    path = tmp_path / "a.feather"
    labels = pa.array([f"{i:0100}" for i in range(1000)])
    table = pa.table({"a": labels.dictionary_encode() if is_dictionary else labels, "b": np.zeros(1000)})
    pyarrow.feather.write_feather(table, str(path), compression=packing or "uncompressed")
    size = 1000 * (100 + 4 + 8)
    assert size <= largest_batch(path) < size + 1000 * 4 + 500
    assert len(read_frame(path)) == 1000
    monkeypatch.setattr(arrow, "MAX_GROUP_BYTES", size - 1)
    monkeypatch.setattr(FeatherTable, "_read", None)
    with pytest.raises(ValueError, match=r"a.feather has a record batch that decompresses to \d\.\d GiB; write it"):
        read_frame(path)


@pytest.mark.parametrize("nulls", [0, 3000])
@pytest.mark.parametrize("encoding", ["labels", "plain", "DELTA_BYTE_ARRAY", "categories"])
def test_repeated_text_makes_short_batches(tmp_path, monkeypatch, encoding, nulls):
    """A long label that is stored once takes memory in every row; batches are of bounded size nevertheless."""
    monkeypatch.setattr(arrow, "BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(arrow, "MAX_GROUP_BYTES", 1 << 26)
    path = tmp_path / "a.parquet"
    text = pa.array([None] * nulls + ["x" * 20_000] * 1000)
    coding = {"use_dictionary": encoding in ("labels", "categories")}
    if encoding.isupper():
        coding["column_encoding"] = {"text": encoding}
    text = text.dictionary_encode() if encoding == "categories" else text
    pq.write_table(pa.table({"a": np.arange(nulls + 1000.0), "text": text}), path, compression="zstd", **coding)
    table = ParquetTable("a.parquet", path)
    with table.file:
        if encoding != "DELTA_BYTE_ARRAY":
            assert max(batch.num_rows for batch in table._read(["text"], 50_000)) <= (
                1000 if encoding == "plain" else 52
            )
        batches = list(table.batches(["text", "a"], 50_000))
    assert max(arrow.text_lengths(batch.data["text"]).sum() for batch in batches) <= 1 << 20
    assert np.concatenate([batch.data["a"] for batch in batches]).tolist() == list(range(nulls + 1000))
    assert all(batch.size > 20_000 * (len(batch.rows) - nulls) for batch in batches)


def test_shared_text_in_feather_makes_short_batches(tmp_path, monkeypatch):
    """Categories and views share one text among rows; the batches are bounded by what the rows hold."""
    monkeypatch.setattr(arrow, "BATCH_BYTES", 1 << 20)
    path = tmp_path / "a.feather"
    text = pa.array(["x" * 20_000, None, "ä"] * 300)
    for shared in (text.dictionary_encode(), text.cast(pa.string_view())[3:], text.cast(pa.large_string())):
        table = pa.table({"a": shared})
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        batches = list(FeatherTable("a.feather", path).batches(["a"], 50_000))
        assert max(len(batch.rows) for batch in batches) < 200
        assert [word for batch in batches for word in batch.data["a"].to_pylist()] == shared.to_pylist()


def test_huge_cells(write):
    """A cell that would be refused in a CSV file is refused with its row."""
    path = write({"a": ["x"] * 7 + ["x" * 140_000]})
    with pytest.raises(ValueError, match=r"^row 8 of .* has a cell of more than 131072 bytes in column 'a'; shorten"):
        read_frame(path)


def test_numbers_are_read_in_full_batches(tmp_path):
    """Only text makes batches shorter; short text does not."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": np.arange(60_000.0), "b": [f"name {i}" for i in range(60_000)]}), path)
    for wanted in (["a"], ["a", "b"]):
        lengths = [len(batch.rows) for batch in ParquetTable("a.parquet", path).batches(wanted, 50_000)]
        assert lengths == [50_000, 10_000]


def test_row_groups_are_read_page_by_page(tmp_path):
    """The first batch of a large row group takes a few pages of memory, not the columns as a whole."""
    path = tmp_path / "a.parquet"
    values = np.random.default_rng(0).normal(size=4_000_000)
    pq.write_table(pa.table({"a": values}), path, use_dictionary=False, compression="none", row_group_size=len(values))
    before = pa.total_allocated_bytes()
    table = ParquetTable("a.parquet", path)
    batches = table.batches(["a"], 10_000)
    first = next(batches)
    taken = pa.total_allocated_bytes() - before  # what was read ahead is still held by the reader
    table.close()
    assert len(first.rows) == 10_000
    assert 80_000 <= taken < values.nbytes / 4


def test_too_many_columns(tmp_path, monkeypatch):
    """Columns are counted in the metadata."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({str(i): [i] for i in range(11)}), path)
    monkeypatch.setattr(records, "MAX_COLUMNS", 10)
    with pytest.raises(ValueError, match=r"a.parquet has 11 columns; at most 10 are read$"):
        read_frame(path)


def test_checksums_are_verified(tmp_path):
    """A changed byte in a page with a checksum is detected, although the page can be read."""
    path = tmp_path / "a.parquet"
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table({"a": [1.5, 2.5]}), path, write_page_checksum=True, **options)
    content = path.read_bytes()
    place = content.index(np.float64(2.5).tobytes())
    path.write_bytes(content[:place] + np.float64(3.5).tobytes() + content[place + 8 :])
    with pytest.raises(ValueError, match=r"a.parquet is damaged or truncated \(.*CRC.*\); copy or write it again$"):
        read_frame(path)


def test_damage(write):
    """Truncated files are refused; those with changed bits are read or refused, in one sentence that names the file."""
    rng = np.random.default_rng(0)
    days = pa.array(range(100), pa.date32())
    path = write({"a": rng.normal(size=100), "b": ["oak", "äöü"] * 50, "day": days, "i": range(100)})
    whole = path.read_bytes()
    refused = 0
    for attempt in range(160):
        content = bytearray(whole)
        if attempt < 60:
            del content[rng.integers(8, len(whole)) :]
        else:
            content[rng.integers(8, len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        error = None
        try:
            read_frame(path)
        except ValueError as raised:
            error = raised
        if error is None:
            assert attempt >= 60
        else:
            refused += 1
            assert type(error) is ValueError
            assert str(path) in str(error)
            assert "\n" not in str(error)
    assert refused > 80

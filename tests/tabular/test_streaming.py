"""Tables that do not fit into memory: the same model from any form of the rows, trained on all of them."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hetcal import HCClassifier, HCRegressor, load
from hetcal.metrics import coverage
from hetcal.tabular import streaming
from hetcal.tabular.columns import Table
from hetcal.tabular.rows import draw_seed
from hetcal.tabular.sources import RowSource, SourceRows
from hetcal.tabular.streaming import Sample, keys_of, prepare_stream
from hetcal.tabular.targets import check_regression_target

pytestmark = pytest.mark.usefixtures("few_members")
ROWS = 1500


def frame(n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    kind = rng.choice(["oak", "ash", "elm"], n)
    day = np.datetime64("2024-01-01") + rng.integers(0, 300, n).astype("timedelta64[D]")
    y = 2 * x + (kind == "oak") + (0.1 + 0.3 * (kind == "elm")) * rng.normal(size=n)
    gaps = np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n))
    return pd.DataFrame({"x": x, "kind": kind, "day": day.astype("datetime64[us]"), "gaps": gaps, "y": y})


def pieces(data, rows=400):
    return [data[start : start + rows] for start in range(0, len(data), rows)]


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(streaming, "SAMPLE_ROWS", 500)


def quick(**settings):
    return HCRegressor(random_state=0, **{"max_steps": 40, **settings})


def parquet(folder, data):
    folder.mkdir()
    for number, part in enumerate(pieces(data)):
        part.to_parquet(folder / f"{number}.parquet", row_group_size=150)
    return folder


def test_every_form_of_the_rows_gives_the_same_model(tmp_path, small_sample):
    """How the rows are cut into batches does not matter, nor who wrote them."""
    data = frame()
    data.to_parquet(tmp_path / "rows.parquet", row_group_size=300)
    folder = parquet(tmp_path / "rows", data)
    forms = {
        "file": str(tmp_path / "rows.parquet"),
        "path": tmp_path / "rows.parquet",
        "folder": folder,
        "data set": ds.dataset(folder),
        "frames": pieces(data),
        "function": lambda: iter(pieces(data, 700)),
        "polars": [pl.from_pandas(part) for part in pieces(data)],
        "record batches": pa.Table.from_pandas(data, preserve_index=False).to_batches(max_chunksize=333),
        "iterator": iter(pieces(data)),
        "reader": pa.Table.from_pandas(data, preserve_index=False).to_reader(max_chunksize=333),
    }
    new = frame(50, seed=1).drop(columns="y")
    network = quick(max_steps=5, estimator="variance_head")
    means = {name: network.fit(X, "y").predict(new) for name, X in forms.items()}
    for name, mean in means.items():
        assert_array_equal(mean, means["file"], err_msg=name)
    # The default, whose other members take longer, with rows that are cut in three ways.
    file, frames, function = (quick(max_steps=5).fit(forms[name], "y") for name in ("file", "frames", "function"))
    for model in (frames, function):
        assert_array_equal(model.predict(new), file.predict(new))


@pytest.mark.parametrize("group", [None, "kind"])
def test_rows_that_fit_are_fitted_as_a_table(group):
    data = frame(200)
    labels = None if group is None else data["kind"]
    X = data.drop(columns=["y"] if group is None else ["y", "kind"])
    table = quick(max_steps=5).fit(X, data["y"], groups=labels)
    stream = quick(max_steps=5).fit(pieces(data, 70), "y", groups=group)
    assert_array_equal(stream.predict_interval(X), table.predict_interval(X))
    assert list(stream.feature_names_in_) == list(X.columns)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"target_transform": "auto", "max_steps": 20},
        {"estimator": "variance_head", "max_steps": 150},
        {"estimator": "mc_dropout", "max_steps": 60},
        {"estimator": "ensemble", "estimator_options": {"bootstrap": True}, "max_steps": 100},
        {"estimator": "quantile_range", "objective_weight": 0.75, "input_noise": 0.1, "max_steps": 150},
    ],
    ids=lambda settings: str(settings.get("estimator") or settings),
)
def test_every_estimator_learns_from_a_stream(settings, small_sample, tmp_path):
    data, new = frame(), frame(400, seed=1)
    model = quick(**settings).fit(pieces(data), "y")
    X, y = new.drop(columns="y"), new["y"]
    assert np.mean((model.predict(X) - y) ** 2) < 0.5 * y.var()
    assert 0.7 < coverage(y, model.predict_dist(X), level=0.9) <= 1  # trained for a moment; see benchmarks/scale
    model.save(tmp_path / "model.hetcal")
    assert_array_equal(load(tmp_path / "model.hetcal").predict(X), model.predict(X))


def test_several_targets(small_sample):
    data = frame()
    data["z"] = -data["y"]
    model = quick(max_steps=5).fit(pieces(data), ["y", "z"])
    assert model.predict(data.drop(columns=["y", "z"])[:7]).shape == (7, 2)


def test_max_steps_and_progress(small_sample):
    done = []
    quick(max_steps=17, progress=lambda step, planned: done.append((step, planned))).fit(pieces(frame()), "y")
    assert done[-1] == (17, 17)


def test_ranges_are_those_of_all_rows(small_sample):
    data = frame()
    data.loc[7, "x"] = 100.0  # in the sample with a probability of a third, in the range always
    data.loc[1400, "x"] = -50.0
    model = quick(max_steps=5).fit(pieces(data), "y")
    assert model.encoder_.ranges["x"] == (-50.0, 100.0)


# -- keys and samples


def prepared(data, seed=0, groups=None):
    tables = []
    arguments = pieces(data), "y", None, groups, check_regression_target, draw_seed(seed), tables.append
    return prepare_stream(*arguments)


def test_spooled_rows_are_all_rows(small_sample):
    data = frame()
    rows = prepared(data)
    spooled = rows.spool.read(0, len(rows.spool))
    assert len(spooled) == ROWS
    assert_array_equal(spooled["y"][:, 0], data["y"])
    assert len(rows.x) == len(rows.keys) == 500
    places = [np.flatnonzero(data["y"] == y)[0] for y in rows.target]
    assert_array_equal(spooled["x"][places], rows.x)
    assert_array_equal(spooled["key"][places], rows.keys)


def test_keys_depend_on_the_values_only():
    """Equal rows have equal keys, also -0 and 0, and all missing values; others differ."""
    table = Table(
        {
            "a": np.array([1.0, 0.0, -0.0, np.nan, -np.nan]),
            "b": np.array(["u", "v", "v", "w", "w"], dtype=object),
            "c": np.array(["2024-01-01"] * 5, dtype="datetime64[us]"),
        }
    )
    keys = keys_of(SourceRows(table, np.zeros(5), None))
    assert keys[1] == keys[2]
    assert keys[3] == keys[4]
    assert len(set(keys.tolist())) == 3
    assert len(set(keys_of(SourceRows(table, np.zeros(5), None), np.arange(5)).tolist())) == 5
    assert (
        keys_of(SourceRows(table, np.arange(5.0), table.columns["b"]))[3]
        == keys_of(SourceRows(table, np.zeros(5), table.columns["b"]))[4]
    )


def test_tables_of_repeated_rows_hold_out_single_rows(small_sample):
    """If a few rows make up the table, to hold out all copies of one would leave nothing to learn it from."""
    ratings = pd.DataFrame({"product": np.tile(["a", "b", "c", "d"], 500), "y": np.tile([1.0, 2.0, 3.0, 5.0], 500)})
    rows = prepared(ratings)
    assert len(set(rows.keys.tolist())) == 500
    data = frame()
    data["day"] = data["day"].astype(str)
    grouped = prepared(data, groups="day")
    assert 20 < len(set(grouped.keys.tolist())) <= data["day"].nunique()


def test_few_groups_are_refused(small_sample):
    with pytest.raises(ValueError, match="groups must have at least 20 different labels for files and batches"):
        quick().fit(pieces(frame()), "y", groups="kind")


def test_the_sample_is_random_and_in_order():
    """Every third of a stream has its share: 4.5 standard errors each, a false alarm in 2 of 100,000 samples."""
    sample = Sample(600, np.random.default_rng(0))
    for start in range(0, 30_000, 1000):
        numbers = np.arange(start, start + 1000.0)
        sample.add(SourceRows(Table({"x": numbers}), numbers, None))
    table, y, groups, numbers = sample.rows()
    assert len(y) == 600
    assert groups is None
    assert_array_equal(y, numbers)
    assert_array_equal(table.columns["x"], numbers)
    assert (np.diff(numbers) > 0).all()
    assert_allclose(np.histogram(numbers, [0, 10_000, 20_000, 30_000])[0], 200, atol=4.5 * np.sqrt(600 * 2 / 9))


# -- bad input


def with_batches(change):
    parts = [part.copy() for part in pieces(frame(900), 300)]
    parts[1] = change(parts[1])
    return parts


@pytest.mark.parametrize(
    ("X", "y", "more", "error", "message"),
    [
        (pieces(frame(100)), "price", {}, ValueError, "y must be one of .*'x', 'kind'.*got y='price'; name a column"),
        (pieces(frame(100)), "y", {"groups": "town"}, ValueError, "groups must be one of .*got groups='town'"),
        (pieces(frame(100)), np.zeros(100), {}, TypeError, "y must be the name of a column of X"),
        (pieces(frame(100)), "y", {"sample_weight": np.ones(100)}, ValueError, "sample_weight must be None for files"),
        ([frame(10)[["y"]]], "y", {}, ValueError, "X must have columns besides y"),
        ([frame(10)[:0]], "y", {}, ValueError, "X must have rows"),
        (iter([]), "y", {}, ValueError, "X must have rows, got X='no batches'"),
        (lambda: [np.zeros((3, 2))], "y", {}, TypeError, "X must have batches of rows, got X='ndarray'"),
        ("nowhere.parquet", "y", {}, FileNotFoundError, "X must be a Parquet file.*nowhere.*no such file"),
        (with_batches(lambda b: b.drop(columns="x")), "y", {}, ValueError, "batch 1 of X must have the columns of the"),
        (
            with_batches(lambda b: b.assign(kind=1.0)),
            "y",
            {},
            ValueError,
            "column 'kind' must hold text as in the fir",
        ),
        (with_batches(lambda b: b.assign(y=np.nan)), "y", {}, ValueError, "y must be finite"),
        (iter(with_batches(lambda b: b.drop(columns="x"))), "y", {}, ValueError, "X must have the same columns and ty"),
    ],
)
def test_bad_input(X, y, more, error, message):
    model = quick(max_steps=5)
    with pytest.raises(error, match=message):
        model.fit(X, y, **more)
    assert not hasattr(model, "estimator_")


def test_bad_files(tmp_path):
    (tmp_path / "text.parquet").write_text("x,y\n1,2\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"X must be a Parquet file or a folder of them \(.*text.parquet"):
        quick().fit(tmp_path / "text.parquet", "y")
    with pytest.raises(ValueError, match="the folder has no files"):
        quick().fit(tmp_path / "empty", "y")
    with pytest.raises(TypeError, match="X must be a table for HCClassifier"):
        HCClassifier().fit(pieces(frame(100)), "kind")


def test_a_batch_of_missing_labels_keeps_the_kind(small_sample):
    model = quick(max_steps=5).fit(with_batches(lambda batch: batch.assign(kind=None)), "y")
    assert model.encoder_.kinds["kind"] == "text"


def test_a_source_can_be_read_again():
    source = RowSource(iter(pieces(frame(100), 30)), "y", None, check_regression_target)
    assert [sum(len(rows.y) for rows in source) for _ in range(2)] == [100, 100]


def test_parts_of_a_folder_that_differ(tmp_path):
    folder = parquet(tmp_path / "rows", frame(800))
    pq.write_table(pa.table({"y": [1.0], "other": [2.0]}), folder / "9.parquet")
    with pytest.raises(ValueError, match=r"9.parquet must have the columns of the first one; it lacks \['x', 'kind'"):
        quick().fit(folder, "y")

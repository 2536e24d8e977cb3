"""The real data sets: shapes, targets and groups as counted independently from the raw files."""

import csv
import gzip
import re
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import GroupShuffleSplit

from hetcal.datasets import Dataset, available, load
from hetcal.datasets.entry import read_entry
from hetcal.tabular.columns import read_table

# name: rows, features, mean and standard deviation (n - 1) of the target, number of groups
FACTS = {
    "crime": (1994, 122, 0.237979, 0.232985, None),
    "red-wine": (1599, 11, 5.636023, 0.807569, 1599 - 240),
    "white-wine": (4898, 11, 5.877909, 0.885639, 4898 - 937),
    "parkinsons": (5875, 19, 29.018942, 10.700283, 42),
    "boston": (506, 13, 22.532806, 9.197104, None),
    "auto-mpg": (392, 7, 23.445918, 7.805007, None),
    "superconductivity": (21263, 81, 34.421219, 34.254362, 15170),
    "energy": (19735, 27, 97.694958, 102.524891, 138),
}


def test_facts_cover_the_catalog():
    assert sorted(FACTS) == available()


@pytest.mark.parametrize("name", FACTS)
def test_facts(load_raw, name):
    rows, features, mean, std, groups = FACTS[name]
    data = load_raw(name)
    assert isinstance(data, Dataset)
    assert data.name == name
    assert data.X.shape == (rows, features)
    assert list(data.X.index) == list(range(rows))
    assert data.feature_names == tuple(data.X.columns)
    assert data.target_name not in data.feature_names
    assert (data.y.dtype, data.y.shape) == (np.float64, (rows,))
    assert np.isfinite(data.y).all()
    assert_allclose([data.y.mean(), data.y.std(ddof=1)], [mean, std], rtol=0, atol=1e-6)
    if groups is None:
        assert data.groups is None
    else:
        assert (data.groups.dtype, data.groups.shape) == (np.int64, (rows,))
        assert sorted(set(data.groups.tolist())) == list(range(groups))


@pytest.mark.parametrize("name", [name for name in FACTS if name not in ("crime", "auto-mpg")])
def test_plain_numbers(load_raw, name):
    data = load_raw(name)
    assert {str(dtype) for dtype in data.X.dtypes} == {"float64"}
    assert np.isfinite(data.X.to_numpy()).all()


def test_crime_keeps_missing_values(load_raw):
    """UCI's question marks arrive as NaN: in 22 police columns of 1675 rows, and once in OtherPerCap."""
    data = load_raw("crime")
    assert {str(dtype) for dtype in data.X.dtypes} == {"float64"}
    missing = data.X.isna().sum()
    assert sorted(missing[missing > 0]) == [1] + 22 * [1675]
    assert missing["OtherPerCap"] == 1


def test_crime_has_the_published_names(raw_file):
    text = raw_file("communities.names").read_text()
    assert read_entry("crime").reader.columns == tuple(re.findall(r"^@attribute (\S+)", text, re.MULTILINE))


def test_origin_is_a_category(load_raw):
    """Where a car comes from is a name: our regressor must see text, not an amount. The rest are numbers."""
    data = load_raw("auto-mpg")
    assert sorted(data.X["origin"].cat.categories) == ["1", "2", "3"]
    assert {str(dtype) for name, dtype in data.X.dtypes.items() if name != "origin"} == {"float64"}
    table = read_table(data.X)
    assert {name: table.kind(name) for name in data.feature_names} == {
        name: "text" if name == "origin" else "numbers" for name in data.feature_names
    }
    assert "car_name" not in data.feature_names
    assert not data.X.isna().any(axis=None)


@pytest.mark.parametrize("name", ["red-wine", "white-wine", "superconductivity"])
def test_equal_features_share_a_group(load_raw, name):
    """By another route: NumPy's unique rows give the same partition."""
    data = load_raw(name)
    expected = np.unique(data.X.to_numpy(), axis=0, return_inverse=True)[1].ravel()
    pairs = set(zip(expected.tolist(), data.groups.tolist(), strict=True))
    assert len(pairs) == len(set(expected.tolist())) == len(set(data.groups.tolist()))


def test_patients(load_raw, raw_file):
    """One group for each patient; neither the patient's number nor the other score is a feature."""
    data = load_raw("parkinsons")
    lines = raw_file("parkinsons_updrs.data").read_text().splitlines()[1:]
    patients = [int(line.split(",")[0]) for line in lines]
    assert data.groups.tolist() == [patient - 1 for patient in patients]
    assert not {"subject#", "motor_UPDRS"} & set(data.feature_names)


def test_days(load_raw, raw_file):
    """A group is a calendar day: 138 from 11 January to 27 May 2016, whole ones of 144 rows but the first and last."""
    data = load_raw("energy")
    days = [line[1:11] for line in raw_file("energydata_complete.csv").read_text().splitlines()[1:]]
    numbers = {day: number for number, day in enumerate(sorted(set(days)))}
    assert data.groups.tolist() == [numbers[day] for day in days]
    assert set(np.bincount(data.groups)[1:-1].tolist()) == {144}


def test_groups_make_honest_splits(load_raw):
    """No test row of a grouped split of the wines stands in the training set; of a random split one in four does."""
    data = load_raw("red-wine")
    train, test = next(GroupShuffleSplit(1, random_state=0).split(data.X, groups=data.groups))
    seen = set(map(tuple, data.X.to_numpy()[train]))
    assert not any(tuple(row) in seen for row in data.X.to_numpy()[test])


@pytest.mark.parametrize("name", ["superconductivity", "energy"])
def test_numbers_are_read_exactly(load_raw, raw_file, name):
    """As Python reads them, to the last bit, blanks within the quotes or not."""
    data = load_raw(name)
    plain = read_entry(name).file.name
    path = raw_file(plain, f"{plain}.gz")
    with path.open(newline="") if path.name == plain else gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))[::50]
    expected = [[float(row[column]) for column in data.feature_names] for row in rows]
    assert_allclose(data.X.to_numpy()[::50], expected, rtol=1e-15, atol=0)
    assert_allclose(data.y[::50], [float(row[data.target_name]) for row in rows], rtol=1e-15, atol=0)


def test_repr_is_short_and_names_the_license(load_raw):
    assert re.fullmatch(r"Dataset\(name='boston', .*license='none stated; from StatLib'.*\)", repr(load_raw("boston")))


def test_corrupt_file_is_never_parsed(tmp_path, monkeypatch):
    (tmp_path / "housing.data").write_text("1 2 3\n")
    monkeypatch.setenv("HETCAL_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"housing.data has 6 bytes instead of 49082; replace that file"):
        load("boston")


def test_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=re.escape("load needs pandas; install it with: pip install 'hetcal[data]'")):
        load("boston")


def test_light_import():
    """Looking into the catalog and making synthetic data needs neither pandas nor pooch nor torch."""
    code = (
        "import sys; from hetcal.datasets import *; available(); skewed(10); gap(10)\n"
        "sys.exit(bool({'pandas', 'pooch', 'requests', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

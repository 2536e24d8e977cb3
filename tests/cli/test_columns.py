"""Which column is what: wrong names, and rows that cannot be used, are reported as the file numbers them."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hetcal.cli.columns import check_dropped, check_features, check_numbers, name_rows, split_columns
from hetcal.cli.tables import NumberedTable
from hetcal.tabular.columns import MISSING_LABEL, Table


def numbered(**columns):
    """A table whose rows are numbered as in a spreadsheet, below a header."""
    types = {name: object if isinstance(cells[0], str) else None for name, cells in columns.items()}
    table = Table({name: np.array(cells, types[name]) for name, cells in columns.items()})
    return NumberedTable(table, np.arange(2, 2 + len(table)))


FLATS = numbered(
    id=["p", "q", "r"], area=[1.0, 2.0, 3.0], town=["Aix", MISSING_LABEL, "Bonn"], price=[10.0, 20.0, 30.0]
)


def test_columns_are_told_apart():
    rows = split_columns(FLATS, "price", "area", others=["id"])
    assert list(rows.X.columns) == ["town"]
    assert_array_equal(rows.y, [10, 20, 30])
    assert rows.groups.tolist() == [1, 2, 3]
    part = rows.take(np.array([2, 0]))
    assert part.X.columns["town"].tolist() == ["Bonn", "Aix"]
    assert (part.y.tolist(), part.groups.tolist()) == ([30, 10], [3, 1])
    assert (rows.n_groups, split_columns(FLATS, "price").n_groups) == (3, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prize",), r"target must be one of .* got target='prize'; did you mean 'price'\?"),
        (("price", "twon"), r"group must be one of .*did you mean 'town'\?"),
        (
            ("town",),
            r"target must be a column of numbers, got .*; .* text, such as 'Aix' \(rows 2, 4\).*HCClassifier",
        ),
        (
            ("price", "town"),
            r"group must be a column with a label in every row, got group='town'; .*missing in row 3; label or remove",
        ),
    ],
)
def test_wrong_names_and_columns_are_reported(arguments, message):
    with pytest.raises(ValueError, match=message):
        split_columns(FLATS, *arguments)


def test_a_target_of_dates_is_refused():
    data = numbered(day=np.array(["NaT", "2024-01-31"], "datetime64[us]"))
    with pytest.raises(
        ValueError,
        match=r"target must be a column of numbers, got target='day'; .* dates, such as '2024-01-31T.*' \(row 3\)",
    ):
        check_numbers(data, "target", "day")


def test_a_target_with_missing_values_names_its_rows():
    """Up to five, then how many more."""
    data = numbered(y=[np.nan] * 7 + [1.0])
    with pytest.raises(
        ValueError, match=r"target must be a column with a value in every row, .*rows 2, 3, 4, 5, 6 and 2 more"
    ):
        check_numbers(data, "target", "y")
    assert name_rows(data, np.array([False] * 7 + [True])) == "row 9"


def test_a_std_must_be_positive():
    data = numbered(s=[1.0, 0.0, -2.0])
    with pytest.raises(
        ValueError, match=r"std must be a column of positive numbers, got std='s'; .* are not in rows 3, 4"
    ):
        check_numbers(data, "std", "s", positive=True)


def test_a_model_needs_a_feature():
    with pytest.raises(ValueError, match="at least one column besides the target"):
        check_features(split_columns(numbered(price=[1.0], id=["p"]), "price", "id"))


@pytest.mark.parametrize(("group", "drop"), [(None, ["price"]), ("price", [])])
def test_the_target_is_no_other_column(group, drop):
    with pytest.raises(ValueError, match="target must differ from the columns of --drop and --group"):
        check_dropped("price", group, drop)

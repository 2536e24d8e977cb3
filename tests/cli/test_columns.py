"""Which column is what: names that are no columns, and rows that cannot be used, are said as the file has them."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from hetcal.cli.columns import check_dropped, check_features, check_numbers, name_rows, split_columns

FRAME = pd.DataFrame(
    {"id": ["p", "q", "r"], "area": [1.0, 2.0, 3.0], "town": ["Aix", None, "Bonn"], "price": [10.0, 20.0, 30.0]},
    index=[2, 3, 4],  # rows as a spreadsheet numbers them
)


def test_columns_are_told_apart():
    rows = split_columns(FRAME, "price", "area", others=["id"])
    assert list(rows.X.columns) == ["town"]
    assert_array_equal(rows.y, [10, 20, 30])
    assert rows.groups.tolist() == [1, 2, 3]
    part = rows.take(np.array([2, 0]))
    assert (part.X["town"].tolist(), part.y.tolist(), part.groups.tolist()) == (["Bonn", "Aix"], [30, 10], [3, 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prize",), r"target must be one of .* got target='prize'; did you mean 'price'\?"),
        (("price", "twon"), r"group must be one of .*did you mean 'town'\?"),
        (("town",), r"target 'town' must hold numbers, got .*'Aix'; it is a column of text \(rows 2, 4\)"),
        (("price", "town"), r"group 'town' must have a label in every row, got .*see row 3; label or remove"),
    ],
)
def test_wrong_names_and_columns_are_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        split_columns(FRAME, *arguments)


def test_a_target_with_gaps_names_its_rows():
    """Up to five, then how many more."""
    column = pd.Series([np.nan] * 7 + [1.0], index=range(2, 10), name="y")
    with pytest.raises(ValueError, match=r"target 'y' must have a value in every row, .*rows 2, 3, 4, 5, 6 and 2 more"):
        check_numbers("target", column)
    assert name_rows(column, np.array([False] * 7 + [True])) == "row 9"


def test_a_std_must_be_positive():
    column = pd.Series([1.0, 0.0, -2.0], index=[2, 3, 4], name="s")
    with pytest.raises(ValueError, match=r"std 's' must be greater than 0, got std 's'=0.0; see rows 3, 4"):
        check_numbers("std", column, positive=True)


def test_a_model_needs_a_feature():
    with pytest.raises(ValueError, match="at least one column beside the target"):
        check_features(split_columns(FRAME[["price", "id"]], "price", "id"))


@pytest.mark.parametrize(("group", "drop"), [(None, ["price"]), ("price", [])])
def test_the_target_is_no_other_column(group, drop):
    with pytest.raises(ValueError, match="target must be another column than those of --drop and --group"):
        check_dropped("price", group, drop)

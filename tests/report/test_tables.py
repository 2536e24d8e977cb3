"""Cells of a table: one format per column, shares in percent, and nothing where there is nothing."""

from hetcal.report.tables import column_form, method_table, overview_table


def cell(mean, standard_error=0.01, mark=None, **more):
    return {"mean": mean, "standard_error": standard_error, "mark": mark, **more}


def method(**metrics):
    return {"title": "A", "recommended": False, "failed": None, "metrics": metrics}


CRPS = {"metric": "crps", "label": "CRPS"}
COVERAGE = {"metric": "coverage_90", "label": "Coverage"}


def test_one_format_per_column():
    """All means of a column have as many decimals; two digits of the error are seen."""
    methods = [method(crps=cell(1.23456, 0.0123)), method(crps=cell(10.0, 0.02)), method()]
    table = method_table(methods, [CRPS])
    assert table["heads"] == ["CRPS"]
    assert [row["cells"][0] and row["cells"][0]["mean"] for row in table["rows"]] == ["1.235", "10.000", None]
    assert table["rows"][0]["cells"][0]["error"] == "0.012"


def test_shares_are_percentages():
    table = method_table([method(coverage_90=cell(0.894, 0.012))], [COVERAGE])
    assert table["heads"] == ["Coverage (%)"]
    assert (table["rows"][0]["cells"][0]["mean"], table["rows"][0]["cells"][0]["error"]) == ("89.4", "1.2")


def test_units_stand_over_the_column():
    table = method_table([method(crps=cell(1.5e-12, 2e-14))], [CRPS])
    assert table["heads"] == ["CRPS (\N{MULTIPLICATION SIGN} 10⁻¹²)"]
    assert table["rows"][0]["cells"][0]["mean"] == "1.500"


def test_not_finite():
    table = method_table([method(crps=cell(None, None))], [CRPS])
    assert table["rows"][0]["cells"][0] == {"mean": "not finite", "error": None, "published": None, "mark": None}


def test_errors_far_below_the_mean_add_no_endless_digits():
    assert column_form([cell(1.0, 1e-14)], "crps").decimals == 5


def make_overview(methods, rows):
    return {
        "title": "T",
        "metric": "ce",
        "methods": [f"m{i}" for i in range(methods)],
        "rows": [
            {"name": f"d{j}", "floor": 0.1, "cells": [cell(10.0 * j + i, published=0.5) for i in range(methods)]}
            for j in range(rows)
        ],
    }


def test_overview_is_turned_where_methods_are_many():
    """The longer side goes down the page; each figure stays with its data set and method, the floor too."""
    down = overview_table(make_overview(methods=2, rows=4))
    assert (down["corner"], down["heads"]) == ("Data set", ["Noise floor", "m0", "m1"])
    assert down["rows"][3]["name"] == "d3"
    assert [one["mean"] for one in down["rows"][3]["cells"]] == ["0.100", "30.000", "31.000"]
    turned = overview_table(make_overview(methods=5, rows=2))
    assert (turned["corner"], turned["heads"]) == ("Method", ["d0", "d1"])
    assert [row["name"] for row in turned["rows"]] == ["Noise floor", "m0", "m1", "m2", "m3", "m4"]
    assert [one["mean"] for one in turned["rows"][3]["cells"]] == ["2.000", "12.000"]
    assert turned["rows"][3]["cells"][0]["published"] == "0.500"

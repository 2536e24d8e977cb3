"""The documents of columns and targets: what a fit can learn, and nothing else."""

import numpy as np
import pytest

from hetcal.metrics.calibration_map import MOST_KNOTS
from hetcal.model_files import learned


def test_ranges_of_dates_are_dates():
    """Dates must fit into datetime64[us]; numbers may have any range."""
    feature = {"magnitude": 1.0, "center": 0.0, "spread": 1.0, "has_missing": False}
    column = {"name": "when", "kind": "dates", "features": [feature] * learned.DATE_FEATURES}
    ends = [np.datetime64(number, "us") for number in (-(2**63) + 1, 2**63 - 1)]
    days = [float((end - np.datetime64(0, "D")) / np.timedelta64(1, "D")) for end in ends]
    assert learned.NumericColumn.model_validate({**column, "range": days}).range == days
    for far in ([0.0, 1.1e8], [-1.1e8, 0.0]):
        with pytest.raises(ValueError, match="dates are at most 106751991 days from 1970"):
            learned.NumericColumn.model_validate({**column, "range": far})
    numbers = {**column, "kind": "numbers", "features": [feature], "range": [0.0, 1e300]}
    learned.NumericColumn.model_validate(numbers)


def test_only_rare_labels():
    """A column of names may have only rare labels; a column without any label has no input."""
    column = {"name": "name", "kind": "text", "labels": [], "has_rare": True}
    assert learned.TextColumn.model_validate(column).n_inputs == 1
    with pytest.raises(ValueError, match="a text column has at least one label, or rare ones"):
        learned.TextColumn.model_validate({**column, "has_rare": False})


ATOMS = {"values": [0.0, 1.0, 2.0], "lower": ["-inf", 0.5, 1.5], "upper": [0.5, 1.5, "inf"]}


def test_atoms():
    """JSON has no infinity; only the outermost ends may be infinite."""
    learned.AtomsDocument.model_validate(ATOMS)
    learned.AtomsDocument.model_validate({"values": [50.0], "lower": [49.0], "upper": ["inf"]})
    for changes, message in [
        ({"values": [0.0, 2.0, 1.0]}, "values increase"),
        ({"values": [0.0, 1.0]}, "one interval for each value"),
        ({"values": []}, "at least 1 item"),
        ({"values": [float(i) for i in range(301)]}, "at most 300 items"),
        ({"lower": ["-inf", 0.4, 1.5]}, "disjoint"),
        ({"lower": ["-inf", "-inf", 1.5]}, "disjoint"),
        ({"lower": ["inf", 0.5, 1.5]}, "'-inf'"),
        ({"lower": [float("-inf"), 0.5, 1.5]}, "finite number"),
        ({"upper": ["inf", 1.5, "inf"]}, "disjoint"),
        ({"upper": [0.5, 1.5, "nan"]}, "'inf'"),
    ]:
        with pytest.raises(ValueError, match=message):
            learned.AtomsDocument.model_validate(ATOMS | changes)
    scale = {"magnitude": 1.0, "center": 0.0, "spread": 1.0}
    learned.TargetDocument.model_validate({"scales": [scale], "transforms": None, "atoms": ATOMS})
    with pytest.raises(ValueError, match="only a single target has atoms"):
        learned.TargetDocument.model_validate({"scales": [scale] * 2, "transforms": None, "atoms": ATOMS})


def test_recalibration():
    """A map of probabilities from 0 to 1, whose slopes are numbers."""
    given = {"method": "isotonic", "rows": 9, "factor": 2.0, "pit": [0.0, 0.5, 1.0], "probability": [0.0, 0.6, 1.0]}
    learned.RecalibrationDocument.model_validate(given)
    for changes, message in [
        ({"pit": [0.0, 1.0]}, "one probability for each point"),
        ({"pit": [0.0, 0.5, 0.9]}, "increase from 0 to 1"),
        ({"probability": [0.0, 0.0, 1.0]}, "increase from 0 to 1"),
        ({"pit": [0.0, 1e-320, 1.0]}, "first and the last step"),
        ({"factor": 1e10}, "less than or equal to"),
        ({"method": "platt"}, "'conformal', 'isotonic' or 'std'"),
    ]:
        with pytest.raises(ValueError, match=message):
            learned.RecalibrationDocument.model_validate(given | changes)
    assert learned.MOST_POINTS == 2 * MOST_KNOTS + 3

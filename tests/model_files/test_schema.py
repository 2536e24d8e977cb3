"""The documents: every setting and name has its place, and no file asks for more memory than a computer has."""

from inspect import signature
from typing import get_args

import numpy as np
import pytest

from hetcal import HCClassifier, HCRegressor
from hetcal.classifier import DRAWS
from hetcal.estimators import ESTIMATORS
from hetcal.estimators.passes import PASSES_AT_ONCE
from hetcal.exceptions import ModelFileError
from hetcal.families import FAMILIES
from hetcal.model_files import schema
from hetcal.model_files.archive import read_model_file
from hetcal.model_files.state import NOT_STORED, describe_model
from hetcal.tabular.model import COLUMN_ORDERS
from hetcal.training import History
from hetcal.transforms import TRANSFORMS
from tests.model_files.samples import Parts, fit_small


@pytest.fixture
def path(tmp_path):
    fit_small().save(tmp_path / "model.hetcal")
    return tmp_path / "model.hetcal"


def test_the_schema_knows_every_setting():
    """A new parameter of the models must be stored, or be among those that are not."""
    for model in (HCRegressor, HCClassifier):
        stored = schema.MODELS[model.kind].model_fields["settings"].annotation.model_fields
        assert set(stored) | set(NOT_STORED) == set(model().get_params())


def test_the_schema_knows_every_name():
    """New families, transforms and reasons to stop must be added to the schema."""

    def names(document, key):
        return {name for part in get_args(document.model_fields[key].annotation) for name in get_args(part) or [part]}

    settings = schema.RegressorSettings
    assert set(FAMILIES) < names(settings, "family")
    assert names(settings, "target_transform") == {*TRANSFORMS, "auto", type(None)}
    assert names(schema.FamilyDocument, "name") == set(FAMILIES)
    assert {kind.model_fields["name"].annotation for kind in get_args(get_args(schema.TransformDocument)[0])} == {
        schema.Literal[name] for name in TRANSFORMS
    }
    assert names(settings, "column_order") == set(COLUMN_ORDERS)
    assert set(schema.CurvesDocument.model_fields) == set(History().train)
    assert set(schema.HistoryDocument.model_fields) == set(vars(History())) - {"validation_rows"}


def test_the_schema_knows_how_many_networks_predict():
    """For omitted options, its bounds on memory use the defaults of the estimators and of the likelihood."""
    defaults = {name: signature(estimator).parameters for name, estimator in ESTIMATORS.items()}
    passes = {
        name: parameters[option].default
        for name, parameters in defaults.items()
        for option in ("prediction_samples", "members")
        if option in parameters
    }
    assert passes == schema.PASSES
    assert (PASSES_AT_ONCE, DRAWS) == (schema.BLOCK_PASSES, schema.CLASS_DRAWS)


@pytest.mark.parametrize(
    ("estimator", "options", "targets", "holds"),
    [
        ("mc_dropout", None, 1_000, True),
        ("mc_dropout", None, 3_000, False),
        ("mc_dropout", {"prediction_samples": 10_000}, 20, True),
        ("mc_dropout", {"prediction_samples": 10_000}, 1_000, False),
        ("mc_dropout", {"prediction_samples": 10}, 3_000, True),
        ("ensemble", None, 3_000, True),
        ("ensemble", {"members": 1_000}, 3_000, False),
        ("variance_head", None, 3_000, True),
    ],
)
def test_answers_of_a_block_fit_into_memory(path, estimator, options, targets, holds):
    """A small file could ask for gigabytes per row by the number of passes times that of targets."""
    parts = Parts.of(path).change("settings/estimator", estimator).change("settings/estimator_options", options)
    parts.change("target/scales", parts.model["target"]["scales"] * targets)
    path.write_bytes(parts.file())
    if holds:
        assert read_model_file(path).model.n_targets == targets
    else:
        with pytest.raises(ModelFileError, match="prediction_samples or members, times targets, is at most 262144"):
            read_model_file(path)


def test_units_of_a_block_fit_into_memory(path):
    """Ten sampled networks, or all members, run at once; `width` says nothing about a user's own network."""
    document = Parts.of(path).model["settings"]
    for changes, holds in [
        ({"width": 20_000}, True),
        ({"width": 30_000}, False),
        ({"width": 1_000, "estimator_options": {"members": 1_000}}, False),
        ({"width": 30_000, "network": "own"}, True),
    ]:
        if holds:
            schema.RegressorSettings.model_validate(document | changes)
        else:
            with pytest.raises(ValueError, match="width, times members or 10, is at most 262144"):
                schema.RegressorSettings.model_validate(document | changes)


def test_classes_count_as_targets():
    classes = {"type": "int64", "values": list(range(5_000))}
    fitted = fit_small(HCClassifier, estimator="variance_head", likelihood="probit")
    document = describe_model(fitted).model_dump() | {"classes": classes}
    assert schema.ClassifierDocument.model_validate(document).n_targets == 5_000
    for changes in ({"likelihood": "sampling"}, {"estimator": "mc_dropout"}):
        with pytest.raises(ValueError, match="times targets, is at most"):
            schema.ClassifierDocument.model_validate({**document, "settings": document["settings"] | changes})


def test_ranges_of_dates_are_dates():
    """Dates must fit into datetime64[us]; numbers may have any range."""
    feature = {"magnitude": 1.0, "center": 0.0, "spread": 1.0, "has_missing": False}
    column = {"name": "when", "kind": "dates", "features": [feature] * schema.DATE_FEATURES}
    ends = [np.datetime64(number, "us") for number in (-(2**63) + 1, 2**63 - 1)]
    days = [float((end - np.datetime64(0, "D")) / np.timedelta64(1, "D")) for end in ends]
    assert schema.NumericColumn.model_validate({**column, "range": days}).range == days
    for far in ([0.0, 1.1e8], [-1.1e8, 0.0]):
        with pytest.raises(ValueError, match="dates are at most 106751991 days from 1970"):
            schema.NumericColumn.model_validate({**column, "range": far})
    numbers = {**column, "kind": "numbers", "features": [feature], "range": [0.0, 1e300]}
    schema.NumericColumn.model_validate(numbers)


def test_only_rare_labels():
    """A column of names may have only rare labels; a column without any label has no input."""
    column = {"name": "name", "kind": "text", "labels": [], "has_rare": True}
    assert schema.TextColumn.model_validate(column).n_inputs == 1
    with pytest.raises(ValueError, match="a text column has at least one label, or rare ones"):
        schema.TextColumn.model_validate({**column, "has_rare": False})

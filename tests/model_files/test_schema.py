"""The documents: every setting and name has its place, and no file asks for more memory than a computer has."""

from inspect import signature
from typing import get_args

import pytest

from hetcal import HCClassifier, HCRegressor
from hetcal.classifier import DRAWS
from hetcal.estimators import ESTIMATORS, boosted_members, forest_members
from hetcal.estimators.atoms import MOST_VALUES
from hetcal.estimators.base import BLOCK_ROWS, ROW_MULTIPLE
from hetcal.estimators.network_members import MemberMLPs
from hetcal.estimators.passes import ROWS_AT_ONCE
from hetcal.exceptions import ModelFileError
from hetcal.families import FAMILIES
from hetcal.metrics.history import History
from hetcal.model_files import learned, schema
from hetcal.model_files.archive import read_model_file
from hetcal.model_files.state import NOT_STORED, describe_model
from hetcal.tabular.model import COLUMN_ORDERS
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
    assert names(settings, "target_transform") == {*TRANSFORMS, "auto", "identity", type(None)}
    assert names(schema.FamilyDocument, "name") == set(FAMILIES)
    assert {kind.model_fields["name"].annotation for kind in get_args(get_args(learned.TransformDocument)[0])} == {
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
    assert (ROWS_AT_ONCE, DRAWS) == (schema.BLOCK_PASSES * BLOCK_ROWS, schema.CLASS_DRAWS)
    assert schema.ROW_MULTIPLE == ROW_MULTIPLE
    assert (MemberMLPs.FREQUENCIES, MemberMLPs.MOST_EMBEDDED) == (schema.WAVES, schema.MOST_EMBEDDED)
    assert MOST_VALUES == learned.MOST_ATOMS
    assert max(forest_members.TREES, boosted_members.MEAN_TREES, boosted_members.STD_TREES) == schema.TREES


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


@pytest.fixture(scope="module")
def cross_document():
    return describe_model(fit_small(estimator="cross_ensemble")).model_dump()


def with_numbers(document, n):
    column = document["columns"][0]
    return [{**column, "name": f"x{i}", "range": [0.0, 1.0]} for i in range(n)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": None}, "members are those of a cross_ensemble"),
        ({"settings": {"estimator": "ensemble"}}, "members are those of a cross_ensemble"),
        ({"members": {"groups": 17, "parts": 4, "width": 4, "nodes": [64, 1, 1]}}, "less than or equal to 16"),
        ({"members": {"groups": 2, "parts": 10**6, "width": 4, "nodes": [64, 1, 1]}}, "less than or equal to 16"),
        ({"members": {"groups": 0, "parts": 4, "width": 4, "nodes": [64, 1, 1]}}, "greater than or equal to 1"),
        (
            {"members": {"groups": 2, "parts": 4, "width": 40_000, "nodes": [64, 1, 1]}, "settings": {"width": None}},
            "width, times members or 10, is at most 262144",
        ),
        ({"settings": {"width": 40_000}}, "width, times members or 10, is at most 262144"),
        ({"settings": {"width": None, "depth": 700}}, "at most 5000 layers"),
        ({"labels": 132_000}, "columns times members are at most 1048576"),
        (
            {"members": {"groups": 16, "parts": 16, "width": 4, "nodes": [64, 1, 1]}, "columns": 100},
            "numbers times members are at most 16384",
        ),
        (
            {"members": {"groups": 16, "parts": 16, "width": 4, "nodes": [64, 1, 1]}, "target": 65},
            "times targets, is at most 262144",
        ),
        ({"target": 4_097}, "times targets, is at most 262144"),
    ],
    ids=str,
)
def test_members_fit_into_memory(cross_document, changes, message):
    """Their number is in the file, because it depends on the table; all of them run at once."""
    document = dict(cross_document)
    for key, value in changes.items():
        if key == "columns":
            document[key] = with_numbers(document, value)
        elif key == "labels":
            text = {"kind": "text", "labels": [f"{i:03}" for i in range(1_000)], "has_rare": False}
            document["columns"] = [{"name": f"x{i}", **text} for i in range(value // 1_000)]
        elif key == "target":
            document[key] = {**document[key], "scales": document[key]["scales"] * value}
        else:
            document[key] = {**document[key], **value} if key == "settings" else value
    with pytest.raises(ValueError, match=message):
        schema.RegressorDocument.model_validate(document)


def test_as_many_members_as_fit(cross_document):
    """The limits leave room for all that a fit makes: 16 members, with 256 embedded numbers or many columns."""
    for n in (256, 1_000):
        document = {**cross_document, "columns": with_numbers(cross_document, n)}
        document["settings"] = {**document["settings"], "width": None, "depth": None}
        document["members"] = {**document["members"], "width": 128}
        read = schema.RegressorDocument.model_validate(document)
        assert (read.n_numbers, read.n_members) == (n, 16)
        assert read.least_weights == 16 * 128 * (n + 2 * 128 + 1) + 5 * read.members.nodes[0] + 4 * sum(
            read.members.nodes[1:]
        )


def test_classes_count_as_targets():
    classes = {"type": "int64", "values": list(range(5_000))}
    fitted = fit_small(HCClassifier, estimator="variance_head", likelihood="probit")
    document = describe_model(fitted).model_dump() | {"classes": classes}
    assert schema.ClassifierDocument.model_validate(document).n_targets == 5_000
    for changes in ({"likelihood": "sampling"}, {"estimator": "mc_dropout"}):
        with pytest.raises(ValueError, match="times targets, is at most"):
            schema.ClassifierDocument.model_validate({**document, "settings": document["settings"] | changes})

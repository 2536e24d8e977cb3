"""The container: one spelling, verified before it is believed, readable by any ZIP tool and without torch."""

import json
import subprocess
import sys
import zipfile
from inspect import signature
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetcal import HCClassifier, HCRegressor
from hetcal.classifier import DRAWS
from hetcal.estimators import ESTIMATORS
from hetcal.estimators.passes import PASSES_AT_ONCE
from hetcal.exceptions import ModelFileError
from hetcal.families import FAMILIES
from hetcal.metrics.history import History
from hetcal.model_files import archive, schema
from hetcal.model_files.archive import MEMBERS, Contents, TensorInfo, decode, encode, pack, read, write
from hetcal.model_files.state import NOT_STORED, describe
from hetcal.tabular.model import COLUMN_ORDERS
from hetcal.transforms import TRANSFORMS
from tests.model_files.samples import Parts, dumps, fit_small, forge, manifest_of

MODEL = fit_small()


@pytest.fixture
def path(tmp_path):
    MODEL.save(tmp_path / "model.hetcal", summary={"target": "price", "rows": 30, "metrics": {"ce": 0.1, "n": 5}})
    return tmp_path / "model.hetcal"


def test_any_zip_tool_reads_it(path):
    """The members are stored, sound and in order, with nothing about when, where or by whom they were written."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        assert archive.testzip() is None
        assert archive.comment == b""
        manifest = json.loads(archive.read("manifest.json"))
    assert [entry.filename for entry in entries] == list(MEMBERS)
    for entry in entries:
        assert entry.compress_type == zipfile.ZIP_STORED
        assert entry.date_time == (1980, 1, 1, 0, 0, 0)
        assert entry.extra == b""
    assert list(manifest) == ["format", "format_version", "kind", "members"]
    assert manifest["format"] == "hetcal model"
    assert manifest["format_version"] == 1
    assert str(path.parent).encode() not in path.read_bytes()


def test_what_is_read_is_what_was_written(path, tmp_path):
    contents = read(path)
    assert isinstance(contents, Contents)
    assert contents.model.kind == "regressor"
    assert contents.model.settings.width == 4
    assert [column.name for column in contents.model.columns] == ["x0", "x1"]
    assert contents.model.n_inputs == 3  # one of the columns has missing values
    assert contents.summary.target == "price"
    assert contents.summary.metrics == {"ce": 0.1, "n": 5}
    assert contents.summary.versions.hetcal == "0.1.0"
    assert contents.tensors["network.0.weight"] == TensorInfo("F32", (4, 3))
    write(tmp_path / "again", contents.model, contents.summary, contents.weights)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_reading_needs_no_torch(path):
    code = f"import sys; from hetcal.model_files.archive import read; read({str(path)!r})"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_numbers_come_back_bit_for_bit(numbers):
    """Whatever the float64 number: subnormal, negative zero, the largest."""
    curves = {"objective": numbers, "own_loss": [], "rmse": [], "ce": []}
    document = schema.Curves.model_validate(curves)
    back = decode(schema.Curves, encode(document), "model.json", "model.hetcal").objective
    assert [value.hex() for value in back] == [value.hex() for value in numbers]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=20))
def test_text_comes_back(text):
    """Whatever the column is called; what Unicode does not allow, half a pair of surrogates, is refused when saving."""
    document = schema.TextColumn(name=text, kind="text", labels=["a"], has_rare=False)
    assert decode(schema.TextColumn, encode(document), "model.json", "model.hetcal").name == text


def test_one_spelling():
    """A document is refused if its content could be written in another way: no key twice, no further spaces."""
    text = b'{"name": "log"}'
    decode(schema.Log, text, "model.json", "model.hetcal")
    for other in (b'{"name":"log"}', b'{"name": "log"} ', b'{"name": "exp", "name": "log"}', b'{"name": "l\\u006fg"}'):
        with pytest.raises(ModelFileError, match="JSON that hetcal would write otherwise"):
            decode(schema.Log, other, "model.json", "model.hetcal")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "be a hetcal model file, got an empty file; give a file written by model.save or `hetcal fit`"),
        (b"a,b\n1,2\n", r"be a hetcal model file, got 8 bytes that begin with b'a,b\n1,2\n'; give a file written by"),
        ({"format_version": 2}, "be of format 1, got format 2, written by a newer hetcal; upgrade hetcal"),
        ({"format_version": 0}, "keep to the schema of manifest.json, got format_version=0 (Input should be greater"),
        ({"format": "onnx"}, "be a hetcal model file, got a manifest.json that does not say 'hetcal model'; give"),
        (
            {"kind": "regressor", "run": 1},
            "keep to the schema of manifest.json, got the document ('run' is no key of it)",
        ),
    ],
    ids=["empty", "CSV", "newer", "older", "foreign", "unknown key"],
)
def test_messages(path, tmp_path, monkeypatch, data, message):
    """One line: the file as it was named, what it must be, what it is, what to do."""
    monkeypatch.chdir(tmp_path)
    if isinstance(data, dict):
        members = Parts.of(path).members()
        data = forge(members, manifest_of(members, **data))
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        read("model.hetcal")
    assert str(caught.value).startswith(f"model.hetcal must {message}")


def test_messages_of_damage(path):
    data = path.read_bytes()
    for damaged, found in [
        (data[:-1], f"{len(data) - 1} bytes instead of {len(data)}"),
        (data.replace(b"price", b"PRICE"), "another SHA-256 of summary.json"),
        (data.replace(b"regressor", b"Regressor"), "a damaged manifest.json"),
        (data[:-1] + b"\1", "another ZIP header than hetcal writes"),
    ]:
        path.write_bytes(damaged)
        advice = "copy it again from its source, as it is"
        with pytest.raises(ModelFileError) as caught:
            read(path)
        assert str(caught.value) == f"{path} must be unchanged since it was saved, got {found}; {advice}"


def test_hostile_names_stay_on_one_line(tmp_path):
    path = tmp_path / "a\nb\x1b[31m.hetcal"
    path.write_bytes(b"x\n")
    with pytest.raises(ModelFileError) as caught:
        read(path)
    assert str(caught.value).isprintable()


def test_limits_hold_for_writing_too(path, monkeypatch, tmp_path):
    """What could not be read is not written."""
    contents = read(path)
    monkeypatch.setattr(archive, "DOCUMENT_LIMIT", 500)
    with pytest.raises(ModelFileError, match=r"new must have at most 500 bytes in model.json, got \d+ bytes"):
        pack(contents.model, contents.summary, contents.weights, "new")
    monkeypatch.undo()
    monkeypatch.setattr(archive, "FILE_LIMIT", 2000)
    with pytest.raises(ModelFileError, match=r"new must have at most 2000 bytes, got \d+ bytes"):
        pack(contents.model, contents.summary, contents.weights, "new")


def test_the_schema_knows_every_setting():
    """A new parameter of the models must be stored, or be among those that are not."""
    for model in (HCRegressor, HCClassifier):
        stored = schema.MODELS[model.kind].model_fields["settings"].annotation.model_fields
        assert set(stored) | set(NOT_STORED) == set(model().get_params())


def test_the_schema_knows_every_name():
    """New families, transforms and reasons to stop must come into the schema."""

    def names(document, key):
        return {name for part in get_args(document.model_fields[key].annotation) for name in get_args(part) or [part]}

    settings = schema.RegressorSettings
    assert set(FAMILIES) < names(settings, "family")
    assert names(settings, "target_transform") == {*TRANSFORMS, "auto", type(None)}
    assert names(schema.FixedFamily, "name") == set(FAMILIES)
    assert {kind.model_fields["name"].annotation for kind in get_args(get_args(schema.Transform)[0])} == {
        schema.Literal[name] for name in TRANSFORMS
    }
    assert names(settings, "column_order") == set(COLUMN_ORDERS)
    assert set(schema.Curves.model_fields) == set(History().train)
    assert set(schema.TrainingHistory.model_fields) == set(vars(History())) - {"validation_rows"}


def test_the_schema_knows_how_many_networks_predict():
    """Its bounds on memory take the defaults of the estimators and of the likelihood for options that are not there."""
    defaults = {name: signature(estimator).parameters for name, estimator in ESTIMATORS.items()}
    passes = {
        name: parameters[option].default
        for name, parameters in defaults.items()
        for option in ("prediction_samples", "members")
        if option in parameters
    }
    assert passes == schema.PASSES
    assert (PASSES_AT_ONCE, DRAWS) == (schema.PASSES_AT_ONCE, schema.CLASS_DRAWS)


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
    path.write_bytes(forge(parts.members()))
    if holds:
        assert read(path).model.n_targets == targets
    else:
        with pytest.raises(ModelFileError, match="prediction_samples or members, times targets, is at most 262144"):
            read(path)


def test_units_of_a_block_fit_into_memory(path):
    """Ten sampled networks, or all members, run at once; a network of the user's own has no width of ours."""
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
    document = describe(fitted).model_dump() | {"classes": classes}
    assert schema.ClassifierModel.model_validate(document).n_targets == 5_000
    for changes in ({"likelihood": "sampling"}, {"estimator": "mc_dropout"}):
        with pytest.raises(ValueError, match="times targets, is at most"):
            schema.ClassifierModel.model_validate({**document, "settings": document["settings"] | changes})


def test_ranges_of_dates_are_dates():
    """What datetime64[us] cannot hold is no date; numbers may have any range."""
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
    """A column of names has no others; one without any has no input."""
    column = {"name": "name", "kind": "text", "labels": [], "has_rare": True}
    assert schema.TextColumn.model_validate(column).n_inputs == 1
    with pytest.raises(ValueError, match="a column of text has labels, if only rare ones"):
        schema.TextColumn.model_validate({**column, "has_rare": False})


def test_forged_files_are_what_hetcal_writes(path):
    """The attacks of `tests/contracts` begin with a file that is right."""
    parts = Parts.of(path)
    assert forge(parts.members()) == path.read_bytes()
    assert dumps(parts.model) == encode(read(path).model)

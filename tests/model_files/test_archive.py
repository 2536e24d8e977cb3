"""The container: one spelling, verified before it is believed, readable by any safetensors tool and without torch."""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from hetcal.exceptions import ModelFileError
from hetcal.model_files import archive, schema
from hetcal.model_files.archive import (
    DTYPES,
    Contents,
    TensorInfo,
    pack_model_file,
    parse_model_file,
    read_model_file,
    write_model_file,
)
from hetcal.model_files.weights import STORED_TYPES
from tests.model_files.samples import CHECKSUM, KEY, START, Parts, fit_small, seal, split

MODEL = fit_small()


@pytest.fixture
def path(tmp_path):
    MODEL.save(tmp_path / "model.hetcal", summary={"target": "price", "rows": 30, "metrics": {"ce": 0.1, "n": 5}})
    return tmp_path / "model.hetcal"


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.hetcal"
    MODEL.save(path)
    return read_model_file(path)


def repack(contents, name="model.hetcal"):
    return pack_model_file(contents.model, contents.summary, contents.weights, name)


def test_any_safetensors_tool_reads_it(path):
    """One key of metadata, the manifest; nothing about where or by whom it was written."""
    with safe_open(path, "np") as file:
        metadata, names = file.metadata(), list(file.keys())
        assert file.get_tensor("network.0.weight").shape == (4, 3)
    assert sorted(names) == names == sorted(MODEL.estimator_.state_dict())
    assert list(metadata) == ["hetcal model"]
    manifest = json.loads(metadata["hetcal model"])
    assert list(manifest) == ["sha256", "format_version", "model", "summary"]
    assert manifest["format_version"] == 9
    assert str(path.parent).encode() not in path.read_bytes()


def test_the_library_writes_the_same(path):
    """Of tensors of one dtype: the spelling of hetcal is that of safetensors, not one of its own."""
    data = path.read_bytes()
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    assert save_tensors(load_tensors(data), metadata=metadata) == data


def test_every_dtype_is_aligned(contents):
    """Whatever order the library chooses, tensors of large items come first, and all come back."""
    assert set(DTYPES) == set(STORED_TYPES.values())
    tensors = {f"{i}": torch.arange(3).to(dtype) for i, dtype in enumerate(STORED_TYPES)}
    tensors |= {"none": torch.zeros(0, 2), "number": torch.tensor(7, dtype=torch.int64)}
    data = pack_model_file(contents.model, contents.summary, save_tensors(tensors), "model.hetcal")
    header, _ = split(data)
    assert len(header) % 8 == 0
    for name, entry in json.loads(header).items():
        if name != "__metadata__":
            assert entry["data_offsets"][0] % tensors[name].element_size() == 0
    back = load_tensors(parse_model_file(data, "model.hetcal").weights)
    assert set(back) == set(tensors)
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


def test_what_is_read_is_what_was_written(path, tmp_path):
    contents = read_model_file(path)
    assert isinstance(contents, Contents)
    assert contents.model.kind == "regressor"
    assert contents.model.settings.width == 4
    assert [column.name for column in contents.model.columns] == ["x0", "x1"]
    assert contents.model.n_inputs == 3  # one of the columns has missing values
    assert contents.summary.target == "price"
    assert contents.summary.metrics == {"ce": 0.1, "n": 5}
    assert contents.summary.versions.hetcal == "0.1.0"
    assert contents.tensors["network.0.weight"] == TensorInfo("F32", (4, 3))
    write_model_file(tmp_path / "again", repack(contents))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_reading_needs_no_torch(path):
    code = f"import sys; from hetcal.model_files.archive import read_model_file; read_model_file({str(path)!r})"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(max_examples=100, deadline=None)
@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_numbers_come_back_bit_for_bit(contents, numbers):
    """Whatever the float64 number: subnormal, negative zero, the largest."""
    curves = {"objective": numbers, "own_loss": [], "rmse": [], "ce": []}
    history = contents.summary.history.model_dump() | {"train": curves}
    summary = schema.SummaryDocument.model_validate({**contents.summary.model_dump(), "history": history})
    data = pack_model_file(contents.model, summary, contents.weights, "model.hetcal")
    back = parse_model_file(data, "model.hetcal").summary.history.train.objective
    assert [value.hex() for value in back] == [value.hex() for value in numbers]


@settings(max_examples=50, deadline=None)
@given(text=st.text(max_size=20))
def test_text_comes_back(contents, text):
    """Whatever the column is called; half a pair of surrogates, which Unicode does not allow, cannot be saved."""
    document = contents.model.model_dump()
    document["columns"] = [{"name": text, "kind": "text", "labels": ["a"], "has_rare": False}]
    model = schema.RegressorDocument.model_validate(document)
    data = pack_model_file(model, contents.summary, contents.weights, "model.hetcal")
    assert parse_model_file(data, "model.hetcal").model.columns[0].name == text


def test_one_spelling(path):
    """A header is refused if hetcal would write the same content differently: no key twice, no further spaces."""
    header, data = split(path.read_bytes())
    assert seal(header, data) == path.read_bytes()
    for old, new in [
        (b'"shape":', b'"shape": '),
        (b"}", b"}" + b" " * 8),
        (b"network.0.bias", b"network.\\u0030.bias"),
        (b'\\"seed\\":0', b'\\"seed\\":1,\\"seed\\":0'),
        (b'\\"seed\\":0', b'\\"seed\\": 0'),
        (b"regressor", b"regresso\\\\u0072"),
    ]:
        place = header.rindex(old)
        other = header[:place] + new + header[place + len(old) :]
        path.write_bytes(seal(other, data))
        with pytest.raises(ModelFileError) as caught:
            read_model_file(path)
        rule, advice = "have the header that hetcal writes for its content", "save the model again with hetcal"
        assert str(caught.value) == f"{path} must {rule}, got a different one; {advice}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "be a hetcal model file, got an empty file; give a file written by model.save or `hetcal fit`"),
        (b"a,b\n1,2\n", r"be a hetcal model file, got 8 bytes that begin with b'a,b\n1,2\n'; give a file written by"),
        (b"PK\3\4" + bytes(99), "be a hetcal model file, got a ZIP archive, such as an Excel file, or a model that an"),
        ({"format_version": 10}, "be of format 9, got format 10, written by a newer hetcal; upgrade hetcal"),
        ({"format_version": 1}, "be of format 9, got format 1, which an unreleased hetcal wrote; fit the model again"),
        ({"format_version": 0}, "follow the schema of model files, got format_version=0 (Input should be greater"),
        ({"run": 1}, "follow the schema of model files, got the document ('run' is not a known key); save the"),
        ({"summary": None}, "follow the schema of model files, got summary=None (Input should be"),
    ],
    ids=["empty", "CSV", "ZIP", "newer", "unreleased", "older", "unknown key", "no summary"],
)
def test_messages(path, tmp_path, monkeypatch, data, message):
    """One line: the file as it was named, what it must be, what it is, what to do."""
    monkeypatch.chdir(tmp_path)
    if isinstance(data, dict):
        parts = Parts.of(path)
        parts.manifest |= data
        data = parts.file()
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        read_model_file("model.hetcal")
    assert str(caught.value).startswith(f"model.hetcal must {message}")


def test_messages_of_damage(path):
    """Damage is called so, not a wrong schema: the checksum is verified before anything is parsed."""
    data = path.read_bytes()
    for damaged in [
        data[:-1],
        data + b"\0",
        data[: CHECKSUM.stop],
        data.replace(b"price", b"PRICE"),
        data.replace(b"regressor", b"Regressor"),
        data.replace(b"F32", b"F16"),
        data.replace(b"{", b"[", 9).replace(b"[", b"{", 3),
        data[:-1] + bytes([data[-1] ^ 1]),
    ]:
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError) as caught:
            read_model_file(path)
        assert str(caught.value) == (
            f"{path} must be unchanged since it was saved, got bytes that do not match its SHA-256; copy it again from "
            "its source, unchanged"
        )


def test_the_start_of_a_file(path):
    """The bytes by which a model file is known are the same in the tests, in the docs and in the code."""
    data = path.read_bytes()
    assert data[8:].startswith(START)
    assert (START, CHECKSUM, KEY) == (archive.START, archive.CHECKSUM, archive.KEY)


def test_hostile_names_stay_on_one_line(tmp_path):
    path = tmp_path / "a\nb\x1b[31m.hetcal"
    path.write_bytes(b"x\n")
    with pytest.raises(ModelFileError) as caught:
        read_model_file(path)
    assert str(caught.value).isprintable()


def test_limits_hold_for_writing_too(path, monkeypatch):
    """What could not be read is not written."""
    contents = read_model_file(path)
    for limit, message in [("HEADER_LIMIT", "have a header of at most"), ("FILE_LIMIT", "have a size of at most")]:
        monkeypatch.setattr(archive, limit, 500)
        with pytest.raises(ModelFileError, match=rf"new must {message} 500 bytes, got \d+ bytes; use a smaller model"):
            repack(contents, "new")
        with pytest.raises(ModelFileError, match=rf"model.hetcal must {message} 500 bytes, got \d+ bytes"):
            read_model_file(path)
        monkeypatch.undo()


def test_forged_files_are_what_hetcal_writes(path):
    """The attacks of `tests/contracts` begin with a file that is right."""
    assert Parts.of(path).file() == path.read_bytes()

"""Model files that are damaged, cut or crafted: each is refused in one line; none crashes, hangs, runs or loads."""

import io
import os
import pickle
import random
import signal
import subprocess
import sys

import joblib
import numpy as np
import pytest
import torch

from hetcal import HCClassifier, load
from hetcal.exceptions import ModelFileError
from hetcal.model_files.archive import pack_model_file, parse_model_file
from tests.contracts.crafted import cases, craft, payloads
from tests.model_files.samples import CHECKSUM, START, Parts, fit_small, seal, split

SECONDS = 20  # for one file, against hanging; nothing is measured by it
MEGABYTES = 300  # that all crafted files together may take at their peak; some of them claim terabytes
KILLS = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """True files of regressors, of one network and of members that hold out rows, and of a classifier."""
    folder = tmp_path_factory.mktemp("models")
    fit_small().save(folder / "regressor.hetcal")
    fit_small(estimator="cross_ensemble").save(folder / "members.hetcal")
    fit_small(HCClassifier).save(folder / "classifier.hetcal")
    return folder


@pytest.fixture(scope="module")
def true_file(folder):
    return (folder / "regressor.hetcal").read_bytes()


@pytest.fixture(scope="module")
def parts(folder):
    return {kind: Parts.of(folder / f"{kind}.hetcal") for kind in ("regressor", "members", "classifier")}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The file that a payload would leave behind if it ran."""
    return tmp_path_factory.mktemp("planted") / "file"


@pytest.fixture(scope="module")
def crafted(parts, planted):
    """The bytes of every crafted file, by its name."""
    return {name: craft(case, parts) for name, case in cases(planted).items()}


@pytest.fixture(autouse=True)
def alarm():
    def stop(number, stack):
        raise TimeoutError("a model file took too long")

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refusal(data, path):
    """The one line with which a file of these bytes is refused."""
    path.write_bytes(data)
    signal.alarm(SECONDS)
    with pytest.raises((ModelFileError, OSError)) as caught:
        load(path)
    signal.alarm(0)
    line = str(caught.value)
    assert line.isprintable()  # no line break among others
    assert str(path) in line
    assert len(line) < 1000
    return line


def test_the_tests_begin_with_files_that_load(folder, parts, tmp_path):
    """Otherwise everything below might be refused for another reason."""
    for kind, true_parts in parts.items():
        assert true_parts.file() == (folder / f"{kind}.hetcal").read_bytes()
        load(folder / f"{kind}.hetcal")


def test_every_bit_of_the_frame_and_a_thousand_others(true_file, tmp_path):
    """Single flipped bits: all of the length, the start, the checksum, the tensors' entries, the padding and the
    weights, and one of every byte of the documents."""
    documents = range(CHECKSUM.stop, true_file.index(b'}"},"network.'))
    generator = random.Random(0)
    flips = [(byte, bit) for byte in range(len(true_file)) if byte not in documents for bit in range(8)]
    flips += [(byte, generator.randrange(8)) for byte in documents]
    assert len(flips) > 5000
    assert len(documents) > 1000
    for byte, bit in flips:
        flipped = bytearray(true_file)
        flipped[byte] ^= 1 << bit
        refusal(bytes(flipped), tmp_path / "model.hetcal")


def test_flipped_bits_with_the_right_checksum(true_file, tmp_path):
    """What is still accepted then is another model, in its only spelling: nothing else got in."""
    header, data = split(true_file)
    places = [*range(8 + len(header) - 300, 8 + len(header)), *range(CHECKSUM.start, 8 + len(header) - 300, 3)]
    assert len(places) > 800
    accepted = 0
    for byte in places:
        flipped = bytearray(header)
        flipped[byte - 8] ^= 1 << byte % 7
        file = seal(bytes(flipped), data)
        try:
            contents = parse_model_file(file, "model.hetcal")
        except ModelFileError:
            continue
        assert pack_model_file(contents.model, contents.summary, contents.weights, "model.hetcal") == file
        accepted += 1
    assert 20 < accepted < len(places) / 2  # digits of numbers, letters of names


def test_files_cut_short_or_continued(true_file, tmp_path):
    """600 lengths from nothing to one byte too few, and bytes at the end."""
    lengths = sorted({round(i * (len(true_file) - 1) / 599) for i in range(600)})
    assert len(lengths) >= 500
    assert {0, len(true_file) - 1} <= set(lengths)
    for length in lengths:
        refusal(true_file[:length], tmp_path / "model.hetcal")
    for further in (b"\0", b"\n", b" " * 8, b"PK\5\6" + bytes(18), true_file, bytes(10**6)):
        refusal(true_file + further, tmp_path / "model.hetcal")


def test_crafted_files(crafted, planted, tmp_path):
    """Every one is refused, and says why; payloads would leave a file behind if they ran."""
    assert len(crafted) >= 450
    accepted = []
    for name, data in crafted.items():
        try:
            refusal(data, tmp_path / "model.hetcal")
        except (Exception, pytest.fail.Exception) as error:
            accepted.append(f"{name}: {error!r}"[:300])
    assert accepted == []
    assert not planted.exists()


def test_the_payload_would_be_seen(tmp_path):
    """The check above can fail: read by their own loaders, all of the payloads run."""
    loaders = {
        "pickle": lambda file: pickle.load(file),
        "joblib": lambda file: joblib.load(file),
        "torch": lambda file: torch.load(file, weights_only=False),
        "numpy": lambda file: np.load(file, allow_pickle=True),
        "npz": lambda file: np.load(file, allow_pickle=True)["a"],
    }
    planted = tmp_path / "planted"
    for kind, payload in payloads(planted).items():
        assert not planted.exists()
        result = loaders[kind](io.BytesIO(payload))
        assert planted.exists(), kind
        planted.unlink()
        getattr(result, "close", lambda: None)()
        for opened in np.ravel(result) if kind in ("numpy", "npz") else []:
            opened.close()


MEMORY_CODE = """
import resource, sys
from pathlib import Path
from hetcal import load
from hetcal.exceptions import ModelFileError

load(sys.argv[1])  # all imports are done now
before = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = before + int(sys.argv[2]) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sorted(Path(sys.argv[3]).iterdir()):
    try:
        load(path)
    except ModelFileError:
        continue
    sys.exit(f"{path} was loaded")
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_crafted_files_in_bounded_memory(warm_python, folder, crafted, planted, tmp_path):
    """All of them under a limit on memory: none is refused because it ran out, and nothing else fails."""
    (tmp_path / "crafted").mkdir()
    for number, data in enumerate(crafted.values()):
        (tmp_path / "crafted" / f"{number:03}.hetcal").write_bytes(data)
    arguments = [folder / "regressor.hetcal", str(MEGABYTES), tmp_path / "crafted"]
    done = warm_python.run("-c", MEMORY_CODE, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert not planted.exists()


def test_what_is_no_file(tmp_path):
    """A folder, a pipe (opening it would wait forever), a device without end, nothing at all, a sparse file."""
    os.mkfifo(tmp_path / "pipe")
    for name, start in [
        ("sparse", b"\x08"),
        ("archive", b"PK\3\4"),
        ("large", len(START).to_bytes(8, "little") + START),
    ]:
        with open(tmp_path / name, "wb") as file:
            file.write(start)
            file.truncate(2**40)
    signal.alarm(SECONDS)
    for path, rule, found in [
        (tmp_path, "be a hetcal model file", "a folder"),
        (tmp_path / "pipe", "be a hetcal model file", "a device or a pipe"),
        ("/dev/zero", "be a hetcal model file", "a device or a pipe"),
        (tmp_path / "sparse", "be a hetcal model file", r"1099511627776 bytes that begin with b'\\x08"),
        (tmp_path / "archive", "be a hetcal model file", "a ZIP archive"),
        (tmp_path / "large", "have a size of at most 4294967296 bytes", "1099511627776 bytes"),
    ]:
        with pytest.raises(ModelFileError, match=f"must {rule}, got {found}"):
            load(path)
    with pytest.raises(FileNotFoundError, match="nothing"):
        load(tmp_path / "nothing")


KILL_CODE = """
import os, random, signal, sys, time
from pathlib import Path
from hetcal.model_files.archive import pack_model_file, read_model_file, write_model_file

path, kills = Path(sys.argv[1]), int(sys.argv[2])
models = [read_model_file(file) for file in sys.argv[3:]]
contents = [Path(file).read_bytes() for file in sys.argv[3:]]
generator, left, seen = random.Random(0), 0, set()

def write(model):
    write_model_file(path, pack_model_file(model.model, model.summary, model.weights, str(path)))

write(models[0])
for _ in range(kills):
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        while True:
            write(generator.choice(models))
            os.write(begin, b"x")
    os.read(end, 1)  # it has begun
    time.sleep(generator.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(end), os.close(begin)
    seen.add(contents.index(path.read_bytes()))
    read_model_file(path)
    parts = [file for file in path.parent.iterdir() if file != path]
    assert len(parts) <= 1, parts
    for file in parts:
        assert file.name.startswith(".model.hetcal.") and file.name.endswith(".part"), file
        file.unlink()
        left += 1
assert "torch" not in sys.modules
print(left, sorted(seen))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, so that 200 kills take seconds")
def test_killed_saves_leave_a_whole_file(tmp_path):
    """Two models are written over one file again and again, and the writer killed with -9 at random moments, 200 times.

    The file is always one of the two, whole; a kill leaves at most one temporary file, and some kills do, so that they
    did come in the middle of a write.
    """
    (tmp_path / "out").mkdir()
    for seed in (0, 1):
        fit_small(width=256, depth=2, random_state=seed).save(tmp_path / f"{seed}.hetcal")
    arguments = [tmp_path / "out" / "model.hetcal", str(KILLS), tmp_path / "0.hetcal", tmp_path / "1.hetcal"]
    done = subprocess.run([sys.executable, "-c", KILL_CODE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    left, seen = done.stdout.split(maxsplit=1)
    assert int(left) > 0
    assert seen.strip() == "[0, 1]"

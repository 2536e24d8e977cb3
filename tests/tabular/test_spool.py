"""The scratch file of encoded rows."""

import numpy as np
import torch
from numpy.testing import assert_array_equal

from hetcal.tabular import spool as module
from hetcal.tabular.spool import Spool, SpooledRows


def filled(n=5000, inputs=3):
    spool = Spool(inputs, 1)
    x, y = np.arange(n * inputs, dtype=np.float32).reshape(n, inputs), np.arange(float(n))
    for start in range(0, n, 700):
        stop = start + 700
        spool.append(x[start:stop], y[start:stop], np.arange(n, dtype=np.uint64)[start:stop])
    return spool, x, y


def test_rows_come_back_as_they_were_written():
    spool, x, y = filled()
    rows = spool.read(690, 1500)
    assert_array_equal(rows["x"], x[690:1500])
    assert_array_equal(rows["y"][:, 0], y[690:1500])
    assert_array_equal(rows["key"], np.arange(690, 1500))


def test_a_pass_has_every_row_once_in_a_new_order(monkeypatch):
    """In blocks of at most two runs, whose rows are mixed."""
    monkeypatch.setattr(module, "MOST_RUNS", 2)
    spool, _, y = filled()
    generator = torch.Generator().manual_seed(0)
    passes = []
    for _ in range(2):
        blocks = [block["y"][:, 0] for block in spool.blocks(generator)]
        assert max(map(len, blocks)) == 2048
        assert len(blocks) == 3
        passes.append(np.concatenate(blocks))
        assert_array_equal(np.sort(passes[-1]), y)
    assert not np.array_equal(*passes)
    runs = passes[0][:2048] // 1024
    assert len(set(runs[:100])) == 2


def test_wide_rows_make_short_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    spool, _, _ = filled()
    assert max(len(block) for block in spool.blocks(torch.Generator())) == 1024


def test_a_stream_has_no_end_and_standardizes_the_target():
    spool, _, y = filled(n=1500)
    stream = SpooledRows(spool, np.zeros(0, np.uint64), "None", lambda values: (values / 10).astype(np.float32))
    blocks = stream.blocks(torch.Generator())
    first, second = next(blocks), next(blocks)
    assert len(stream) == len(first) == len(second) == 1500
    assert_array_equal(np.sort(first.y.numpy()), np.sort((y / 10).astype(np.float32)))
    assert_array_equal(first.x[:, 0].numpy() / 3, first.keys)

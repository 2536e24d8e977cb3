"""Trees as tables: lookups against scikit-learn's own predictions, trees that are missing, and tables of a file."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.tree import DecisionTreeRegressor

from hetcal.estimators import trees as module
from hetcal.estimators.trees import MOST_DEPTH, Trees, read_tree


def grown(n_trees, n_targets=2, depth=4):
    """Trees of scikit-learn on rows with ties, and the rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)).round(1).astype(np.float32)
    y = rng.normal(size=(80, n_targets))
    fitted = [DecisionTreeRegressor(max_depth=depth, random_state=i).fit(x, np.roll(y, i, 0)) for i in range(n_trees)]
    return x, fitted, [read_tree(tree.tree_, tree.tree_.value[:, :, 0]) for tree in fitted]


def stored(most_trees=3):
    """Two members: three trees and one tree."""
    x, fitted, tables = grown(4)
    trees = Trees(2, most_trees, 2)
    trees.put([tables[:3], tables[3:]])
    return trees, torch.from_numpy(x), fitted


def test_lookups_are_scikit_learns():
    trees, x, fitted = stored()
    values = trees(x)
    assert values.shape == (2, 3, 80, 2)
    for place, tree in zip([(0, 0), (0, 1), (0, 2), (1, 0)], fitted, strict=True):
        assert_allclose(values[*place], tree.predict(x.numpy()), rtol=1e-6)


def test_lookups_of_one_member():
    trees, x, _ = stored()
    assert torch.equal(trees(x, slice(1, 2)), trees(x)[1:])


def test_blocks_and_stages_change_nothing(monkeypatch):
    """Neither how many rows are looked up at once nor when finished lookups are set aside."""
    trees, x, _ = stored()
    expected = trees(x)
    monkeypatch.setattr(module, "ROWS_AT_A_TIME", 7)
    monkeypatch.setattr(module, "STAGE", 1)
    assert torch.equal(trees(x), expected)
    assert trees(x[:0]).shape == (2, 3, 0, 2)


def test_lookups_of_an_exported_graph_are_the_same():
    """In trees of more than one stage; the tests of the export have trees of two levels."""
    x, _, tables = grown(4, depth=None)
    trees = Trees(2, 2, 2)
    trees.put([tables[:2], tables[2:]])
    x = torch.from_numpy(x)
    assert trees.depth > module.STAGE
    assert torch.equal(trees.find_leaves_in_graph(trees.roots, x), trees.find_leaves(trees.roots, x).long())


def test_missing_trees_are_zero():
    """Those of a member with fewer trees than others; trees that no member has are not even looked up."""
    assert_allclose(stored()[0](stored()[1])[1, 1:], np.zeros((2, 80, 2)))
    trees, x, _ = stored(most_trees=7)
    assert (trees.roots.shape, trees.used) == ((2, 7), 3)
    assert torch.equal(trees(x), stored()[0](x))


def test_no_trees_at_all():
    """Neither before trees were put nor if there are none: then a single leaf of zeros is looked up."""
    trees, x = Trees(2, 3, 1), torch.zeros(5, 4)
    assert_allclose(trees(x), np.zeros((2, 3, 5, 1)))
    trees.put([[], []])
    assert (trees.n_nodes, trees.used, trees.depth) == (1, 1, 0)
    assert_allclose(trees(x), np.zeros((2, 1, 5, 1)))
    assert trees(x).sum(1).shape == (2, 5, 1)


def test_lookups_end_at_the_deepest_leaf():
    """More lookups change nothing, fewer do."""
    trees, x, _ = stored()
    expected = trees(x)
    assert trees.depth == 4 < MOST_DEPTH
    trees.depth = 9
    assert torch.equal(trees(x), expected)
    trees.depth = 3
    assert not torch.equal(trees(x), expected)


def test_tables_of_a_model_file():
    """The state loads into new trees with as many nodes, which predict the same once they are measured."""
    trees, x, _ = stored()
    other = Trees(2, 3, 2, trees.n_nodes)
    other.load_state_dict(trees.state_dict())
    assert torch.equal(other(x), trees(x))
    other.measure()
    assert (other.depth, other.used) == (trees.depth, trees.used)
    assert torch.equal(other(x), trees(x))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("feature", 3),
        ("feature", -1),
        ("right", 0),
        ("right", 10**6),
        ("roots", -1),
        ("roots", 10**6),
        ("threshold", 0),
    ],
)
def test_tables_that_lead_astray(name, value):
    """Lookups outside the tables or the columns, without end, or from a leaf to the next tree."""
    trees, *_ = stored()
    assert trees.are_tables_right(3)
    assert not trees.are_tables_right(2)
    table = getattr(trees, name)
    if name == "threshold":
        table[trees.right == torch.arange(trees.n_nodes)] = value
    else:
        table.view(-1)[1] = value
    assert not trees.are_tables_right(3)

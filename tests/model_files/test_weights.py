"""Weights that no fit leads to are not saved; `tests/contracts/test_model_attacks.py` shows that none is loaded."""

import numpy as np
import pytest
import torch

from tests.model_files.samples import fit_small


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group_weights", -1),
        ("widening", -1),
        ("factor", 0),
        ("shape", np.inf),
        ("linear_members.std", 0),
        ("forest_members.trees.values", np.inf),
        ("forest_members.trees.roots", -1),
        ("boosted_members.mean_trees.roots", -1),
    ],
)
def test_members_that_no_rows_lead_to(tmp_path, name, value):
    model = fit_small(estimator="cross_ensemble")
    model.estimator_.state_dict()[name].fill_(value)
    # Of a table with one wrong number, all numbers are refused.
    kind = name.partition(".")[0]
    with pytest.raises(ValueError, match=f"values of '({name}|{kind}(\\..*)?)' that"):
        model.save(tmp_path / "model")


def test_finite_weights_with_infinite_predictions(tmp_path):
    """Each weight is one that a file may hold; their products are not."""
    model = fit_small(estimator="variance_head", depth=3)
    with torch.no_grad():
        for value in model.estimator_.parameters():
            value.fill_(1e17)
    with pytest.raises(ValueError, match="weights whose predictions are not finite"):
        model.save(tmp_path / "model")

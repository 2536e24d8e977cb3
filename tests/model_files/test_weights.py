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
        ("forest_members.mean", np.inf),
        ("forest_members.roots", -1),
    ],
)
def test_members_that_no_rows_lead_to(tmp_path, name, value):
    model = fit_small(estimator="cross_ensemble")
    model.estimator_.state_dict()[name].fill_(value)
    with pytest.raises(
        ValueError, match="values of 'forest_members.*' that" if "forest_members" in name else f"values of '{name}'"
    ):
        model.save(tmp_path / "model")


def test_finite_weights_with_infinite_predictions(tmp_path):
    """Each weight is one that a file may hold; their products are not."""
    model = fit_small(estimator="variance_head", depth=3)
    with torch.no_grad():
        for value in model.estimator_.parameters():
            value.fill_(1e17)
    with pytest.raises(ValueError, match="weights whose predictions are not finite"):
        model.save(tmp_path / "model")

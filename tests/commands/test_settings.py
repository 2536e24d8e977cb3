"""`--set`: text becomes a setting of the right type, and a misspelt name is answered with the nearest."""

import pytest

from hetcal.commands.settings import parse_settings


def test_values_have_types():
    pairs = ["width=64", "learning_rate=1e-3", "family=student_t", "target_transform=none", "bootstrap=true"]
    assert parse_settings(pairs) == {
        "width": 64,
        "learning_rate": 0.001,
        "family": "student_t",
        "target_transform": None,
        "estimator_options": {"bootstrap": True},
    }
    assert parse_settings([]) == {}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("learning_rat=1", r"--set must be one of .*did you mean 'learning_rate'\?"),
        ("memberz=4", r"did you mean 'members'\?"),
        ("network=os.system", r"--set must be one of"),
        ("random_state=1", r"--set must be one of"),
        ("width", r"--set must be name=value, got --set='width'; write for example"),
        ("", r"--set must be name=value"),
    ],
)
def test_what_is_no_setting_is_said(pair, message):
    with pytest.raises(ValueError, match=message):
        parse_settings([pair])

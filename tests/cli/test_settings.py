"""`--set`: text becomes a setting of the right type, and a misspelled name is answered with the nearest."""

import pytest

from hetcal.cli.settings import check_estimator_settings, parse_settings


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
    assert parse_settings(["dropout=.1", "width=64.0"]) == {"dropout": 0.1, "width": 64.0}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("learning_rat=1", r"--set must be one of .*did you mean 'learning_rate'\?"),
        ("memberz=4", r"did you mean 'members'\?"),
        ("network=os.system", r"--set must be one of"),
        ("random_state=1", r"--set must be one of"),
        ("estimator=mc_dropout", r"--set must be one of"),  # the method says which
        ("width", r"--set must have the form name=value, got --set='width'; write for example"),
        ("", r"--set must have the form name=value"),
    ],
)
def test_what_is_no_setting_is_said(pair, message):
    with pytest.raises(ValueError, match=message):
        parse_settings([pair])


def test_options_must_be_known_to_every_method():
    """Without this check a comparison would fail for some, and "choose" the only one that works."""
    settings = parse_settings(["members=4"])
    check_estimator_settings(settings, ["ensemble_hc", "deep_ensemble"])
    with pytest.raises(ValueError, match=r"--set must be a setting of every method .*'members'; hnn does not have it"):
        check_estimator_settings(settings, ["ensemble_hc", "hnn"])

"""What the tests of saving and loading share: a table with every kind of column, and a comparison of all answers."""

import numpy as np
import pandas as pd
from numpy.testing import assert_array_equal
from sklearn.base import clone
from torch import nn

from hetcal import HCClassifier, load
from tests.model_files import samples

N = 40
SMALL = {**samples.SMALL, "depth": 2}


def table(n=N):
    """Numbers, missing ones, dates, few and many labels."""
    generator = np.random.default_rng(0)
    some_missing = generator.normal(size=n)
    some_missing[::6] = np.nan
    dates = pd.Series(pd.date_range("2020-02-28", periods=n, freq="31h"))
    dates[3] = pd.NaT
    return pd.DataFrame(
        {
            "number": generator.normal(size=n) * 1e6,
            "some missing": some_missing,
            "all missing": np.full(n, np.nan),
            "town": generator.choice(["Köln", "Ulm", None], n),
            "date": dates,
            "flag": generator.random(n) > 0.5,
        }
    )


X = table()
Y = np.exp(np.random.default_rng(1).normal(size=N))
TWO = np.column_stack([Y, 1 / Y + 3])


def answers(model, X):
    """Everything a model says, on rows unlike those of fit."""
    if isinstance(model, HCClassifier):
        logits = model.predict_logits(X)
        return [model.predict(X), model.predict_proba(X), logits.mean, logits.std]
    prediction = model.predict_dist(X)
    return [
        *model.predict(X, return_std=True),
        prediction.interval([0.5, 0.9]),
        prediction.quantile([0.05, 0.5]),
        prediction.log_prob(prediction.mean + prediction.std),
        *(part for part in (prediction.epistemic_std, prediction.aleatoric_std) if part is not None),
    ]


def check_round_trip(model, path, X=X, **handed):
    """Save, load, compare all answers; what was loaded can do all that the model can. Returns the loaded model."""
    model.save(path)
    loaded = load(path, **handed)
    for before, after in zip(answers(model, X), answers(loaded, X), strict=True):
        assert_array_equal(after, before)
        assert after.dtype == before.dtype
    written = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == written
    assert loaded.n_features_in_ == model.n_features_in_
    assert hasattr(loaded, "feature_names_in_") == hasattr(model, "feature_names_in_")
    assert repr(clone(loaded)) == repr(loaded)
    return loaded


def factory(n_inputs, n_outputs):
    return nn.Sequential(nn.Linear(n_inputs, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, n_outputs))

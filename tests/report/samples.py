"""Predictions, comparisons and hostile tables for the tests of the report."""

import numpy as np
import pandas as pd

from hetcal.prediction import Prediction

ROWS = 400
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title>{{ 7 * 7 }}{% raw %}",
    "x" * 5000,
)
LEVELS = (np.arange(1, 100) / 100).tolist()


def make_truth(rows=ROWS, seed=2, factor=1.0, unit=1.0):
    """Truth and prediction; the residual is `factor` times as large as the prediction says."""
    rng = np.random.default_rng(seed)
    mean, std = 10 + 3 * rng.standard_normal(rows), np.exp(0.4 * rng.standard_normal(rows))
    y = mean + factor * std * rng.standard_normal(rows)
    return y * unit, Prediction(mean * unit, std * unit)


def make_features(rows=ROWS, seed=1):
    """Numbers, labels, dates, booleans and missing values."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "alcohol": rng.normal(10, 1, rows),
            "grade": rng.integers(1, 4, rows),
            "color": rng.choice(["red", "white"], rows),
            "organic": rng.random(rows) < 0.5,
            "harvest": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), "D"),
        }
    )
    frame.loc[rng.random(rows) < 0.2, "alcohol"] = np.nan
    return frame


def make_history(epochs=30):
    curve = [1 / (1 + epoch) for epoch in range(epochs)]
    return {
        "train": {"objective": curve, "rmse": curve, "ce": curve},
        "validation": {"objective": [value + 0.1 for value in curve], "rmse": curve, "ce": curve},
        "criterion": curve,
        "best_epoch": epochs - 5,
        "stopped": "patience",
    }


def figure(mean, standard_error=0.1):
    return {"mean": mean, "standard_error": standard_error, "values": [mean - 0.1, mean, mean + 0.1]}


def make_method(name, title, crps, ce, coverage=0.9, **others):
    metrics = {"crps": crps, "ce": ce, "rmse": 1.0, "nll": 2.0, "coverage_90": coverage, "interval_width_90": 3.0}
    metrics |= {"interval_score_90": 4.0, "seconds": 5.0, **others}
    return {
        "name": name,
        "title": title,
        "failed": None,
        "metrics": {key: figure(value, 0.05) for key, value in metrics.items()},
        "verdict": {"status": "good", "label": "Reliable", "text": "90 % intervals cover 90.0 % of 200 rows"},
        "curve": {"levels": LEVELS, "coverage": [level**1.1 for level in LEVELS]},
    }


def make_comparison():
    """Four methods: one the best by CRPS, one as good within noise, one worse, one failed."""
    failed = {"name": "bayes", "title": "Bayes by Backprop", "failed": "the loss was not finite in fold 2"}
    return {
        "target": "quality",
        "rows": 200,
        "held_out_rows": 200,
        "folds": 5,
        "seed": 3,
        "groups": None,
        "ce_noise_floor": 0.12,
        "methods": [
            make_method("mc_dropout", "MC Dropout", crps=1.5, ce=1.4, coverage=0.5),
            make_method("dropout_hc", "Dropout-HC", crps=1.0, ce=0.11, coverage=0.89),
            make_method("hnn", "HNN", crps=1.04, ce=0.08, coverage=0.93),
            {**failed, "metrics": {}, "verdict": None, "curve": None},
        ],
        "recommendation": {"method": "dropout_hc", "text": "Dropout-HC has the lowest CRPS."},
    }

"""All metrics of a prediction at once."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hetcal.metrics.inputs import Mean, Std, as_prediction, per_target, read_prediction
from hetcal.metrics.noise import LEVELS, ce_noise_floor, ce_quantile
from hetcal.metrics.regression import (
    _coverages,
    _standardize,
    ce,
    conditional_coverage_error,
    coverage,
    crps,
    ence,
    interval_score,
    interval_width,
    mae,
    nll,
    pinball_loss,
    rmse,
    sharpness,
)


@per_target
def verdict(y: ArrayLike, mean: Mean, std: Std = None) -> str:
    """Say in plain words whether the intervals can be believed on these rows, and if not, in which way they fail.

    Calibrated within noise: the calibration error is one that a perfect model exceeds in at least 5 % of all samples.
    Otherwise overconfident (too narrow) or underconfident (too wide), if at least three quarters of the error point
    that way, with the factor on `std` (before a transform is undone) at which the 90 % intervals cover 90 % of these
    rows; else wrong in shape. Several targets have a list of sentences.

    >>> verdict(y=np.linspace(-2, 2, 400), mean=np.zeros(400), std=np.full(400, 0.5))
    'overconfident: 90 % intervals cover 41.0 % of 400 rows; they must be 2.19 times as wide'
    """
    z, family = _standardize(*read_prediction(y, mean, std))
    p = np.array(LEVELS)
    observed = _coverages(z, family, p)
    gaps = p - observed
    error, balance, noise = np.abs(gaps).sum(), gaps.sum(), ce_quantile(len(z))
    factor = np.quantile(np.abs(z), 0.9, method="inverted_cdf") / family.quantile(0.95)

    def cover(k: int) -> str:
        return f"{100 * p[k]:.0f} % intervals cover {100 * observed[k]:.1f} %"

    rows, ninety = "1 row" if len(z) == 1 else f"{len(z)} rows", LEVELS.index(0.9)
    if error <= noise + 1e-9:  # on few rows both take the same few values, equal but for rounding
        return f"calibrated within noise: {cover(ninety)} of {rows}"
    if balance >= error / 2 and factor > 1:
        return f"overconfident: {cover(ninety)} of {rows}; they must be {factor:.3g} times as wide"
    if balance <= -error / 2 and factor < 1:
        return f"underconfident: {cover(ninety)} of {rows}; {factor:.3g} times their width is enough"
    wide, narrow = int(np.argmin(gaps)), int(np.argmax(gaps))
    return f"wrong in shape: {cover(wide)} but {cover(narrow)} of {rows}; no one factor on std repairs both"


def evaluate(y: ArrayLike, mean: Mean, std: Std = None) -> dict[str, Any]:
    """All metrics of a prediction, in the units of y, and the verdict in words.

    Returns:
        `n`, `rmse`, `mae`, `ce`, `ce_noise_floor`, `nll`, `crps`, `sharpness`, `coverage_90`, `interval_width_90`,
        `interval_score_90`, `pinball_loss`, `ence`, `conditional_coverage_error`: numbers; `verdict`: a sentence. For k
        targets (k,) arrays and a list of sentences, but still one `n` and one `ce_noise_floor`.

    >>> scores = evaluate(y=[1.0, 2.0, 4.0], mean=[1.1, 2.5, 3.0], std=[0.5, 0.5, 0.8])
    >>> scores["n"], round(scores["crps"], 3), scores["verdict"]
    (3, 0.352, 'calibrated within noise: 90 % intervals cover 100.0 % of 3 rows')
    """
    truth, prediction = np.atleast_1d(np.asarray(y)), as_prediction(mean, std)
    return {
        "n": len(truth),
        "rmse": rmse(truth, prediction),
        "mae": mae(truth, prediction),
        "ce": ce(truth, prediction),
        "ce_noise_floor": ce_noise_floor(len(truth)),
        "nll": nll(truth, prediction),
        "crps": crps(truth, prediction),
        "sharpness": sharpness(truth, prediction),
        "coverage_90": coverage(truth, prediction, level=0.9),
        "interval_width_90": interval_width(truth, prediction, level=0.9),
        "interval_score_90": interval_score(truth, prediction, level=0.9),
        "pinball_loss": pinball_loss(truth, prediction),
        "ence": ence(truth, prediction),
        "conditional_coverage_error": conditional_coverage_error(truth, prediction, level=0.9),
        "verdict": verdict(truth, prediction),
    }

"""Metrics of class probabilities: plain formulas on NumPy arrays, for `HCClassifier` and any other `predict_proba`.

Proper scoring rules, which reward calibration and sharpness together, are scikit-learn's `log_loss` and
`brier_score_loss`.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetcal._checks import Floats, check_number, must

MOST_SIMULATIONS = 1000
# With many rows fewer simulations suffice: the time is bounded, and the floor is still accurate to a few percent.
LEAST_SIMULATIONS = 100
MAX_LABELS = 10_000_000
# Probabilities in float32 do not add up to 1 exactly.
SUM_TOLERANCE = 1e-3


def expected_calibration_error(
    y: ArrayLike, probabilities: ArrayLike, bins: int = 15, classes: ArrayLike | None = None
) -> float:
    r"""Expected calibration error: the distance of the accuracy from the confidence.

    .. math:: ECE = \sum_b \frac{|b|}{n} \left| acc_b - conf_b \right|

    with :math:`acc_b` the share of rows in bin b whose most probable class is correct and :math:`conf_b` its mean
    probability there. The `bins` have equal width, :math:`((b - 1) / B, b / B]`, as published; empty bins are ignored.
    Guo et al. (2017), On calibration of modern neural networks.

    Compare it with `expected_calibration_error_noise_floor`.

    Args:
        y: (n,) true classes: column numbers of `probabilities`, or labels if `classes` are given.
        probabilities: (n, K) as from `predict_proba`.
        bins: Number of bins.
        classes: (K,) labels of the columns, such as `model.classes_`.

    >>> round(expected_calibration_error(y=[0, 1], probabilities=[[0.9, 0.1], [0.7, 0.3]]), 2)
    0.4
    """
    p = check_probabilities(probabilities)
    correct = check_labels(y, p, classes) == p.argmax(axis=1)
    return float(errors(correct[None], p.max(axis=1), bins)[0])


def expected_calibration_error_noise_floor(probabilities: ArrayLike, bins: int = 15) -> float:
    r"""Expected calibration error of a perfect model with these probabilities, from sampling noise alone.

    .. math:: E[ECE], \qquad y_i \sim probabilities_i

    Simulated (up to 1,000 sets of labels with a fixed seed). A perfect model exceeds it in about half of all samples.

    >>> p = np.full((400, 2), 0.5)
    >>> round(expected_calibration_error_noise_floor(p), 2)
    0.02
    """
    return float(perfect_errors(check_probabilities(probabilities), bins).mean())


def perfect_errors(probabilities: Floats, bins: int) -> Floats:
    """The error for sets of labels that are drawn from the probabilities themselves."""
    confidence = probabilities.max(axis=1)
    simulations = int(np.clip(MAX_LABELS // len(confidence), LEAST_SIMULATIONS, MOST_SIMULATIONS))
    random = np.random.default_rng(0)
    # It only matters whether a label is the most probable one.
    return np.concatenate(
        [errors(random.random((1, len(confidence))) < confidence, confidence, bins) for _ in range(simulations)]
    )


def errors(correct: NDArray[np.bool_], confidence: Floats, bins: int) -> Floats:
    """The error of each row of `correct`, (m, n) -> (m,)."""
    check_number("bins", bins, 1, integer=True)
    of_row = np.clip(np.ceil(confidence * bins) - 1, 0, bins - 1).astype(np.int64)  # (n,)
    gaps = [np.bincount(of_row, weights=right - confidence, minlength=bins) for right in correct]  # |b| (acc - conf)
    return np.abs(gaps).sum(axis=1) / len(confidence)


def check_probabilities(probabilities: ArrayLike) -> Floats:
    """Return the probabilities (n, K) as float64; each row must add up to 1."""
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or p.shape[0] < 1 or p.shape[1] < 2:
        advice = "give one row per row of y and one column per class, as predict_proba does"
        raise must("probabilities", "be (n, K) for K >= 2 classes", f"array of shape {p.shape}", advice)
    wrong = ~((p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) <= SUM_TOLERANCE))  # NaN is wrong too
    if wrong.any():
        row = int(np.argmax(wrong))
        advice = f"give probabilities, not logits; see row {row}"
        raise must("probabilities", "be at least 0 and add up to 1 in each row", p[row].tolist(), advice)
    return p


def check_labels(y: Any, probabilities: Floats, classes: Any) -> NDArray[np.int64]:
    """The column number of the true class of each row."""
    labels, (n, k) = np.asarray(y), probabilities.shape
    known = np.arange(k) if classes is None else np.asarray(classes)
    if known.shape != (k,):
        raise must("classes", f"name the {k} columns of probabilities", classes, "give model.classes_")
    if labels.shape != (n,):
        advice = "give one class per row of probabilities"
        raise must("y", f"be ({n},)", f"array of shape {labels.shape}", advice)
    is_class = np.asarray(labels[:, None] == known)  # (n, K)
    unknown = ~is_class.any(axis=1)
    if unknown.any():
        advice = "give classes=model.classes_ if y holds labels"
        raise must("y", f"hold classes among {known.tolist()}", labels[unknown][0].item(), advice)
    return is_class.argmax(axis=1)

"""The target of a regressor: reading it, its scale and transform, its atoms, and the way back to the units of y."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from hetcal._checks import Floats, check_vector, must
from hetcal.distributions import TransformedPrediction, equal_probabilities
from hetcal.estimators.atoms import Atoms, fit_atoms
from hetcal.estimators.cross_ensemble import Calibration, CrossEnsemble
from hetcal.estimators.held_out import fit_shape_of_cells
from hetcal.exceptions import DegenerateDataWarning
from hetcal.families import Empirical
from hetcal.metrics.wording import label
from hetcal.prediction import Prediction
from hetcal.tabular.encoding import fit_column_scaler
from hetcal.transforms import TRANSFORMS, PerTarget, Standardizer, TargetTransform

# The standardized target is rounded to a millionth of its standard deviation, which is the estimators' floor of sigma.
# This removes rounding errors of y (in kelvin instead of degrees Celsius, say). Otherwise a single bit would lead to
# another model, because training is chaotic.
TARGET_GRID = 2.0**-20
# Where the standard deviation of y is this many times the one that its quartiles suggest, few values make it up: gross
# errors. Then y is scaled by the quartiles, and no value counts as farther away than this.
GROSS_ERROR = 30.0


def check_regression_target(y: NDArray[Any]) -> Floats:
    """The target as finite float64 numbers: (n,), or (n, k) for k > 1 targets."""
    if y.dtype.kind == "c":
        raise must("y", "hold real numbers; Complex data not supported", y.dtype.name, "use its real part")
    if y.dtype.kind not in "biufO":
        advice = "convert it to numbers first"
        if y.dtype.kind in "SU":
            advice = "use HCClassifier for classes, or convert it to numbers first"
        raise must("y", "hold numbers", y.dtype.name, advice)
    if y.dtype.kind == "O" and any(isinstance(value, str) for value in y.ravel()):
        raise must(
            "y", "hold numbers", "text", "use HCClassifier for classes, or convert it to numbers first", TypeError
        )
    if y.ndim == 2 and y.shape[1] > 1:
        return np.column_stack([check_vector(f"y[:, {j}]", column) for j, column in enumerate(y.T)])
    if y.ndim > 2:
        raise must("y", "be (n,), or (n, k) for k targets", f"array of shape {y.shape}", "give it that shape")
    return check_vector("y", column_or_1d(y, warn=True))


def warn_of_constants(target: Floats) -> None:
    for column in target.reshape(len(target), -1).T:
        if Standardizer().fit(column, np.ones(len(column))).is_constant:
            warnings.warn(
                f"y is constant ({label(column[0])}); its predictive standard deviation is meaningless",
                DegenerateDataWarning,
                stacklevel=4,
            )


@dataclass(frozen=True, eq=False)
class TargetScale:
    """From y to the standardized numbers that are trained on, and back: a transform, if any, and a scaler."""

    name: str | None
    transform: TargetTransform | PerTarget | None
    scaler: Standardizer

    @classmethod
    def fit(
        cls, name: str | None, y: Floats, weights: Floats, transform_weights: Floats | None = None
    ) -> "TargetScale":
        """Fit the transform (to rows of `transform_weights`, if given) and the scaler of the transformed target."""
        transform = None
        if name is not None:
            transform = fit_transform(name, y, weights if transform_weights is None else transform_weights)
        return cls(name, transform, fit_target_scaler(y if transform is None else transform.forward(y), weights))

    def forward(self, y: Floats) -> Floats:
        return self.scaler.transform(y if self.transform is None else self.transform.forward(y))

    def standardize(self, y: Floats) -> NDArray[np.float32]:
        """The numbers to train on, free of rounding errors of y."""
        target = y if self.transform is None else self.transform.forward(y)
        return standardize_target(target, self.scaler).astype(np.float32)

    def in_units_of_y(self, prediction: Prediction) -> Prediction | TransformedPrediction:
        """Undo the standardization and the transform of y; predictions return to the units of y only here."""
        prediction = self.scaler.inverse(prediction)
        return prediction if self.transform is None else TransformedPrediction(prediction, self.transform)


def fit_transform(name: str, y: Floats, weights: Floats) -> TargetTransform | PerTarget:
    make = TRANSFORMS[name]
    if y.ndim == 1:
        return make().fit(y, weights)
    return PerTarget([make() for _ in range(y.shape[1])]).fit(y, weights)


def fit_target_scaler(target: Floats, weights: Floats) -> Standardizer:
    """Mean and standard deviation, or median and quartiles where few values make up the standard deviation."""
    scaler = Standardizer().fit(target, weights)
    robust = fit_column_scaler(target.reshape(len(target), -1), weights)
    shape = scaler.spread.shape
    has_errors = scaler.spread > GROSS_ERROR * robust.spread.reshape(shape)
    scaler.center = np.where(has_errors, robust.center.reshape(shape), scaler.center)
    scaler.spread = np.where(has_errors, robust.spread.reshape(shape), scaler.spread)
    # Intervals around a constant are then narrow relative to it, in any units.
    scaler.spread = np.where(scaler.is_constant, 1e-6, scaler.spread)
    return scaler


def standardize_target(target: Floats, scaler: Standardizer) -> Floats:
    """The target as it is trained: standardized, without gross errors and rounding errors."""
    limited = np.clip(scaler.transform(target), -GROSS_ERROR, GROSS_ERROR)
    return np.asarray(TARGET_GRID * np.round(limited / TARGET_GRID))


def fit_target_atoms(
    ensemble: CrossEnsemble, calibration: Calibration, scale: TargetScale, y: Floats, weights: Floats
) -> Atoms | None:
    """Look for atoms of y on held-out rows. If it has some, the ensemble gets the shape of the latent target.

    The latent target of a row at an atom is only known to lie in the atom's interval, so that the shape that fits the
    rounded target would count the rounding twice.
    """
    continuous = Empirical(ensemble.shape[0].cpu().numpy().copy())

    def held_out(shape: Empirical) -> Any:
        return scale.in_units_of_y(calibration.prediction(shape))

    atoms = fit_atoms(held_out(continuous), y, weights)
    if atoms is None:
        return None
    location, width = calibration.location[:, 0], calibration.scale[:, 0]
    residuals = (scale.forward(y) - location) / width
    place = np.searchsorted(atoms.values, y).clip(max=len(atoms.values) - 1)
    is_atom = atoms.values[place] == y
    lower, upper = ((ends_of(side, scale)[place] - location) / width for side in (atoms.lower, atoms.upper))
    shape = fit_shape_of_cells(
        np.where(is_atom, lower, residuals), np.where(is_atom, upper, residuals), residuals, weights
    )
    fitted = fit_atoms(held_out(shape), y, weights)
    if fitted is not None:
        ensemble.set_shapes([shape])
    return fitted


def is_no_better_than_constant(prediction: Prediction, y: Floats, weights: Floats) -> bool:
    """Whether held-out predictions have no smaller error than the mean of y, and no lower CRPS than the values of y.

    The second condition matters where the noise of y depends on X and its mean does not. With several targets, both
    hold for each of them.

    Args:
        prediction: Of rows that were held out.
        y: (n,) or (n, k) their targets, standardized as the predictions are.
        weights: (n,) of the rows.
    """
    share, targets = (weights / weights.sum())[:, None], y.reshape(len(y), -1)
    others = np.maximum(1 - share, TARGET_GRID)  # the mean of y is that of the other rows
    errors = targets - prediction.mean.reshape(targets.shape), (targets - (share * targets).sum(0)) / others
    if np.any((share * errors[0] ** 2).sum(0) < (share * errors[1] ** 2).sum(0)):
        return False
    q, _ = equal_probabilities()
    values = np.quantile(targets, q, axis=0, weights=share[:, 0], method="inverted_cdf")
    beyond, q = targets - values[:, None], q[:, None, None]  # (200, n, k)
    scores = prediction.crps(y).reshape(targets.shape), 2 * np.maximum(q * beyond, (q - 1) * beyond).mean(0)
    return bool(np.all((share * scores[0]).sum(0) >= (share * scores[1]).sum(0)))


def ends_of(ends: Any, scale: TargetScale) -> Floats:
    """Ends of latent intervals, in the scale of training; infinite ones stay so."""
    ends = np.asarray(ends, dtype=np.float64)
    finite = np.isfinite(ends)
    inside = np.where(finite, ends, ends[finite][0] if finite.any() else 0.0)
    return np.where(finite, scale.forward(inside), ends)

"""Recalibration after training: the baselines that the paper argues against (section 1), for any fitted regressor.

Three ways to correct the intervals of a trained model: map the probabilities (isotonic), scale the standard deviation
(std), or measure how wide intervals must be (conformal). They wrap any regressor with `predict(X, return_std=True)`
(`HCRegressor`, `GaussianProcessRegressor`, `BayesianRidge`, or a pipeline that ends in one) or one model per quantile
(`QuantileModels`), and need rows that it has not seen. None of them learns where the noise is: a random std becomes
calibrated too (Levi et al., 2019), and stays as uninformative as before. What they learn is a `Recalibration`, a few
numbers (`hetcal.metrics.calibration_map`); `HCRegressor.recalibrate` keeps it with the model.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, column_or_1d, indexable
from sklearn.utils.validation import _num_samples, check_is_fitted

from hetcal._checks import Floats, check_choice, check_levels, check_vector, must
from hetcal.distributions import ByQuantiles, TabulatedPrediction, innermost
from hetcal.exceptions import CalibrationRowsWarning
from hetcal.families import GAUSSIAN
from hetcal.metrics.calibration_map import (
    LEARN,
    Distribution,
    Recalibration,
    at_scores,
    learn_conformal,
    scale_std,
    sorted_scores,
)
from hetcal.metrics.inputs import predict_distribution
from hetcal.prediction import DistributionMixin, Prediction

CONFORMAL_METHODS = ("split", "cross")
# Relative rounding error that is ignored in a rank: 100 * 0.07 is slightly more than 7 in floating point.
RANK_ROUNDING = 1e-12


class Recalibrator(DistributionMixin, MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Base class of the three: each wraps a regressor, which it does not change."""

    regressor: Any
    recalibration_: Recalibration

    def predict_dist(self, X: Any) -> Any:
        """The recalibrated predictive distribution on NumPy arrays, in the units of y."""
        check_is_fitted(self)
        return self.recalibration_.apply(predict_one_target(self.regressor_, X))

    def __sklearn_clone__(self) -> Self:
        """Share the fitted regressor with the clone, because a cloned regressor would be unfitted."""
        twin = super().__sklearn_clone__()
        twin.regressor = self.regressor
        return twin

    def _adopt(self, regressor: Any) -> None:
        """Keep the regressor for prediction, and what it knows about the columns."""
        self.regressor_ = regressor
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(regressor, name):
                setattr(self, name, getattr(regressor, name))
            elif hasattr(self, name):  # from an earlier fit
                delattr(self, name)


class DistributionRecalibrator(Recalibrator):
    """A recalibrator that is fitted to rows that the regressor has not seen, and corrects the whole distribution."""

    method: str

    def __init__(self, regressor: Any) -> None:
        self.regressor = regressor

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn the correction from calibration rows.

        Args:
            X: (n, d) rows that the regressor was not fitted on, in the form that it accepts.
            y: (n,) their targets.
        """
        target = check_calibration_target(X, y)
        self._adopt(check_fitted(self.regressor))
        self.recalibration_ = LEARN[self.method]([(predict_calibration(self.regressor_, X), target)])
        self.factor_ = self.recalibration_.factor
        return self


class StdRecalibrator(DistributionRecalibrator):
    r"""One factor for all standard deviations; Levi et al. (2019), Evaluating and calibrating uncertainty prediction.

    .. math:: s^2 = \frac1n \sum_i \left( \frac{y_i - \mu_i}{\sigma_i} \right)^2

    with s = `factor_`. It maximizes the likelihood if the regressor's distribution is Gaussian. For the other families
    of hetcal, which all have variance 1, the corrected standard deviation is still that of the residuals; the family is
    kept. For a regressor that predicts a transformed target t, the standard deviation of t is corrected, so that the
    range of y is kept.

    Args:
        regressor: A fitted regressor with `predict(X, return_std=True)`. It is neither changed nor fitted again.

    Attributes:
        factor_: The factor; if it is above 1, the regressor was overconfident.
        recalibration_: The same as a `Recalibration`.
        regressor_: The regressor.

    >>> from sklearn.linear_model import BayesianRidge
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.where(X[:, 0] < 0.5, 0.1, 0.2) * np.resize([1, -1], 100)
    >>> round(StdRecalibrator(BayesianRidge().fit(X[:50], y[:50])).fit(X[50:], y[50:]).factor_, 1)
    2.0
    """

    method = "std"


class IsotonicRecalibrator(DistributionRecalibrator):
    r"""Probabilities mapped to observed frequencies; Kuleshov, Fenner and Ermon (2018), Accurate uncertainties.

    .. math:: \tilde F(y) = R(F(y)), \qquad R(F(y_i)) = \frac{1}{n + 1} \left| \{ j : F(y_j) \le F(y_i) \} \right|

    with F the distribution function that the regressor predicts for the row, and R isotonic, linear between the
    calibration rows, from R(0) = 0 to R(1) = 1. The quantile q is thus the regressor's quantile :math:`R^{-1}(q)`.

    Three details are choices of hetcal. The denominator is n + 1 instead of n, because the largest of n rows is not the
    largest possible value. R is linear instead of constant between the rows, so that it can be inverted. The standard
    deviation of F is first multiplied by `factor_` (see `StdRecalibrator`), which does not change R(F(y)) at the
    calibration rows. Otherwise, with a standard deviation ten times too small, a fifth of all F(y) would be 1 to the
    last digit, and there would be no tail beyond the outermost rows.

    The mean is that of the new distribution, so that a bias of the regressor is removed as well. The density is a step
    function with a step at each row; judge the result by CRPS or interval score rather than by the log likelihood.

    Args:
        regressor: A fitted regressor with `predict(X, return_std=True)`. It is neither changed nor fitted again.

    Attributes:
        factor_: The factor by which the standard deviation is multiplied first.
        recalibration_: The `Recalibration`: the factor, and R at up to 1,000 of the calibration rows.
        regressor_: The regressor.

    >>> from sklearn.linear_model import BayesianRidge
    >>> X, y = np.linspace(0, 1, 200)[:, None], np.resize([0.0, 0.0, 0.0, 1.0], 200)
    >>> model = IsotonicRecalibrator(BayesianRidge().fit(X[:100], y[:100])).fit(X[100:], y[100:])
    >>> model.predict_quantiles(X[:1], [0.2, 0.9]).round(1)
    array([[-0.,  1.]])
    """

    method = "isotonic"


class ConformalRecalibrator(Recalibrator):
    r"""Conformal prediction intervals: as wide as the calibration rows require.

    .. math:: [F^{-1}(\Phi(-s_{(k)})), \; F^{-1}(\Phi(s_{(k)}))], \qquad s_i = |\Phi^{-1}(F_i(y_i))|,
        \qquad k = \lceil (n + 1) \, level \rceil

    with F the distribution function that the regressor predicts for the row, and :math:`s_{(k)}` the k-th smallest of
    `scores_`. For a Gaussian this is :math:`\mu \pm s_{(k)} \sigma` with :math:`s_i = |y_i - \mu_i| / \sigma_i` (Lei et
    al., 2018, Distribution-free predictive inference for regression, section 5.2). In general it is conformal quantile
    regression (Romano, Patterson and Candès, 2019) on two quantiles of F, with their distance from y measured in
    normal scores, so that skewed intervals stay skewed and the range of y is kept; see `predict_between` for quantiles
    that do not lie symmetrically.

    New rows that are exchangeable with the calibration rows are covered with probability `level` or more, on average
    over all rows, for any regressor. If k > n, no finite interval has that guarantee: the interval is infinite, with a
    `CalibrationRowsWarning`. `predict_dist` is a distribution with intervals of the same kind, of every level: finite
    beyond the outermost calibration row, and otherwise at most one rank wider.

    The rule is three lines of NumPy. MAPIE's `SplitConformalRegressor` gives the same numbers (the tests compare them).
    It is not a dependency for three reasons: it requires the level before it sees the calibration rows, scikit-learn's
    tools cannot clone it, and the lower end of its `StdConformityScore` (1.6) is one rank too narrow unless
    (n + 1) level is a whole number.

    Args:
        regressor: A regressor with `predict(X, return_std=True)` or `predict_dist`. For "split" it must be fitted, and
            is neither changed nor fitted again; for "cross" only its parameters are used.
        method: "split" calibrates a fitted regressor on rows that it has not seen. "cross" needs no such rows: a clone
            is fitted without each fold in turn, the scores of the held-out rows are pooled, and a clone fitted on all
            rows predicts. `level` is then approximate, because the model that predicts was not scored. Coverage is too
            low if the standard deviation shrinks faster than the errors as rows are added; more folds reduce the gap.
            (MAPIE's CV+ keeps the clone of every fold and compares each new row with all training rows, which
            guarantees a coverage of nearly 2 level - 1. Here one model predicts, at linear cost.)
        cv: Folds for "cross": a number (of consecutive rows, as everywhere in scikit-learn; give
            `KFold(5, shuffle=True)` if the rows are sorted), a splitter, or a list of splits that holds out each row
            once.

    Attributes:
        scores_: (n,) ascending.
        normal_scores_: (n,) the same with their signs, ascending.
        recalibration_: The `Recalibration` of `predict_dist`.
        regressor_: The regressor that predicts: the given one ("split"), or its clone fitted on all rows ("cross").

    >>> from sklearn.linear_model import BayesianRidge
    >>> X, y = np.linspace(0, 1, 60)[:, None], np.resize([0.0, 1.0], 60)
    >>> model = ConformalRecalibrator(BayesianRidge(), method="cross").fit(X, y)
    >>> model.predict_interval(X, level=[0.5, 0.9]).shape
    (60, 2, 2)
    """

    def __init__(self, regressor: Any, method: str = "split", cv: Any = 5) -> None:
        self.regressor = regressor
        self.method = method
        self.cv = cv

    def __sklearn_clone__(self) -> Self:
        """For "cross" the regressor is cloned like any parameter, so that a search can change it."""
        return BaseEstimator.__sklearn_clone__(self) if self.method == "cross" else super().__sklearn_clone__()

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Score the calibration rows; for "cross", fit the regressor and score all rows.

        Args:
            X: (n, d) rows, in the form that the regressor accepts; for "split", rows that it was not fitted on.
            y: (n,) their targets.
        """
        method = check_choice("method", self.method, CONFORMAL_METHODS)
        target = check_calibration_target(X, y)
        if method == "split":
            self._adopt(check_fitted(self.regressor))
            judged = [(predict_calibration(self.regressor_, X), target)]
        else:
            judged = self._cross(X, target)
            self._adopt(clone(self.regressor).fit(X, target))
        self.recalibration_ = learn_conformal(judged)
        is_gaussian = all(prediction.family == GAUSSIAN for prediction, _ in judged)
        # Normal scores of a Gaussian are exact at any distance. Those of other families end at 7, so scale them first.
        self.factor_ = 1.0 if is_gaussian else self.recalibration_.factor
        self.normal_scores_ = sorted_scores(judged, self.factor_)
        self.scores_ = np.sort(np.abs(self.normal_scores_))
        return self

    def _cross(self, X: Any, y: Floats) -> list[tuple[Distribution, Floats]]:
        """Prediction of each row from a clone that was fitted without it, and the true values."""
        if isinstance(self.regressor, FrozenEstimator):
            advice = "give the regressor itself, or method='split'"
            raise must("regressor", "allow another fit for method='cross'", self.regressor, advice)
        X, y = indexable(X, y)
        folds = list(check_cv(self.cv, y).split(X, y))
        counts = np.bincount(np.concatenate([held_out for _, held_out in folds]), minlength=len(y))
        if not (counts == 1).all():
            advice = "give a number of folds or a splitter such as KFold"
            raise must("cv", "hold out each row once", self.cv, advice)
        judged = []
        for kept, held_out in folds:
            regressor = clone(self.regressor).fit(_safe_indexing(X, kept), y[kept])
            judged.append((predict_calibration(regressor, _safe_indexing(X, held_out)), y[held_out]))
        return judged

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The regressor's own mean; with `return_std=True` also its standard deviation. Only intervals change."""
        check_is_fitted(self)
        if not return_std:
            return self.regressor_.predict(X)
        prediction = predict_distribution(self.regressor_, X)
        return prediction.mean, prediction.std

    def predict_interval(self, X: Any, level: ArrayLike = 0.9) -> Floats:
        """Prediction intervals, (n, 2) for one level, (n, 2, L) for a list of L levels."""
        check_is_fitted(self)
        levels = check_levels("level", level)
        return self._ends(X, levels, np.zeros_like(levels), np.zeros_like(levels), self.scores_)

    def predict_between(self, X: Any, lower: float = 0.05, upper: float = 0.95) -> Floats:
        """Conformal quantile regression on any two quantiles: (n, 2) intervals that cover `upper - lower` or more.

        Both predicted quantiles are moved outward, or inward, by as much as the calibration rows require.
        """
        check_is_fitted(self)
        q = check_levels("lower and upper", [lower, upper])
        if lower >= upper:
            raise must("lower", f"be less than upper ({upper})", lower, "give the smaller one first")
        low, high = ndtri(q)
        scores = np.sort(np.maximum(low - self.normal_scores_, self.normal_scores_ - high))
        return self._ends(X, q[1] - q[0], low, high, scores)

    def _ends(self, X: Any, levels: Floats, low: Floats, high: Floats, scores: Floats) -> Floats:
        """The normal scores `low` and `high`, moved apart by the score of the rank that each level needs."""
        n = len(scores)
        rank = np.ceil((n + 1) * levels * (1 - RANK_ROUNDING)).astype(int)
        if (rank > n).any():
            highest = np.max(levels)
            rows = int(np.ceil(highest / (1 - highest) * (1 - RANK_ROUNDING)))
            warnings.warn(
                f"level={highest:g} needs at least {rows} calibration rows, got {n}, so its intervals are infinite; "
                "give more rows or a lower level",
                CalibrationRowsWarning,
                stacklevel=3,
            )
        moved = np.where(rank <= n, scores[np.minimum(rank, n) - 1], 0.0)
        prediction = scale_std(predict_one_target(self.regressor_, X), self.factor_)
        ends = at_scores(prediction, np.stack([low - moved, high + moved]))
        return np.where(rank <= n, ends, np.multiply.outer([-np.inf, np.inf], np.ones_like(levels)))


class QuantileModels(DistributionMixin):
    """Fitted regressors of one quantile each, as one regressor with a distribution, such as for conformal intervals.

    Args:
        models: Probability of the quantile -> regressor with `predict(X)`; at least two.

    >>> from sklearn.dummy import DummyRegressor
    >>> X, y = np.zeros((99, 1)), np.arange(1.0, 100.0)
    >>> models = {q: DummyRegressor(strategy="quantile", quantile=q).fit(X, y) for q in (0.1, 0.9)}
    >>> ConformalRecalibrator(QuantileModels(models)).fit(X, y).predict_between(X[:1], 0.1, 0.9).round(1)
    array([[10., 90.]])
    """

    def __init__(self, models: Mapping[float, Any]) -> None:
        self.models = models

    def predict_dist(self, X: Any) -> TabulatedPrediction:
        """The distribution with the predicted quantiles; see `TabulatedPrediction` for what lies between them."""
        levels = sorted(self.models)
        return TabulatedPrediction(levels, np.column_stack([self.models[q].predict(X) for q in levels]))


RECALIBRATORS: dict[str, type[Recalibrator]] = {
    "isotonic": IsotonicRecalibrator,
    "std": StdRecalibrator,
    "conformal": ConformalRecalibrator,
}


# The regressor's prediction.


def predict_one_target(regressor: Any, X: Any) -> Distribution:
    """The regressor's distribution of one target; an unknown type of distribution is treated as Gaussian."""
    prediction = predict_distribution(regressor, X)
    if not isinstance(prediction, Prediction | ByQuantiles):
        prediction = Prediction(prediction.mean, prediction.std)
    shape = np.shape(innermost(prediction).mean)
    if len(shape) != 1:
        raise must("regressor", "predict one target", f"mean of shape {shape}", "recalibrate one target at a time")
    return prediction


def predict_calibration(regressor: Any, X: Any) -> Distribution:
    """The same for calibration rows, where mean and std must be finite and std positive."""
    prediction = predict_one_target(regressor, X)
    check_vector("mean", innermost(prediction).mean)
    check_vector("std", innermost(prediction).std, positive=True)
    return prediction


# Checks of the arguments.


def check_fitted(regressor: Any) -> Any:
    """The regressor, if it is fitted; one without scikit-learn's conventions is assumed to be fitted."""
    if isinstance(regressor, type):
        raise must("regressor", "be a fitted regressor", regressor, "give an instance, not its class", TypeError)
    if isinstance(regressor, BaseEstimator):
        try:
            check_is_fitted(regressor)
        except NotFittedError as error:
            advice = "call its fit first, with rows other than those given here"
            raise must("regressor", "be fitted", regressor, advice, NotFittedError) from error
    return regressor


def check_calibration_target(X: Any, y: Any) -> Floats:
    """The target as at least two finite numbers, one per row of X."""
    array, n = np.asarray(y), _num_samples(X)
    if array.ndim == 2 and array.shape[1] > 1:
        raise must("y", "be one-dimensional", f"array of shape {array.shape}", "recalibrate one target at a time")
    target = check_vector("y", column_or_1d(array, warn=True))
    if len(target) != n:
        raise must("y", f"have one value per row of X ({n})", f"{len(target)} values", "give both the same length")
    if n < 2:
        raise must("X", "have at least 2 rows", f"n_samples={n}", "give more calibration rows")
    return target

"""The scikit-learn classifier, and the likelihood of a class under Gaussian logits.

The paper calls this extension straightforward (section 4): the estimator predicts a mean and a sigma for the logit of
every class, and the likelihood of the observed class integrates over them, so that sigma is trained as in regression.
Such integrals have no closed form; how they are approximated is decided in this file alone.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from hetcal._checks import check_choice, must
from hetcal.estimators import ESTIMATORS, CrossEnsemble
from hetcal.prediction import Prediction
from hetcal.tabular.building import resolve_name
from hetcal.tabular.columns import is_missing
from hetcal.tabular.model import TabularModel
from hetcal.tabular.whole_fits import whole_or_not_at_all

# The estimators whose own loss does not depend on y. The own loss of quantile heads and ensembles measures distances to
# a number; without it they would be neither quantiles nor ensembles.
CLASS_ESTIMATORS = ("bayes_by_backprop", "concrete_dropout", "mc_dropout", "variance_head")
# Draws of the logits in `sampling`, in pairs of opposite sign.
DRAWS = 64
# Rows whose draws are held in memory at once in prediction.
DRAWN_ROWS = 1024

Likelihood = Callable[[Prediction], Tensor]


def probit(prediction: Prediction) -> Tensor:
    r"""Log probability of every class, (n, K), by the mean-field approximation: sigma acts as a temperature per class.

    .. math:: \log \mathrm{softmax}\left(\frac{\mu}{\sqrt{1 + \frac\pi8 \sigma^2}}\right)

    MacKay (1992), The evidence framework applied to classification networks, for two classes; Lu, Ie and Sha (2020),
    Mean-field approximation to Gaussian-softmax integral, for more.

    >>> probit(Prediction(torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0, 3.0]]))).exp()
    tensor([[0.2811, 0.7189]])
    """
    mu, sigma = prediction.mean, prediction.std
    return torch.log_softmax(mu / (1 + math.pi / 8 * sigma**2).sqrt(), dim=1)  # (n, K)


def sampling(prediction: Prediction) -> Tensor:
    r"""Log probability of every class, (n, K), averaged over draws of the logits.

    .. math:: \log \frac1S \sum_s \mathrm{softmax}(\mu + \sigma \varepsilon_s), \qquad \varepsilon_s \sim N(0, I)

    with S = `DRAWS`. The draws are always the same, for all rows, so that prediction is deterministic.

    >>> sampling(Prediction(torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0, 3.0]]))).exp().sum()
    tensor(1.)
    """
    mu, sigma = prediction.mean, prediction.std
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(DRAWS // 2, 1, mu.shape[1], generator=generator, dtype=torch.float64).to(mu)
    logits = mu + sigma * torch.cat([half, -half])  # (draws, n, K)
    return torch.log_softmax(logits, dim=2).logsumexp(0) - math.log(DRAWS)


LIKELIHOODS: dict[str, Likelihood] = {"probit": probit, "sampling": sampling}


def class_nll(prediction: Prediction, y: Tensor, likelihood: Likelihood = probit) -> Tensor:
    """Negative log probability of class y, (n,) integers from 0: the objective for a training loop of your own.

    >>> class_nll(Prediction(torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0, 3.0]])), torch.tensor([1]))
    tensor([0.3300])
    """
    return -likelihood(prediction).gather(1, y[:, None])[:, 0]  # (n,)


class HCClassifier(ClassifierMixin, TabularModel):
    """Neural network classifier with heteroscedastic calibration (HC): probabilities from logits with a sigma each.

    The likelihood of a class integrates over its uncertain logits, in a single training run. Tables are fitted as by
    `HCRegressor`, whose documentation also describes the settings that are not listed here.

    Args:
        estimator: Where the sigma of the logits comes from: "mc_dropout", "concrete_dropout", "bayes_by_backprop",
            "variance_head", or a class with the members of `hetcal.estimators.base` that accepts `n_targets` (one
            logit per class) and whose own loss is defined for class numbers y. The other registered estimators are
            refused, because their own loss measures distances between y and a number.
        likelihood: How the class probabilities integrate over the Gaussian logits: "probit", by a formula;
            "sampling", by 64 draws; or a function that maps the prediction to log probabilities (n, K).
        network: As for `HCRegressor`. A module must end with one output per class, two for "variance_head".

    Attributes:
        classes_: The sorted classes, in the order of the columns of `predict_proba` and `predict_logits`.
        estimator_: The trained torch module.
        encoder_: The fitted `TableEncoder`.
        history_: The `History` of training; `rmse` and `ce` are empty for classes.
        seed_: The seed drawn from `random_state`.
        n_features_in_: Number of columns seen during fit.
        feature_names_in_: Names of the columns seen during fit, if X was a frame with names.

    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = HCClassifier(width=16, max_epochs=5, random_state=0).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    >>> model.classes_.tolist(), model.predict_proba(X).shape
    (['no', 'yes'], (200, 2))
    """

    kind = "classifier"
    registries: ClassVar[dict[str, dict[str, Any]]] = {
        "estimator": {name: ESTIMATORS[name] for name in CLASS_ESTIMATORS},
        "likelihood": LIKELIHOODS,
    }

    def __init__(
        self,
        estimator: str | type = "mc_dropout",
        likelihood: str | Likelihood = "probit",
        *,
        network: Any = None,
        width: int = 128,
        depth: int = 5,
        dropout: float = 0.2,
        estimator_options: dict[str, Any] | None = None,
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-2,
        batch_size: int = 128,
        max_steps: int = 8_000,
        max_epochs: int = 500,
        max_seconds: float | None = None,
        patience: int = 1_000,
        validation_fraction: float = 0.1,
        input_noise: float = 0.0,
        column_order: str = "by_name",
        random_state: Any = None,
        device: str = "cpu",
        progress: bool | Callable[[int, int], Any] = False,
    ) -> None:
        self.likelihood = likelihood
        super().__init__(
            estimator,
            network=network,
            width=width,
            depth=depth,
            dropout=dropout,
            estimator_options=estimator_options,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            max_steps=max_steps,
            max_epochs=max_epochs,
            max_seconds=max_seconds,
            patience=patience,
            validation_fraction=validation_fraction,
            input_noise=input_noise,
            column_order=column_order,
            random_state=random_state,
            device=device,
            progress=progress,
        )

    @whole_or_not_at_all
    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> "HCClassifier":
        """Train on a table and the class of each row.

        Args:
            X: (n, d) frame or array; missing values are allowed.
            y: (n,) classes: text, whole numbers or booleans, at least two different ones.
            sample_weight: (n,) weights, at least 0; a weight of 2 counts exactly like giving the row twice, and a
                weight of 0 like omitting it. A class without any weight is not one of `classes_`.
            groups: (n,) labels of rows that belong together; see `HCRegressor.fit`.

        Raises:
            TrainingInterrupted: As by `HCRegressor.fit`.
        """
        check_class_estimator(self.estimator)
        objective = partial(class_nll, likelihood=resolve_name("likelihood", self.likelihood, LIKELIHOODS))
        rows = self._prepare(X, y, sample_weight, groups, check_classes, are_classes=True)
        classes, codes = np.unique(rows.target, return_inverse=True)
        if len(classes) < 2:
            raise must("y", "hold more than one class", classes.tolist(), "give rows of at least two classes")
        with torch.inference_mode(False), torch.enable_grad():
            estimator, history = self._train(
                objective,
                rows,
                torch.from_numpy(codes.astype(np.int64)),
                n_targets=len(classes),
            )
        self.classes_, self.encoder_, self.seed_ = classes, rows.encoder, rows.seed
        self.estimator_, self.history_ = estimator, history
        history.raise_if_interrupted()
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (n,)."""
        # Before self.classes_, so that an unfitted model raises NotFittedError.
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each class, (n, K), in the order of `classes_`."""
        prediction = self.predict_logits(X)
        likelihood = resolve_name("likelihood", self.likelihood, LIKELIHOODS)
        blocks = []
        for start in range(0, len(prediction.mean), DRAWN_ROWS):
            block = prediction.take(slice(start, start + DRAWN_ROWS))
            logits = Prediction(torch.from_numpy(block.mean), torch.from_numpy(block.std))
            blocks.append(likelihood(logits).exp().numpy())
        return np.concatenate(blocks)

    def predict_logits(self, X: Any) -> Prediction:
        """Mean and std of the logits on NumPy arrays, (n, K) each; only differences between classes have a meaning."""
        return self._predict(X)


def check_class_estimator(estimator: Any) -> None:
    """Refuse the registered estimators whose own loss treats y as a number, whether given by name or as a class."""
    known = {"cross_ensemble": CrossEnsemble, **ESTIMATORS}
    if estimator in list(known) or estimator in known.values():
        if estimator in CLASS_ESTIMATORS or estimator in [ESTIMATORS[name] for name in CLASS_ESTIMATORS]:
            return
        advice = "its own loss measures distances to a number, and a class is not a number"
        raise must("estimator", f"be one of {list(CLASS_ESTIMATORS)} for classes", estimator, advice)
    if not callable(estimator):
        check_choice("estimator", estimator, CLASS_ESTIMATORS)


def check_classes(y: NDArray[Any]) -> NDArray[Any]:
    """Return the class of each row, (n,), with its original type."""
    labels = column_or_1d(y, warn=True)
    if labels.dtype.kind in "fO":
        wrong = [is_missing(value) or value in (math.inf, -math.inf) for value in labels.tolist()]
        if any(wrong):
            row, count = wrong.index(True), sum(wrong)
            advice = f"remove or label the {count} such row(s), the first is row {row}"
            raise must("y", "contain no missing value and no infinity", labels[row : row + 1].tolist()[0], advice)
        is_text = [isinstance(value, str) for value in labels]
        if any(is_text) and not all(is_text):
            text, other = labels[is_text.index(True)], labels[is_text.index(False)]
            raise must("y", "hold text or numbers, not both", [text, other], "convert it to one of the two")
    check_classification_targets(labels)
    return labels

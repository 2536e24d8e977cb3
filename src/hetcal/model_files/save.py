"""From a fitted model to a file: what `model.save` does."""

import warnings
from os import PathLike
from typing import Any

from sklearn.utils.validation import check_is_fitted
from torch import nn

from hetcal._checks import must
from hetcal.exceptions import DropoutInsertedWarning
from hetcal.model_files import archive
from hetcal.model_files.schema import Model
from hetcal.model_files.state import check_same_answers, describe, describe_summary, put_weights, weights_of


def save_model(model: Any, path: str | PathLike[str], summary: dict[str, Any] | None = None) -> None:
    """Write a fitted model, once the model as it would be loaded is known to give the same predictions."""
    check_is_fitted(model)
    document, weights = describe(model), weights_of(model.estimator_)
    try:
        rebuilt = rebuild_estimator(model, document, archive.tensors_of(weights, "the model"), weights)
        check_same_answers(model.estimator_, rebuilt, document.n_inputs)
    except (TypeError, ValueError) as error:
        advice = "save before settings are changed; a network must keep what it learns in parameters and buffers"
        raise must("the model", "be what its settings and weights say", str(error), advice) from error
    archive.write(path, document, describe_summary(summary, model.history_), weights)


def rebuild_estimator(model: Any, document: Model, tensors: dict[str, archive.TensorInfo], weights: bytes) -> nn.Module:
    """The trained estimator, from the settings of the model and the weights of its file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DropoutInsertedWarning)  # the user was warned when the model was fitted
        family = getattr(model, "family", "gaussian")
        estimator: nn.Module = model._build(document.n_inputs, document.n_targets, family, document.seed)
    put_weights(estimator, tensors, weights)
    return estimator.eval()

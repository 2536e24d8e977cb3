"""Saving a fitted model to a file: the implementation of `model.save`."""

from os import PathLike, fspath
from typing import Any

from sklearn.utils.validation import check_is_fitted

from hetcal._checks import must
from hetcal.model_files.archive import one_line, pack_model_file, parse_model_file, write_model_file
from hetcal.model_files.state import describe_model, describe_summary
from hetcal.model_files.weights import check_same_answers, restore_estimator, weights_of


def save_model(model: Any, path: str | PathLike[str], summary: dict[str, Any] | None = None) -> None:
    """Write a fitted model, after checking that the file, once loaded, gives the same predictions."""
    check_is_fitted(model)
    name, weights = one_line(fspath(path)), weights_of(model.estimator_)
    data = pack_model_file(describe_model(model), describe_summary(summary, model.history_), weights, name)
    contents = parse_model_file(data, name)
    try:
        check_same_answers(model.estimator_, restore_estimator(model, contents), contents.model.n_inputs)
    except (TypeError, ValueError) as error:
        advice = "save before settings are changed; a network must keep what it learns in parameters and buffers"
        raise must("the model", "be determined by its settings and weights", str(error), advice) from error
    write_model_file(path, data)

"""From a model file to a fitted model: `hetcal.load`. Names in a file are keys of registries, never paths to code."""

from math import prod
from os import PathLike, fspath
from typing import Any

import torch

from hetcal.classifier import HCClassifier
from hetcal.exceptions import ModelFileError
from hetcal.model_files.archive import Contents, one_line, read_model_file, refused
from hetcal.model_files.state import restore_model, restore_parameters
from hetcal.model_files.weights import restore_estimator
from hetcal.regressor import HCRegressor

MODEL_CLASSES: dict[str, Any] = {model.kind: model for model in (HCRegressor, HCClassifier)}


def load(
    path: str | PathLike[str],
    *,
    network: Any = None,
    estimator: Any = None,
    objective: Any = None,
    likelihood: Any = None,
) -> HCRegressor | HCClassifier:
    """Load a fitted model from a file that `model.save` or `hetcal fit` wrote. Its predictions are the same.

    Loading never runs code from the file, so that files from any source are safe. Sizes are checked before memory is
    allocated. The model is on the CPU.

    Args:
        path: The model file.
        network, estimator, objective, likelihood: Your own objects that the model was fitted with, as they were passed
            to it: a class, a factory, a module or a function. If one is missing, the error names it.

    Raises:
        ModelFileError: One line that states what is wrong with the file, or with the objects passed here.
        OSError: The file cannot be opened.
    """
    handed = {"network": network, "estimator": estimator, "objective": objective, "likelihood": likelihood}
    handed = {key: value for key, value in handed.items() if value is not None}
    return rebuild(read_model_file(path), one_line(fspath(path)), handed)


@torch.inference_mode(False)
def rebuild(contents: Contents, name: str, handed: dict[str, Any]) -> HCRegressor | HCClassifier:
    """Restore the fitted model from the contents of its file and the user's own objects; `name` is for errors."""
    settings = contents.model.settings
    check_handed(settings.own, handed, name)
    kind = MODEL_CLASSES[contents.model.kind]
    for setting, known in kind.registries.items():
        if setting not in settings.own and getattr(settings, setting) not in (*known, None):
            found = f"{setting}={getattr(settings, setting)!r}"
            raise refused(name, f"have one of {sorted(known)} as its {setting}", found, "a newer hetcal may know it")
    try:
        check_enough_weights(contents)
        model = kind(**restore_parameters(settings), **handed)
        model.estimator_ = restore_estimator(model, contents)
    except (TypeError, ValueError) as error:
        raise misfit(name, error, handed) from error
    restore_model(model, contents)
    return model


def check_handed(own: set[str], handed: dict[str, Any], name: str) -> None:
    for key in sorted(own - set(handed)):
        rule = f"be loaded with your own {key} that it was fitted with"
        raise refused(name, rule, f"{key}=None", f"write hetcal.load({name!r}, {key}=...)")
    for key in sorted(set(handed) - own):
        rule = f"be loaded without {key}, because it was not fitted with one of your own"
        raise refused(name, rule, f"{key}={handed[key]!r}", f"omit {key}")


def check_enough_weights(contents: Contents) -> None:
    """Refuse a file with too few weights before a network is built: a few bytes of settings can request any size."""
    least, found = contents.model.least_weights, sum(prod(tensor.shape) for tensor in contents.tensors.values())
    if found < least:
        raise ValueError(f"{found} weights where the settings need at least {least}")


def misfit(name: str, error: Exception, handed: dict[str, Any]) -> ModelFileError:
    if handed:
        advice = "give what the model was fitted with"
        return refused(name, f"fit the {' and '.join(handed)} it is loaded with", str(error), advice)
    return refused(name, "hold settings and weights that belong together", str(error), "save the model again")

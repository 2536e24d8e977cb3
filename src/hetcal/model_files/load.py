"""From a model file back to a fitted model: `hetcal.load`. Names in the file are keys of registries, no more."""

from math import prod
from os import PathLike, fspath
from typing import Any

import numpy as np

from hetcal.classifier import HCClassifier
from hetcal.exceptions import ModelFileError
from hetcal.families import FAMILIES, Family, StudentT
from hetcal.model_files import archive
from hetcal.model_files.archive import Contents, one_line, refused
from hetcal.model_files.save import rebuild_estimator
from hetcal.model_files.schema import FixedFamily, RegressorModel, Settings
from hetcal.model_files.state import restore_classes, restore_encoder, restore_history, restore_target
from hetcal.regressor import HCRegressor

KINDS: dict[str, Any] = {model.kind: model for model in (HCRegressor, HCClassifier)}


def load(
    path: str | PathLike[str],
    *,
    network: Any = None,
    estimator: Any = None,
    objective: Any = None,
    likelihood: Any = None,
) -> HCRegressor | HCClassifier:
    """The fitted model in a file that `model.save` or `hetcal fit` wrote; it predicts what it predicted there.

    Loading runs nothing that the file brings along, whoever made it, and takes no memory before sizes are checked. The
    model is on the CPU.

    Args:
        path: The model file.
        network, estimator, objective, likelihood: Those of your own that the model was fitted with, as it was given
            them: a class, a factory, a module or a function. A file says which it needs.

    Raises:
        ModelFileError: One line that says what is wrong with the file, or with what it was loaded with.
        OSError: The file cannot be opened.
    """
    handed = {"network": network, "estimator": estimator, "objective": objective, "likelihood": likelihood}
    handed = {key: value for key, value in handed.items() if value is not None}
    return rebuild(archive.read(path), one_line(fspath(path)), handed)


def rebuild(contents: Contents, name: str, handed: dict[str, Any]) -> HCRegressor | HCClassifier:
    """The fitted model of a file that was read, with the parts of the user's own; `name` is for errors."""
    settings = contents.model.settings
    check_handed(settings.own, handed, name)
    kind = KINDS[contents.model.kind]
    for setting, known in kind.registries.items():
        if setting not in settings.own and getattr(settings, setting) not in known:
            found = f"{setting}={getattr(settings, setting)!r}"
            raise refused(name, f"name its {setting} as one of {sorted(known)}", found, "a newer hetcal may know it")
    try:
        check_enough_weights(contents)
        model = kind(**restore_settings(settings), **handed)
        estimator_ = rebuild_estimator(model, contents.model, contents.tensors, contents.weights)
    except (TypeError, ValueError) as error:
        raise misfit(name, error, handed) from error
    restore(model, contents)
    model.estimator_ = estimator_
    return model


def check_handed(own: set[str], handed: dict[str, Any], name: str) -> None:
    for key in sorted(own - set(handed)):
        rule = f"be loaded with the {key} of your own that it was fitted with"
        raise refused(name, rule, f"{key}=None", f"write hetcal.load({name!r}, {key}=...)")
    for key in sorted(set(handed) - own):
        rule = f"be loaded without {key}, for it was fitted with none of your own"
        raise refused(name, rule, f"{key}={handed[key]!r}", f"leave {key} away")


def check_enough_weights(contents: Contents) -> None:
    """A few bytes of settings can ask for a network of any size; before it is built, its weights must be there."""
    least, found = contents.model.least_weights, sum(prod(tensor.shape) for tensor in contents.tensors.values())
    if found < least:
        raise ValueError(f"{found} weights where the settings need {least} or more")


def misfit(name: str, error: Exception, handed: dict[str, Any]) -> ModelFileError:
    if handed:
        advice = "hand over what the model was fitted with"
        return refused(name, f"fit the {' and '.join(handed)} it is loaded with", str(error), advice)
    return refused(name, "hold settings and weights that belong together", str(error), "save the model again")


def restore_settings(settings: Settings) -> dict[str, Any]:
    """The parameters of `__init__`, but for those of the user's own."""
    values = {key: getattr(settings, key) for key in type(settings).model_fields if key not in settings.own}
    if isinstance(values.get("family"), FixedFamily):
        values["family"] = restore_family(values["family"])
    return values


def restore_family(document: FixedFamily) -> Family:
    return StudentT(document.df) if document.name == StudentT.name else FAMILIES[document.name]()


def restore(model: Any, contents: Contents) -> None:
    """The fitted attributes, but for the estimator."""
    document = contents.model
    model.seed_ = document.seed
    model.encoder_ = restore_encoder(document.columns)
    model.history_ = restore_history(contents.summary.history)
    model.n_features_in_ = len(document.columns)
    if document.has_names:
        model.feature_names_in_ = np.array([column.name for column in document.columns], dtype=object)
    if isinstance(document, RegressorModel):
        model.n_targets_ = document.n_targets
        model.target_scaler_, model.target_transform_, model.transform_ = restore_target(document.target)
    else:
        model.classes_ = restore_classes(document.classes)  # type: ignore[attr-defined]

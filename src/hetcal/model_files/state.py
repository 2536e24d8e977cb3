"""A fitted model <-> the documents of its file: each `restore_` function follows its `describe_` function.

Only numbers, text and names are stored. Parts are restored by building them anew. Names in a file are keys of
registries, never paths to code.
"""

import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor, nn

from hetcal._checks import check_choice, must
from hetcal.estimators.atoms import Atoms
from hetcal.estimators.cross_ensemble import CrossEnsemble, MemberGroup
from hetcal.families import FAMILIES, Family, StudentT
from hetcal.metrics.calibration_map import Recalibration
from hetcal.metrics.history import History
from hetcal.model_files import learned, schema
from hetcal.model_files.archive import Contents, explain
from hetcal.tabular.building import EnsembleLayout
from hetcal.tabular.defaults import NETWORK_SIZES
from hetcal.tabular.encoding import TableEncoder, Vocabulary
from hetcal.transforms import TRANSFORMS, PerTarget, Quantile, Standardizer, TargetTransform, YeoJohnson

# Chosen by the machine that loads, not by the one that saved.
NOT_STORED = ("device", "progress")
LEARNED: Mapping[type[TargetTransform], tuple[str, ...]] = {
    YeoJohnson: ("magnitude", "center", "spread", "power"),
    Quantile: ("knots", "scores", "slopes"),
}


def describe_model(model: Any) -> schema.ModelDocument:
    """The document of a fitted regressor or classifier."""
    content = {
        "kind": model.kind,
        "settings": describe_parameters(model),
        "seed": model.seed_,
        "has_names": hasattr(model, "feature_names_in_"),
        "columns": describe_encoder(model.encoder_),
    }
    if model.kind == "regressor":
        target = describe_target(model.target_scaler_, model.target_transform_, model.transform_)
        content["target"] = {**target, "atoms": describe_atoms(model.atoms_)}
        content["members"] = describe_members(model.estimator_)
        content["recalibration"] = describe_recalibration(model.recalibration_)
    else:
        content["classes"] = describe_classes(model.classes_)
    try:
        return schema.MODELS[model.kind].model_validate(content)
    except ValidationError as error:
        advice = "change it and fit again, or keep this model in memory"
        raise ValueError(f"the model must fit into a model file, got {explain(error)}; {advice}") from None


def restore_model(model: Any, contents: Contents) -> None:
    """Set the fitted attributes, except the estimator."""
    document = contents.model
    model.seed_ = document.seed
    model.encoder_ = restore_encoder(document.columns)
    model.history_ = restore_curves(contents.summary.history)
    model.n_features_in_ = len(document.columns)
    if document.has_names:
        model.feature_names_in_ = np.array([column.name for column in document.columns], dtype=object)
    if isinstance(document, schema.RegressorDocument):
        model.n_targets_ = document.n_targets
        model.target_scaler_, model.target_transform_, model.transform_ = restore_target(document.target)
        model.atoms_ = restore_atoms(document.target.atoms)
        model.recalibration_ = restore_recalibration(document.recalibration)
    elif isinstance(document, schema.ClassifierDocument):
        model.classes_ = restore_classes(document.classes)


def describe_parameters(model: Any) -> dict[str, Any]:
    """The parameters of `__init__`, with a name for each object."""
    settings = {name: value for name, value in model.get_params(deep=False).items() if name not in NOT_STORED}
    for name, known in model.registries.items():
        value = settings[name]
        if value is not None and not isinstance(
            value, str
        ):  # a registered class or function has a name, the user's own does not
            settings[name] = next((key for key, registered in known.items() if registered is value), schema.OWN)
    settings["network"] = None if settings["network"] is None else schema.OWN
    if not isinstance(settings["random_state"], int | np.integer):
        settings["random_state"] = None
    if isinstance(settings.get("family"), Family):
        settings["family"] = describe_family(settings["family"])
    return {name: as_plain(value) for name, value in settings.items()}


def restore_parameters(settings: schema.SettingsDocument) -> dict[str, Any]:
    """The parameters of `__init__`, except the user's own objects."""
    values = {key: getattr(settings, key) for key in type(settings).model_fields if key not in settings.own}
    if isinstance(values.get("family"), schema.FamilyDocument):
        values["family"] = restore_family(values["family"])
    return values


def describe_family(family: Family) -> dict[str, Any]:
    if type(family) not in FAMILIES.values():
        advice = "only the families of hetcal.families can be saved"
        raise must("family", f"be one of {sorted(FAMILIES)} to be saved", family, advice)
    return {"name": family.name, "df": family.df if isinstance(family, StudentT) else None}


def restore_family(document: schema.FamilyDocument) -> Family:
    return StudentT(document.df) if document.name == StudentT.name else FAMILIES[document.name]()


def as_plain(value: Any) -> Any:
    """Convert numbers and arrays of NumPy and torch to Python's, tuples to lists; the schema checks everything else."""
    if isinstance(value, dict):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray | Tensor) else value


def describe_encoder(encoder: TableEncoder) -> list[dict[str, Any]]:
    """One entry per column."""
    columns = []
    has_missing = np.ravel(encoder.has_missing).tolist()
    scales = zip(describe_scaler(encoder.scaler), has_missing, strict=True)
    features = [{**scale, "has_missing": missing} for scale, missing in scales]
    for name, kind in encoder.kinds.items():
        column: dict[str, Any] = {"name": name, "kind": kind}
        if kind == "text":
            words = encoder.vocabularies[name]
            column |= {"labels": [str(label) for label in words.labels], "has_rare": bool(words.has_rare)}
        else:
            count = learned.DATE_FEATURES if kind == "dates" else 1
            column |= {"range": as_plain(encoder.ranges[name]), "features": features[:count]}
            features = features[count:]
        columns.append(column)
    return columns


def restore_encoder(columns: list[learned.NumericColumn | learned.TextColumn]) -> TableEncoder:
    encoder = TableEncoder()
    encoder.kinds = {column.name: column.kind for column in columns}
    numeric = [column for column in columns if isinstance(column, learned.NumericColumn)]
    features = [feature for column in numeric for feature in column.features]
    encoder.scaler = restore_scaler(features)
    encoder.has_missing = np.array([feature.has_missing for feature in features], dtype=bool)
    encoder.ranges = {
        column.name: None if column.range is None else (column.range[0], column.range[1]) for column in numeric
    }
    encoder.vocabularies = {}
    for column in columns:
        if isinstance(column, learned.TextColumn):
            words = encoder.vocabularies[column.name] = Vocabulary()
            words.labels, words.has_rare = column.labels, column.has_rare
    return encoder


def describe_scaler(scaler: Standardizer) -> list[dict[str, float]]:
    """One entry per column."""
    names = "magnitude", "center", "spread"
    columns = zip(*(np.ravel(getattr(scaler, name)).tolist() for name in names), strict=True)
    return [dict(zip(names, numbers, strict=True)) for numbers in columns]


def restore_scaler(scales: Sequence[learned.ScaleDocument], is_vector: bool = False) -> Standardizer:
    """The scaler of a matrix, or of a vector, whose statistics are numbers instead of arrays."""
    scaler = Standardizer()
    columns = np.array([[scale.magnitude, scale.center, scale.spread] for scale in scales]).reshape(-1, 3)
    scaler.magnitude, scaler.center, scaler.spread = columns[0] if is_vector else columns.T.copy()
    return scaler


def describe_target(scaler: Standardizer, name: str | None, transform: Any) -> dict[str, Any]:
    transforms = None
    if transform is not None:
        parts = transform.transforms if isinstance(transform, PerTarget) else [transform]
        transforms = [
            {"name": name, **{key: as_plain(getattr(part, key)) for key in LEARNED.get(type(part), ())}}
            for part in parts
        ]
    return {"scales": describe_scaler(scaler), "transforms": transforms}


def restore_target(
    target: learned.TargetDocument,
) -> tuple[Standardizer, str | None, TargetTransform | PerTarget | None]:
    scaler = restore_scaler(target.scales, is_vector=len(target.scales) == 1)
    if target.transforms is None:
        return scaler, None, None
    transforms = []
    for document in target.transforms:
        transform = TRANSFORMS[document.name]()
        for key in LEARNED.get(type(transform), ()):
            value = getattr(document, key)
            setattr(transform, key, np.array(value) if isinstance(value, list) else value)
        transforms.append(transform)
    return scaler, target.transforms[0].name, transforms[0] if len(transforms) == 1 else PerTarget(transforms)


def describe_atoms(atoms: Atoms | None) -> dict[str, Any] | None:
    if atoms is None:
        return None
    return {name: [spell(value) for value in as_plain(getattr(atoms, name))] for name in ("values", "lower", "upper")}


def restore_atoms(document: learned.AtomsDocument | None) -> Atoms | None:
    if document is None:
        return None
    return Atoms(*(np.array([float(end) for end in ends]) for ends in document.model_dump().values()))


def describe_recalibration(recalibration: Recalibration | None) -> dict[str, Any] | None:
    return None if recalibration is None else as_plain(vars(recalibration))


def restore_recalibration(document: learned.RecalibrationDocument | None) -> Recalibration | None:
    if document is None:
        return None
    pit, probability = np.array(document.pit), np.array(document.probability)
    return Recalibration(document.method, document.rows, document.factor, pit, probability)


def describe_members(estimator: nn.Module) -> dict[str, Any] | None:
    if not isinstance(estimator, CrossEnsemble):
        return None
    nodes = [estimator.forest_members.trees.n_nodes, *estimator.boosted_members.n_nodes]
    width = int(getattr(estimator.networks, "width", NETWORK_SIZES[True]["width"]))  # a user's network has none
    return {"groups": estimator.n_groups, "parts": estimator.n_parts, "width": width, "nodes": nodes}


def restore_layout(document: schema.ModelDocument) -> EnsembleLayout | None:
    """The layout of the members; what a group has of its own is among its weights, or matters in training only."""
    members = getattr(document, "members", None)
    if members is None:
        return None
    groups = (MemberGroup(0.0, 0.0),) * members.groups
    forests, means, stds = members.nodes
    return EnsembleLayout(document.n_numbers, groups, members.parts, members.width, (forests, means, stds))


def describe_classes(classes: NDArray[Any]) -> dict[str, Any]:
    return {"type": "str" if classes.dtype.kind == "U" else classes.dtype.name, "values": classes.tolist()}


def restore_classes(classes: learned.ClassesDocument) -> NDArray[Any]:
    return np.array(classes.values, dtype=classes.type)


def describe_summary(summary: dict[str, Any] | None, history: History) -> schema.SummaryDocument:
    """The caller's information about the training, with the versions and the training curves."""
    given = as_plain(dict(summary or {}))
    for name in given:
        check_choice("summary", name, set(schema.SummaryDocument.model_fields) - {"versions", "history"})
    if isinstance(given.get("metrics"), dict):
        given["metrics"] = {name: spell(value) for name, value in given["metrics"].items()}
    versions = {name: version(name) for name in ("hetcal", "torch", "numpy")}
    versions["python"] = platform.python_version()
    try:
        content = {**given, "versions": versions, "history": describe_curves(history)}
        return schema.SummaryDocument.model_validate(content)
    except ValidationError as error:
        advice = "see hetcal.model_files.schema.SummaryDocument"
        raise ValueError(f"summary must follow its schema, got {explain(error)}; {advice}") from None


def describe_curves(history: History) -> dict[str, Any] | None:
    """The training curves; omitted if training was so long that they would make up most of the file."""
    if len(history) > schema.MOST_EPOCHS:
        return None
    return {
        "train": {name: [spell(value) for value in curve] for name, curve in history.train.items()},
        "validation": {name: [spell(value) for value in curve] for name, curve in history.validation.items()},
        "criterion": [spell(value) for value in history.criterion],
        "best_epoch": int(history.best_epoch),
        "stopped": history.stopped,
    }


def restore_curves(document: schema.HistoryDocument | None) -> History:
    if document is None:
        return History()
    train, validation = (
        {name: [float(value) for value in curve] for name, curve in curves.model_dump().items()}
        for curves in (document.train, document.validation)
    )
    criterion = [float(value) for value in document.criterion]
    return History(train, validation, criterion, document.best_epoch, document.stopped)


def spell(value: Any) -> Any:
    """Write a number that is not finite as text, because JSON has no literal for it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value

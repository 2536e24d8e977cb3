"""A fitted model <-> the documents and weights of its file.

Only numbers, text and names go in, and parts come back by being built anew, never by a name from the file: names are
keys of registries, no more.
"""

import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from hetcal._checks import check_choice, must
from hetcal.estimators import predict
from hetcal.families import FAMILIES, Family, StudentT
from hetcal.metrics.history import History
from hetcal.model_files import schema
from hetcal.model_files.archive import TensorInfo, explain
from hetcal.tabular.encoding import SOFT_LIMIT, TableEncoder, Vocabulary
from hetcal.transforms import TRANSFORMS, PerTarget, Quantile, Standardizer, TargetTransform, YeoJohnson

# Decided by the machine that loads, not by the one that saved.
NOT_STORED = ("device", "progress")
TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}  # in safetensors
LEARNED: Mapping[type[TargetTransform], tuple[str, ...]] = {
    YeoJohnson: ("magnitude", "center", "spread", "power"),
    Quantile: ("knots", "scores", "slopes"),
}


def describe(model: Any) -> schema.Model:
    """The document of a fitted regressor or classifier."""
    content = {
        "settings": describe_settings(model),
        "seed": model.seed_,
        "has_names": hasattr(model, "feature_names_in_"),
        "columns": describe_columns(model.encoder_),
    }
    if model.kind == "regressor":
        content["target"] = describe_target(model.target_scaler_, model.target_transform_, model.transform_)
    else:
        content["classes"] = describe_classes(model.classes_)
    try:
        return schema.MODELS[model.kind].model_validate(content)
    except ValidationError as error:
        advice = "change it and fit again, or keep this model in memory"
        raise ValueError(f"the model must be one that a file can hold, got {explain(error)}; {advice}") from None


def describe_settings(model: Any) -> dict[str, Any]:
    settings = {name: value for name, value in model.get_params(deep=False).items() if name not in NOT_STORED}
    for name, known in model.registries.items():
        value = settings[name]
        if not isinstance(value, str):  # a registered class or function has a name, the user's own has none
            settings[name] = next((key for key, registered in known.items() if registered is value), schema.OWN)
    settings["network"] = None if settings["network"] is None else schema.OWN
    if not isinstance(settings["random_state"], int | np.integer):
        settings["random_state"] = None
    if isinstance(settings.get("family"), Family):
        settings["family"] = describe_family(settings["family"])
    return {name: plain(value) for name, value in settings.items()}


def describe_family(family: Family) -> dict[str, Any]:
    if type(family) not in FAMILIES.values():
        advice = "a file knows those of hetcal.families only"
        raise must("family", f"be one of {sorted(FAMILIES)} to be saved", family, advice)
    return {"name": family.name, "df": family.df if isinstance(family, StudentT) else None}


def plain(value: Any) -> Any:
    """NumPy's and torch's numbers and arrays as Python's, tuples as lists; anything else stays for the schema."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray | Tensor) else value


def describe_columns(encoder: TableEncoder) -> list[dict[str, Any]]:
    columns = []
    features = [
        {**scale, "has_missing": has_missing}
        for scale, has_missing in zip(
            describe_scaler(encoder.scaler), np.ravel(encoder.has_missing).tolist(), strict=True
        )
    ]
    for name, kind in encoder.kinds.items():
        column: dict[str, Any] = {"name": name, "kind": kind}
        if kind == "text":
            words = encoder.vocabularies[name]
            column |= {"labels": [str(label) for label in words.labels], "has_rare": bool(words.has_rare)}
        else:
            count = schema.DATE_FEATURES if kind == "dates" else 1
            column |= {"range": plain(encoder.ranges[name]), "features": features[:count]}
            features = features[count:]
        columns.append(column)
    return columns


def restore_encoder(columns: list[schema.NumericColumn | schema.TextColumn]) -> TableEncoder:
    encoder = TableEncoder()
    encoder.kinds = {column.name: column.kind for column in columns}
    numeric = [column for column in columns if isinstance(column, schema.NumericColumn)]
    features = [feature for column in numeric for feature in column.features]
    encoder.scaler = restore_scaler(features)
    encoder.has_missing = np.array([feature.has_missing for feature in features], dtype=bool)
    encoder.ranges = {
        column.name: None if column.range is None else (column.range[0], column.range[1]) for column in numeric
    }
    encoder.vocabularies = {}
    for column in columns:
        if isinstance(column, schema.TextColumn):
            words = encoder.vocabularies[column.name] = Vocabulary()
            words.labels, words.has_rare = column.labels, column.has_rare
    return encoder


def describe_scaler(scaler: Standardizer) -> list[dict[str, float]]:
    """One entry per column."""
    names = "magnitude", "center", "spread"
    columns = zip(*(np.ravel(getattr(scaler, name)).tolist() for name in names), strict=True)
    return [dict(zip(names, numbers, strict=True)) for numbers in columns]


def restore_scaler(scales: Sequence[schema.Scale], is_vector: bool = False) -> Standardizer:
    """Of the columns of a matrix, or of one vector, whose numbers are no arrays."""
    scaler = Standardizer()
    columns = np.array([[scale.magnitude, scale.center, scale.spread] for scale in scales]).reshape(-1, 3)
    scaler.magnitude, scaler.center, scaler.spread = columns[0] if is_vector else columns.T.copy()
    return scaler


def describe_target(scaler: Standardizer, name: str | None, transform: Any) -> dict[str, Any]:
    transforms = None
    if transform is not None:
        parts = transform.transforms if isinstance(transform, PerTarget) else [transform]
        transforms = [
            {"name": name, **{key: plain(getattr(part, key)) for key in LEARNED.get(type(part), ())}} for part in parts
        ]
    return {"scales": describe_scaler(scaler), "transforms": transforms}


def restore_target(target: schema.Target) -> tuple[Standardizer, str | None, TargetTransform | PerTarget | None]:
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


def describe_classes(classes: NDArray[Any]) -> dict[str, Any]:
    return {"type": "str" if classes.dtype.kind == "U" else classes.dtype.name, "values": classes.tolist()}


def restore_classes(classes: schema.Classes) -> NDArray[Any]:
    return np.array(classes.values, dtype=classes.type)


def describe_summary(summary: dict[str, Any] | None, history: History) -> schema.Summary:
    """What the caller says about the training, with the versions and the curves."""
    given = plain(dict(summary or {}))
    for name in given:
        check_choice("summary", name, set(schema.Summary.model_fields) - {"versions", "history"})
    if isinstance(given.get("metrics"), dict):
        given["metrics"] = {name: spell(value) for name, value in given["metrics"].items()}
    versions = {name: version(name) for name in ("hetcal", "torch", "numpy")}
    versions["python"] = platform.python_version()
    try:
        return schema.Summary.model_validate({**given, "versions": versions, "history": describe_history(history)})
    except ValidationError as error:
        raise ValueError(f"summary must keep to hetcal.model_files.schema.Summary, got {explain(error)}") from None


def describe_history(history: History) -> dict[str, Any] | None:
    """The curves; none of a training so long that they would make the file."""
    if len(history) > schema.MOST_EPOCHS:
        return None
    return {
        "train": {name: [spell(value) for value in curve] for name, curve in history.train.items()},
        "validation": {name: [spell(value) for value in curve] for name, curve in history.validation.items()},
        "criterion": [spell(value) for value in history.criterion],
        "best_epoch": int(history.best_epoch),
        "stopped": history.stopped,
    }


def restore_history(document: schema.TrainingHistory | None) -> History:
    if document is None:
        return History()
    train, validation = (
        {name: [float(value) for value in curve] for name, curve in curves.model_dump().items()}
        for curves in (document.train, document.validation)
    )
    criterion = [float(value) for value in document.criterion]
    return History(train, validation, criterion, document.best_epoch, document.stopped)


def spell(value: Any) -> Any:
    """A number that is not finite as a word, because JSON has none for it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def weights_of(estimator: nn.Module) -> bytes:
    """All parameters and buffers as safetensors; tied ones are written once for each name."""
    state = estimator.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.dtype not in TYPES:
            found = f"{getattr(value, 'dtype', type(value))} in {name!r}"
            advice = "register its numbers as buffers of a usual type"
            raise must("the network", "keep nothing but usual tensors in its state_dict", found, advice)
    check_finite(estimator, state)
    return save_tensors({name: value.detach().cpu().contiguous().clone() for name, value in state.items()})


def put_weights(estimator: nn.Module, tensors: dict[str, TensorInfo], weights: bytes) -> None:
    """Fill a newly built estimator, if names, types and shapes are the same; `tensors` says what the weights hold."""
    needed = {name: value for name, value in estimator.state_dict().items() if isinstance(value, Tensor)}
    expected = {name: TensorInfo(TYPES.get(value.dtype, ""), tuple(value.shape)) for name, value in needed.items()}
    differences = [
        f"{name!r} {show(tensors.get(name))} where {show(expected.get(name))} is needed"
        for name in sorted({**expected, **tensors})
        if tensors.get(name) != expected.get(name)
    ]
    if differences:
        more = f", and {len(differences) - 2} more" if len(differences) > 2 else ""
        raise ValueError("; ".join(differences[:2]) + more)
    state = load_tensors(weights)
    check_finite(estimator, state)
    estimator.load_state_dict(state, strict=True)


def show(tensor: TensorInfo | None) -> str:
    return "nothing" if tensor is None else f"{tensor.dtype} of shape {tensor.shape}"


def check_same_answers(fitted: nn.Module, rebuilt: nn.Module, n_inputs: int) -> None:
    """A network may keep something in other places than its state, and settings may have been changed after fit."""
    x = SOFT_LIMIT * (2 * torch.rand(64, n_inputs, generator=torch.Generator().manual_seed(0)) - 1)  # all inputs
    x[0] = 0
    x = x.to(next((parameter.device for parameter in fitted.parameters()), x.device))
    answers = []
    for estimator in (fitted, rebuilt.to(x.device)):
        with torch.random.fork_rng(devices=[]):  # for a user's network that draws from torch's own generator
            torch.manual_seed(0)
            prediction = predict(estimator, x).numpy()
        answers.append(np.stack([prediction.mean, prediction.std]))
    if not np.array_equal(answers[0], answers[1]):  # NaN equals nothing
        raise ValueError("another prediction from the model as it would be loaded")


def check_finite(estimator: nn.Module, tensors: dict[str, Tensor]) -> None:
    """No NaN anywhere, and infinity in buffers only, where the mask of an attention layer may have it."""
    parameters = {name for name, _ in estimator.named_parameters(remove_duplicate=False)}
    for name, value in tensors.items():
        if value.is_floating_point():
            wrong = ~torch.isfinite(value) if name in parameters else torch.isnan(value)
            if wrong.any():
                raise ValueError(f"weights must be finite, got {value[wrong][0].item()} in {name!r}; train again")

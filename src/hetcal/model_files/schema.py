"""The documents of a model file, key by key: a closed schema of numbers, text and known names, checked by pydantic.

Unknown keys, wrong types, numbers that are not finite and values that no fit can learn are refused. Names of
estimators, objectives and likelihoods are plain words here, because their registries need torch; `hetcal.load` looks
them up there and refuses unknown ones. This module does not import torch.
"""

from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

FORMAT_VERSION = 1
OWN = "own"  # the user's own network, estimator, objective or likelihood, which must be passed to `load`
# Limits on what a file may request when it is loaded and used, since a few bytes can name any number. Even a layer with
# few weights takes kilobytes. Draws are kept for every pass and unit, four bytes each. A block of 1024 rows takes 4
# kilobytes for every unit of the networks that run at once, and twice that for every pass and target: 2 GB.
MOST_LAYERS = 5_000
MOST_DRAWS = 2**28
MOST_UNITS = 2**18
MOST_ANSWERS = 2**18
MOST_OF = {"members": 10_000, "samples": 10_000, "prediction_samples": 10_000, "n_levels": 10_000}
MOST_EPOCHS = 50_000
MOST_CHARACTERS = 2**22  # in an array of classes, each takes as many as the longest
DATE_FEATURES = 7  # see tabular.encoding.date_features
MOST_DAYS = 2**63 / (86_400 * 10**6)  # before and after 1970, in datetime64[us]
# The next three repeat defaults of modules that need torch; a test keeps them equal.
# Number of networks that an estimator averages over by default; estimators not listed use one.
PASSES = {"mc_dropout": 100, "concrete_dropout": 100, "bayes_by_backprop": 100, "ensemble": 8, "ensemble_spread": 8}
BLOCK_PASSES = 10  # sampled networks that run at once
CLASS_DRAWS = 64  # of the likelihood "sampling"


class Document(BaseModel):
    """A part of a model file. It has exactly the declared keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        # One error for the first unknown key; pydantic would collect an error for each of a million keys.
        if isinstance(data, dict):
            unknown = next((key for key in data if key not in cls.model_fields), None)
            if unknown is not None:
                raise ValueError(f"{str(unknown)[:50]!r} is not a known key")
        return data


def _few(value: Any) -> Any:
    # Before the entries are validated one by one, for the same reason.
    if isinstance(value, dict) and len(value) > 1000:
        raise ValueError("at most 1000 entries are allowed")
    return value


Count = Annotated[int, Field(ge=1, le=2**53)]
Whole = Annotated[int, Field(ge=0, le=2**53)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$")]
FloatList = Annotated[list[float], Field(fail_fast=True)]
Scalar = bool | int | float | str | None
Options = Annotated[dict[Word, Scalar | Annotated[list[Scalar], Field(fail_fast=True)]], BeforeValidator(_few)]


def is_increasing(values: list[Any]) -> bool:
    return all(a < b for a, b in pairwise(values))


class ScaleDocument(Document):
    """A fitted `Standardizer` of one column. Values are divided by the magnitude first, so the rest is close to 1."""

    magnitude: Positive
    center: Annotated[float, Field(ge=-4, le=4)]
    spread: Annotated[float, Field(gt=0, le=4)]


class FeatureDocument(ScaleDocument):
    has_missing: bool


class NumericColumn(Document):
    """A column of numbers, or of dates, which become several features each. `range` is that of the values in fit."""

    name: str
    kind: Literal["numbers", "dates"]
    range: Annotated[list[float], Field(min_length=2, max_length=2)] | None
    features: Annotated[list[FeatureDocument], Field(max_length=DATE_FEATURES, fail_fast=True)]

    @property
    def n_inputs(self) -> int:
        return len(self.features) + sum(feature.has_missing for feature in self.features)

    @model_validator(mode="after")
    def _check(self) -> Self:
        expected = DATE_FEATURES if self.kind == "dates" else 1
        if len(self.features) != expected:
            raise ValueError(f"a column of {self.kind} has {expected} feature(s), not {len(self.features)}")
        if self.range is not None and self.range[0] > self.range[1]:
            raise ValueError("a range goes from the smallest value to the largest")
        if self.kind == "dates" and self.range is not None and max(abs(end) for end in self.range) > MOST_DAYS:
            raise ValueError(f"dates are at most {MOST_DAYS:.0f} days from 1970")
        return self


class TextColumn(Document):
    name: str
    kind: Literal["text"]
    labels: Annotated[list[str], Field(max_length=1000, fail_fast=True)]
    has_rare: bool

    @property
    def n_inputs(self) -> int:
        return len(self.labels) + self.has_rare

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not is_increasing(self.labels):
            raise ValueError("labels are sorted and distinct")
        if self.n_inputs == 0:
            raise ValueError("a text column has at least one label, or rare ones")
        return self


Column = Annotated[NumericColumn | TextColumn, Field(discriminator="kind")]


class LogDocument(Document):
    name: Literal["log"]


class YeoJohnsonDocument(ScaleDocument):
    name: Literal["yeo-johnson"]
    power: Annotated[float, Field(ge=0, le=2)]


class QuantileDocument(Document):
    name: Literal["quantile"]
    knots: Annotated[FloatList, Field(min_length=1, max_length=1000)]
    scores: Annotated[FloatList, Field(max_length=1000)]
    slopes: Annotated[list[Positive], Field(max_length=1001, fail_fast=True)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not len(self.knots) == len(self.scores) == len(self.slopes) - 1:
            raise ValueError("there is one score for each knot, and one more slope")
        if not (is_increasing(self.knots) and is_increasing(self.scores)):
            raise ValueError("knots and scores increase")
        return self


TransformDocument = Annotated[LogDocument | YeoJohnsonDocument | QuantileDocument, Field(discriminator="name")]


class TargetDocument(Document):
    """The target of a regressor, one entry per output: the scale of y and its transform, if any."""

    scales: Annotated[list[ScaleDocument], Field(min_length=1, fail_fast=True)]
    transforms: Annotated[list[TransformDocument], Field(fail_fast=True)] | None

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [transform.name for transform in self.transforms or []]
        if self.transforms is not None and (len(names) != len(self.scales) or len(set(names)) != 1):
            raise ValueError("there is one transform for each target, and all have the same name")
        return self


class ClassesDocument(Document):
    """The classes of a classifier with their NumPy type; text may be an array of objects or of characters."""

    type: Literal[
        "object", "str", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    ]  # fmt: skip
    values: Annotated[list[Scalar], Field(min_length=2, fail_fast=True)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        scalar = {"o": str, "s": str, "b": bool, "f": float}.get(self.type[0], int)
        if not all(type(value) is scalar for value in self.values):
            raise ValueError(f"classes of type {self.type} are written as {scalar.__name__}")
        if not is_increasing(self.values):
            raise ValueError("classes are sorted and distinct")
        if scalar is str and max(len(value) for value in self.values) * len(self.values) > MOST_CHARACTERS:  # type: ignore[arg-type]
            raise ValueError(f"an array of these classes would have more than {MOST_CHARACTERS} characters")
        with np.errstate(over="ignore"), suppress(OverflowError):
            if np.array(self.values, dtype=self.type).tolist() == self.values:
                return self
        raise ValueError(f"classes do not fit into {self.type}")


class FamilyDocument(Document):
    """A family given as an object, such as `StudentT(df=4)`."""

    name: Literal["gaussian", "laplace", "student_t"]
    df: Annotated[float, Field(gt=2)] | Annotated[list[Annotated[float, Field(gt=2)]], Field(fail_fast=True)] | None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.df is None) == (self.name == "student_t"):
            raise ValueError("student_t has degrees of freedom, other families have none")
        return self


class SettingsDocument(Document):
    """The parameters of `__init__` that regressor and classifier share, except `device` and `progress`."""

    estimator: Word
    network: Literal["own"] | None
    width: Count
    depth: Count
    dropout: Share
    estimator_options: Options | None
    learning_rate: Positive
    weight_decay: NotNegative
    batch_size: Count
    max_steps: Count
    max_epochs: Count
    patience: Count
    validation_fraction: Share
    input_noise: NotNegative
    column_order: Literal["by_name", "as_fitted"]
    random_state: Annotated[int, Field(ge=0, le=2**32 - 1)] | None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, most in MOST_OF.items():
            if not 1 <= self.count(name) <= most:
                raise ValueError(f"{name} is from 1 to {most} in a model file")
        if self.network is not None:
            return self  # width and depth are those of the built-in network
        members = self.count("members")
        if members * (self.depth + 1) > MOST_LAYERS:
            raise ValueError(f"a model file has at most {MOST_LAYERS} layers, over all members")
        if self.passes * self.width * self.depth > MOST_DRAWS:
            raise ValueError(f"prediction_samples * width * depth is at most {MOST_DRAWS} in a model file")
        if max(members, BLOCK_PASSES) * self.width > MOST_UNITS:
            raise ValueError(f"width, times members or {BLOCK_PASSES}, is at most {MOST_UNITS} in a model file")
        return self

    @property
    def own(self) -> set[str]:
        """The settings whose values are the user's own objects."""
        return {name for name in ("network", "estimator", "objective", "likelihood") if getattr(self, name, "") == OWN}

    @property
    def passes(self) -> int:
        """Number of networks whose outputs are combined in a prediction."""
        options = {"prediction_samples", "members"}.intersection(self.estimator_options or {})
        return max(map(self.count, options), default=PASSES.get(self.estimator, 1))

    def count(self, option: str) -> int:
        """An integer option of the estimator; 1 if it is not given."""
        value = (self.estimator_options or {}).get(option)
        return value if type(value) is int else 1


class RegressorSettings(SettingsDocument):
    objective: Word
    family: Literal["gaussian", "laplace", "student_t"] | FamilyDocument
    target_transform: Literal["auto", "log", "yeo-johnson", "quantile"] | None
    objective_weight: NotNegative


class ClassifierSettings(SettingsDocument):
    likelihood: Word

    @property
    def passes(self) -> int:
        return max(super().passes, CLASS_DRAWS if self.likelihood == "sampling" else 1)


class ModelDocument(Document):
    """A fitted model without its weights.

    Attributes:
        seed: The seed that fit drew from `random_state`; the masks of prediction depend on it.
        has_names: Whether the columns had names (`feature_names_in_`) or were numbered.
        columns: In the order of fit.
    """

    kind: str
    settings: SettingsDocument
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)]
    has_names: bool
    columns: Annotated[list[Column], Field(min_length=1, fail_fast=True)]

    @property
    def n_inputs(self) -> int:
        """Number of features of the encoded table."""
        return sum(column.n_inputs for column in self.columns)

    @property
    def n_targets(self) -> int:
        raise NotImplementedError

    @property
    def least_weights(self) -> int:
        """The smallest number of weights that the built-in network can have; 0 for the user's own network."""
        if self.settings.network is not None:
            return 0
        width, hidden = self.settings.width, self.settings.depth - 1
        return self.settings.count("members") * width * (self.n_inputs + hidden * width + self.n_targets)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len({column.name for column in self.columns}) < len(self.columns):
            raise ValueError("column names are distinct")
        if self.settings.passes * self.n_targets > MOST_ANSWERS:
            raise ValueError(f"prediction_samples or members, times targets, is at most {MOST_ANSWERS} in a model file")
        return self


class RegressorDocument(ModelDocument):
    kind: Literal["regressor"]
    settings: RegressorSettings
    target: TargetDocument

    @property
    def n_targets(self) -> int:
        return len(self.target.scales)


class ClassifierDocument(ModelDocument):
    kind: Literal["classifier"]
    settings: ClassifierSettings
    classes: ClassesDocument

    @property
    def n_targets(self) -> int:
        return len(self.classes.values)


MODELS: Mapping[str, type[ModelDocument]] = {"regressor": RegressorDocument, "classifier": ClassifierDocument}
# JSON has no literals for the last three.
Number = float | Literal["nan", "inf", "-inf"]
Curve = Annotated[list[Number], Field(max_length=MOST_EPOCHS, fail_fast=True)]


class CurvesDocument(Document):
    objective: Curve
    own_loss: Curve
    rmse: Curve
    ce: Curve


class HistoryDocument(Document):
    """`training.History` without the validation rows: a file does not reveal which rows were used for what."""

    train: CurvesDocument
    validation: CurvesDocument
    criterion: Curve
    best_epoch: Annotated[int, Field(ge=-1, le=2**53)]  # -1: interrupted during the first epoch
    stopped: Literal["patience", "max_steps", "max_epochs", "interrupted"]


Version = Annotated[str, Field(pattern=r"^[0-9A-Za-z.+_-]{1,50}$")]


class VersionsDocument(Document):
    hetcal: Version
    torch: Version
    numpy: Version
    python: Version


class SummaryDocument(Document):
    """How the model was made. Predictions do not depend on it."""

    versions: VersionsDocument
    history: HistoryDocument | None
    target: str | None = None
    method: str | None = None
    created: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|\+00:00)$")] | None = None
    rows: Whole | None = None
    test_rows: Whole | None = None
    dropped: Annotated[list[str], Field(fail_fast=True)] | None = None
    group: str | None = None
    metrics: Annotated[dict[str, int | float | str | None], BeforeValidator(_few)] | None = None


class Manifest(Document):
    """The metadata of the file. `sha256` is first, so that it has a fixed position, see `archive.CHECKSUM`."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    model: Annotated[RegressorDocument | ClassifierDocument, Field(discriminator="kind")]
    summary: SummaryDocument

"""The documents of a model file for what a fit has learned from a table: its columns, its target, its classes.

Here are also the base of all documents and their types; `schema` puts them together. This module does not import torch.
"""

from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST_CHARACTERS = 2**22  # in an array of classes, each takes as many as the longest
DATE_FEATURES = 7  # see tabular.encoding.date_features
MOST_DAYS = 2**63 / (86_400 * 10**6)  # before and after 1970, in datetime64[us]
LEAST_STEP = 1e-13  # of a map of probabilities, whose slope is then a number
MOST_POINTS = 2_003  # of a map of probabilities; see metrics.calibration_map.MOST_KNOTS
MOST_ATOMS = 300  # estimators.atoms.MOST_VALUES, which needs torch; a test keeps them equal


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


def few(value: Any) -> Any:
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


class AtomsDocument(Document):
    """The `Atoms` of a target: values and their latent intervals, of which the outermost may be infinite."""

    values: Annotated[FloatList, Field(min_length=1, max_length=MOST_ATOMS)]
    lower: Annotated[list[float | Literal["-inf"]], Field(max_length=MOST_ATOMS, fail_fast=True)]
    upper: Annotated[list[float | Literal["inf"]], Field(max_length=MOST_ATOMS, fail_fast=True)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not len(self.values) == len(self.lower) == len(self.upper):
            raise ValueError("there is one interval for each value")
        ends = [float(end) for interval in zip(self.lower, self.upper, strict=True) for end in interval]
        if not (is_increasing(self.values) and ends == sorted(ends)):
            raise ValueError("values increase, and intervals are disjoint and in their order")
        return self


class TargetDocument(Document):
    """The target of a regressor, one entry per output: the scale of y and its transform, if any; and its atoms."""

    scales: Annotated[list[ScaleDocument], Field(min_length=1, fail_fast=True)]
    transforms: Annotated[list[TransformDocument], Field(fail_fast=True)] | None
    atoms: AtomsDocument | None

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [transform.name for transform in self.transforms or []]
        if self.transforms is not None and (len(names) != len(self.scales) or len(set(names)) != 1):
            raise ValueError("there is one transform for each target, and all have the same name")
        if self.atoms is not None and len(self.scales) > 1:
            raise ValueError("only a single target has atoms")
        return self


class RecalibrationDocument(Document):
    """The `Recalibration` of a regressor: a factor of std, and points of the map of probabilities."""

    method: Literal["conformal", "isotonic", "std"]
    rows: Count
    factor: Annotated[float, Field(ge=1e-9, le=1e9)]
    pit: Annotated[FloatList, Field(max_length=MOST_POINTS)]
    probability: Annotated[FloatList, Field(max_length=MOST_POINTS)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        for points in (self.pit, self.probability):
            if not (len(points) >= 2 and points[0] == 0 and points[-1] == 1 and is_increasing(points)):
                raise ValueError("the points of the map increase from 0 to 1")
            if len(points) > 2 and not (points[1] >= LEAST_STEP and points[-2] <= 1 - LEAST_STEP):
                raise ValueError(f"the first and the last step of the map are at least {LEAST_STEP}")
        if len(self.pit) != len(self.probability):
            raise ValueError("there is one probability for each point of the map")
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

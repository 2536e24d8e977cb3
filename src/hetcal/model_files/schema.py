"""The documents of a model file, key by key: a closed schema of numbers, text and known names, checked by pydantic.

Unknown keys, wrong types, numbers that are not finite and values that no fit can learn are refused. Names of
estimators, objectives and likelihoods are plain words here, because their registries need torch; `hetcal.load` looks
them up there and refuses unknown ones. This module does not import torch.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hetcal.model_files.learned import (
    ClassesDocument,
    Column,
    Count,
    Document,
    NotNegative,
    NumericColumn,
    Positive,
    RecalibrationDocument,
    Scalar,
    Share,
    TargetDocument,
    Whole,
    Word,
    few,
)
from hetcal.tabular.defaults import NETWORK_SIZES

FORMAT_VERSION = 9
OWN = "own"  # the user's own network, estimator, objective or likelihood, which must be passed to `load`
# Limits on what a file may request when it is loaded and used, since a few bytes can name any number. Even a layer with
# few weights takes kilobytes. Draws are kept for every pass and unit, four bytes each. A block of 1024 rows takes 4
# kilobytes for every unit of the networks that run at once, and twice that for every pass and target: 2 GB.
MOST_LAYERS = 5_000
MOST_DRAWS = 2**28
MOST_UNITS = 2**18
MOST_ANSWERS = 2**18
MOST_OF = {"members": 10_000, "samples": 10_000, "prediction_samples": 10_000, "n_levels": 10_000}
# Members of a cross ensemble run at once, each on its own copy of the inputs.
MOST_INPUTS = 2**20
MOST_GROUPS = MOST_PARTS = 16
MOST_NODES = 2**24
MOST_EPOCHS = 50_000
# The next seven repeat constants of modules that need torch; a test keeps them equal.
# Number of networks that an estimator averages over by default; estimators not listed use one.
PASSES = {"mc_dropout": 100, "concrete_dropout": 100, "bayes_by_backprop": 100, "ensemble": 8, "ensemble_spread": 8}
BLOCK_PASSES = 10  # of a whole block of rows at once
ROW_MULTIPLE = 64  # all passes of so many rows run at once
CLASS_DRAWS = 64  # of the likelihood "sampling"
TREES = 60  # of each part, at most
WAVES, MOST_EMBEDDED = 16, 256  # of each number that is embedded, and numbers that are embedded at most
Options = Annotated[dict[Word, Scalar | Annotated[list[Scalar], Field(fail_fast=True)]], BeforeValidator(few)]


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
    """The parameters of `__init__` that regressor and classifier share, except `device` and `progress`.

    None is what suits the estimator.
    """

    estimator: Word
    network: Literal["own"] | None
    width: Count | None
    depth: Count | None
    dropout: Share | None
    estimator_options: Options | None
    learning_rate: Positive | None
    weight_decay: NotNegative | None
    batch_size: Count | None
    max_steps: Count | None
    max_epochs: Count | None
    max_seconds: Positive | None
    patience: Count | None
    validation_fraction: Share | None
    input_noise: NotNegative | None
    column_order: Literal["by_name", "as_fitted"]
    random_state: Annotated[int, Field(ge=0, le=2**32 - 1)] | None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, most in MOST_OF.items():
            if not 1 <= self.count(name) <= most:
                raise ValueError(f"{name} is from 1 to {most} in a model file")
        if self.network is not None:
            return self  # width and depth are those of the built-in network
        self.check_size(self.count("members"), self.sizes[0])
        return self

    def check_size(self, members: int, width: int) -> None:
        """Refuse built-in networks that would take too much memory."""
        depth = self.sizes[1]
        if members * (depth + 1) > MOST_LAYERS:
            raise ValueError(f"a model file has at most {MOST_LAYERS} layers, over all members")
        if self.passes * width * max(depth, ROW_MULTIPLE) > MOST_DRAWS:
            size = f"prediction_samples * width * depth (or {ROW_MULTIPLE})"
            raise ValueError(f"{size} is at most {MOST_DRAWS} in a model file")
        if max(members, BLOCK_PASSES) * width > MOST_UNITS:
            raise ValueError(f"width, times members or {BLOCK_PASSES}, is at most {MOST_UNITS} in a model file")

    @property
    def is_cross(self) -> bool:
        """Whether members hold out rows; then their number depends on the table."""
        return self.estimator == "cross_ensemble"

    @property
    def sizes(self) -> tuple[int, int]:
        """Width and depth of the built-in network; the width of members that hold out rows may be less."""
        usual = NETWORK_SIZES[self.is_cross]
        return self.width or usual["width"], self.depth or usual["depth"]

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
    objective: Word | None
    family: Literal["gaussian", "laplace", "student_t"] | FamilyDocument
    target_transform: Literal["auto", "identity", "log", "yeo-johnson", "quantile"] | None
    objective_weight: NotNegative


class ClassifierSettings(SettingsDocument):
    likelihood: Word

    @property
    def passes(self) -> int:
        return max(super().passes, CLASS_DRAWS if self.likelihood == "sampling" else 1)


NodeCount = Annotated[int, Field(ge=1, le=MOST_NODES)]


class MembersDocument(Document):
    """The members of a `CrossEnsemble`: in each group as many as the rows have parts."""

    groups: Annotated[int, Field(ge=1, le=MOST_GROUPS)]
    parts: Annotated[int, Field(ge=1, le=MOST_PARTS)]
    width: Count
    # Of all trees: of forests, of boosted trees for the mean, and for sigma.
    nodes: Annotated[list[NodeCount], Field(min_length=3, max_length=3)]


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
    def n_numbers(self) -> int:
        """The first of these features, which are numbers."""
        return sum(len(column.features) for column in self.columns if isinstance(column, NumericColumn))

    @property
    def n_targets(self) -> int:
        raise NotImplementedError

    @property
    def n_members(self) -> int:
        return self.settings.count("members")

    @property
    def n_answers(self) -> int:
        """Number of answers that are combined in the prediction of a target."""
        return self.settings.passes

    @property
    def least_weights(self) -> int:
        """The smallest number of weights that the built-in network can have; 0 for the user's own network."""
        if self.settings.network is not None:
            return 0
        width, depth = self.width, self.settings.sizes[1]
        return self.n_members * width * (self.n_inputs + (depth - 1) * width + self.n_targets)

    @property
    def width(self) -> int:
        """Of the built-in network."""
        return self.settings.sizes[0]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len({column.name for column in self.columns}) < len(self.columns):
            raise ValueError("column names are distinct")
        if self.n_answers * self.n_targets > MOST_ANSWERS:
            raise ValueError(f"prediction_samples or members, times targets, is at most {MOST_ANSWERS} in a model file")
        return self


class RegressorDocument(ModelDocument):
    kind: Literal["regressor"]
    settings: RegressorSettings
    target: TargetDocument
    members: MembersDocument | None
    recalibration: RecalibrationDocument | None

    @property
    def n_targets(self) -> int:
        return len(self.target.scales)

    @property
    def least_weights(self) -> int:
        forests, means, stds = (0, 0, 0) if self.members is None else self.members.nodes
        leaves = forests * 2 * self.n_targets + (means + stds) * self.n_targets
        return super().least_weights + 3 * (forests + means + stds) + leaves

    @property
    def n_members(self) -> int:
        return super().n_members if self.members is None else self.members.groups * self.members.parts

    @property
    def width(self) -> int:
        return super().width if self.members is None else self.members.width

    @property
    def n_answers(self) -> int:
        if self.members is None:
            return super().n_answers
        groups, parts = self.members.groups, self.members.parts
        return parts * max(groups * parts, TREES)  # all choices of one member per group; trees

    @model_validator(mode="after")
    def _check_recalibration(self) -> Self:
        if self.recalibration is not None and self.n_targets > 1:
            raise ValueError("only a single target is recalibrated")
        return self

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        if (self.members is not None) != self.settings.is_cross:
            raise ValueError("members are those of a cross_ensemble")
        if self.members is None:
            return self
        if self.n_members * self.n_inputs > MOST_INPUTS:
            raise ValueError(f"columns times members are at most {MOST_INPUTS} in a model file")
        if self.settings.network is None:
            if self.settings.width not in (None, self.width):
                raise ValueError("the width of the members is that of the settings, if these have one")
            self.settings.check_size(self.n_members, self.width)
            embedded = self.n_numbers if self.n_numbers <= MOST_EMBEDDED else 0
            if self.n_members * embedded * WAVES > MOST_UNITS:
                raise ValueError(f"numbers times members are at most {MOST_UNITS // WAVES} in a model file")
        return self


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
    best_epoch: Annotated[int, Field(ge=0, le=2**53)]
    stopped: Literal["patience", "max_steps", "max_epochs", "max_seconds", "interrupted"]


Version = Annotated[str, Field(pattern=r"^[0-9A-Za-z.+_-]{1,50}$")]


class VersionsDocument(Document):
    hetcal: Version
    torch: Version
    numpy: Version
    python: Version


RowHash = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
MOST_HASHES = 64  # of training rows


class SummaryDocument(Document):
    """How the model was made. Predictions do not depend on it."""

    versions: VersionsDocument
    history: HistoryDocument | None
    target: str | None = None
    method: str | None = None
    created: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|\+00:00)$")] | None = None
    rows: Whole | None = None
    test_rows: Whole | None = None
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None  # replaced by `sketch`, no longer used
    sketch: Annotated[list[RowHash], Field(max_length=MOST_HASHES, fail_fast=True)] | None = (
        None  # of the training rows
    )
    dropped: Annotated[list[str], Field(fail_fast=True)] | None = None
    group: str | None = None
    split: str | None = None
    metrics: Annotated[dict[str, int | float | str | None], BeforeValidator(few)] | None = None


class Manifest(Document):
    """The metadata of the file. `sha256` is first, so that it has a fixed position, see `archive.CHECKSUM`."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    model: Annotated[RegressorDocument | ClassifierDocument, Field(discriminator="kind")]
    summary: SummaryDocument

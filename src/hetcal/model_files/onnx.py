"""A fitted regressor as an ONNX graph, from raw features to mean and std in the units of y.

The graph computes what `HCRegressor.predict(X, return_std=True)` computes, in the same order: encoder in float64,
network in float32, scaling, transform and moments in float64. The draws of sampled networks are constants in it.
torch's own exporter does the translation, so every network that `torch.export` accepts with a variable number of rows
can be exported.
"""

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, singledispatch
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from hetcal import __version__
from hetcal._checks import must
from hetcal._files import atomic_write
from hetcal.distributions import TransformedPrediction
from hetcal.estimators import WithFamily
from hetcal.estimators.cross_ensemble import CrossEnsemble
from hetcal.estimators.mc_dropout import SampledDropout
from hetcal.estimators.passes import RandomLayer, SampledPasses, moments, split_at_first_random_layer
from hetcal.estimators.stacked import StackedNetworks
from hetcal.families import GAUSSIAN, Empirical
from hetcal.networks import SQUASH_LIMIT
from hetcal.prediction import Prediction
from hetcal.regressor import HCRegressor
from hetcal.tabular.encoding import FAR
from hetcal.transforms import LARGEST_VALUE, Log, PerTarget, Quantile, YeoJohnson

OPSET = 18
# Number of rows of the example that is traced; the graph accepts any number.
EXAMPLE_ROWS = 7


def export_onnx(model: HCRegressor, path: str | Path) -> None:
    """Write a fitted regressor as an ONNX file.

    The input `features` of the graph has shape (batch, d) and is float64: the raw columns in the order of fit, with
    NaN for missing values. The outputs `mean` and `std` have shape (batch,), or (batch, k) for k targets, and are
    float64 in the units of y. Memory grows with the number of rows times the number of sampled passes, so pass a few
    thousand rows at a time. The names of the columns are in the metadata of the file.

    Args:
        model: A regressor fitted on numeric columns only.
        path: Where to write the file. An existing file is replaced atomically.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        advice = "install them with: pip install 'hetcal[onnx]'"
        raise ImportError(f"export to ONNX needs onnx and onnxscript; {advice}") from error
    check_model(model)
    with quiet_exporter(), torch.no_grad():
        proto = translate(Graph(model), len(model.encoder_.kinds))
    proto.producer_name, proto.producer_version = "hetcal", __version__
    onnx.helper.set_model_props(proto, graph_metadata(model))
    onnx.checker.check_model(proto, full_check=True)
    atomic_write(Path(path), proto.SerializeToString(deterministic=True))


def check_model(model: Any) -> None:
    """Refuse models without a mean and std, with columns other than numbers, recalibrated ones, and with atoms."""
    if not isinstance(model, HCRegressor):
        advice = "the graph returns mean and std, which only HCRegressor has"
        raise must("model", "be an HCRegressor for ONNX", type(model).__name__, advice, TypeError)
    check_is_fitted(model)
    others = {name: kind for name, kind in model.encoder_.kinds.items() if kind != "numbers"}
    if others:
        advice = f"the graph accepts only numbers; encode or drop {', '.join(map(repr, others))} and fit again"
        raise must("model", "be fitted on numeric columns for ONNX", others, advice)
    if model.recalibration_ is not None:
        advice = "the graph has no map of probabilities; fit again without recalibration"
        raise must("model", "not be recalibrated for ONNX", model.recalibration_.method, advice)
    if model.atoms_ is not None:
        found = f"one of {len(model.atoms_.values)} value(s)"
        advice = "the graph has no probabilities of values; choose another estimator, such as 'ensemble', and fit again"
        raise must("model", "be of a target without values that many rows share for ONNX", found, advice)


def graph_metadata(model: HCRegressor) -> dict[str, str]:
    """What a user of the file needs to know."""
    is_registered = isinstance(model.estimator, str)
    return {
        "hetcal_version": __version__,
        "estimator": str(model.estimator) if is_registered else type(without_family(model.estimator_)).__name__,
        "family": getattr(model.estimator_, "family", GAUSSIAN).name,
        "target_transform": str(model.target_transform_),
        "n_targets": str(model.n_targets_),
        "columns": json.dumps(list(model.encoder_.kinds), ensure_ascii=False),
    }


def without_family(estimator: nn.Module) -> nn.Module:
    """The estimator without its family, which affects neither mean nor std."""
    return estimator.estimator if isinstance(estimator, WithFamily) else estimator


class Graph(nn.Module):
    """The module that is traced: encoder, estimator and scaling of a fitted model, which is copied, not changed."""

    def __init__(self, model: HCRegressor) -> None:
        super().__init__()
        x, y = model.encoder_.scaler, model.target_scaler_
        self.magnitude, self.center, self.spread = constant(x.magnitude), constant(x.center), constant(x.spread)
        self.y_magnitude, self.y_center, self.y_spread = constant(y.magnitude), constant(y.center), constant(y.spread)
        self.is_constant = torch.from_numpy(model.encoder_.is_constant)
        self.flagged = torch.from_numpy(np.flatnonzero(model.encoder_.has_missing))
        self.transform = model.transform_
        estimator = copy.deepcopy(model.estimator_).cpu().eval()
        self.estimator = without_family(estimator)
        fix_draws_(self.estimator)
        for module in self.estimator.modules():
            if isinstance(module, StackedNetworks):
                # Made once, because a tensor that is traced has no address by which to know that it is the same.
                setattr(module, "frozen", partial(list, module.make_frozen()))  # noqa: B010 (a method)
        if isinstance(self.estimator, CrossEnsemble):
            self.is_widened = bool(self.estimator.widening)
            mean, std, self.family = Empirical(self.estimator.shape.numpy()).standardized()
            self.shape_mean, self.shape_std = constant(mean), constant(std)
        # The first call, before tracing, makes all draws.
        prediction = self.predict(torch.zeros(EXAMPLE_ROWS, len(self.center) + len(self.flagged)))
        if self.transform is not None:
            family = estimator.family if isinstance(estimator, WithFamily) else prediction.family
            shape = (1,) if model.n_targets_ == 1 else (1, model.n_targets_)
            standard = Prediction(np.zeros(shape), np.ones(shape), family=family.numpy())
            levels, weights = TransformedPrediction(standard, self.transform).quadrature()
            self.nodes, self.weights = constant(standard.quantile(levels)), constant(weights)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        prediction = self.predict(self.encode(features))
        mean = (prediction.mean.double() * self.y_spread + self.y_center) * self.y_magnitude
        std = prediction.std.double() * self.y_spread * self.y_magnitude
        return (mean, std) if self.transform is None else self.moments_of_y(mean, std)

    def encode(self, features: Tensor) -> Tensor:
        """The same as `TableEncoder.transform`."""
        missing = features.isnan()
        z = (features / self.magnitude - self.center) / self.spread
        z = z.clamp(-FAR, FAR).masked_fill(missing | self.is_constant, 0.0) / SQUASH_LIMIT
        # asinh, which runtimes have in float32 only
        z = SQUASH_LIMIT * z.sign() * (z.abs() + (z**2 + 1).sqrt()).log()
        return torch.cat([z, missing.double().index_select(1, self.flagged)], dim=1).float()

    def predict(self, x: Tensor) -> Prediction:
        """The estimator's prediction, with all sampled passes as one batch, so that each layer is in the graph once."""
        estimator = self.estimator
        if isinstance(estimator, CrossEnsemble):
            return self.predict_pool(estimator, x)
        if not isinstance(estimator, SampledPasses):
            return estimator(x)
        before, after = split_at_first_random_layer(estimator.network)
        passes = estimator.all_passes(after, estimator.run(before, x))
        return moments(passes, estimator.std_floor)

    def predict_pool(self, estimator: CrossEnsemble, x: Tensor) -> Prediction:
        """The same as `CrossEnsemble.forward`, with the moments of its shape as constants."""
        location, _, widened = estimator.pool(*estimator.group_predictions(x), self.is_widened)
        unit = estimator.factor * widened
        mean, std = (location + unit * self.shape_mean).float(), (unit * self.shape_std).float()
        prediction = Prediction(mean, std, family=self.family)
        return prediction.target(0) if estimator.n_targets == 1 else prediction

    def moments_of_y(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The same as `TransformedPrediction`: quadrature on nodes that are transformed back."""
        nodes = inverse(self.transform, mean[..., None] + self.nodes * std[..., None])  # (n, nodes) or (n, k, nodes)
        tiny = constant(np.finfo(float).tiny)
        largest = nodes.abs().amax(-1, keepdim=True).maximum(tiny)
        nodes = nodes / largest  # so that squares do not overflow
        mean = (self.weights * nodes).sum(-1, keepdim=True)
        std = (self.weights * (nodes - mean) ** 2).sum(-1, keepdim=True).sqrt()
        return (mean * largest)[..., 0], (std * largest)[..., 0].maximum(tiny)


def constant(values: ArrayLike) -> Tensor:
    """A float64 tensor, for single numbers too: torch's exporter converts Python numbers to float32."""
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


def fix_draws_(estimator: nn.Module) -> None:
    """Let random layers draw once per shape; otherwise the graph would draw anew in every run."""

    def remembered(draw: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        known: dict[torch.Size, Tensor] = {}

        def recall(h: Tensor) -> Tensor:
            shape = h.shape[1:]
            if shape not in known:
                known[shape] = draw(h)
            return known[shape]

        return recall

    for layer in estimator.modules():
        if isinstance(layer, RandomLayer):
            name = "pass_masks" if isinstance(layer, SampledDropout) else "fixed_draws"
            setattr(layer, name, remembered(getattr(layer, name)))


@singledispatch
def inverse(transform: Any, t: Tensor) -> Tensor:
    """`transform.inverse` on tensors, with operations that ONNX has."""
    raise TypeError(f"{type(transform).__name__} has no inverse for ONNX")


@inverse.register
def _(transform: PerTarget, t: Tensor) -> Tensor:
    return torch.stack([inverse(part, t[:, j]) for j, part in enumerate(transform.transforms)], dim=1)


@inverse.register
def _(transform: Log, t: Tensor) -> Tensor:
    return within(log(LARGEST_VALUE), t).exp()


@inverse.register
def _(transform: YeoJohnson, t: Tensor) -> Tensor:
    def inverse_power(power: float) -> Tensor:
        exponent = constant(power)
        return (t.abs() if power == 0 else (t.abs() * exponent).log1p() / exponent).expm1()

    magnitude, center, spread = map(constant, (transform.magnitude, transform.center, transform.spread))
    x = torch.where(t < 0, -inverse_power(2 - transform.power), inverse_power(transform.power))
    return within(LARGEST_VALUE, (center + spread * x) * magnitude)


@inverse.register
def _(transform: Quantile, t: Tensor) -> Tensor:
    knots, scores, slopes = map(constant, (transform.knots, transform.scores, transform.slopes))
    piece = count_below(scores, t)
    knot = (piece - 1).clamp(min=0)
    return within(LARGEST_VALUE, knots[knot] + (t - scores[knot]) / slopes[piece])


def within(limit: float, t: Tensor) -> Tensor:
    return t.maximum(constant(-limit)).minimum(constant(limit))


def count_below(increasing: Tensor, t: Tensor) -> Tensor:
    """How many of the increasing values are below each t, by bisection: `searchsorted`, which ONNX lacks."""
    step = 2 ** (len(increasing).bit_length() - 1)
    padded = nn.functional.pad(increasing, (0, 2 * step - 1 - len(increasing)), value=inf)
    count = torch.zeros_like(t, dtype=torch.int64)
    while step:
        count = count + step * (padded[count + (step - 1)] < t)
        step //= 2
    return count


def translate(graph: Graph, n_columns: int) -> Any:
    """The ONNX model, without the file names and stack traces that torch's exporter puts into it."""
    import onnx_ir
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    features = torch.zeros(EXAMPLE_ROWS, n_columns, dtype=torch.float64)
    shapes = {"features": {0: torch.export.Dim("batch")}}
    try:
        traced = torch.export.export(graph, (features,), dynamic_shapes=shapes, strict=False)
        program = torch.onnx.export(traced, dynamo=True, dynamic_shapes=shapes, opset_version=OPSET, verbose=False)
    except Exception as error:  # a user's network may raise anything
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__  # the first exception of the chain is the cause
        raise must(
            "network",
            "be exportable to ONNX by torch, for any number of rows",
            f"{type(cause).__name__}: {cause}".splitlines()[0],
            "use other layers, and x.shape[0] instead of len(x)",
        ) from error
    assert program is not None  # it is None only if the exporter writes the file itself
    model = program.model
    ClearMetadataAndDocStringPass()(model)
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
    for number, node in enumerate(model.graph.all_nodes()):
        for place, value in enumerate(node.outputs):
            value.metadata_props.clear()
            value.name = f"{node.op_type}_{number}_{place}"  # the exporter may have named one "mean"
    for value, name in zip(model.graph.outputs, ("mean", "std"), strict=True):
        value.name = name
    return onnx_ir.to_proto(model)


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence messages of torch's exporter about itself: deprecated calls within torch, torchvision not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

"""The weights of a fitted model <-> its file: they are restored into an estimator built anew, after all checks."""

from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from hetcal._checks import Floats, must
from hetcal.estimators import predict
from hetcal.estimators.base import freeze_
from hetcal.estimators.cross_ensemble import CrossEnsemble
from hetcal.estimators.held_out import POWERS
from hetcal.estimators.mc_dropout import WARNS_OF_INSERTION
from hetcal.model_files.archive import Contents, TensorInfo
from hetcal.model_files.state import restore_layout
from hetcal.networks import SQUASH_LIMIT, global_seed

# No training leads here, because inputs and targets are scaled; the square is still finite.
LARGEST_WEIGHT = 1e18
STORED_TYPES = {
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
}  # their names in safetensors


def weights_of(estimator: nn.Module) -> bytes:
    """All parameters and buffers as safetensors; tied ones are written once per name."""
    state = estimator.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.dtype not in STORED_TYPES:
            found = f"{getattr(value, 'dtype', type(value))} in {name!r}"
            advice = "register its numbers as buffers of a common dtype"
            raise must("the network", "keep only tensors of common dtypes in its state_dict", found, advice)
    check_finite(estimator, state)
    return save_tensors({name: value.detach().cpu().contiguous().clone() for name, value in state.items()})


def restore_estimator(model: Any, contents: Contents) -> nn.Module:
    """The trained estimator, from the settings of the model and the weights of its file."""
    document = contents.model
    layout = restore_layout(document)
    if layout is not None:
        model._check_cross()
    warned = WARNS_OF_INSERTION.set(False)  # the user was warned when the model was fitted
    try:
        family = getattr(model, "family", "gaussian")
        estimator: nn.Module = model._build(document.n_inputs, document.n_targets, family, document.seed, layout)
    finally:
        WARNS_OF_INSERTION.reset(warned)
    put_weights(estimator, contents.tensors, contents.weights)
    if isinstance(estimator, CrossEnsemble):
        check_calibration(estimator)
    freeze_(estimator.eval())
    check_finite_answers(estimator, document.n_inputs)
    return estimator


def check_calibration(estimator: CrossEnsemble) -> None:
    """Refuse numbers that no fit can learn from held-out rows; the depth of the trees follows from the others."""
    linear, boosted, forests = estimator.fitted
    n_inputs = linear.inputs.low.shape[0]
    is_right = {
        "group_weights": estimator.group_weights >= 0,
        "power": (estimator.power >= 0) & (estimator.power <= max(POWERS)),
        "floors": estimator.floors >= 0,
        "widening": estimator.widening >= 0,
        "factor": estimator.factor > 0,
        "shape": estimator.shape.diff() > 0,
        "linear_members.std": linear.std > 0,
        "boosted_members": boosted.are_tables_right(n_inputs),
        "forest_members": forests.are_tables_right(n_inputs),
    }
    for name, value in estimator.state_dict().items():
        if not name.startswith("networks."):  # where a user's network may have infinite buffers
            is_right.setdefault(name, torch.ones(()))
            is_right[name] = is_right[name].all() & (value.abs() <= LARGEST_WEIGHT).all()
    for name, condition in is_right.items():
        if not condition.all():
            raise ValueError(f"values of {name!r} that no held-out rows lead to")
    for trees in (boosted.mean_trees, boosted.std_trees, forests.trees):
        trees.measure()


def put_weights(estimator: nn.Module, tensors: dict[str, TensorInfo], weights: bytes) -> None:
    """Load weights into a new estimator if all names, dtypes and shapes agree; `tensors` describes `weights`."""
    expected = {
        name: TensorInfo(STORED_TYPES.get(value.dtype, ""), tuple(value.shape))
        for name, value in estimator.state_dict().items()
        if isinstance(value, Tensor)
    }
    differences = [
        f"{name!r} {tensor_words(tensors.get(name))} where {tensor_words(expected.get(name))} is needed"
        for name in sorted({**expected, **tensors})
        if tensors.get(name) != expected.get(name)
    ]
    if differences:
        more = f", and {len(differences) - 2} more" if len(differences) > 2 else ""
        raise ValueError("; ".join(differences[:2]) + more)
    state = load_tensors(weights)
    check_finite(estimator, state)
    estimator.load_state_dict(state, strict=True)


def tensor_words(tensor: TensorInfo | None) -> str:
    return "nothing" if tensor is None else f"{tensor.dtype} of shape {tensor.shape}"


def check_same_answers(fitted: nn.Module, rebuilt: nn.Module, n_inputs: int) -> None:
    """Refuse a model that would predict differently once loaded.

    A network may keep part of what it learned outside its state_dict, and settings may have changed after fit.
    """
    device = next((parameter.device for parameter in fitted.parameters()), "cpu")
    if not np.array_equal(answers(fitted, n_inputs, device), answers(rebuilt.to(device), n_inputs, device)):
        raise ValueError("another prediction from the model as it would be loaded")


def check_finite_answers(estimator: nn.Module, n_inputs: int) -> None:
    """Refuse a model whose weights, each of them finite, lead to predictions that are not."""
    if not np.isfinite(answers(estimator, n_inputs, "cpu")).all():
        raise ValueError("weights whose predictions are not finite")


def answers(estimator: nn.Module, n_inputs: int, device: str | torch.device) -> Floats:
    """Mean and std of rows from nearly the whole range of inputs."""
    generator = torch.Generator().manual_seed(0)
    x = SQUASH_LIMIT * (2 * torch.rand(64, n_inputs, generator=generator, dtype=torch.float32) - 1)
    x[0] = 0
    with global_seed(0):  # a user's network may draw from torch's own generator
        prediction = predict(estimator, x.to(device)).numpy()
    return np.stack([prediction.mean, prediction.std])


def check_finite(estimator: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Refuse NaN anywhere, and huge weights except in buffers, where the mask of an attention layer may have them."""
    parameters = {name for name, _ in estimator.named_parameters(remove_duplicate=False)}
    for name, value in tensors.items():
        if value.is_floating_point():
            wrong = ~(value.abs() <= LARGEST_WEIGHT) if name in parameters else torch.isnan(value)
            if wrong.any():
                found = f"{value[wrong][0].item():.6g} in {name!r}"
                raise ValueError(
                    f"weights must be from -{LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}, got {found}; train again"
                )

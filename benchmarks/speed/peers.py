"""The same training job in other libraries: lightning-uq-box and torch-uncertainty.

Both packages import torchvision for image models that regression does not use, and torchvision ties torch to one
version. So only the modules that regression needs are imported, without each package's own `__init__`. The code that
trains is theirs, unchanged.
"""

import importlib
import importlib.util
import logging
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

Fit = Callable[[], None]

# What the regression routine of torch-uncertainty imports from the `__init__` that is skipped: {module: names}.
UTILITIES = {"logging": ("csv_writer", "get_logger_dir", "log_figure"), "checks": ("check_interval_shapes",)}


class PeerMissingError(Exception):
    """A peer is not installed, or lacks something; the message states what."""


def import_past_init(package: str, skipped: list[str], module: str) -> Any:
    """Import `module` of `package` without running the `__init__` of the `skipped` (sub)packages."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise PeerMissingError(f"{package} is not installed")
    root = Path(found.submodule_search_locations[0])
    for name in skipped:
        if name not in sys.modules:
            spec = ModuleSpec(name, None, is_package=True)  # empty, but its modules are still found
            spec.submodule_search_locations = [str(root.joinpath(*name.split(".")[1:]))]
            sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PeerMissingError(f"{package} cannot be imported ({error})") from error


def import_lightning_uq_box(module: str) -> Any:
    """A module of lightning-uq-box, such as "uq_methods.mc_dropout"."""
    skipped = [f"lightning_uq_box{part}" for part in ("", ".uq_methods", ".datamodules")]
    return import_past_init("lightning_uq_box", skipped, f"lightning_uq_box.{module}")


def import_torch_uncertainty(module: str) -> Any:
    """A module of torch-uncertainty, such as "routines.regression"."""
    skipped = [f"torch_uncertainty{part}" for part in ("", ".routines", ".utils")]
    for helper, names in UTILITIES.items():
        source = import_past_init("torch_uncertainty", skipped, f"torch_uncertainty.utils.{helper}")
        for name in names:
            setattr(sys.modules["torch_uncertainty.utils"], name, getattr(source, name))
    return import_past_init("torch_uncertainty", skipped, f"torch_uncertainty.{module}")


def make_trainer(epochs: int, max_gradient_norm: float) -> Any:
    """A Lightning trainer on the CPU that only trains."""
    try:
        from lightning.pytorch import Trainer
    except ImportError as error:
        raise PeerMissingError(f"lightning cannot be imported ({error})") from error
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    # Lightning's advice on workers: for rows in memory, on one thread, none is the fastest.
    warnings.filterwarnings("ignore", module="lightning")
    return Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        gradient_clip_val=max_gradient_norm,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def make_fit(module: Any, loader: DataLoader[Any], epochs: int, max_gradient_norm: float) -> Fit:
    """Call `Trainer.fit`, then check that it took all steps."""
    trainer = make_trainer(epochs, max_gradient_norm)

    def fit() -> None:
        trainer.fit(module, loader)
        if trainer.global_step != epochs * len(loader):
            raise RuntimeError(f"{trainer.global_step} steps instead of {epochs * len(loader)}")

    return fit


def lightning_uq_box_fit(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    max_gradient_norm: float,
    fused: bool | None = None,
) -> Fit:
    """MC dropout with a variance output and the likelihood as loss: one stochastic pass per step.

    Args:
        network: (n, d) -> (n, 2), mean and log variance, with `nn.Dropout`.
        x: (n, d) inputs.
        y: (n,) target.
        epochs: Passes over the rows.
        batch_size: Rows per step.
        learning_rate, weight_decay: Parameters of AdamW.
        max_gradient_norm: Gradients are clipped to this norm.
        fused: Passed on to AdamW; None is torch's default, the form the library's own examples use.
    """
    method = import_lightning_uq_box("uq_methods.mc_dropout").MCDropoutRegression
    loss = import_lightning_uq_box("uq_methods.loss_functions").NLL()
    collate = import_lightning_uq_box("datamodules.utils").collate_fn_tensordataset
    optimizer = partial(torch.optim.AdamW, lr=learning_rate, weight_decay=weight_decay, fused=fused)
    module = method(network, num_mc_samples=100, loss_fn=loss, optimizer=optimizer)
    loader = DataLoader(TensorDataset(x, y[:, None]), batch_size, shuffle=True, collate_fn=collate)
    return make_fit(module, loader, epochs, max_gradient_norm)


def lightning_uq_box_ensemble_fit(
    networks: list[nn.Module], x: Tensor, y: Tensor, *, steps: int, batch_size: int, learning_rate: float
) -> Fit:
    """The members of a deep ensemble, each a network with a variance output, one after the other as its examples do.

    Args:
        networks: One (n, d) -> (n, 2) for each member, mean and log variance.
        x: (n, d) inputs.
        y: (n,) target.
        steps: Training steps of each member, rounded to whole passes over the rows.
        batch_size: Rows per step.
        learning_rate: Of AdamW.
    """
    method = import_lightning_uq_box("uq_methods.mean_variance_estimation").MVERegression
    collate = import_lightning_uq_box("datamodules.utils").collate_fn_tensordataset
    optimizer = partial(torch.optim.AdamW, lr=learning_rate)
    loader = DataLoader(TensorDataset(x, y[:, None]), batch_size, shuffle=True, collate_fn=collate)
    epochs = max(1, round(steps / len(loader)))
    fits = [make_fit(method(one, burnin_epochs=0, optimizer=optimizer), loader, epochs, 1.0) for one in networks]

    def fit() -> None:
        for fit_member in fits:
            fit_member()

    return fit


def torch_uncertainty_fit(
    hidden: nn.Module,
    width: int,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    max_gradient_norm: float,
) -> Fit:
    """MC dropout with a normal output layer and the likelihood as loss: one stochastic pass per step.

    Args:
        hidden: The hidden layers (n, d) -> (n, width), with `nn.Dropout`; the library's own output layer follows.
        width: Units of the last hidden layer.
        x: (n, d) inputs.
        y: (n,) target.
        epochs: Passes over the rows.
        batch_size: Rows per step.
        learning_rate, weight_decay: Parameters of AdamW.
        max_gradient_norm: Gradients are clipped to this norm.
    """
    routine = import_torch_uncertainty("routines.regression").RegressionRoutine
    loss = import_torch_uncertainty("losses.regression").DistributionNLLLoss()
    normal_layer = import_torch_uncertainty("layers.distributions").NormalLinear
    mc_dropout = import_torch_uncertainty("methods.mc_dropout").mc_dropout
    network = nn.Sequential(hidden, normal_layer(nn.Linear, event_dim=1, in_features=width))
    network = mc_dropout(network, num_estimators=100, task="regression", probabilistic=True)
    optimizer = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=weight_decay)
    module = routine(network, output_dim=1, loss=loss, dist_family="normal", optim_recipe=optimizer)
    loader = DataLoader(TensorDataset(x, y), batch_size, shuffle=True)
    return make_fit(module, loader, epochs, max_gradient_norm)

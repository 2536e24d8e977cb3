"""From the settings of a model to a torch module: the estimator's class, its options and its network, checked."""

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from hetcal._checks import check_choice, must
from hetcal.estimators import ESTIMATORS, AbstractEstimator
from hetcal.estimators.cross_ensemble import CrossEnsemble, MemberGroup
from hetcal.estimators.network_members import MemberMLPs
from hetcal.estimators.stacked import MemberNetworks
from hetcal.families import FAMILIES, Family, StudentT, check_family
from hetcal.networks import MLP, global_seed, initialize_


def resolve_name(name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """Return the registered object of that name, or the user's own class or function unchanged."""
    if callable(value):
        return value
    return known[check_choice(name, value, known)]


def check_estimator_options(options: Any) -> dict[str, Any]:
    """Check the estimator's options and return a copy."""
    if options is not None and not isinstance(options, dict):
        advice = "write estimator_options={'samples': 20}"
        raise must("estimator_options", "be a dict of settings", options, advice, TypeError)
    return dict(options or {})


def resolve_estimator(estimator: Any, options: Any, n_targets: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return the estimator's class and all its arguments except the network."""
    if isinstance(estimator, nn.Module):
        advice = "give the class, because its network is built in each fit; options go into estimator_options"
        raise must("estimator", "be a name or a class, not an instance", type(estimator).__name__, advice)
    factory = resolve_name("estimator", estimator, {"cross_ensemble": CrossEnsemble, **ESTIMATORS})
    missing = [member for member in ("n_outputs", "forward", "own_loss") if not hasattr(factory, member)]
    if missing:
        rule = f"be a name or a class with the member(s) {missing}"
        raise must("estimator", rule, factory, "see hetcal.estimators.base")
    accepted = inspect.signature(factory).parameters
    arguments = check_estimator_options(options)
    for name in arguments:
        check_choice("estimator_options", name, set(accepted) - {"self", "network", "seed", "n_targets"})
    if "seed" in accepted:
        arguments["seed"] = seed
    if n_targets > 1:
        if "n_targets" not in accepted:
            advice = "let its __init__ pass n_targets on to AbstractEstimator"
            raise must("estimator", "accept n_targets for several targets or classes", factory, advice)
        arguments["n_targets"] = n_targets
    return factory, arguments


def build_network(
    network: Any, n_inputs: int, n_outputs: int, seed: int, *, width: int, depth: int, dropout: float
) -> nn.Module:
    """Build an `MLP`, or the user's network, newly initialized from the seed."""
    if network is None:
        generator = torch.Generator().manual_seed(seed)
        return MLP(n_inputs, n_outputs, width=width, depth=depth, dropout=dropout, generator=generator)
    built = None
    if isinstance(network, nn.Module):
        built = initialize_(copy.deepcopy(network), seed)
    elif callable(network):
        with global_seed(seed):  # a user's network draws its weights from torch's global generator
            built = call_factory(network, n_inputs, n_outputs)
    if not isinstance(built, nn.Module):
        rule = "be None, an nn.Module, or a class or function (n_inputs, n_outputs) -> nn.Module"
        raise must("network", rule, network, "give one of these", TypeError)
    # Rows are float32, whatever torch's default is.
    return built if torch.get_default_dtype() == torch.float32 else built.float()


def call_factory(factory: Any, n_inputs: int, n_outputs: int) -> Any:
    try:
        inspect.signature(factory).bind(n_inputs, n_outputs)
    except TypeError as error:
        advice = f"let it accept the two numbers ({error})"
        raise must("network", "be callable as network(n_inputs, n_outputs)", factory, advice, TypeError) from None
    return factory(n_inputs, n_outputs)


@dataclass(frozen=True)
class EnsembleLayout:
    """What the structure of a `CrossEnsemble` depends on beside the settings of the model.

    Attributes:
        n_numbers: The first columns of the encoded table, which are numbers.
        groups: The settings of each group of members.
        n_parts: Members of each group.
        width: Of the hidden layers, unless the model has a width of its own.
        n_nodes: Nodes of the trained trees, to load a model file; see `CrossEnsemble`.
    """

    n_numbers: int
    groups: tuple[MemberGroup, ...]
    n_parts: int
    width: int
    n_nodes: tuple[int, int, int] = (1, 1, 1)


def build_cross_ensemble(
    layout: EnsembleLayout,
    network: Any,
    n_inputs: int,
    n_targets: int,
    seed: int,
    *,
    width: int,
    depth: int,
    dropout: float | None,
) -> CrossEnsemble:
    """Build the members, newly initialized from the seed: `MemberMLPs`, or copies of the user's network."""
    members = [group for group in layout.groups for _ in range(layout.n_parts)]
    networks: nn.Module
    if network is None:
        networks = MemberMLPs(
            n_inputs,
            2 * n_targets,
            n_numbers=layout.n_numbers,
            dropout=[group.dropout if dropout is None else dropout for group in members],
            frequency_scale=[group.frequency_scale for group in members],
            width=width,
            depth=depth,
            generator=torch.Generator().manual_seed(seed),
        )
    else:
        built = build_network(network, n_inputs, 2 * n_targets, seed, width=width, depth=depth, dropout=dropout or 0.0)
        networks = MemberNetworks(built, len(members), n_targets, seed)
    return CrossEnsemble(
        networks,
        n_groups=len(layout.groups),
        n_parts=layout.n_parts,
        n_inputs=n_inputs,
        n_numbers=layout.n_numbers,
        n_targets=n_targets,
        n_nodes=layout.n_nodes,
    )


@torch.no_grad()
def check_inputs(estimator: nn.Module, n_inputs: int) -> None:
    """Try a user's network on two rows of zeros, so that a wrong width is reported before training."""
    try:
        estimator.eval()(torch.zeros(2, n_inputs, dtype=torch.float32))
    except RuntimeError as error:
        raise must(
            "network",
            f"accept rows of {n_inputs} numbers, the width of the encoded table",
            f"{type(error).__name__}: {error}",
            "for tables give a class or function (n_inputs, n_outputs) instead of a module",
        ) from error


def check_trains(estimator: Any, objective_weight: Any) -> None:
    """Refuse an objective of weight 0 for an estimator without own loss: only weight decay would change its weights."""
    inner = getattr(estimator, "estimator", estimator)  # behind a family
    if objective_weight == 0 and getattr(type(inner), "own_loss", None) is AbstractEstimator.own_loss:
        advice = "this estimator has no loss of its own, so the objective must train it"
        raise must("objective_weight", "be greater than 0", objective_weight, advice)


def family_of_members(family: str | Family) -> Family:
    """The family of the members' own distributions; the shape of the pool is learned from held-out rows."""
    checked = check_family(family)
    if checked == StudentT.name:
        advice = "its shape is learned from held-out rows; or fix the degrees of freedom: StudentT(df=4)"
        raise must("family", "have no parameter to learn for 'cross_ensemble'", family, advice)
    if isinstance(checked, StudentT) and np.ndim(checked.df):
        raise must("df", "be one number for 'cross_ensemble'", checked.df, "give the same for all targets")
    return FAMILIES[checked]() if isinstance(checked, str) else checked

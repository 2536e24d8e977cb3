"""Any network, copied for several members that run as one: parameters stacked along a leading axis, by `torch.func`."""

import copy
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from hetcal.estimators.base import FrozenForPrediction, check_outputs, drops_channels
from hetcal.networks import DROPOUT_LAYERS, PrivateDropout, initialize_, replace_layers_


class StackedNetworks(FrozenForPrediction):
    """Networks of the same kind with newly drawn weights each: rows (n, ...) to outputs (members, n, outputs).

    In training all members run at once. In evaluation mode they run one after the other, as modules of their own that
    share the stacked weights: this is as fast, and writes nothing, so that threads can share a model.

    Args:
        network: Any module whose dropout layers are `MemberDropout`. It is the first member; the others are copies of
            it with weights of their own.
        members: Number of members.
        seed: Seed of the others' weights.
    """

    def __init__(self, network: nn.Module, members: int, seed: int) -> None:
        super().__init__()
        self.members = members
        networks = [network, *(copy.deepcopy(network) for _ in range(members - 1))]
        for member, other in enumerate(networks):
            if member:
                initialize_(other, seed=seed + 7919 * member)  # a prime: nearby seeds share no members
            for layer in other.modules():
                if isinstance(layer, MemberDropout):
                    layer.member.fill_(member)
        parameters, buffers = stack_module_state(networks)
        # In a list, so that its own parameters, which are never used, do not become parameters of the ensemble.
        self.template = [copy.deepcopy(network)]
        is_trained = {name: parameter.requires_grad for name, parameter in network.named_parameters()}
        self.stacked = nn.ParameterDict(
            {stored(name): nn.Parameter(value, is_trained[name]) for name, value in parameters.items()}
        )
        self.stacked_buffers = nn.Module()
        for name, value in buffers.items():
            self.stacked_buffers.register_buffer(stored(name), value)
        self.one_by_one = False
        self.freeze()

    def train(self, mode: bool = True) -> Self:
        for network in getattr(self, "template", []):
            network.train(mode)
        return super().train(mode)

    def forward(self, x: Tensor, own_rows: bool = False) -> Tensor:
        """The outputs of every member, (members, n, ...); with `own_rows`, x is (members, n, ...)."""
        if self.training:
            return self.train_together(x, own_rows)
        networks = self.make_frozen() if torch.is_grad_enabled() else self.frozen()
        return torch.stack([network(x[j] if own_rows else x) for j, network in enumerate(networks)])

    def make_frozen(self) -> list[nn.Module]:
        """Each member as a module of its own, in evaluation mode, whose tensors are parts of the stacked ones."""
        (template,), (parameters, buffers) = self.template, self.stacks()
        networks = []
        for j in range(self.members):
            replaced = {id(value): parameters[name][j] for name, value in template.named_parameters()}
            replaced |= {id(value): buffers[name][j] for name, value in template.named_buffers()}
            networks.append(copy.deepcopy(template, replaced).eval())
        return networks

    def fingerprint(self) -> Any:
        return [value.data_ptr() for stacks in self.stacks() for value in stacks.values()]

    def stacks(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The stacked parameters and buffers, by their names in the network."""
        (template,) = self.template
        return (
            {name: self.stacked[stored(name)] for name, _ in template.named_parameters()},
            {name: getattr(self.stacked_buffers, stored(name)) for name, _ in template.named_buffers()},
        )

    def train_together(self, x: Tensor, own_rows: bool) -> Tensor:
        (template,), (parameters, buffers) = self.template, self.stacks()

        def call(parameters: Any, buffers: Any, x: Tensor) -> Tensor:
            outputs: Tensor = functional_call(template, (parameters, buffers), (x,))
            return outputs

        if not self.one_by_one:
            try:
                return vmap(call, in_dims=(0, 0, 0 if own_rows else None), randomness="same")(parameters, buffers, x)
            except RuntimeError as error:
                if "Batching rule not implemented" not in str(error):
                    raise
                self.one_by_one = True  # torch cannot run some layers, such as nn.LSTM, for several members at once
        outputs = []
        for j in range(self.members):
            own, own_buffers = ({name: stack[j] for name, stack in stacks.items()} for stacks in (parameters, buffers))
            outputs.append(call(own, own_buffers, x[j] if own_rows else x))
        return torch.stack(outputs)


class MemberDropout(PrivateDropout):
    """Dropout in a network that runs for all members at once: a mask for every row of every member."""

    member: Tensor

    def __init__(
        self, rate: float, members: int, *, channels: bool = False, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(rate, channels=channels, generator=generator)
        self.members = members
        self.register_buffer("member", torch.zeros(1, dtype=torch.int64))  # index of this member among the stacked

    def forward(self, h: Tensor) -> Tensor:
        if not (self.training and self.rate):
            return h
        masks = self.draw(h, self.members * len(h)).unflatten(0, (self.members, -1))  # (members, n, features)
        return h * masks.index_select(0, self.member)[0]


class MemberNetworks(nn.Module):
    """A user's network for all members of a `CrossEnsemble`: each member may have rows of its own.

    Args:
        network: A module from (n, inputs) to (n, 2 * targets): for each target its mean and its raw sigma.
        members: Number of members.
        n_targets: Number of targets.
        seed: Seed of weights and masks.
    """

    def __init__(self, network: nn.Module, members: int, n_targets: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def private(layer: Any) -> nn.Module:
            return MemberDropout(layer.p, members, channels=drops_channels(layer), generator=generator)

        self.n_targets = n_targets
        self.networks = StackedNetworks(
            replace_layers_(network, (*DROPOUT_LAYERS, PrivateDropout), private), members, seed
        )

    def forward(self, x: Tensor) -> Tensor:
        """(members, n, 2 * targets), all means first; x is (n, inputs), or (members, n, inputs)."""
        outputs = self.networks(x, own_rows=x.ndim == 3)
        check_outputs(outputs[0], x.shape[-2], 2, self.n_targets)
        pairs = outputs.unflatten(-1, (self.n_targets, 2))
        return torch.cat([pairs[..., 0], pairs[..., 1]], dim=-1)


def stored(name: str) -> str:
    """A parameter's name as a key of a module, which must not contain dots."""
    return name.replace(".", "/")

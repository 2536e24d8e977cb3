"""Networks and gradients that the workers of a cluster import by name."""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from hetcal.estimators import ESTIMATORS
from hetcal.estimators.cross_ensemble import CrossEnsemble
from hetcal.estimators.network_members import MemberMLPs
from hetcal.networks import MLP
from hetcal.objectives import crps_loss, nll_loss
from hetcal.ray.training import ClusterWorkers


class WaitingNetwork(nn.Module):
    """A small network that logs its training steps, and at one of them waits until somebody kills its node."""

    def __init__(self, n_inputs, n_outputs, log, waits_at):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_inputs, 8), nn.ReLU(), nn.Linear(8, n_outputs))
        self.log, self.waits_at = Path(log), waits_at

    def forward(self, x):
        if self.training:
            steps = self.log.read_text().splitlines() if self.log.exists() else []
            with self.log.open("a") as log:
                log.write("step\n")
            if len(steps) == self.waits_at:
                time.sleep(300)
        return self.layers(x)


def gradients_of_part(names, rank, count, store):
    """The gradients of the objective of one batch, of which this worker has its part, averaged over the workers."""
    torch.set_num_threads(1)
    if count > 1:
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=count)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(64, 3, generator=generator), torch.randn(64, generator=generator)
    found = {}
    for name in names:
        gradients = gradients_of(name, x[rank::count], y[rank::count])
        ClusterWorkers(count, rank).average_(gradients)
        found[name] = torch.cat([gradient.flatten() for gradient in gradients]).numpy()
    if count > 1:
        dist.destroy_process_group()
    return found


def gradients_of(name, x, y):
    torch.manual_seed(0)
    if name == "cross_ensemble":
        sizes = {"n_numbers": 3, "dropout": [0.0] * 8, "frequency_scale": [0.1] * 8, "width": 8, "depth": 1}
        networks = MemberMLPs(3, 2, **sizes, generator=torch.Generator().manual_seed(0))
        estimator = CrossEnsemble(networks, n_groups=2, n_parts=4, n_inputs=3, n_numbers=3)
        parameters = list(estimator.networks.parameters())
        prediction = estimator.member_predictions(x.expand(8, -1, -1))
        loss = crps_loss(prediction, y[:, None].expand(8, -1, 1)).mean(1).sum()
    else:
        factory = ESTIMATORS[name]
        estimator = factory(MLP(3, factory.n_outputs, width=8))
        parameters = list(estimator.parameters())
        prediction = estimator(x)
        loss = (nll_loss(prediction, y) + estimator.own_loss(prediction, y, 64)).mean()
    loss.backward()
    return [parameter.grad for parameter in parameters if parameter.grad is not None]

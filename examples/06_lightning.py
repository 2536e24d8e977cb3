"""The same two lines inside a LightningModule: Lightning trains, the estimator gives mean and sigma.

This example needs `pip install lightning`; the library itself does not.
"""

import logging
import warnings

import torch
from lightning import LightningModule, Trainer, seed_everything
from torch.utils.data import DataLoader, TensorDataset

from hetcal import evaluate
from hetcal.datasets import heteroscedastic
from hetcal.estimators import MCDropout, predict
from hetcal.networks import MLP
from hetcal.objectives import gaussian_nll

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # messages about devices, and a tip
warnings.filterwarnings("ignore", module="lightning")  # from its own code, and advice to load with more processes


class Calibrated(LightningModule):
    """Trains any estimator with any objective."""

    def __init__(self, estimator, objective, n_train: int) -> None:
        super().__init__()
        self.estimator, self.objective, self.n_train = estimator, objective, n_train

    def training_step(self, batch, index):
        x, y = batch
        prediction = self.estimator(x)
        loss = self.objective(prediction, y) + self.estimator.own_loss(prediction, y, self.n_train)
        return loss.mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


data = heteroscedastic(1500, seed=0)
x, y = torch.tensor(data.X, dtype=torch.float32), torch.tensor(data.y, dtype=torch.float32)

seed_everything(0, verbose=False)
estimator = MCDropout(MLP(2, width=64, depth=2, dropout=0.1))
loader = DataLoader(TensorDataset(x[:1000], y[:1000]), batch_size=100, shuffle=True)
trainer = Trainer(
    max_epochs=60,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Calibrated(estimator, gaussian_nll, n_train=1000), loader)

print(evaluate(y[1000:].numpy(), predict(estimator, x[1000:]).numpy())["verdict"])

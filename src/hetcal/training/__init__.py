"""Training: of one network (`loop`), and of an ensemble whose members hold out rows (`cross_fitting`)."""

from hetcal.training.loop import train
from hetcal.training.settings import TrainingSettings

__all__ = ["TrainingSettings", "train"]

"""Data to try things on: the paper's eight UCI sets, and synthetic sets whose true mean and deviation are known."""

from hetcal.datasets.entry import available
from hetcal.datasets.real import Dataset, load
from hetcal.datasets.synthetic import SYNTHETIC, SyntheticData, gap, heavy_tailed, heteroscedastic, skewed

__all__ = [
    "SYNTHETIC",
    "Dataset",
    "SyntheticData",
    "available",
    "gap",
    "heavy_tailed",
    "heteroscedastic",
    "load",
    "skewed",
]

"""The eight UCI data sets of the paper, and synthetic data with known mean and standard deviation."""

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

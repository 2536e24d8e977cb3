"""Data to try things on. So far: synthetic sets whose true mean and standard deviation are known."""

from hetcal.datasets.synthetic import SyntheticData, heteroscedastic

__all__ = ["SyntheticData", "heteroscedastic"]

"""Ray."""

from hetcal.ray.training import fit

"""Arbitrary Lagrangian-Eulerian runs: relaxation of the mesh, and remap of the fields."""

from femops.hydro.ale.relaxation import quality
from femops.hydro.ale.run import ArbitraryLagrangianEulerian

__all__ = ["ArbitraryLagrangianEulerian", "quality"]

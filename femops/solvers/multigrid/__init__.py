"""Multigrid preconditioners: levels of lower order, then levels on coarser meshes."""

from femops.solvers.multigrid.measure import LevelReport
from femops.solvers.multigrid.preconditioner import Multigrid, multigrid

__all__ = ["LevelReport", "Multigrid", "multigrid"]

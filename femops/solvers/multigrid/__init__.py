"""Multigrid preconditioners: levels of lower order, then levels on coarser meshes."""

from femops.solvers.multigrid.preconditioner import LevelReport, Multigrid, multigrid

__all__ = ["LevelReport", "Multigrid", "multigrid"]

"""Multigrid methods: preconditioners of which orders and then meshes get coarser."""

from femops.solvers.multigrid.preconditioner import LevelReport, Multigrid, multigrid

__all__ = ["LevelReport", "Multigrid", "multigrid"]

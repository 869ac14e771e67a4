"""Benchmarks, compared with the machine's limits."""

from femops.bench.operators import auto_check, run, run_all
from femops.bench.problems import FOOTPRINTS, MESHES, PROBLEMS
from femops.bench.solvers.cg import run_cg
from femops.bench.solvers.multigrid import run_solve

__all__ = [
    "FOOTPRINTS",
    "MESHES",
    "PROBLEMS",
    "auto_check",
    "run",
    "run_all",
    "run_cg",
    "run_solve",
]

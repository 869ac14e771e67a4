"""Speed, measured beside the machine's limits."""

from femops.bench.operators import auto_check, run, run_all
from femops.bench.problems import FOOTPRINTS, MESHES, PROBLEMS
from femops.bench.solve import run_solve
from femops.bench.solver import run_cg

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

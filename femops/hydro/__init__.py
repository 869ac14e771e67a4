"""Lagrangian hydrodynamics: gas dynamics on high-order meshes that move with the gas.

The method is that of Dobrev, Kolev and Rieben (SIAM J. Sci. Comput. 34(5), 2012). It uses only the
general parts of femops.
"""

from femops.hydro.checkpoint import NUMERICS, PHYSICS, RUN, load_run, run_options, save_run
from femops.hydro.integrators import METHODS, Method, method
from femops.hydro.lagrangian import Clock, Fluid, Forces, Lagrangian, rates
from femops.hydro.meshes import MESHES, built_in, grid
from femops.hydro.problems import PROBLEMS, Problem, problem
from femops.hydro.simulation import Simulation
from femops.hydro.snapshot import Snapshot
from femops.hydro.verification.exact import Blast, ShockTube
from femops.hydro.verification.published import RUNS, ReferenceRun, verify

__all__ = [
    "MESHES",
    "METHODS",
    "NUMERICS",
    "PHYSICS",
    "PROBLEMS",
    "RUN",
    "RUNS",
    "Blast",
    "Clock",
    "Fluid",
    "Forces",
    "Lagrangian",
    "Method",
    "Problem",
    "ReferenceRun",
    "ShockTube",
    "Simulation",
    "Snapshot",
    "built_in",
    "grid",
    "load_run",
    "method",
    "problem",
    "rates",
    "run_options",
    "save_run",
    "verify",
]

"""Runs that Remhos publishes, with their results.

The source is "Verification of Results" at https://github.com/CEED/Remhos. Runs on NURBS meshes,
runs that remap products, and runs to a steady state are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, final

from femops.errors import HydroError
from femops.hydro.remap.advection import Advection
from femops.hydro.remap.meshes import advection_mesh
from femops.hydro.remap.problems import advection_problem
from femops.parallel import communicator, distribute

MASS_DIGITS = 10
"""Digits that Remhos prints."""

MAX_TOLERANCE = 1e-8
"""Largest difference of the maximum."""


@final
@dataclass(frozen=True)
class PublishedRun:
    """Run of Remhos and its published result.

    Attributes
    ----------
    number : int
    mesh : str
    problem, refine, order, ho, lo, fct : int
    dt, t_final : float
    mass, maximum : float
    """

    number: int
    mesh: str
    problem: int
    refine: int
    dt: float
    t_final: float
    lo: int
    mass: float
    maximum: float
    order: int = 3
    ho: int = 1
    fct: int = 2

    def begin(self, comm: Any = None) -> Advection:
        """Set the run up, on the ranks of a communicator. By default on this process alone."""
        case, ranks = advection_problem(self.problem), communicator(comm)
        whole = advection_mesh(self.mesh).refine(self.refine)
        mesh = whole if ranks.size == 1 else distribute(whole, ranks)
        methods = {"ho": self.ho, "lo": self.lo, "fct": self.fct}
        return Advection(case, mesh, self.order, self.t_final, self.dt, **methods)


_LIST = (
    PublishedRun(1, "periodic-hexagon", 0, 2, 0.005, 10.0, 2, 0.3888354875, 0.9333315791),
    PublishedRun(2, "periodic-hexagon", 0, 2, 0.005, 10.0, 4, 0.3888354875, 0.9446390369),
    PublishedRun(5, "periodic-square", 5, 3, 0.005, 0.8, 2, 0.1623263888, 0.7676354393),
    PublishedRun(6, "periodic-square", 5, 3, 0.002, 0.8, 4, 0.1623263888, 0.7480960657),
    PublishedRun(7, "periodic-cube", 0, 1, 0.014, 8.0, 4, 0.9607429525, 0.7678305756, 2),
    PublishedRun(9, "inline-quad", 14, 1, 0.001, 0.75, 4, 0.08479546709, 0.8156091428),
    PublishedRun(11, "cube01_hex", 10, 1, 0.02, 0.8, 4, 0.1197294512, 0.9990312449, 2),
)

PUBLISHED: dict[int, PublishedRun] = {run.number: run for run in _LIST}
"""Published runs by number."""


def verify_advection(
    number: int, watch: Callable[[float, Any], Any] | None = None, comm: Any = None
) -> dict[str, Any]:
    """Repeat a published run, and compare its results with Remhos'.

    Parameters
    ----------
    number : int
        Number of the run in Remhos' list, one of `PUBLISHED`.
    watch : callable, optional
        Called after each step, see `Advection.run`.
    comm : mpi4py.MPI.Intracomm or Communicator, optional
        Ranks that share the mesh. By default this process alone.

    Returns
    -------
    dict
        ``mass`` and ``max`` with the values of Remhos; ``mass_change``; ``steps``; ``seconds``;
        ``agrees``: True if all printed digits of the mass are the same, and the maximum differs by
        at most 1e-8.

    Raises
    ------
    HydroError
        There is no such run.
    """
    if number not in PUBLISHED:
        known = ", ".join(map(str, PUBLISHED))
        raise HydroError(f"there is no run {number} of Remhos here: the numbers are {known}")
    published = PUBLISHED[number]
    run, begin = published.begin(comm), perf_counter()
    found = run.run(watch)
    digits = f"{{:.{MASS_DIGITS}g}}"
    same_mass = digits.format(found.mass) == digits.format(published.mass)
    return {
        "run": number,
        "mesh": published.mesh,
        "problem": published.problem,
        "steps": found.steps,
        "mass": found.mass,
        "mass_remhos": published.mass,
        "max": found.maximum,
        "max_remhos": published.maximum,
        "mass_change": found.mass - found.mass_before,
        "agrees": same_mass and abs(found.maximum - published.maximum) <= MAX_TOLERANCE,
        "seconds": perf_counter() - begin,
    }

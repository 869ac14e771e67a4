"""Nine reference runs that Laghos publishes, with their results.

https://github.com/CEED/Laghos, "Verification of Results".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, final

import femops
from femops.errors import HydroError
from femops.hydro.lagrangian import Lagrangian
from femops.hydro.meshes import built_in
from femops.hydro.problems import problem
from femops.hydro.simulation import Simulation
from femops.parallel import communicator


@final
@dataclass(frozen=True)
class ReferenceRun:
    """Reference run and its published result.

    Attributes
    ----------
    number : int
    problem : str
    dim, refine : int
    t_final : float
    steps : int
    dt, e_norm : float
    orders : (int, int)
        Kinematic and thermodynamic order.
    ode : str
    blast : float, optional
    """

    number: int
    problem: str
    dim: int
    refine: int
    t_final: float
    steps: int
    dt: float
    e_norm: float
    orders: tuple[int, int] = (2, 1)
    ode: str = "rk4"
    blast: float | None = None

    def begin(self, cg_tol: float = 1e-8, comm: Any = None) -> Simulation:
        """Make the run in its initial state.

        Parameters
        ----------
        cg_tol : float
            Relative tolerance of solves with the mass of the velocity.
        comm : mpi4py.MPI.Intracomm or Communicator, optional
            Ranks that share the mesh. By default this process alone.
        """
        case, ranks = problem(self.problem, blast=self.blast), communicator(comm)
        mesh: Any = built_in(case.mesh[self.dim]).refine(self.refine)
        if ranks.size > 1:
            mesh = femops.distribute(mesh if ranks.rank == 0 else None, ranks)
        return Simulation.begin(Lagrangian(case, mesh, *self.orders, cg_tol=cg_tol), self.ode)

    def compared(self, run: Simulation) -> dict[str, Any]:
        """Return the results of a run together with the published results."""
        return {
            "run": self.number,
            "problem": f"{self.problem} {self.dim}-D",
            "steps": run.steps,
            "steps_laghos": self.steps,
            "dt": run.dt,
            "dt_laghos": self.dt,
            "e_norm": run.e_norm,
            "e_norm_laghos": self.e_norm,
            "relative": abs(run.e_norm / self.e_norm - 1.0),
        }


_LIST = (
    ReferenceRun(1, "taylor-green", 2, 3, 0.75, 339, 0.000702, 4.9695537349e01),
    ReferenceRun(2, "taylor-green", 3, 1, 0.75, 1041, 0.000121, 3.3909635545e03),
    ReferenceRun(3, "sedov", 2, 3, 0.8, 1154, 0.001655, 4.6303396053e01),
    ReferenceRun(4, "sedov", 3, 2, 0.6, 560, 0.002449, 1.3408616722e02, blast=2.0),
    ReferenceRun(5, "sod", 1, 5, 0.2, 413, 0.000470, 3.2012077410e01),
    ReferenceRun(6, "triple-point", 2, 2, 3.0, 2872, 0.000064, 5.6547039096e01),
    ReferenceRun(7, "triple-point", 3, 1, 5.0, 858, 0.000474, 5.6691500623e01),
    ReferenceRun(8, "gresho", 2, 3, 0.62831853, 776, 0.000045, 4.0982431726e02, (3, 2), "rk2avg"),
    ReferenceRun(9, "rayleigh-taylor", 2, 1, 4.0, 2462, 0.000050, 1.1792848680e02, (4, 3)),
)

RUNS: dict[int, ReferenceRun] = {run.number: run for run in _LIST}
"""Reference runs by number."""


def verify(
    number: int,
    cg_tol: float = 1e-8,
    watch: Callable[[Simulation], None] | None = None,
    comm: Any = None,
) -> dict[str, Any]:
    """Repeat a reference run, and compare its results with the published results.

    Parameters
    ----------
    number : int
        Number of the reference run, 1 to 9.
    cg_tol : float
        Relative tolerance of solves with the mass of the velocity.
    watch : callable, optional
        Called after each step.
    comm : mpi4py.MPI.Intracomm or Communicator, optional
        Ranks that share the mesh. By default this process alone.

    Returns
    -------
    dict
        ``steps``, ``dt`` and ``e_norm`` with the values of Laghos, the ``relative`` error of
        ``e_norm``, ``seconds`` of the steps, and ``compile_seconds`` of the setup.

    Raises
    ------
    HydroError
        No reference run has this number.
    """
    if number not in RUNS:
        raise HydroError(f"there is no reference run {number}: they are numbered 1 to {len(RUNS)}")
    reference, begin = RUNS[number], perf_counter()
    run = reference.begin(cg_tol, comm)
    run.compile()
    ready = perf_counter()
    run.run(reference.t_final, watch=watch)
    times = {"seconds": perf_counter() - ready, "compile_seconds": ready - begin}
    return reference.compared(run) | times

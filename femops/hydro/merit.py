"""Figures of merit of a run, with the formulas of Laghos."""

from __future__ import annotations

from femops.errors import HydroError
from femops.hydro.lagrangian import Lagrangian
from femops_common.arguments import checked

_MEGA = 1e-6


@checked(HydroError)
def rates(equations: Lagrangian) -> dict[str, float]:
    """Rates of the parts of a run, in millions per second.

    One sweep computes both the stress at the points and the forces. So both rates are relative to
    the same seconds.

    Returns
    -------
    dict
        ``cg_h1``: velocity dofs times iterations. ``cg_l2``: energy dofs times solves. ``forces``:
        dofs of both times stages. ``update_quad_data``: quadrature points times stages. ``total``:
        all of this work except ``cg_l2``. Each is divided by its seconds.
    """
    clock, V, E = equations.clock, equations.V, equations.E
    points = V.mesh.num_elements * equations.quadrature.q1d**V.dim
    mass = _MEGA * V.ndofs * clock.iterations
    forces = _MEGA * (V.size + E.size) * clock.solves
    updates = _MEGA * points * clock.sweeps
    seconds = clock.mass + clock.force
    return {
        "cg_h1": _over(mass, clock.mass),
        "cg_l2": _over(_MEGA * E.size * clock.solves, clock.energy),
        "forces": _over(forces, clock.force),
        "update_quad_data": _over(updates, clock.force),
        "total": _over(mass + forces + updates, seconds),
    }


def _over(work: float, seconds: float) -> float:
    return work / seconds if seconds > 0.0 else 0.0

"""Relaxation of a moved mesh: its nodes go where a size-and-shape energy is stationary.

The energy of the map F = dx/dX from the initial mesh is that of an elastic solid,

    W(F) = |F|^2 / 2 - log det F + (det F - 1)^2 / 2,

which is least for a rotation. It grows without limit as an element collapses. A second term,
|x - x'|^2 / (2 l^2), holds nodes near their old positions x'. So the relaxation smooths the
displacement over lengths up to l.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.errors import HydroError, SolverError
from femops.hydro.lagrangian import Lagrangian
from femops.pointwise.expressions.tensors import adjugate, det

Floats = NDArray[np.float64]

_TOLERANCE = 1e-6  # tolerance of the solve: the nodes need not be exact
_MOST_STEPS = 50


def _stationary(position: Any, old: Any, pull: Any) -> Any:
    """Integrand of the derivative of the energy by the position."""
    F = np.atleast_2d(position.grad)
    volume, cofactors = det(F), adjugate(F).T
    stress = F + (volume - 1.0 - 1.0 / volume) * cofactors
    return {
        "grad": stress.reshape(np.shape(position.grad)),
        "value": pull * (position.value - old),
    }


@final
class Relaxation:
    """Relaxes the nodes of a mesh. Nodes on walls slide along them."""

    def __init__(self, equations: Lagrangian, length: float) -> None:
        self._V, size = equations.V, equations.h0 * equations.order
        pull = 1.0 / (length * size) ** 2
        old = femops.GridFunction(self._V, self._V.zeros())
        form = femops.residual(
            _stationary, self._V, quadrature=equations.quadrature, old=old, pull=pull
        )
        self._form = form.constrained(equations.walls)

    def relaxed(self, position: Floats) -> Floats:
        """Positions (V.size,) after a relaxation from positions (V.size,)."""
        form = self._form.update(old=femops.GridFunction(self._V, position))
        try:
            found, info = femops.newton(
                form, position, rtol=_TOLERANCE, maxiter=_MOST_STEPS, warn=False
            )
        except SolverError as error:
            raise HydroError(f"the relaxation of the mesh fails: {error}") from error
        if not info.converged:
            raise HydroError(f"the relaxation of the mesh has not converged: {info.reason}")
        worst = quality(self._V, found)
        if not worst > 0.0:
            raise HydroError(
                "the relaxation has tangled the mesh: take a smaller length, or relax more often"
            )
        return found


def quality(V: femops.H1, position: Floats) -> float:
    """Least quality of a mesh whose nodes are at a position (V.size,). Collective.

    The quality at a node is det J over (|J|^2 / dim)^(dim / 2). It is 1 for squares and cubes, and
    negative for inverted elements. The reference element is a cube, so that long elements have a
    low quality. The result is the least on all ranks.
    """
    e_vec = V.restriction.gather(V.l_vec(position)).reshape(-1, V.element.size, V.dim)
    J = np.stack(V.element.slopes(V.element.nodes, e_vec), axis=-1)
    size = np.sqrt((J * J).sum(axis=(-1, -2)) / V.dim)
    least = float((np.linalg.det(J) / size**V.dim).min(initial=np.inf))
    return -V.comm.max(np.inf if np.isnan(least) else -least)

"""Velocity with a given momentum between walls, which let no momentum go."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError
from femops.geometry.boundary import face_digits, nodes_inwards
from femops.hydro.lagrangian import Lagrangian

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUND_OFF = 1e-15
_MOST_ITERATIONS = 100


@final
class WallMomentum:
    """Solves for velocities whose total momentum is that of given integrals.

    A velocity is zero across walls, so the equations of the basis functions there are not solved,
    and the momentum in them would be lost. It goes to the nodes that come next inwards.

    Parameters
    ----------
    equations : Lagrangian
    """

    def __init__(self, equations: Lagrangian) -> None:
        self._equations = equations
        self._walls, self._inner = _pairs(equations)

    def velocity(self, momentum: Floats) -> Floats:
        """Velocity (V.size,) with the integrals (V.size,) of its momentum against the basis.

        Raises
        ------
        HydroError
            The iteration for the momentum at walls does not converge.
        """
        equations, walls = self._equations, self._walls
        scale = np.abs(momentum).sum()
        moved = np.zeros(len(walls))
        for _ in range(_MOST_ITERATIONS):
            right = momentum.copy()
            np.add.at(right, self._inner, moved)
            velocity = equations.velocity_of(right)
            before, moved = moved, momentum[walls] - equations.momentum_of(velocity)[walls]
            if np.abs(moved - before).sum() <= _ROUND_OFF * scale:
                return velocity
        raise HydroError("the momentum at walls has not converged: take a finer mesh")


def _pairs(equations: Lagrangian) -> tuple[Ints, Ints]:
    """Positions (n,) of velocity components across walls, and of the next nodes' inwards."""
    V, mesh = equations.V, equations.part
    digits = dict(face_digits(V.dim))
    inwards = np.full(V.size, -1)
    for (element, code), attribute in zip(
        mesh.topology.boundary_faces, mesh.boundary_attributes, strict=True
    ):
        layers = nodes_inwards(digits[int(code)], V.p1d).reshape(V.p1d, -1)
        dofs = V.restriction.indices[element] * V.ncomp + attribute - 1
        inwards[dofs[layers[0]]] = dofs[layers[1]]
    walls = equations.walls[~np.isin(inwards[equations.walls], equations.walls)]
    return walls, inwards[walls]

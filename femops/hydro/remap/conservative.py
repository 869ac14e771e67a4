"""Remap of several functions with their integrals kept to round-off.

The integral of a function u on a moving mesh is the sum of its coefficients times the lumped mass.
The mass matrix is stepped in time with the function, by the same stages, so constants stay
constants and no integral changes. At the end of a step the stepped mass is the mass of the moved
mesh: its rate of change is a polynomial in time of degree at most dim - 1, which the stages
integrate exactly.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.hydro.remap.flow import Motion
from femops.hydro.remap.matrices import Matrices
from femops.hydro.remap.neighbours import AnyMesh, Elements, Neighbours
from femops.hydro.remap.schemes import scheme
from femops.hydro.remap.tables import Tables

Floats = NDArray[np.float64]

_SAFETY = 0.5  # part of the longest step of low order at the beginning
_STAGES = ((0.0, 0.0), (0.75, 1.0), (1.0 / 3.0, 0.5))  # share of the first, and time of each


@final
class ConservativeRemap:
    """Carries functions of one order from nodes of a mesh to displaced nodes.

    A step has the three stages of the strong stability preserving method. Each stage is a mean, by
    masses, of Euler steps, which are limited by clip and scale between preconditioned upwind and
    the exact inverse of the mass.

    Parameters
    ----------
    mesh : Mesh or DistributedMesh
        Gives the topology. On many ranks nodes, displacement and functions are those of this rank's
        elements, and all calls are collective.
    nodes, displacement : (ne, ng, dim) float64
    order : int
        Degree p of the functions, >= 1.

    Raises
    ------
    HydroError
        An element is inverted where the motion begins.
    """

    def __init__(self, mesh: AnyMesh, nodes: Floats, displacement: Floats, order: int) -> None:
        degree = round(nodes.shape[1] ** (1.0 / mesh.dim)) - 1
        self._tables = Tables(degree, order, mesh.dim)
        self._flow = Motion(nodes, displacement, self._tables.lattice)
        self._scheme = scheme(mesh, self._tables, 3, 2, 2)
        self._elements = Elements.of(mesh)
        self.start = Matrices(self._tables, self._flow, 0.0, self._elements)
        self.num_steps = self._count(Neighbours(mesh, order))

    def _count(self, neighbours: Neighbours) -> int:
        """Number of steps from 0 to 1 for which the low order keeps bounds."""
        start = self.start
        leaving = -np.diagonal(start.preconditioned_upwind, axis1=1, axis2=2).copy()
        neighbours.add(start.inflow_sums, leaving)
        fastest = neighbours.comm.max(float((leaving / start.lumped).max(initial=0.0)))
        return max(1, int(np.ceil(fastest / _SAFETY)))

    def run(self, fields: Floats, steps: int) -> Floats:
        """Carry fields (nf, ne, n) of Bernstein coefficients to the displaced nodes.

        Raises
        ------
        HydroError
            The mesh tangles on its way, or more steps are needed.
        """
        dt, mass = 1.0 / steps, self.start.mass
        for k in range(steps):
            fields, mass = self._step(fields, mass, k * dt, dt)
        return fields

    def _step(self, fields: Floats, mass: Floats, t: float, dt: float) -> tuple[Floats, Floats]:
        """One step of fields and mass."""
        first, of_first = fields, mass
        for share, c in _STAGES:
            at = self._tables, self._flow, t + c * dt, self._elements
            matrices = Matrices.after_step(*at, mass, dt)
            rates = [self._scheme.rate(matrices, u, dt) for u in fields]
            moved, moved_mass = fields + dt * np.stack(rates), matrices.mass
            mass = moved_mass + share * (of_first - moved_mass)
            part = share * of_first.sum(axis=-1) / mass.sum(axis=-1)
            fields = moved + part * (first - moved)
        return fields, mass

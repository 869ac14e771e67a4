"""Remap of several functions with their integrals kept to round-off.

The integral of a function u on a moving mesh is the sum of its coefficients times the lumped mass.
The mass matrix is stepped in time with the function, by the same stages, so constants stay
constants and no integral changes. At the end of a step the stepped mass is the mass of the moved
mesh: its rate of change is a polynomial in time of degree at most dim - 1, which the stages
integrate exactly.

The low order is discrete upwind. Its preconditioned form (`lo` 2) is less diffusive, but on bent
elements the inverse mass fills its matrix with entries that grow exponentially with the order: at
order 8 it would need 500 times as many steps.
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

_SAFETY = 0.5  # part of the longest step of low order
_STAGES = ((0.0, 0.0), (0.75, 1.0), (1.0 / 3.0, 0.5))  # share of the first, and time of each


@final
class ConservativeRemap:
    """Carries functions of one order from nodes of a mesh to displaced nodes.

    A step has the three stages of the strong stability preserving method. Each stage is a mean, by
    masses, of Euler steps, which are limited by clip and scale between discrete upwind and the
    exact inverse of the mass.

    Shapes: `nodes`, `displacement` (ne, ng, dim).
    """

    def __init__(self, mesh: AnyMesh, nodes: Floats, displacement: Floats, order: int) -> None:
        degree = round(nodes.shape[1] ** (1.0 / mesh.dim)) - 1
        self._tables = Tables(degree, order, mesh.dim)
        self._flow = Motion(nodes, displacement, self._tables.lattice)
        self._scheme = scheme(mesh, self._tables, 3, 1, 2)
        self._elements, self._neighbours = Elements.of(mesh), Neighbours(mesh, order)
        self.start = Matrices(self._tables, self._flow, 0.0, self._elements)
        end = Matrices(self._tables, self._flow, 1.0, self._elements)
        self.num_steps = max(self._count(self.start), self._count(end))

    def _count(self, matrices: Matrices) -> int:
        """Number of steps from 0 to 1 for which both methods are stable. Collective."""
        leaving = -np.diagonal(matrices.upwind, axis1=1, axis2=2).copy()
        self._neighbours.add(matrices.inflow_sums, leaving)
        low = float((leaving / matrices.lumped).max(initial=0.0)) / _SAFETY
        order = self._tables.order
        high = float(matrices.speeds.max(initial=0.0)) * (order + 1) * (order + 3) / 3.0
        return max(1, int(np.ceil(self._neighbours.comm.max(max(low, high)))))

    def run(self, fields: Floats, moments: Floats, axis: int) -> tuple[Floats, Floats, Floats]:
        """Carry fields (nf, ne, n) of Bernstein coefficients to the displaced nodes.

        ``moments`` (nm, ne) are integrals of the first nm fields times the coordinate ``axis``. The
        result has the fields, their integrals (nf, ne), and the moments as the fluxes through the
        faces change them. Sums over all elements stay.
        """
        dt, mass = 1.0 / self.num_steps, self.start.mass
        for k in range(self.num_steps):
            fields, mass, moments = self._step(fields, mass, moments, axis, k * dt, dt)
        return fields, (mass.sum(axis=-1) * fields).sum(axis=-1), moments

    def _step(
        self, fields: Floats, mass: Floats, moments: Floats, axis: int, t: float, dt: float
    ) -> tuple[Floats, Floats, Floats]:
        """One step of fields, mass and moments."""
        first, of_first, first_moments = fields, mass, moments
        for share, c in _STAGES:
            at = self._tables, self._flow, t + c * dt, self._elements
            matrices = Matrices.after_step(*at, mass, dt)
            rates = [self._scheme.rate(matrices, u, dt) for u in fields]
            moved, moved_mass = fields + dt * np.stack(rates), matrices.mass
            gained = np.zeros_like(moments)
            for gain, u in zip(gained, fields, strict=False):
                faces = self._neighbours.own(u), self._neighbours.jumps(u)
                gain[:] = matrices.moment_rates(axis, *faces)
            moments = moments + dt * gained
            moments = moments + share * (first_moments - moments)
            mass = moved_mass + share * (of_first - moved_mass)
            part = share * of_first.sum(axis=-1) / mass.sum(axis=-1)
            fields = moved + part * (first - moved)
        return fields, mass, moments

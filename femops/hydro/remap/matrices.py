"""Element matrices of advection with Bernstein polynomials, at one time."""

from __future__ import annotations

from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError
from femops.hydro.remap.flow import Flow, Motion
from femops.hydro.remap.neighbours import Elements
from femops.hydro.remap.tables import Tables
from femops_meshes.coordinates.mapping import adjugates, determinants

Floats = NDArray[np.float64]


@final
class Matrices:
    """Matrices of all elements: of mass, advection, flux through faces, and subcells.

    The function u changes by u' + a.grad(u) = 0, with the velocity a relative to the mesh. Each
    array is computed once, when it is first used.
    """

    def __init__(self, tables: Tables, flow: Flow, t: float, elements: Elements) -> None:
        self._tables, self._flow, self._t, self._elements = tables, flow, t, elements
        self._nodes = flow.nodes(t)

    @staticmethod
    def after_step(
        tables: Tables, flow: Motion, t: float, elements: Elements, mass: Floats, dt: float
    ) -> Matrices:
        """Matrices at time t, with the mass after an Euler step from t in place of the mass at t.

        With this mass a step keeps constants. It also keeps the sum of ``lumped * u``: the step
        adds as much as the change of the lumped mass removes (the geometric conservation law).

        Shapes: `mass` (ne, n, n).
        """
        result = Matrices(tables, flow, t, elements)
        result.__dict__["mass"] = mass + dt * result._mass_rate(flow)
        return result

    def _mass_rate(self, flow: Motion) -> Floats:
        """Derivative (ne, n, n) of the mass matrices by time."""
        table = self._tables
        slopes = table.inside.jacobians(flow.displacement)
        change = (adjugates(self._jacobians) * slopes.swapaxes(-1, -2)).sum(axis=(-1, -2))
        scaled = (table.weights * change)[..., np.newaxis] * table.shapes
        return np.asarray(np.matmul(table.shapes.T, scaled))

    @cached_property
    def mass(self) -> Floats:
        """Mass matrices (ne, n, n)."""
        table = self._tables
        det = determinants(self._jacobians)
        scaled = (table.weights * det)[..., np.newaxis] * table.shapes
        return np.asarray(np.matmul(table.shapes.T, scaled))

    @cached_property
    def lumped(self) -> Floats:
        """Sums (ne, n) of the rows of the mass matrices. Collective at first use."""
        sums = self.mass.sum(axis=-1)
        count, first = self._elements.first(~(sums > 0.0).all(axis=1))
        if count:
            raise HydroError(
                f"the mesh tangles at t = {self._t:g}: {count} element(s) are inverted, first "
                f"number {first}; move it less far"
            )
        return np.asarray(sums)

    @cached_property
    def inverse_mass(self) -> Floats:
        """Inverse mass matrices (ne, n, n)."""
        self.lumped  # noqa: B018  (refuses inverted elements)
        return np.asarray(np.linalg.inv(self.mass), dtype=np.float64)

    @cached_property
    def advection(self) -> Floats:
        """Matrices (ne, n, n) of the integral of -v a.grad(u)."""
        table = self._tables
        along = -table.weights[:, np.newaxis] * self._along
        slopes = along[..., 0, np.newaxis] * table.slopes[0]
        for k in range(1, table.dim):
            slopes += along[..., k, np.newaxis] * table.slopes[k]
        return np.asarray(np.matmul(table.shapes.T, slopes))

    @cached_property
    def speeds(self) -> Floats:
        """Largest sum (ne,) of the speeds along the reference directions, by the mean volume.

        The volume at a point of a bent element can be near zero. That limits no step.
        """
        volume = (self._tables.weights * determinants(self._jacobians)).sum(axis=-1)
        return np.asarray(np.abs(self._along).sum(axis=-1).max(axis=-1) / volume)

    @cached_property
    def _along(self) -> Floats:
        """Velocity times the adjugate Jacobian (ne, nq, dim)."""
        velocity = self._flow.velocity(self._t, self._tables.inside.values)
        return np.asarray(np.matmul(adjugates(self._jacobians), velocity[..., np.newaxis])[..., 0])

    @cached_property
    def preconditioned(self) -> Floats:
        """Advection matrices (ne, n, n) times the inverse mass, times the lumped mass."""
        lumped = self.lumped  # first, as it refuses inverted elements
        solved = np.linalg.solve(self.mass, self.advection)
        return np.asarray(lumped[..., np.newaxis] * solved)

    @cached_property
    def upwind(self) -> Floats:
        """`monotone` of `advection`."""
        return monotone(self.advection)

    @cached_property
    def preconditioned_upwind(self) -> Floats:
        """`monotone` of `preconditioned`."""
        return monotone(self.preconditioned)

    @cached_property
    def inflow(self) -> Floats:
        """Matrices (ne, 2 dim, m, m) of the flux into the element through each face."""
        shapes, weights = self._tables.face_shapes, self._tables.face_weights
        entering = -weights * np.minimum(self._outflow, 0.0)
        return np.asarray(np.matmul(shapes.T, entering[..., np.newaxis] * shapes))

    @cached_property
    def _outflow(self) -> Floats:
        """Flux density (ne, 2 dim, nf) of the function 1 out of the element, at face points."""
        found = []
        for across, sign, table in self._tables.faces:
            outward = sign * adjugates(table.jacobians(self._nodes))[..., across, :]
            found.append((self._flow.velocity(self._t, table.values) * outward).sum(axis=-1))
        return np.stack(found, axis=1)

    def moment_rates(self, axis: int, own: Floats, jumps: Floats) -> Floats:
        """Rate (ne,) at which faces bring the integral of u times a coordinate into the elements.

        ``own`` (ne, 2 dim, m) are the coefficients of u on each face, ``jumps`` the neighbours'
        minus these. Both sides of a face compute the same upwind flux, so the sum over all
        elements is zero.
        """
        shapes, outflow = self._tables.face_shapes, self._outflow
        tables = (table for _, _, table in self._tables.faces)
        height = np.stack(
            [np.matmul(t.values, self._nodes[..., axis, np.newaxis])[..., 0] for t in tables],
            axis=1,
        )
        flux = outflow * np.matmul(own, shapes.T) + np.minimum(outflow, 0.0) * np.matmul(
            jumps, shapes.T
        )
        return np.asarray(-(self._tables.face_weights * height * flux).sum(axis=(1, 2)))

    @cached_property
    def inflow_sums(self) -> Floats:
        """Sums (ne, 2 dim, m) of the rows of `inflow`."""
        return np.asarray(self.inflow.sum(axis=-1))

    @cached_property
    def subcells(self) -> Floats:
        """Integral (2**dim, ne, p**dim) of -a.grad over each subcell, of each corner's function.

        Subcells are multilinear, and have one quadrature point.
        """
        table, corners = self._tables, self._flow.corners(self._t)
        columns = [np.matmul(matrix, corners) for matrix in table.differences]
        velocity = self._flow.subcell_velocity(self._t, table.centres)
        adjugate = adjugates(np.stack(columns, axis=-1))
        along = np.matmul(adjugate, velocity[..., np.newaxis])[..., 0]
        return np.ascontiguousarray(np.moveaxis(-along @ table.corner_slopes, -1, 0))

    @cached_property
    def _jacobians(self) -> Floats:
        return self._tables.inside.jacobians(self._nodes)


def monotone(matrices: Floats) -> Floats:
    """Add to matrices (ne, n, n) the least symmetric diffusion that makes them monotone.

    Entries off the diagonal become at least zero. Rows of the diffusion sum to zero.
    """
    diffusion = np.maximum(0.0, np.maximum(-matrices, -matrices.swapaxes(-1, -2)))
    at = np.arange(matrices.shape[-1])
    diffusion[:, at, at] = 0.0
    result = matrices + diffusion
    result[:, at, at] -= diffusion.sum(axis=-1)
    return result

"""The corner force as matrices of elements, F_ij = int sigma : grad w_i phi_j (assembly `full`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.basis import Quadrature1D
from femops.geometry.jacobians import Geometry
from femops.hydro.problems import Problem
from femops.hydro.qfunctions import stress_at_points

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class CornerForce:
    """The corner force of a state.

    Attributes
    ----------
    matrices : (ne, dim, nodes of w, nodes of phi) array
    source : (size,) array
        Heating by the problem's source, a vector of the dual of the energy.
    """

    matrices: Floats
    source: Floats

    def of_one(self) -> Floats:
        """F 1, of each element: (ne, nodes of w, dim)."""
        return np.asarray(self.matrices.sum(axis=3).swapaxes(1, 2))

    def work(self, velocity: Floats) -> Floats:
        """F^T v and the source, a vector of the dual of the energy.

        Parameters
        ----------
        velocity : (ne, nodes of w, dim) array
        """
        ne, dim, nodes, others = self.matrices.shape
        flat = self.matrices.reshape(ne, dim * nodes, others)
        row = np.ascontiguousarray(velocity.swapaxes(1, 2)).reshape(ne, 1, dim * nodes)
        return np.asarray(np.matmul(row, flat).reshape(-1) + self.source)


@final
class CornerForces:
    """Matrices of the corner force, from the stress at the quadrature points.

    The stress is a field that has its nodes at these points.

    Parameters
    ----------
    problem : Problem
    V, E : H1, L2
        Spaces of position and velocity, and of the energy.
    rule : Quadrature1D
    materials : dict
        Coefficients of the form.
    """

    def __init__(
        self,
        problem: Problem,
        V: femops.H1,
        E: femops.L2,
        rule: Quadrature1D,
        materials: dict[str, Any],
    ) -> None:
        mesh: Any = V.distributed or V.mesh
        at_points = femops.L2(mesh, rule.q1d - 1, ncomp=V.dim**2, family="gauss")
        self._space = femops.Product(position=V, velocity=V, energy=E, stress=at_points)
        self._stress = femops.residual(
            stress_at_points(problem, V.order),
            self._space,
            minima=["step"],
            quadrature=rule,
            **materials,
        )
        blocks = [block.inverse for block in Geometry(V.mesh, rule)]
        self._inverse = np.concatenate(blocks) if blocks else np.zeros((0, 1, V.dim, V.dim))
        values, slopes = (f(rule.points) for f in (V.basis.interpolation, V.basis.gradient))
        gradients = [
            _tensor([slopes if d == k else values for d in range(V.dim)]) for k in range(V.dim)
        ]
        phi = _tensor([E.basis.interpolation(rule.points)] * V.dim)
        # of a point and a direction: products of a slope of w and a value of phi
        table = np.einsum("kqi,qj->qkij", np.stack(gradients), phi)
        self._table = table.reshape(-1, table.shape[2] * table.shape[3])
        self._shape = table.shape[2:]

    def of(self, state: Floats) -> tuple[CornerForce, float]:
        """The corner force of a state, and the least time step at the points. Collective.

        Parameters
        ----------
        state : (size,) array
            Position, velocity and energy.
        """
        whole = np.zeros(self._space.size)
        whole[: len(state)] = state
        residual, found = self._stress.evaluate(whole)
        _, _, source, stress = self._space.split(residual)
        dim, points = self._space.dim, self._inverse.shape[1]
        weighted = stress.reshape(-1, points, dim, dim)
        pulled = np.matmul(weighted, self._inverse.swapaxes(2, 3))  # (ne, points, c, k)
        rows = np.ascontiguousarray(pulled.swapaxes(1, 2)).reshape(-1, points * dim)
        matrices = (rows @ self._table).reshape(-1, dim, *self._shape)
        return CornerForce(matrices, source), found["step"]

    def slowest(self) -> int:
        """Element that allowed the least time step in the last evaluation. Collective."""
        return self._stress.element_of("step")


def _tensor(matrices: list[Floats]) -> Floats:
    """Tensor product of matrices of directions, x first and fastest."""
    found: Floats = np.ones((1, 1))
    for matrix in matrices:
        found = np.asarray(np.kron(matrix, found), dtype=np.float64)
    return found

"""Values of basis functions at quadrature points, which all elements share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Basis1D, gauss
from femops.geometry.boundary import face_digits
from femops_meshes.coordinates.mapping import equispaced

Floats = NDArray[np.float64]


def tensor(matrices: list[Floats]) -> Floats:
    """Tensor product of matrices (k_d, m_d) per direction, x first and fastest."""
    result: Floats = np.ones((1, 1))
    for matrix in matrices:
        result = np.asarray(np.kron(matrix, result), dtype=np.float64)
    return result


@final
@dataclass(frozen=True)
class Geometry:
    """Values and derivatives of the functions of the mesh at nq points."""

    values: Floats  # (nq, ng)
    slopes: Floats  # (dim, nq, ng): derivatives along each reference direction

    @staticmethod
    def at(order: int, points: list[Floats]) -> Geometry:
        """Make the table for the tensor product of points in each direction."""
        nodal = Basis1D("gll", order)
        values = [nodal.interpolation(x) for x in points]
        slopes = [nodal.gradient(x) for x in points]
        derived = [tensor([*values[:k], s, *values[k + 1 :]]) for k, s in enumerate(slopes)]
        return Geometry(tensor(values), np.stack(derived))

    def jacobians(self, nodes: Floats) -> Floats:
        """Jacobians (ne, nq, dim, dim), [..., i, k] = dx_i / dxi_k, of nodes (ne, ng, dim)."""
        dim, nq, ng = self.slopes.shape
        columns = np.matmul(self.slopes.reshape(dim * nq, ng), nodes)
        return np.asarray(columns.reshape(-1, dim, nq, dim).transpose(0, 2, 3, 1))


@final
class Tables:
    """Tables of Bernstein polynomials and of the mesh's functions, at the points of one rule.

    The rule has the degree 2 p + g dim - 1 in each direction. It integrates mass, advection and
    flux exactly where the velocity is constant. MFEM takes the same degree for all three.

    `shapes` (nq, n): values of the Bernstein polynomials. `slopes` (dim, nq, n): their derivatives
    along each direction. `face_shapes` (nf, m): at the points on a face.

    Shapes: `weights` (nq,), `face_weights` (nf,).
    """

    def __init__(self, mesh_order: int, order: int, dim: int) -> None:
        self.order, self.dim, self._mesh_order = order, dim, mesh_order
        rule = gauss((2 * order + mesh_order * dim - 1) // 2 + 1)
        basis, self._x = Basis1D("bernstein", order), rule.points
        at, slope = basis.interpolation(self._x), basis.gradient(self._x)
        self.weights, self.shapes = rule.tensor_weights(dim), tensor([at] * dim)
        self.slopes: Floats = np.stack(
            [tensor([slope if d == k else at for d in range(dim)]) for k in range(dim)]
        )
        self.inside = Geometry.at(mesh_order, [self._x] * dim)
        self.face_weights = rule.tensor_weights(dim - 1)
        self.face_shapes = tensor([at] * (dim - 1))

    @cached_property
    def faces(self) -> list[tuple[int, float, Geometry]]:
        """Direction across each face, the sign of its outer normal, and the table at its points."""
        found = []
        for _, digits in face_digits(self.dim):
            points = [self._x if t == 1 else np.array([0.5 * t]) for t in digits]
            across = next(d for d, t in enumerate(digits) if t != 1)
            table = Geometry.at(self._mesh_order, points)
            found.append((across, digits[across] - 1.0, table))
        return found

    @cached_property
    def lattice(self) -> Floats:
        """Values ((p + 1)**dim, ng) of the mesh's functions at the corners of subcells."""
        nodal = Basis1D("gll", self._mesh_order)
        return tensor([nodal.interpolation(equispaced(self.order + 1))] * self.dim)

    @cached_property
    def centres(self) -> Floats:
        """Matrix (p**dim, (p + 1)**dim) from corners of subcells to means in subcells."""
        return tensor([self._mean] * self.dim)

    @cached_property
    def differences(self) -> Floats:
        """Matrices (dim, p**dim, (p + 1)**dim) from corners to slopes at centres of subcells."""
        p, dims = self.order, range(self.dim)
        jump = np.eye(p, p + 1, 1) - np.eye(p, p + 1)
        return np.stack([tensor([jump if d == k else self._mean for d in dims]) for k in dims])

    @cached_property
    def corner_slopes(self) -> Floats:
        """Slopes (dim, 2**dim) of a subcell's corner functions at its centre."""
        slope, half, dims = np.array([[-1.0, 1.0]]), np.array([[0.5, 0.5]]), range(self.dim)
        return np.stack([tensor([slope if d == k else half for d in dims])[0] for k in dims])

    @cached_property
    def corners(self) -> NDArray[np.int64]:
        """Dofs (p**dim, 2**dim) at the corners of each subcell, both lexicographic."""
        p, dims = self.order, (self.order + 1,) * self.dim
        grid = np.arange((p + 1) ** self.dim).reshape(dims)
        found = [
            grid[tuple(slice(b, b + p) for b in bits)].reshape(-1)
            for bits in np.ndindex((2,) * self.dim)
        ]
        return np.stack(found, axis=-1)

    @property
    def _mean(self) -> Floats:
        p = self.order
        return np.asarray(0.5 * (np.eye(p, p + 1) + np.eye(p, p + 1, 1)))

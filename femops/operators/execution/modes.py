"""Inverses of elements' matrices by fast diagonalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from femops.basis import Basis1D, gauss
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.pointwise.qdata import Data
from femops_meshes.mesh import Mesh

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class ElementModes:
    """Inverses of sums of Kronecker products of two 1-D matrices K and M, one for each element.

    In two dimensions the sum is f_0 (M x K) + f_1 (K x M) + f_2 (M x M). The eigenvectors S have
    K S = M S diag(values) and S^T M S = 1. So the inverse is (S x S) D (S x S)^T with a diagonal D
    (Lynch, Rice and Thomas, Numer. Math. 6, 1964).
    """

    vectors: Floats  # (p1d, p1d): the columns are the eigenvectors
    values: Floats  # (p1d,): eigenvalues, not negative
    # (ne, dim + 1): factors f of the directions, then that of M alone. Not negative, and not all
    # zero.
    factors: Floats
    scales: Floats  # (ne,): factors of the inverses

    def data(self, width: int, dtype: np.dtype[Any]) -> Data:
        """Diagonals D of the elements times their scales, for kernels with ``width`` slots."""
        (ne, columns), n = self.factors.shape, len(self.values)
        batches, dim = -(-ne // width), columns - 1
        padded = np.ones((batches * width, columns + 1), dtype)
        padded[:ne] = np.column_stack([self.factors, self.scales])
        given = padded.reshape(batches, width, columns + 1).transpose(2, 0, 1)
        given = given.reshape(columns + 1, batches, *[1] * dim, width)
        points = placed_array((batches, *[n] * dim, width), dtype)
        points[:] = given[dim]
        for d in range(dim):  # x is the fastest direction, the last axis but one
            values = self.values.astype(dtype).reshape(-1, *[1] * (d + 1))
            points += given[d] * values
        np.divide(given[dim + 1], points, out=points)
        return Data(points.reshape(batches, n**dim, 1, width))


def matrices_of(basis: Basis1D) -> tuple[Floats, Floats]:
    """1-D matrices of stiffness and mass, both (p1d, p1d)."""
    rule = gauss(basis.p1d)
    slopes, values = basis.gradient(rule.points), basis.interpolation(rule.points)
    weights = rule.weights[:, np.newaxis]
    return slopes.T @ (weights * slopes), values.T @ (weights * values)


def modes_of(basis: Basis1D) -> tuple[Floats, Floats]:
    """Generalised eigenpairs of K and M of one element in an infinite row of equal elements."""
    return tuple(eigh(*map(_closed, matrices_of(basis))))


def _closed(matrix: Floats) -> Floats:
    """1-D matrix of the nodes of an element between two equal elements."""
    closed = matrix.copy()
    closed[0, 0] += matrix[-1, -1]
    closed[-1, -1] += matrix[0, 0]
    return closed


def looks_stretched(mesh: Mesh) -> bool:
    """True if an element is about twice as long in one direction as in another, or longer."""
    n, dim = mesh.order + 1, mesh.dim
    lattice = mesh.coordinates.reshape(-1, *[n] * dim, dim)
    lengths = []
    for axis in range(1, dim + 1):
        edges = lattice.take(-1, axis) - lattice.take(0, axis)
        means = edges.reshape(len(lattice), -1, dim).mean(axis=1)
        lengths.append(np.linalg.norm(means, axis=1))
    return bool((np.max(lengths, axis=0) >= 2.0 * np.min(lengths, axis=0)).any())

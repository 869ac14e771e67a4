"""Derivatives by the nodes of a mesh, and by a coefficient, from textbook formulas.

With a velocity theta of the nodes, which carries fields along, these are sums over quadrature
points of (Delfour and Zolesio, Shapes and Geometries, chapter 9):

- volume: div theta
- surface: div theta - n . (grad theta) n
- Dirichlet energy k |grad u|^2 / 2: (k |grad u|^2 / 2) div theta - k grad u . (grad theta)^T grad u
- the energy by k: |grad u|^2 / 2 times the change of k
"""

from __future__ import annotations

from typing import Any

import numpy as np

from support.oracles.points import Array, Points


class Values:
    """Functions at all quadrature points of elements or faces, in plain NumPy.

    Parameters
    ----------
    mesh : Mesh
    boundary : bool
    """

    def __init__(self, mesh: Any, *, boundary: bool = False) -> None:
        self.points = Points(mesh, 5, boundary)
        self.weight = self.points.weight.v.astype(float)
        self.inverse = _plain(self.points.inverse)

    def of(self, space: Any, vector: Array) -> tuple[Array, Array]:
        """Values (n, ncomp), and gradients (n, ncomp, dim), of a function of an H1 space."""
        table = np.asarray(vector).reshape(-1, space.ncomp)[np.asarray(space.restriction.indices)]
        values, slopes = self.points.at_points("gll", space.order, table)
        return _plain(values), np.einsum("nck,nki->nci", _plain(slopes), self.inverse)

    def volume(self, X: Any, theta: Array) -> float:
        """Change of the volume."""
        return self._sum(np.trace(self.of(X, theta)[1], axis1=1, axis2=2))

    def surface(self, X: Any, theta: Array) -> float:
        """Change of the length or area of the boundary."""
        slopes, normal = self.of(X, theta)[1], _plain(self.points.normal)
        along = np.einsum("ni,nij,nj->n", normal, slopes, normal)
        return self._sum(np.trace(slopes, axis1=1, axis2=2) - along)

    def energy(self, X: Any, theta: Array, u: tuple[Any, Array], k: tuple[Any, Array]) -> float:
        """Change of a Dirichlet energy whose fields move with the nodes."""
        slopes, flow, conductivity = self.of(X, theta)[1], self.of(*u)[1][:, 0], self.of(*k)[0]
        density = 0.5 * np.sum(flow**2, axis=1) * np.trace(slopes, axis1=1, axis2=2)
        turned = np.einsum("ni,nji,nj->n", flow, slopes, flow)
        return self._sum(conductivity[:, 0] * (density - turned))

    def by_conductivity(self, u: tuple[Any, Array], change: tuple[Any, Array]) -> float:
        """Change of a Dirichlet energy with the conductivity."""
        flow = self.of(*u)[1][:, 0]
        return self._sum(0.5 * np.sum(flow**2, axis=1) * self.of(*change)[0][:, 0])

    def _sum(self, density: Array) -> float:
        return float(self.weight @ density)


def _plain(numbers: Any) -> Array:
    """Numbers at the points, (n, *shape)."""
    found = np.array([one.v.astype(float) for one in np.asarray(numbers, dtype=object).flat])
    return found.T.reshape(-1, *np.shape(numbers))

"""Modes of an element's map: its coefficients in products of Legendre polynomials.

The polynomials are on [0, 1]. The linear one is scaled to xi - 1/2, so that its slope is 1 and
multilinear maps and Jacobians take the fewest multiplications.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from femops.geometry.batching import element_blocks
from femops.parallel.comm import Communicator
from femops_kernels.cpu.in_order import in_order
from femops_kernels.derived import Derived
from femops_meshes.coordinates.interpolation import gauss_lobatto, tensor_apply
from femops_meshes.coordinates.mapping import adjugates, determinants, geometry_degree
from femops_meshes.mesh import Mesh

Floats = NDArray[np.float64]

# Largest error of a map without some modes, in the element's own coordinates.
EXACT = 1e-13
# Relative round-off of coordinates from files and generators.
_ROUND_OFF = 8 * np.finfo(np.float64).eps

# Results of `_look` for meshes, or results of the mesh that a part is from, or of all ranks.
_facts = Derived[Mesh, tuple[bool, int]]()


def mode_values(count: int, points: NDArray[Any]) -> tuple[Floats, Floats]:
    """Values and slopes (n, count) of the first ``count`` 1-D modes at n points."""
    t = 2.0 * np.asarray(points, dtype=np.float64) - 1.0
    scale = np.ones(count)
    scale[1:2] = 0.5
    values = legendre.legvander(t, count - 1) * scale
    slopes = np.zeros_like(values)
    for k in range(1, count):
        slopes[:, k] = 2.0 * scale[k] * legendre.legval(t, legendre.legder(np.eye(count)[k]))
    return values, slopes


def element_modes(coordinates: Floats, order: int) -> Floats:
    """Compute modes of elements from their nodes. Both have shape (n, (order + 1)**dim, dim)."""
    values = mode_values(order + 1, gauss_lobatto(order + 1)[0])[0]
    return tensor_apply([np.linalg.inv(values)] * coordinates.shape[-1], coordinates)


def mode_degrees(order: int, dim: int) -> NDArray[np.int64]:
    """Degree ((order + 1)**dim, dim) of each mode in each direction, x fastest."""
    return np.indices((order + 1,) * dim).reshape(dim, -1)[::-1].T


def negligible(
    coordinates: Floats, modes: Floats, left_out: NDArray[np.bool_], tol: float
) -> NDArray[np.bool_]:
    """True (n,) for elements whose nodes stay in place if some modes are left out.

    Nodes may move by the round-off of their coordinates, and by ``tol`` in the coordinates of the
    affine part. So the tolerance is smaller in a thin direction.

    Shapes: `coordinates` (n, nodes, dim), `modes` (n, nodes, dim), `left_out` (nodes,).
    """
    dim = coordinates.shape[2]
    order = geometry_degree(coordinates.shape[1], dim)
    values = mode_values(order + 1, gauss_lobatto(order + 1)[0])[0]
    rest = np.where(left_out[:, np.newaxis], modes, 0.0)
    gap = np.abs(tensor_apply([values] * dim, rest)).max(axis=1)
    gap = np.maximum(gap - _ROUND_OFF * np.abs(coordinates).max(axis=1), 0.0)
    slopes = modes[:, (order + 1) ** np.arange(dim)].swapaxes(1, 2)
    with np.errstate(all="ignore"):  # a singular affine part gives NaN, which compares as False
        inverse = np.abs(adjugates(slopes) / determinants(slopes)[:, np.newaxis, np.newaxis])
        own = (inverse * gap[:, np.newaxis]).sum(axis=2)
    return np.asarray((own <= tol).all(axis=1) | ~gap.any(axis=1))


def _look(mesh: Mesh) -> tuple[bool, int]:
    """True if all elements are affine, and the lowest degree that represents all maps."""
    degrees = mode_degrees(mesh.order, mesh.dim)
    affine, degree = True, 1
    for start, stop in element_blocks(mesh.num_elements, mesh.coordinates.shape[1]):
        x = mesh.coordinates[start:stop]
        modes = element_modes(x, mesh.order)
        if affine:
            affine = bool(negligible(x, modes, degrees.sum(axis=1) > 1, EXACT).all())
        while degree < mesh.order and not (
            negligible(x, modes, degrees.max(axis=1) > degree, EXACT).all()
        ):
            degree += 1
    return affine, degree


@final
@dataclass(frozen=True, eq=False)
class LegendreGeometry:
    """Maps of a mesh's elements, in as few modes as the mesh needs.

    The number of modes is determined once for a mesh.
    """

    mesh: Mesh

    @staticmethod
    def share(mesh: Mesh, part: Mesh) -> None:
        """Treat a part of a mesh like the full mesh, even if the part's maps are simpler."""
        _facts.put(part, LegendreGeometry(mesh)._found)

    @staticmethod
    def agree(mesh: Mesh, comm: Communicator) -> None:
        """Make all ranks treat the parts of a mesh in the same way. Collective."""
        affine, degree = LegendreGeometry(mesh)._found
        worst = comm.max(np.array([not affine, degree], dtype=np.int64))
        _facts.put(mesh, (not worst[0], int(worst[1])))

    @property
    def _found(self) -> tuple[bool, int]:
        return _facts.get(self.mesh, partial(_look, self.mesh))

    @property
    def affine(self) -> bool:
        """True if the map of every element is affine."""
        return self._found[0]

    @property
    def degree(self) -> int:
        """Degree in each direction that represents all maps; 1 for multilinear elements."""
        return self._found[1]

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        """Yield the first element and the modes (n, dim, (degree + 1)**dim) of each block."""
        mesh = self.mesh
        kept = np.all(mode_degrees(mesh.order, mesh.dim) <= self.degree, axis=1)

        def made(ends: tuple[int, int]) -> tuple[int, Floats]:
            modes = element_modes(mesh.coordinates[slice(*ends)], mesh.order)
            return ends[0], modes[:, kept].swapaxes(1, 2)

        yield from in_order(made, element_blocks(mesh.num_elements, mesh.coordinates.shape[1]))

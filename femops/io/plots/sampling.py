"""Samples of meshes and fields on grids of points in elements and on faces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.spaces.base import GridFunction
from femops_meshes import Mesh
from femops_meshes.coordinates.mapping import (
    equispaced,
    gauss_lobatto,
    lagrange_matrix,
    tensor_apply,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FACE_DIRECTIONS = {
    code: (d, side) for d in range(3) for side, code in ((0, 13 - 3**d), (1, 13 + 3**d))
}
"""Normal direction and end (0 low, 1 high) of each face, by its ternary code."""


@final
@dataclass(frozen=True, eq=False)
class Sampler:
    """Samples a mesh, displaced if wanted, and a field, as rows (x, y, z, components)."""

    mesh: Mesh
    field: GridFunction | None = None
    displacement: GridFunction | None = None
    factor: float = 1.0  # factor of the displacement

    @property
    def degree(self) -> int:
        """Highest polynomial degree of the mesh, the field and the displacement."""
        functions = [f for f in (self.field, self.displacement) if f is not None]
        return max([self.mesh.order, *(f.space.order for f in functions)])

    @property
    def width(self) -> int:
        """Length of a row: 3 plus the number of components of the field."""
        return 3 if self.field is None else 3 + self.field.space.ncomp

    def __call__(self, elements: Ints, *points: Floats) -> Floats:
        """Sample a tensor grid in each element: the position in 3-D, then the field's components.

        Shapes: `elements` (n,), `*points` (k,), returned (n, ..., kx, 3 + ncomp).
        """
        mesh = self.mesh
        nodes = gauss_lobatto(mesh.order + 1)[0]
        lines = [lagrange_matrix(nodes, x) for x in points]
        where = tensor_apply(lines, mesh.coordinates[elements])
        if self.displacement is not None:
            where = where + self.factor * _at_grid(self.displacement, elements, points)
        columns = [where, np.zeros((*where.shape[:2], 3 - mesh.dim))]
        if self.field is not None:
            columns.append(_at_grid(self.field, elements, points))
        grid = [len(x) for x in reversed(points)]
        return np.concatenate(columns, axis=2).reshape(len(elements), *grid, self.width)

    def patches(self, n: int) -> Floats:
        """Sample all elements of a 2-D mesh at n x n points: (ne, n, n, 3 + ncomp)."""
        return self(np.arange(self.mesh.num_elements), equispaced(n), equispaced(n))

    def faces(self, faces: Ints, n: int) -> Floats:
        """Sample faces of a 3-D mesh at n x n points.

        Shapes: `faces` (k, 2), returned (k, n, n, 3 + ncomp).
        """
        result = np.empty((len(faces), n, n, self.width))
        for code, (direction, side) in FACE_DIRECTIONS.items():
            mine = np.flatnonzero(faces[:, 1] == code)
            points = [equispaced(n)] * 3
            points[direction] = np.array([float(side)])
            layer = self(faces[mine, 0], *points).reshape(-1, n, n, self.width)
            # Arrays are [z, y, x]. Without the normal's axis, the later direction comes first. This
            # order is right-handed with the outer normal at low x and z, and at high y.
            swap = (direction == 1) == (side == 0)
            result[mine] = layer.swapaxes(1, 2) if swap else layer
        return result


def _at_grid(f: GridFunction, elements: Ints, points: tuple[Floats, ...]) -> Floats:
    """Values (n, k, ncomp) of a field at a tensor grid in each element."""
    space = f.space
    table = space.components(f.vector)
    e_vec = space.element_vector(table, elements)
    return space.element.values(points, e_vec)


def boundary_faces(mesh: Mesh) -> Ints:
    """Element and ternary code (k, 2) of the faces with an element on one side only."""
    faces, codes = mesh.topology.faces, mesh.topology.face_codes
    there = faces >= 0
    alone = np.flatnonzero(there[:, 0] != there[:, 1])
    side = np.where(there[alone, 0], 0, 1)
    return np.stack([faces[alone, side], codes[alone, side]], axis=1).astype(np.int64)


def all_faces(elements: Ints) -> Ints:
    """Element and ternary code (6 n, 2) of all faces of n elements."""
    codes = np.array(list(FACE_DIRECTIONS))
    return np.stack([np.repeat(elements, 6), np.tile(codes, len(elements))], axis=1)


def quadrilaterals(patches: Floats) -> Floats:
    """Corners, in cyclic order, of the cells of point grids: (k, n, n, c) -> (cells, 4, c)."""
    p = patches
    corners = np.stack([p[:, :-1, :-1], p[:, 1:, :-1], p[:, 1:, 1:], p[:, :-1, 1:]], axis=3)
    return corners.reshape(-1, 4, p.shape[-1])


def outlines(patches: Floats) -> Floats:
    """Line segments along the sides of point grids: (k, n, n, c) -> (segments, 2, c)."""
    p = patches
    sides = np.concatenate([p[:, 0], p[:, -1], p[:, :, 0], p[:, :, -1]])
    return np.stack([sides[:, :-1], sides[:, 1:]], axis=2).reshape(-1, 2, p.shape[-1])

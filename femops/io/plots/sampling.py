"""Samples of meshes and fields on grids of points in elements and on faces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, final

import numpy as np
from numpy.typing import NDArray

from femops.spaces.base import GridFunction
from femops_meshes import Mesh, MixedMesh
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import equispaced, positions
from femops_meshes.topology.entities import Cell

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

    mesh: Mesh  # or a `MixedMesh`, of which only `parts` are sampled
    field: GridFunction | None = None
    displacement: GridFunction | None = None
    factor: float = 1.0  # factor of the displacement

    @property
    def parts(self) -> list[Sampler]:
        """A sampler for each part of a mesh of several shapes; else the sampler itself."""
        mesh = cast("Mesh | MixedMesh", self.mesh)
        if not isinstance(mesh, MixedMesh):
            return [self]

        def on(f: GridFunction | None, k: int) -> GridFunction | None:
            return None if f is None else GridFunction(f.space.parts[k], f.vector)

        pairs = [(on(self.field, k), on(self.displacement, k)) for k in range(len(mesh.parts))]
        return [
            Sampler(part, *functions, self.factor)
            for part, functions in zip(mesh.parts, pairs, strict=True)
        ]

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
        grid = [len(x) for x in reversed(points)]
        return self._at(elements, [*points]).reshape(len(elements), *grid, self.width)

    def _at(self, elements: Ints, points: list[Floats] | Floats) -> Floats:
        """Rows (n, points, 3 + ncomp) at a grid, or at a list (points, dim), in each element."""
        where = positions(self.mesh.coordinates[elements], points)
        if self.displacement is not None:
            where = where + self.factor * _values(self.displacement, elements, points)
        columns = [where, np.zeros((*where.shape[:2], 3 - self.mesh.dim))]
        if self.field is not None:
            columns.append(_values(self.field, elements, points))
        return np.concatenate(columns, axis=2)

    def lattice(self, elements: Ints, n: int) -> Floats:
        """Sample elements at equispaced points, n along each edge: (ne, points, 3 + ncomp)."""
        cell = self.mesh.cell
        grid = [equispaced(n)] * cell.dim if cell.cube else simplices.equispaced(cell, n - 1)
        return self._at(elements, grid)

    def surface(self, n: int, faces: Ints | None = None) -> tuple[Floats, Floats]:
        """Polygons of a 2-D mesh, or of faces of a 3-D mesh, and lines along the edges.

        Shapes: `faces` (k, 2), returned (m, corners, 3 + ncomp) and (l, 2, 3 + ncomp).
        """
        cell = self.mesh.cell
        if cell.cube:
            grids = self.patches(n) if faces is None else self.faces(faces, n)
            return quadrilaterals(grids), outlines(grids)
        if faces is None:
            rows = self.lattice(np.arange(self.mesh.num_elements), n)
            return self._triangles(rows, cell, n)
        found = [self._of_faces(faces, face, n) for face in cell.faces]
        return together([p for p, _ in found]), np.concatenate([lines for _, lines in found])

    def _triangles(self, rows: Floats, triangle: Cell, n: int) -> tuple[Floats, Floats]:
        """Polygons and lines of samples (k, points, 3 + ncomp) of triangles."""
        width, sides = self.width, _sides(triangle, n - 1)
        polygons = rows[:, simplices.pieces(triangle, n - 1)]
        return polygons.reshape(-1, 3, width), rows[:, sides].reshape(-1, 2, width)

    def _of_faces(self, faces: Ints, face: Cell, n: int) -> tuple[Floats, Floats]:
        """Polygons and lines of the faces of one shape of simplices or prisms."""
        cell, codes = self.mesh.cell, self.mesh.cell.codes_of(face)
        faces = faces[np.isin(faces[:, 1], codes)]
        points = simplices.equispaced(face, n - 1) if face.simplex else _grid(n)
        rows = np.empty((len(faces), len(points), self.width))
        for code in codes:
            mine = np.flatnonzero(faces[:, 1] == code)
            rows[mine] = self._at(faces[mine, 0], cell.on_face(code, points))
        turned = self._turned(faces)
        if face.cube:
            grids = rows.reshape(-1, n, n, self.width)
            grids[~turned] = grids[~turned].swapaxes(1, 2)  # polygons go along y first
            return quadrilaterals(grids), outlines(grids)
        polygons, lines = self._triangles(rows, face, n)
        polygons = polygons.reshape(len(faces), (n - 1) ** 2, 3, self.width)
        polygons[turned] = polygons[turned, :, ::-1]
        return polygons.reshape(-1, 3, self.width), lines

    def _turned(self, faces: Ints) -> NDArray[np.bool_]:
        """True (k,) for faces of simplices or prisms whose points, x before y, look inwards."""
        cell = self.mesh.cell
        looks = np.zeros(len(cell.entities))
        for code in cell.face_codes:
            first, second, third = cell.corners[list(cell.entities[code][1][:3])]
            looks[code] = np.cross(second - first, third - first) @ (first - cell.center[0])
        inwards = looks[faces[:, 1]] < 0.0
        return np.asarray(inwards ^ simplices.mirrored(self.mesh.coordinates[faces[:, 0]]))

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


def _grid(n: int) -> Floats:
    """Points (n * n, 2) of an equispaced grid, x fastest."""
    line = equispaced(n)
    return np.column_stack([np.tile(line, n), np.repeat(line, n)])


def widened(corners: Floats, width: int) -> Floats:
    """Repeat the last corner of polygons (n, k, c), so that they have ``width`` corners."""
    return corners[:, np.minimum(np.arange(width), corners.shape[1] - 1)]


def together(pieces: Sequence[Floats]) -> Floats:
    """Polygons of several arrays (n, k, c), with as many corners as the largest ones."""
    width = max(piece.shape[1] for piece in pieces)
    return np.concatenate([widened(piece, width) for piece in pieces])


def _sides(triangle: Cell, n: int) -> Ints:
    """Nodes (3 n, 2) of the lines along the sides of a triangle, among those of its lattice."""
    rows = simplices.lattice(triangle, n)
    ends = []
    for corner in range(3):
        side = np.flatnonzero(rows[:, corner] == 0)
        line = side[np.argsort(rows[side, corner - 1])]
        ends.append(np.stack([line[:-1], line[1:]], axis=1))
    return np.concatenate(ends)


def _values(f: GridFunction, elements: Ints, points: list[Floats] | Floats) -> Floats:
    """Values (n, k, ncomp) of a field at a grid, or at a list (k, dim), in each element."""
    space = f.space
    table = space.components(f.vector)
    e_vec = space.element_vector(table, elements)
    return space.element.values(points, e_vec)


def boundary_faces(mesh: Mesh) -> Ints:
    """Element and code (k, 2) of the faces with an element on one side only."""
    faces, codes = mesh.topology.faces, mesh.topology.face_codes
    there = faces >= 0
    there[mesh.topology.joined] = True  # another part of the mesh is there
    alone = np.flatnonzero(there[:, 0] != there[:, 1])
    side = np.where(there[alone, 0], 0, 1)
    return np.stack([faces[alone, side], codes[alone, side]], axis=1).astype(np.int64)


def all_faces(cell: Cell, elements: Ints) -> Ints:
    """Element and code (faces * n, 2) of all faces of n elements."""
    codes = np.array(cell.face_codes)
    return np.stack([np.repeat(elements, len(codes)), np.tile(codes, len(elements))], axis=1)


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

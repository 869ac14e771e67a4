"""Dofs of elements that meet: opposite to each other at faces, and around nodes."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.geometry.boundary import face_digits, nodes_inwards
from femops.geometry.interior import MINUS, PLUS, interior_faces
from femops.numbering import h1_numbering
from femops_meshes.mesh import Mesh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Marks = NDArray[np.bool_]


@final
class Neighbours:
    """The dofs of functions of order p on the faces of elements, and opposite to them.

    An element has 2 dim faces, in the order of `face_digits`. The m = (p + 1)**(dim - 1) dofs of a
    face are lexicographic in the element. An element has n = (p + 1)**dim dofs.

    Parameters
    ----------
    mesh : Mesh
    order : int
        p >= 1.

    Attributes
    ----------
    outer : (ne, 2 dim) bool
        True for faces on the boundary.

    Raises
    ------
    SpaceError
        The mesh has no faces between elements.
    """

    def __init__(self, mesh: Mesh, order: int) -> None:
        digits, faces = face_digits(mesh.dim), interior_faces(mesh)
        m, n, ne = (order + 1) ** (mesh.dim - 1), (order + 1) ** mesh.dim, mesh.num_elements
        self._grid = (ne, *[order + 1] * mesh.dim)
        # the dofs of each face as a view of the grid, whose last axis is x
        self._views = [
            (slice(None), *[slice(None) if t == 1 else t // 2 * order for t in reversed(one)])
            for _, one in digits
        ]
        self._own = np.stack([nodes_inwards(one, order + 1)[:m] for _, one in digits])
        self._other = np.full((ne, len(digits), m), ne * n)
        self.outer: Marks = np.ones(self._other.shape[:2], dtype=np.bool_)
        local = [faces.nodes(side, order + 1)[:, :m] for side in (MINUS, PLUS)]
        for mine, theirs in ((MINUS, PLUS), (PLUS, MINUS)):
            opposite = np.take_along_axis(local[theirs], np.argsort(local[mine], axis=1), axis=1)
            at = faces.elements[mine], np.searchsorted([c for c, _ in digits], faces.codes[mine])
            self._other[at] = opposite + n * faces.elements[theirs][:, np.newaxis]
            self.outer[at] = False

    def jumps(self, u: Floats) -> Floats:
        """Neighbour's minus own coefficients (ne, 2 dim, m) of u (ne, n). Outside, u is zero."""
        padded = np.append(u, 0.0)
        return np.take(padded, self._other) - np.take(u, self._own, axis=1)

    def add(self, rates: Floats, u: Floats) -> None:
        """Add rates (ne, 2 dim, m) on faces to the dofs of u (ne, n)."""
        grid = u.reshape(self._grid)
        for slot, view in enumerate(self._views):
            on_face = grid[view]
            on_face += rates[:, slot].reshape(on_face.shape)

    def boundary_marks(self) -> Marks:
        """True (ne, n) for dofs on faces of the boundary."""
        marked = np.zeros(self._grid, dtype=np.bool_)
        for slot, view in enumerate(self._views):
            on_face = marked[view]
            on_face |= self.outer[:, slot].reshape(-1, *[1] * (on_face.ndim - 1))
        return marked.reshape(len(marked), -1)


@final
class Lattice:
    """The nodes of continuous functions of order p, at which elements meet.

    Parameters
    ----------
    mesh : Mesh
    order : int
        p >= 1.
    """

    def __init__(self, mesh: Mesh, order: int) -> None:
        # all nodes inside a vertex, edge, face or cell belong to the same elements
        self._entities = h1_numbering(mesh.topology, 2)[0]
        digits = np.minimum(np.arange(order + 1), 1) + (np.arange(order + 1) == order)
        self._of_node = np.zeros(1, dtype=np.int64)
        for d in range(mesh.dim):
            self._of_node = (3**d * digits[:, np.newaxis] + self._of_node).reshape(-1)
        flat = self._entities.reshape(-1)
        self._sorted = np.argsort(flat, kind="stable")
        self._first = np.searchsorted(flat[self._sorted], np.arange(flat.max() + 1))
        self._element = self._sorted // self._entities.shape[1]

    def spread(self, marked: Marks) -> Marks:
        """Mark (ne, n) the nodes that are marked in one of the elements that meet there."""
        of_entity = np.zeros(self._entities.shape, dtype=np.bool_)
        for node, code in enumerate(self._of_node):
            of_entity[:, code] |= marked[:, node]
        found = np.logical_or.reduceat(of_entity.reshape(-1)[self._sorted], self._first)
        return np.asarray(found[self._entities][:, self._of_node])

    def bounds(self, u: Floats) -> tuple[Floats, Floats]:
        """Least and largest coefficient (ne, n) in the elements that meet at each node."""
        least, largest = u.min(axis=1)[self._element], u.max(axis=1)[self._element]
        return (
            self._at_nodes(np.minimum.reduceat(least, self._first)),
            self._at_nodes(np.maximum.reduceat(largest, self._first)),
        )

    def _at_nodes(self, of_entity: Floats) -> Floats:
        return np.take(np.take(of_entity, self._entities), self._of_node, axis=1)

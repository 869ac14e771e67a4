"""Lagrange cells of VTK, as meshio names them, as elements of Gmsh."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from femops.io.gmsh.nodes import COMPLETE, KINDS, gmsh_order
from femops.io.gmsh.reader import SHAPES
from femops.io.vtk.nodes import prism_nodes, simplex_nodes, vtk_order
from femops_meshes import MeshTopologyError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WORDS = {
    "VTK_LAGRANGE_CURVE": "Line",
    "VTK_LAGRANGE_TRIANGLE": "Triangle",
    "VTK_LAGRANGE_QUADRILATERAL": "Quadrilateral",
    "VTK_LAGRANGE_TETRAHEDRON": "Tetrahedron",
    "VTK_LAGRANGE_HEXAHEDRON": "Hexahedron",
    "VTK_LAGRANGE_WEDGE": "Prism",
}
"""Gmsh's words for the shapes of meshio's blocks of Lagrange cells."""


def lagrange_type(name: str, size: int) -> int | None:
    """Gmsh's type of the Lagrange cells with some number of nodes; None if there is none."""
    numbers = COMPLETE.get(WORDS.get(name, ""), ())
    return next((number for number in numbers if KINDS[number].size == size), None)


def in_gmsh_order(number: int, nodes: Ints, positions: Floats) -> Ints:
    """Nodes (n, k) of Lagrange cells in the order of Gmsh's type ``number``.

    Two edges of hexahedra have changed places between versions of VTK's files, which meshio does
    not tell: the nodes lie nearer to straight edges in the right order.
    """
    kind = KINDS[number]
    orders = [_order(kind.shape, kind.degree, in_memory=new) for new in (False, True)]
    if kind.shape != "Hexahedron" or kind.degree == 1 or not nodes.size:
        return nodes[:, orders[0]]
    if not 0 <= nodes.min() <= nodes.max() < len(positions):
        return nodes[:, orders[0]]  # told by what reads the nodes
    reference = SHAPES[kind.shape].nodes(kind.degree)
    corners = SHAPES[kind.shape].corners
    weights = ((1.0 + reference[:, np.newaxis] * corners) / 2.0).prod(axis=2)
    straight = weights @ positions[nodes[:, :8]]
    far = [((positions[nodes[:, order]] - straight) ** 2).sum() for order in orders]
    return nodes[:, orders[int(far[1] < far[0])]]


@lru_cache
def _order(shape: str, degree: int, *, in_memory: bool) -> Ints:
    """Place in VTK's order of each of Gmsh's nodes."""
    given = SHAPES[shape]
    if not given.simplex:
        order = np.empty((degree + 1) ** given.dim, dtype=np.int64)
        places = vtk_order(given.dim, degree, in_memory=in_memory)
        order[gmsh_order(given.dim, degree)[places]] = np.arange(len(order))
        return order
    flat = given.corners[: given.simplex + 1]
    if len(given.corners) == 6:
        rows = np.array(prism_nodes(degree)) / degree
        up = (given.corners[3:] - flat)[0]
        there = rows[:, :3] @ flat + rows[:, 3:] * up
    else:
        there = np.array(simplex_nodes(given.dim, degree)) / degree @ flat
    gaps = np.abs(given.nodes(degree)[:, np.newaxis] - there).max(axis=2)
    return np.asarray(gaps.argmin(axis=1))


def check_joined(blocks: Iterable[tuple[int, Ints]], positions: Floats) -> None:
    """Raise if corners of cells (types and nodes) are at one place, but are different points."""
    corners = [nodes[:, : len(SHAPES[KINDS[number].shape].corners)] for number, nodes in blocks]
    used = np.unique(np.concatenate([rows.ravel() for rows in corners]))
    x = positions[used[(used >= 0) & (used < len(positions))]]
    rounded = np.round(x / (1e-9 * np.ptp(x, axis=0).max(initial=1e-300)))
    apart = len(x) - len(np.unique(rounded, axis=0))
    if apart:
        raise MeshTopologyError(
            f"{apart} corners of Lagrange cells lie where corners of others do, and are points of "
            "their own, so it is not known which cells are joined: in a file of discontinuous "
            "fields, or of a periodic mesh, cells share no points. Save the mesh alone, or join "
            "its points, as by pyvista.read(path).clean()"
        )

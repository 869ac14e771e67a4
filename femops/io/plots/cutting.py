"""Polygons, lines and elements cut by planes.

A plane has four numbers: its unit normal, and its distance from the origin along the normal. A
corner is a row of numbers that starts with a position in 3-D. At cuts all numbers are interpolated.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def heights(corners: Floats, plane: Floats) -> Floats:
    """Signed distances (...) of corners (..., c) from a plane (4,)."""
    return np.asarray(corners[..., :3] @ plane[:3] - plane[3])


def below(corners: Floats, plane: Floats) -> Floats:
    """Cut convex polygons or lines. Return the parts below a plane.

    Shapes: `corners` (n, k, c), `plane` (4,), returned (m, k', c).
    """
    n, k, c = corners.shape
    height = heights(corners, plane)
    following = np.roll(height, -1, axis=1)
    inside = height <= 0
    crosses = inside != (following <= 0)
    part = np.where(crosses, height / np.where(crosses, height - following, 1), 0)
    crossings = corners + part[..., None] * (np.roll(corners, -1, axis=1) - corners)
    found = np.stack([corners, crossings], axis=2).reshape(n, 2 * k, c)
    used = np.stack([inside, crosses], axis=2).reshape(n, 2 * k)
    count = used.sum(axis=1)
    left = count > 0
    width = 2 if k == 2 else int(count.max(initial=1))
    order = np.argsort(~used[left], axis=1, kind="stable")
    slots = np.minimum(np.arange(width), count[left, None] - 1)
    chosen = np.take_along_axis(order, slots, axis=1)
    return np.take_along_axis(found[left], chosen[..., None], axis=1)


def outside_corner(corners: Floats, planes: Floats) -> Floats:
    """Cut convex polygons or lines (n, k, c). Return the parts below at least one of some planes.

    The parts are those below the first plane, then those above the first and below the second, and
    so on.
    """
    pieces = []
    for k, plane in enumerate(planes):
        piece = corners
        for earlier in planes[:k]:
            piece = below(piece, -earlier)
        pieces.append(below(piece, plane))
    width = max(piece.shape[1] for piece in pieces)
    return np.concatenate([widened(piece, width) for piece in pieces])


def widened(corners: Floats, width: int) -> Floats:
    """Repeat the last corner of polygons (n, k, c), so that they have ``width`` corners."""
    return corners[:, np.minimum(np.arange(width), corners.shape[1] - 1)]


def section(grids: Floats, plane: Floats) -> Floats:
    """Polygons in which a plane cuts elements, counterclockwise as seen from above the plane.

    Shapes: `grids` (ne, n, n, n, c), `plane` (4,), returned (m, 4, c).
    """
    n, c = grids.shape[1], grids.shape[-1]
    flat = grids.reshape(-1, c)
    height = heights(flat, plane)
    cell = np.add.outer(_first_corners(n), _CELL @ [n * n, n, 1])
    nodes = np.add.outer(np.arange(len(grids)) * n**3, cell).reshape(-1, 8)
    above = height[nodes] > 0
    nodes = nodes[above.any(axis=1) & ~above.all(axis=1)]
    tetrahedra = nodes[:, _TETRAHEDRA].reshape(-1, 4)
    case = (height[tetrahedra] > 0) @ [1, 2, 4, 8]
    met = (case > 0) & (case < 15)
    ends = _edges_met()[case[met]]  # (m, 4, 2)
    a, b = (np.take_along_axis(tetrahedra[met], ends[..., k], axis=1) for k in (0, 1))
    part = (height[a] / (height[a] - height[b]))[..., None]
    polygons = (1 - part) * flat[a] + part * flat[b]
    normals = np.cross(
        polygons[:, 2, :3] - polygons[:, 0, :3], polygons[:, 3, :3] - polygons[:, 1, :3]
    )
    turned = normals @ plane[:3] < 0
    polygons[turned] = polygons[turned, ::-1]
    return np.asarray(polygons)


def section_lines(triangles: Floats, plane: Floats) -> Floats:
    """Lines in which a plane cuts triangles: (n, 3, c) -> (m, 2, c)."""
    height = heights(triangles, plane)
    above = height > 0
    met = above.any(axis=1) & ~above.all(axis=1)
    triangles, height, above = triangles[met], height[met], above[met]
    alone = np.argmax(above == (above.sum(axis=1) == 1)[:, None], axis=1)
    turn = (alone[:, None] + np.arange(3)) % 3
    triangles = np.take_along_axis(triangles, turn[..., None], axis=1)
    height = np.take_along_axis(height, turn, axis=1)
    part = (height[:, :1] / (height[:, :1] - height[:, 1:]))[..., None]
    return np.asarray((1 - part) * triangles[:, :1] + part * triangles[:, 1:])


_CELL = np.array([[k >> 2 & 1, k >> 1 & 1, k & 1] for k in range(8)])
"""Corners of a cell along z, y and x; x is fastest."""

_TETRAHEDRA = np.array(
    [[0, 1 << a, 1 << a | 1 << b, 7] for a, b, _ in permutations(range(3))], dtype=np.int64
)
"""Six tetrahedra of a cell, one for each path along edges from its first corner to its last."""


def _first_corners(n: int) -> Ints:
    i = np.arange(n - 1)
    return (i[:, None, None] * n * n + i[:, None] * n + i).ravel()


@lru_cache
def _edges_met() -> Ints:
    """Edges (16, 4, 2) of a tetrahedron that a plane cuts, in cyclic order.

    The first index tells which corners are above the plane: bit k is set for corner k.
    """
    table = np.zeros((16, 4, 2), dtype=np.int64)
    for case in range(1, 15):
        up = [v for v in range(4) if case >> v & 1]
        down = [v for v in range(4) if v not in up]
        if len(up) == 2:
            ring = [(up[0], down[0]), (up[0], down[1]), (up[1], down[1]), (up[1], down[0])]
        else:
            edges = [(a, b) for a in up for b in down]
            ring = [*edges, edges[-1]]
        table[case] = ring
    return table

"""Gluing of the periodic sides of a Gmsh mesh: vertices that a link joins become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from femops.io.gmsh.file import GmshArrays
from femops.io.gmsh.periodic import Link
from femops_meshes import MeshTopologyError, Topology
from femops_meshes.topology.entities import Cell
from femops_meshes.topology.topology import group_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


_NEAR = 1e-6
"""Largest distance, relative to the mesh's size, between an image and the node that it matches.

The default of Gmsh's option Geometry.MatchMeshTolerance.
"""


def vertex_links(content: GmshArrays, vertices: Ints, positions: Floats) -> list[Link]:
    """Convert the links of a file to vertex numbers. Nodes that are not vertices are dropped."""
    result, matched = [], set()
    for link in content.links:
        nodes = link.nodes
        if not len(nodes) and link.dim > 0:
            side = link.dim, link.entities[0]
            if side in matched:  # each link would bring all nodes of the side anew
                raise MeshTopologyError(
                    f"the periodic side {side[1]} of dimension {side[0]} comes twice without "
                    "nodes: it is the image of one other side"
                )
            matched.add(side)
            nodes = _matched(content, link, vertices, positions)
        places = np.minimum(np.searchsorted(vertices, nodes), len(vertices) - 1)
        known = vertices[places] == nodes
        both = known.all(axis=1)
        listed = content.side_nodes(link.dim, link.entities[0])
        alone = np.union1d(nodes[known & ~both[:, None]], np.intersect1d(listed, vertices))
        alone = np.setdiff1d(alone, nodes[both, 0])
        if both.any() and len(alone):
            raise MeshTopologyError(
                f"a periodic side (Gmsh's number {link.entities[0]}, dimension {link.dim}) has "
                f"{len(alone)} vertices without an image that is a vertex: mesh both sides in the "
                "same way, and save all elements; if nothing is periodic (some versions of Gmsh "
                "list extruded sides too), remove the section $Periodic from the file"
            )
        if both.any():
            result.append(replace(link, nodes=places[both].astype(np.int64)))
    return result


def _matched(content: GmshArrays, link: Link, vertices: Ints, positions: Floats) -> Ints:
    """Find the pairs (n, 2) of node numbers of a link without nodes, by positions."""
    places = []
    for entity in link.entities:
        mine = np.isin(vertices, content.side_nodes(link.dim, entity))
        places.append(np.flatnonzero(mine))
    side, other = places
    what = f"the periodic side {link.entities[0]} of dimension {link.dim} and its image"
    if not len(side) or not len(other) or link.affine is None:
        raise MeshTopologyError(
            f"the file does not list which nodes of {what} are the same, nor their elements: in "
            "Gmsh call setPeriodic again once the mesh is generated, or put these sides into "
            "physical groups"
        )
    images = positions[other] @ link.affine[:3, :3].T + link.affine[:3, 3]
    gap, at = cKDTree(positions[side]).query(images)
    near = gap.max() <= _NEAR * np.ptp(positions, axis=0).max()
    if not near or not np.array_equal(np.sort(at), np.arange(len(side))):
        raise MeshTopologyError(
            f"vertices of {what} do not match one to one: mesh both sides in the same way"
        )
    pairs: Ints = vertices[np.stack([side[at], other], axis=1)]
    return pairs


Shapes = Sequence[tuple[Cell, Ints]]
"""Cells of a mesh, with the vertex numbers (n, corners) of the elements of each."""


@final
@dataclass(frozen=True)
class Glued:
    """Glued mesh: vertex numbers of the elements, and the boundary entries that remain."""

    elements: list[Ints]  # shapes (n, corners), for each shape of elements
    num_vertices: int  # number of vertices after gluing
    boundary: list[Ints]  # shapes (n, corners): boundary entries that are not glued
    kept: list[Flags]  # shapes (nb,): True for each boundary entry that is not glued


def glued(
    shapes: Shapes, num_vertices: int, boundary: Sequence[Ints], links: Sequence[Link]
) -> Glued:
    """Merge all vertices that a link joins, or a chain of links through several sides."""
    pairs = np.concatenate([link.nodes for link in links])
    classes, lowest = _classes(num_vertices, pairs)
    first = np.full(classes, num_vertices, dtype=np.int64)
    np.minimum.at(first, lowest, np.arange(num_vertices))
    merged = first[lowest]
    used = np.unique(np.concatenate([merged[corners].ravel() for _, corners in shapes]))
    place, count = np.searchsorted(used, merged), len(used)
    after = [(cell, place[corners]) for cell, corners in shapes]
    try:
        for cell, corners in after:
            Topology.build(corners, count, cell=cell)
    except MeshTopologyError as error:
        raise MeshTopologyError(f"once its periodic sides are glued, {error}") from error.__cause__
    for kind in range(1, shapes[0][0].dim):
        for rows in _corners(shapes, kind).values():
            _check_kind(rows, place[rows], num_vertices, links, kind, shapes[0][0].dim)
    kept = [
        _two_sided(shapes, num_vertices, rows) == _two_sided(after, count, place[rows])
        for rows in boundary
    ]
    entries = [place[rows[mine]] for rows, mine in zip(boundary, kept, strict=True)]
    return Glued([corners for _, corners in after], count, entries, kept)


def _corners(shapes: Shapes, kind: int) -> dict[int, Ints]:
    """Vertices (n, corners) of the edges or faces of all elements, by their number of corners."""
    found: dict[int, list[Ints]] = {}
    for cell, elements in shapes:
        for code in cell.codes(kind):
            local = list(cell.entities[code][1])
            found.setdefault(len(local), []).append(elements[:, local])
    return {width: np.concatenate(rows) for width, rows in found.items()}


def _two_sided(shapes: Shapes, num_vertices: int, boundary: Ints) -> Flags:
    """True for each boundary entry whose face has elements on both sides."""
    rows = _corners(shapes, shapes[0][0].dim - 1).get(boundary.shape[1], boundary[:0])
    both = np.concatenate([rows, boundary])
    both = np.repeat(both, 2, axis=1) if both.shape[1] == 1 else both  # points
    number, count = group_rows(both, num_vertices)
    elements = np.bincount(number[: len(rows)], minlength=count)
    return np.asarray(elements[number[len(rows) :]] > 1)


def _classes(count: int, pairs: Ints) -> tuple[int, Ints]:
    """Return the number of classes that the pairs join, and the class of each number."""
    graph = coo_array((np.ones(len(pairs), dtype=np.int8), pairs.T), shape=(count, count))
    number, place = connected_components(graph, directed=False)
    return int(number), place.astype(np.int64)


def _check_kind(
    before: Ints, after: Ints, num_vertices: int, links: Sequence[Link], kind: int, dim: int
) -> None:
    """Raise if edges or faces of elements were merged that no link maps to each other.

    Shapes: `before`, `after` (n, corners), of an edge or face in each of its elements.
    """
    number, count = group_rows(before, num_vertices)
    rows = np.empty((count, before.shape[1]), dtype=np.int64)
    rows[number] = np.sort(before, axis=1)
    outside = np.bincount(number) < 2 if kind == dim - 1 else None
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for link in links:
        mapped, there = images(rows, link.nodes, num_vertices)
        if outside is not None and link.dim == kind and (outside[mapped] & (there < 0)).any():
            lost = mapped[outside[mapped] & (there < 0)]
            raise MeshTopologyError(
                f"{len(lost)} of {len(mapped)} face(s) of a periodic side have no image on the "
                "other side: mesh both in the same way, in Gmsh by setPeriodic before the mesh is "
                "generated"
            )
        pairs.append(np.stack([mapped, there], axis=1)[there >= 0])
    wanted, _ = _classes(count, np.concatenate(pairs))
    found = group_rows(after, num_vertices)[1]
    if found != wanted:
        names = {1: "edges", 2: "faces"}[kind]
        raise MeshTopologyError(
            f"once its periodic sides are glued, {names} that are not one have the same vertices "
            f"({found} {names} where {wanted} should be): a periodic direction "
            "needs at least 3 elements, everywhere"
        )


def images(rows: Ints, pairs: Ints, num_vertices: int) -> tuple[Ints, Ints]:
    """Find the rows whose vertices a link maps, and the row of each image (-1 if none)."""
    image = np.full(num_vertices, -1, dtype=np.int64)
    image[pairs[:, 0]] = pairs[:, 1]
    targeted = np.zeros(num_vertices, dtype=np.bool_)
    targeted[pairs[:, 1]] = True
    mapped = np.flatnonzero((image[rows] >= 0).all(axis=1))
    targets = np.flatnonzero(targeted[rows].all(axis=1))
    both = np.concatenate([rows[targets], np.sort(image[rows[mapped]], axis=1)])
    number = np.unique(both, axis=0, return_inverse=True)[1].ravel()
    at = np.full(number.max(initial=-1) + 1, -1, dtype=np.int64)
    at[number[: len(targets)]] = targets
    return mapped, at[number[len(targets) :]]

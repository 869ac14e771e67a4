"""Check that the corners of each boundary entry tell on which side of its face the entry lies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coordinates import simplices
from femops_meshes.errors import MeshTopologyError
from femops_meshes.mesh import Mesh
from femops_meshes.topology.entities import looks_out

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
_TORN = 1e-10  # least distance of sides at two positions, relative to the size of the mesh
_SHOWN = 5


def check_sides(mesh: Mesh, listed: Flags | None = None) -> None:
    """Raise if an entry of the boundary does not tell its side of a glued face.

    A face inside a mesh has one position in space. There any order of an entry's corners is valid
    and chooses a side.
    """
    bad = _unclear(mesh)
    bad = bad if listed is None else bad[listed[bad]]
    if not len(bad):
        return
    names = ", ".join(map(str, bad[:_SHOWN])) + (", ..." if len(bad) > _SHOWN else "")
    why = (
        "a point has no sides, so leave it out"
        if mesh.dim == 1
        else "list each side once, with its corners in the order that faces outwards (in 2-D the "
        "domain is to the left of the edge), or leave both out"
    )
    raise MeshTopologyError(
        f"{len(bad)} boundary element(s) are faces where a periodic mesh is glued, and don't tell "
        f"their side: number(s) {names} (counted from 0; {bad[0]} has vertices "
        f"{mesh.boundary[bad[0]].tolist()}): {why}"
    )


def _unclear(mesh: Mesh) -> Ints:
    """Entries of the boundary on glued faces whose side is not known."""
    topology = mesh.topology
    number = topology.entity[topology.boundary_faces[:, 0], topology.boundary_faces[:, 1]]
    two = np.flatnonzero(topology.faces[number, 1] >= 0)
    # sides of two sizes have faces of their own, so that their entries tell the side
    sides = topology.entity[topology.faces[number[two]], topology.face_codes[number[two]]]
    two = two[sides[:, 0] == sides[:, 1]]
    faces, codes = topology.faces[number[two]], topology.face_codes[number[two]]
    if mesh.cell.simplex:
        out = simplices.look_out(mesh.boundary[two], mesh.coordinates, faces, codes)
    else:
        out = looks_out(mesh.elements, mesh.boundary[two], faces, codes, mesh.cell)
    _, place, times = np.unique(
        topology.boundary_faces[two], axis=0, return_inverse=True, return_counts=True
    )
    unclear = (out[:, 0] == out[:, 1]) | (times[place.ravel()] > 1) | (mesh.dim == 1)
    bad, faces = two[unclear], faces[unclear]
    result: Ints = bad[_torn(mesh, bad, faces)]
    return result


def _torn(mesh: Mesh, entries: Ints, faces: Ints) -> Flags:
    """True where an entry's corners have different positions in its two elements."""
    sides, cell = [], mesh.cell
    nodes = np.concatenate([cell.lattice(code, mesh.order) for code in cell.codes(0)])
    for side in (0, 1):
        rows = mesh.elements[faces[:, side]]
        local = (rows[:, None, :] == mesh.boundary[entries][:, :, None]).argmax(axis=2)
        sides.append(mesh.coordinates[faces[:, side, None], nodes[local]])
    lower, upper = mesh.bounding_box()
    gaps = np.abs(sides[0] - sides[1]).max(axis=(1, 2))
    far: Flags = gaps > _TORN * np.abs(upper - lower).max(initial=0.0)
    return far

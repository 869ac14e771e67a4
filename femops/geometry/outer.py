"""Boundary faces that belong to one element only.

A mesh may list faces between two elements as boundary faces, where a periodic mesh is glued or
along a plane inside. Discontinuous methods have other integrals there, over both sides of the face.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import SpaceError
from femops.geometry.boundary import Attributes, boundary_attributes
from femops.geometry.interior import are_inner
from femops.parallel.mesh import DistributedMesh
from femops_meshes.mesh import Mesh

Ints = NDArray[np.int64]


def outer_boundary(mesh: Mesh | DistributedMesh) -> bool | list[int]:
    """Boundary faces that belong to one element only, as a value of ``boundary=``.

    Collective on many ranks.

    Returns
    -------
    bool or list of int
        False if every face is between two elements, as in a periodic mesh; True if the mesh lists
        no face between elements; else the attributes of the faces of one element.

    Raises
    ------
    SpaceError
        If an attribute has faces of both kinds.
    """
    own = mesh if isinstance(mesh, Mesh) else mesh.mesh
    used = own.topology.faces[:, 0] >= 0
    if not _on_any_rank(mesh, (used & ~are_inner(mesh)).any()):
        return False
    known, outside, inside = _kinds(mesh)
    if not inside.any():
        return True
    if both := known[outside & inside].tolist():
        raise SpaceError(
            f"boundary attribute {both[0]} has faces between elements and faces of one element: "
            "give them different attributes"
        )
    return [int(number) for number in known[outside]]


def outer_attributes(mesh: Mesh | DistributedMesh, attributes: Attributes) -> list[int]:
    """Convert boundary attributes to ascending numbers, and check that their faces are outside.

    Collective on many ranks.

    Raises
    ------
    SpaceError
        If the mesh has no such attribute, or an attribute has faces between elements.
    """
    asked = boundary_attributes(mesh, attributes)
    known, outside, inside = _kinds(mesh)
    if bad := [int(number) for number in asked if number in known[inside]]:
        cure = (
            "give its faces of one element another attribute"
            if bad[0] in known[outside]
            else "leave it out of boundary="
        )
        raise SpaceError(
            f"boundary attribute {bad[0]} has faces between elements, where no solution can be "
            f"prescribed: {cure}"
        )
    return [int(number) for number in asked]


def _kinds(mesh: Mesh | DistributedMesh) -> tuple[Ints, NDArray[np.bool_], NDArray[np.bool_]]:
    """All boundary attributes (n,), and which have faces of one element, or between elements."""
    own = mesh if isinstance(mesh, Mesh) else mesh.mesh
    between = are_inner(mesh)[own.topology.entity[tuple(own.topology.boundary_faces.T)]]
    known = boundary_attributes(mesh, None)
    kinds = [np.isin(known, own.boundary_attributes[kind]) for kind in (~between, between)]
    outside, inside = (_on_any_rank(mesh, kind) for kind in kinds)
    return known, outside, inside


def _on_any_rank(mesh: Mesh | DistributedMesh, flags: Any) -> Any:
    """Combine flags, one or an array, of all ranks that share a mesh: True if any has True."""
    if isinstance(mesh, Mesh):
        return flags
    return mesh.comm.max(np.array(flags, dtype=np.int64)) > 0

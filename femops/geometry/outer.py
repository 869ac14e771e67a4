"""Faces of a mesh that belong to one element only: its outer boundary.

A mesh may list other faces as boundary faces, where a periodic mesh is glued or along a plane
inside, and its file may leave outer faces out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from femops.parallel.mesh import DistributedMesh
from femops_meshes.mesh import Mesh

Ints = NDArray[np.int64]


def are_inner(mesh: Mesh | DistributedMesh) -> NDArray[np.bool_]:
    """True for each face (nf,) of the mesh, or of this rank's part, that is between elements."""
    own = mesh if isinstance(mesh, Mesh) else mesh.mesh
    inner = own.topology.faces[:, 1] >= 0
    if isinstance(mesh, DistributedMesh):
        inner[own.topology.entity[tuple(mesh.part.interface.T)]] = True
    return inner


def listed_are_inner(mesh: Mesh | DistributedMesh) -> NDArray[np.bool_]:
    """True for each face (nb,) that the mesh, or this rank's part, lists between elements."""
    topology = mesh.topology if isinstance(mesh, Mesh) else mesh.mesh.topology
    listed: NDArray[np.bool_] = are_inner(mesh)[topology.entity[tuple(topology.boundary_faces.T)]]
    return listed


def outer_faces(mesh: Mesh | DistributedMesh) -> Ints:
    """Element and ternary code (n, 2) of each outer face of the mesh, or of this rank's part."""
    topology = mesh.topology if isinstance(mesh, Mesh) else mesh.mesh.topology
    alone = (topology.faces[:, 0] >= 0) & ~are_inner(mesh)
    return np.stack([topology.faces[alone, 0], topology.face_codes[alone, 0]], axis=1)


def has_outer(mesh: Mesh | DistributedMesh) -> bool:
    """True if the mesh has outer faces, on any rank."""
    return bool(len(outer_faces(mesh))) if isinstance(mesh, Mesh) else mesh.has_outer_faces

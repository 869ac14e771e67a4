"""Bodies of a mesh, and faces that lie on each other but are not joined."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from femops_meshes.coordinates.mapping import face_centers
from femops_meshes.mesh import Mesh

Ints = NDArray[np.int64]
_NEAR = 1e-9  # largest distance, over the mesh's size, of faces that lie on each other


def bodies(mesh: Mesh) -> Ints:
    """Number (ne,) of each element's body, from 0. Elements that share a vertex are of one body."""
    count, corners = mesh.elements.shape
    place = np.repeat(np.arange(count), corners), count + mesh.elements.reshape(-1)
    size = count + mesh.num_vertices
    graph = coo_array((np.ones(count * corners, dtype=np.int8), place), shape=(size, size))
    labels = connected_components(graph, directed=False)[1][:count]
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def unjoined_faces(mesh: Mesh) -> int:
    """Number of outer faces that lie on another outer face. Both faces of a pair count.

    Faces lie on each other if their middles do. Such a mesh has vertices twice where two bodies, or
    the sides of a crack, touch.
    """
    topology = mesh.topology
    outside = topology.faces[:, 1] < 0
    faces = np.stack([topology.faces[outside, 0], topology.face_codes[outside, 0]], axis=1)
    if len(faces) < 2:
        return 0
    centers = face_centers(mesh.coordinates, faces)
    lower, upper = mesh.bounding_box()
    distance = cKDTree(centers).query(centers, k=2)[0][:, 1]
    return int(np.count_nonzero(distance <= _NEAR * np.max(upper - lower)))

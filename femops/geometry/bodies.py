"""Bodies of a mesh, and faces that lie on each other but are not joined."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from femops.geometry.boundary import outer_faces
from femops_meshes.coordinates.mapping import face_centers
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh

Ints = NDArray[np.int64]
_NEAR = 1e-9  # largest distance, over the mesh's size, of faces that lie on each other


def bodies(mesh: Mesh | MixedMesh) -> Ints:
    """Number (ne,) of each element's body, from 0. Elements that share a vertex are of one body."""
    rows, columns, count = [], [], mesh.num_elements
    first = 0
    for part in mesh.parts:
        mine, corners = part.elements.shape
        rows.append(np.repeat(first + np.arange(mine), corners))
        columns.append(count + part.elements.reshape(-1))
        first += mine
    place, size = (np.concatenate(rows), np.concatenate(columns)), count + mesh.num_vertices
    graph = coo_array((np.ones(len(place[0]), dtype=np.int8), place), shape=(size, size))
    labels = connected_components(graph, directed=False)[1][:count]
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def unjoined_faces(mesh: Mesh | MixedMesh) -> int:
    """Number of outer faces that lie on another outer face. Both faces of a pair count.

    Faces lie on each other if their middles do. Such a mesh has vertices twice where two bodies, or
    the sides of a crack, touch.
    """
    found = [face_centers(part.coordinates, outer_faces(part)) for part in mesh.parts]
    centers = np.concatenate(found)
    if len(centers) < 2:
        return 0
    lower, upper = mesh.bounding_box()
    distance = cKDTree(centers).query(centers, k=2)[0][:, 1]
    return int(np.count_nonzero(distance <= _NEAR * np.max(upper - lower)))

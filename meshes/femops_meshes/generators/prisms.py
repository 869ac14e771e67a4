"""Prisms of hexahedra."""

import numpy as np
from numpy.typing import NDArray

from femops_meshes import checks
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import positions
from femops_meshes.errors import MeshArgumentError, MeshTopologyError
from femops_meshes.mesh import SPLITS, Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.topology.entities import HEXAHEDRON, PRISM, outward_corners

Ints = NDArray[np.int64]

_HALVES = np.array([(0, 1, 2, 4, 5, 6), (3, 2, 1, 7, 6, 5)])
"""Corners of the two prisms of a hexahedron."""

_ENDS = {4: np.array([(0, 2, 1), (3, 1, 2)]), 22: np.array([(4, 5, 6), (7, 6, 5)])}
"""Corners of the triangles at the low and high end of a hexahedron, which look outwards, by code"""


def prisms_of(mesh: Mesh) -> MixedMesh:
    """Prisms of hexahedra; see `Mesh.prisms`."""
    if mesh.cell is not HEXAHEDRON or not mesh.conforming:
        raise MeshArgumentError("prisms() takes meshes of hexahedra that conform")
    checks.simplex_degree(mesh.order)
    _check_columns(mesh)
    nodes, inner = [], simplices.nodes(PRISM, mesh.order)
    for corners in _HALVES:
        x = HEXAHEDRON.corners[corners]
        nodes.append(positions(mesh.coordinates, x[0] + inner @ (x[1:4] - x[0])))
    at = mesh.topology.boundary_faces
    ends = np.isin(at[:, 1], [*_ENDS])
    low, high = (mesh.elements[at[at[:, 1] == code, 0]][:, rows] for code, rows in _ENDS.items())
    marks = [mesh.boundary_attributes[at[:, 1] == code] for code in _ENDS]
    return MixedMesh.assemble(
        {"prisms": mesh.elements[:, _HALVES].reshape(-1, 6)},
        {"prisms": np.stack(nodes, axis=1).reshape(-1, *nodes[0].shape[1:])},
        mesh.num_vertices,
        {"prisms": np.repeat(mesh.element_attributes, 2)},
        {
            "triangles": np.concatenate([low, high]).reshape(-1, 3),
            "quadrilaterals": outward_corners(mesh.elements, at[~ends]),
        },
        {
            "triangles": np.repeat(np.concatenate(marks), 2),
            "quadrilaterals": mesh.boundary_attributes[~ends],
        },
        mesh.element_names,
        mesh.boundary_names,
        {"prisms": (2 * mesh.file_elements[:, np.newaxis] + np.arange(2)).ravel()},
    )


SPLITS["prisms"] = prisms_of


def _check_columns(mesh: Mesh) -> None:
    """Raise if the triangles of prisms would not meet those of the neighbours."""
    topology = mesh.topology
    faces, codes = topology.faces[topology.pairs], topology.face_codes[topology.pairs]
    ends = np.isin(codes, [*_ENDS])
    diagonal = np.sort(mesh.elements[:, [[1, 2], [5, 6]]], axis=2)[faces, (codes == 22).astype(int)]
    bad = ends[:, 0] != ends[:, 1]
    bad |= ends[:, 0] & (diagonal[:, 0] != diagonal[:, 1]).any(axis=1)
    if bad.any():
        pair = faces[bad][0].tolist()
        raise MeshTopologyError(
            f"hexahedra {pair[0]} and {pair[1]} (counted from 0) do not lie in one column along "
            "their third direction, or side by side: triangles of their prisms would not meet; "
            "take mesh.simplices(), or a mesh that is drawn out, such as a box or a cylinder"
        )

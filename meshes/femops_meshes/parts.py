"""Parts of meshes."""

import numpy as np

from femops_meshes.checks import compress_vertices
from femops_meshes.errors import MeshArgumentError
from femops_meshes.mesh import Mesh


def first_elements(mesh: Mesh, count: int) -> Mesh:
    """The first elements of a mesh, as a mesh of their own.

    Vertices keep their order, so that entities keep their own directions: the dofs of a space on
    the part are those that the first elements touch, in the same order.  The part has the exterior
    faces for a boundary, all of attribute 1, and no names.

    Parameters
    ----------
    mesh : Mesh
    count : int
        1 to the number of elements; the mesh itself is returned for all of them.

    Raises
    ------
    MeshArgumentError
        Another count.
    """
    if not 1 <= count <= mesh.num_elements:
        raise MeshArgumentError(
            f"count is {count}: the mesh has {mesh.num_elements} elements, take 1 to all of them"
        )
    if count == mesh.num_elements:
        return mesh
    elements, used = compress_vertices(mesh.elements[:count])
    return Mesh.assemble(
        elements,
        np.ascontiguousarray(mesh.coordinates[:count]),
        len(used),
        mesh.element_attributes[:count].copy(),
    )

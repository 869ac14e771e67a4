"""Boxes with opposite sides glued that list both sides."""

import numpy as np

from femops_meshes import Mesh, box

UPPER = (3.0, 4.0, 5.0)


def glued(dim, wraps, order=1, mapping=None):
    """A box with its opposite sides glued, that lists both, and the same box as it is."""
    counts = (4, 3, 3)[:dim]
    arguments = {"upper": UPPER[:dim], "order": order, "mapping": mapping}
    plain = box(counts, **arguments)
    closed = box(counts, periodic=wraps, **arguments)
    number = np.empty(plain.num_vertices, dtype=np.int64)
    number[plain.elements] = closed.elements
    return (
        Mesh.assemble(
            closed.elements,
            closed.coordinates,
            closed.num_vertices,
            boundary=number[plain.boundary],
            boundary_attributes=plain.boundary_attributes,
        ),
        plain,
    )


def alike(dim):
    """Both sides of a glued face turned alike."""
    mesh, _ = glued(dim, (True, *[False] * (dim - 1)))
    swapped = mesh.boundary.copy()
    mine = mesh.boundary_attributes == 2
    order = {1: [0], 2: [1, 0], 3: [0, 2, 1, 3]}[dim]
    swapped[mine] = swapped[mine][:, order]
    return Mesh.from_arrays(
        None,
        mesh.elements,
        boundary=swapped,
        boundary_attributes=mesh.boundary_attributes,
        coordinates=mesh.coordinates,
    )

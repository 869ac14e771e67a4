"""Which side of a face an entry of the boundary is.

A face inside the mesh, or one where a periodic mesh is glued, has an element on both sides, and the
entry's vertices are those of both. What tells the sides apart is how its corners are turned: an
entry belongs to the element that it looks out of. Looking outwards means: in 3-D the first
direction, the second and the outer normal are right-handed; in 2-D the domain lies at the left hand
of the edge. MFEM gives normals the same sense. In 1-D an entry, a point, is the high end of the
element below it.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from femops_meshes.errors import MeshTopologyError
from femops_meshes.topology.entities import (
    code_digits,
    entity_codes,
    entity_corners,
    quad_orientation,
)

if TYPE_CHECKING:
    from femops_meshes.mesh import Mesh

Ints = NDArray[np.int64]
Codes = NDArray[np.int8]
Flags = NDArray[np.bool_]
_REFLECTED = np.array([code.bit_count() % 2 == 1 for code in range(8)])
"""Whether the orientation of a quadrilateral turns it over."""
_TORN = 1e-10  # of the size of the mesh: how far sides are apart that count as two places
_SHOWN = 5


def outward_order(dim: int, code: int) -> list[int]:
    """Order in which the corners of an element's face, ascending in the element, look out."""
    digits = code_digits(code, dim)
    normal = next(d for d, t in enumerate(digits) if t != 1)
    # x cross z is -y, and the direction of a quad's edge y = 1 is clockwise
    if dim == 1 or (normal == 1) != (digits[normal] == 2):
        return list(range(2 ** (dim - 1)))
    return [1, 0] if dim == 2 else [0, 2, 1, 3]


def outward_corners(elements: Ints, faces: Ints) -> Ints:
    """Corners (n, 2**(dim-1)) of faces (n, 2), elements and codes, so turned that they look out."""
    dim = elements.shape[1].bit_length() - 1
    corners = np.empty((len(faces), 2 ** (dim - 1)), dtype=np.int64)
    for code in entity_codes(dim, dim - 1):
        mine = faces[:, 1] == code
        local = np.array(entity_corners(dim, code))[outward_order(dim, code)]
        corners[mine] = elements[faces[mine, 0]][:, local]
    return corners


def chosen_faces(elements: Ints, boundary: Ints, faces: Ints, face_codes: Codes) -> Ints:
    """Element and code (nb, 2) that each entry of the boundary is a face of.

    Parameters
    ----------
    elements
        Shape (ne, 2**dim): vertex numbers.
    boundary
        Shape (nb, 2**(dim-1)): corners of the entries.
    faces, face_codes
        Shape (nb, 2): elements on both sides of each entry and the face's code in them; -1 outside.
    """
    second = np.zeros(len(boundary), dtype=np.int64)
    two = np.flatnonzero(faces[:, 1] >= 0)
    if len(two):
        out = _looks_out(elements, boundary[two], faces[two], face_codes[two])
        second[two] = out[:, 1] & ~out[:, 0]
    rows = np.arange(len(boundary))
    return np.stack([faces[rows, second], face_codes[rows, second]], axis=1).astype(np.int64)


def _looks_out(elements: Ints, boundary: Ints, faces: Ints, face_codes: Codes) -> Flags:
    """Whether entries look out of the elements on their two sides, (n, 2)."""
    result = np.empty(faces.shape, dtype=np.bool_)
    for side in (0, 1):
        face = np.stack([faces[:, side], face_codes[:, side]], axis=1)
        outward = outward_corners(elements, face)
        if boundary.shape[1] == 1:
            result[:, side] = face[:, 1] == 2  # the high end
        elif boundary.shape[1] == 2:
            result[:, side] = boundary[:, 0] == outward[:, 0]
        else:
            turn = quad_orientation(boundary, outward[:, 0], outward[:, 1])
            result[:, side] = ~_REFLECTED[turn]
    return result


def check_sides(mesh: "Mesh", listed: Flags | None = None) -> None:
    """Check that it is known on which side of a glued face each entry of the boundary is.

    Faces inside a mesh have one place in space only: the corners of an entry choose a side there,
    whichever that is.

    Parameters
    ----------
    mesh
        A whole mesh.
    listed
        Which entries (nb,) to check; all if omitted.

    Raises
    ------
    MeshTopologyError
        With the entries whose corners don't tell: two that are turned alike, points of a 1-D mesh,
        and those on elements that are glued like a Moebius strip.
    """
    bad = _unclear(mesh)
    bad = bad if listed is None else bad[listed[bad]]
    if not len(bad):
        return
    names = ", ".join(map(str, bad[:_SHOWN])) + (", ..." if len(bad) > _SHOWN else "")
    why = (
        "a point has no sides, so leave it out"
        if mesh.dim == 1
        else "list each side once, with its corners so turned that it faces outwards (in 2-D the "
        "domain lies at the left hand of the edge), or leave both out"
    )
    raise MeshTopologyError(
        f"{len(bad)} boundary element(s) are faces where a periodic mesh is glued, and don't tell "
        f"of which side: number(s) {names} (counted from 0; {bad[0]} has vertices "
        f"{mesh.boundary[bad[0]].tolist()}): {why}"
    )


def _unclear(mesh: "Mesh") -> Ints:
    """Entries of the boundary on glued faces of which the side is not known."""
    topology = mesh.topology
    number = topology.entity[topology.boundary_faces[:, 0], topology.boundary_faces[:, 1]]
    two = np.flatnonzero(topology.faces[number, 1] >= 0)
    faces, codes = topology.faces[number[two]], topology.face_codes[number[two]]
    out = _looks_out(mesh.elements, mesh.boundary[two], faces, codes)
    _, place, times = np.unique(
        topology.boundary_faces[two], axis=0, return_inverse=True, return_counts=True
    )
    unclear = (out[:, 0] == out[:, 1]) | (times[place.ravel()] > 1) | (mesh.dim == 1)
    bad, faces = two[unclear], faces[unclear]
    result: Ints = bad[_torn(mesh, bad, faces)]
    return result


def _torn(mesh: "Mesh", entries: Ints, faces: Ints) -> Flags:
    """Whether the entries' corners are at two places in space, seen from their two elements."""
    ends = np.array([0, mesh.order])
    nodes = np.zeros(1, dtype=np.int64)
    for d in range(mesh.dim):
        nodes = (ends[:, None] * (mesh.order + 1) ** d + nodes).ravel()
    sides = []
    for side in (0, 1):
        rows = mesh.elements[faces[:, side]]
        local = (rows[:, None, :] == mesh.boundary[entries][:, :, None]).argmax(axis=2)
        sides.append(mesh.coordinates[faces[:, side, None], nodes[local]])
    lower, upper = mesh.bounding_box()
    gaps = np.abs(sides[0] - sides[1]).max(axis=(1, 2))
    far: Flags = gaps > _TORN * np.abs(upper - lower).max(initial=0.0)
    return far

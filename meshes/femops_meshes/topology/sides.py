"""Side of a face on which a boundary entry lies.

A face inside the mesh, or a glued face of a periodic mesh, has an element on both sides. The
entry's vertices belong to both elements. So the order of its corners must tell the sides apart: an
entry belongs to the element that it looks out of.

In 3-D an entry looks out of an element if its first direction, its second direction and the outer
normal are right-handed. In 2-D it does if the element is to the left of the edge. Normals in MFEM
have the same sense. In 1-D an entry is a point, which belongs to the element below it.
"""

import numpy as np
from numpy.typing import NDArray

from femops_meshes.topology.entities import (
    code_digits,
    entity_codes,
    entity_corners,
    quad_orientation,
)

Ints = NDArray[np.int64]
Codes = NDArray[np.int8]
Flags = NDArray[np.bool_]
_REFLECTED = np.array([code.bit_count() % 2 == 1 for code in range(8)])
"""True for each orientation of a quadrilateral that turns it over."""


def outward_order(dim: int, code: int) -> list[int]:
    """Permutation of a face's ascending corners after which they look out of the element."""
    digits = code_digits(code, dim)
    normal = next(d for d, t in enumerate(digits) if t != 1)
    # x cross z is -y, and the direction of a quad's edge y = 1 is clockwise
    if dim == 1 or (normal == 1) != (digits[normal] == 2):
        return list(range(2 ** (dim - 1)))
    return [1, 0] if dim == 2 else [0, 2, 1, 3]


def outward_corners(elements: Ints, faces: Ints) -> Ints:
    """Corners (n, 2**(dim-1)) of faces, ordered to look outwards.

    ``faces`` (n, 2) has an element and a code in each row.
    """
    dim = elements.shape[1].bit_length() - 1
    corners = np.empty((len(faces), 2 ** (dim - 1)), dtype=np.int64)
    for code in entity_codes(dim, dim - 1):
        mine = faces[:, 1] == code
        local = np.array(entity_corners(dim, code))[outward_order(dim, code)]
        corners[mine] = elements[faces[mine, 0]][:, local]
    return corners


def chosen_faces(elements: Ints, boundary: Ints, faces: Ints, face_codes: Codes) -> Ints:
    """Element and face code (nb, 2) to which each entry of the boundary belongs."""
    second = np.zeros(len(boundary), dtype=np.int64)
    two = np.flatnonzero(faces[:, 1] >= 0)
    if len(two):
        out = looks_out(elements, boundary[two], faces[two], face_codes[two])
        second[two] = out[:, 1] & ~out[:, 0]
    rows = np.arange(len(boundary))
    return np.stack([faces[rows, second], face_codes[rows, second]], axis=1).astype(np.int64)


def looks_out(elements: Ints, boundary: Ints, faces: Ints, face_codes: Codes) -> Flags:
    """True (nb, 2) where an entry looks out of the element on its first, or its second, side.

    Parameters are as in `chosen_faces`.
    """
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

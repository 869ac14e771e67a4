"""Sub-entities of one element: codes, corners, nodes, orientations, and sides of faces.

The codes and orientations are those of `femops_meshes.topology.topology`.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from femops_meshes.errors import MeshTopologyError

Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]
FaceCodes = NDArray[np.int8]

VTK_CORNERS = {1: [0, 1], 2: [0, 1, 3, 2], 3: [0, 1, 3, 2, 4, 5, 7, 6]}
"""Corner in VTK's (and MFEM's) order of each lexicographic corner. Each list is its own inverse."""


@lru_cache
def entity_dimension(dim: int) -> tuple[int, ...]:
    """Dimension (0 vertex, 1 edge, 2 quadrilateral, 3 hex) of each of the 3**dim ternary codes."""
    return tuple(sum(digit == 1 for digit in code_digits(code, dim)) for code in range(3**dim))


def entity_codes(dim: int, kind: int) -> tuple[int, ...]:
    """Ternary codes of the entities of dimension `kind` of an element, ascending."""
    return tuple(code for code, k in enumerate(entity_dimension(dim)) if k == kind)


def code_digits(code: int, dim: int) -> tuple[int, ...]:
    """Ternary digits t_1, ..., t_dim of a code."""
    whole = int(code)  # codes are kept in arrays of small integers, in which sums overflow
    return tuple(whole // 3**d % 3 for d in range(dim))


@lru_cache
def entity_corners(dim: int, code: int) -> tuple[int, ...]:
    """Local corners of the entity with this code, both numbered lexicographically."""
    ranges = [(0, 1) if t == 1 else (t // 2,) for t in reversed(code_digits(code, dim))]
    return tuple(
        sum(bit << (dim - 1 - place) for place, bit in enumerate(bits)) for bits in product(*ranges)
    )


@lru_cache
def entity_lattice(dim: int, code: int, p: int) -> tuple[int, ...]:
    """Lexicographic local nodes, of (p + 1)**dim, interior to the entity with this code."""
    ranges = [range(1, p) if t == 1 else (p * t // 2,) for t in reversed(code_digits(code, dim))]
    powers = [(p + 1) ** (dim - 1 - place) for place in range(dim)]
    return tuple(
        sum(i * power for i, power in zip(index, powers, strict=True)) for index in product(*ranges)
    )


def entity_permutation(orientation: int, n: int, kind: int) -> Ints:
    """Indices in an entity's own order of the nodes that an element sees inside it."""
    if kind not in (1, 2) or not 0 <= orientation < 2 ** (2 * kind - 1) or n < 0:
        raise MeshTopologyError(
            f"no permutation for orientation {orientation} of an entity of dimension {kind} with "
            f"{n} nodes per direction: edges (1) have orientations 0 and 1, faces (2) have 0 to 7"
        )
    along = np.arange(n, dtype=np.int64)
    first = along[::-1] if orientation & 1 else along
    if kind == 1:
        return first.copy()
    second = along[::-1] if orientation & 2 else along
    i, j = first[None, :], second[:, None]
    return (j + n * i if orientation & 4 else i + n * j).ravel()


def quad_orientation(corners: Ints, origin: Ints, toward: Ints) -> Codes:
    """Orientation 0 to 7 of quadrilaterals relative to a base."""
    place = np.argmax(corners == origin[..., None], axis=-1)
    along_first = np.take_along_axis(corners, (place ^ 1)[..., None], axis=-1)[..., 0]
    orientation: Codes = (place + 4 * (along_first != toward)).astype(np.uint8)
    return orientation


def lattice_numbers(
    p: int, entity: Ints, orientation: Codes, offsets: Sequence[int], dim: int
) -> Ints:
    """Global number of each node of a lattice with p + 1 nodes per direction on every element."""
    numbers = np.empty((len(entity), (p + 1) ** dim), dtype=np.int64)
    for code, kind in enumerate(entity_dimension(dim)):
        local = list(entity_lattice(dim, code, p))
        if not local:
            continue
        start = offsets[kind] + entity[:, code] * len(local)
        if kind in (0, dim):
            numbers[:, local] = start[:, None] + np.arange(len(local))
        else:
            table = [entity_permutation(o, p - 1, kind) for o in range(2 ** (2 * kind - 1))]
            numbers[:, local] = start[:, None] + np.array(table)[orientation[:, code]]
    return numbers


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


def chosen_faces(elements: Ints, boundary: Ints, faces: Ints, face_codes: FaceCodes) -> Ints:
    """Element and face code (nb, 2) to which each entry of the boundary belongs."""
    second = np.zeros(len(boundary), dtype=np.int64)
    two = np.flatnonzero(faces[:, 1] >= 0)
    if len(two):
        out = looks_out(elements, boundary[two], faces[two], face_codes[two])
        second[two] = out[:, 1] & ~out[:, 0]
    rows = np.arange(len(boundary))
    return np.stack([faces[rows, second], face_codes[rows, second]], axis=1).astype(np.int64)


def looks_out(elements: Ints, boundary: Ints, faces: Ints, face_codes: FaceCodes) -> Flags:
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

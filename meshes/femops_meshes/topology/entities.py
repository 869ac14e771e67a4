"""Sub-entities of one element: codes, corners, nodes, orientations.

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

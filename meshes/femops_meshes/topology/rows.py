"""Entities of single leaves of trees, as rows of numbers that ranks send each other."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from femops_meshes.topology.entities import entity_codes, entity_dimension
from femops_meshes.topology.topology import Carriers, Topology

Ints = NDArray[np.int64]

_BITS = 3  # of an orientation


def entity_rows(
    topology: Topology, elements: Ints | slice, numbers: Sequence[Ints] | None = None
) -> Ints:
    """Rows (n, 2 * 3**dim + 1) that describe some elements of a locally refined mesh.

    A row has the element's entities, those that carry its dofs, and the flags of those that hang.
    ``numbers`` has the number of each vertex, edge, ... in the whole mesh, if this is a part of it.
    """
    dim, carriers = topology.dim, topology.carriers
    assert carriers is not None
    pairs = (topology.entity, topology.orientation), (carriers.entity, carriers.orientation)
    flags = np.zeros(len(topology.entity), dtype=np.int64)
    element, code, half = carriers.hanging.T
    np.bitwise_or.at(flags, element, 1 << code | half << 3**dim)
    columns = []
    for entity, orientation in pairs:
        found = entity[elements].copy()
        for kind, whole in enumerate(numbers or ()):
            codes = list(entity_codes(dim, kind))
            found[:, codes] = whole[found[:, codes]]
        columns.append(found << _BITS | orientation[elements])
    return np.hstack([*columns, flags[elements, np.newaxis]])


def topology_of_rows(rows: Ints, dim: int, faces: Ints) -> tuple[Topology, list[Ints]]:
    """Topology of elements from their `entity_rows`, with boundary entries at faces (nb, 2).

    Also return the number in the whole mesh of each vertex, edge, ..., ascending.
    """
    count, width = len(rows), 3**dim
    both = rows[:, : 2 * width] >> _BITS
    turns = (rows[:, : 2 * width] & (1 << _BITS) - 1).astype(np.uint8)
    kinds = np.array(entity_dimension(dim) * 2)
    numbers = []
    for kind in range(dim):
        columns = np.flatnonzero(kinds == kind)
        used, places = np.unique(both[:, columns], return_inverse=True)
        both[:, columns] = places.reshape(count, len(columns))
        numbers.append(used)
    both[:, kinds == dim] = np.arange(count)[:, np.newaxis]
    element, code = np.nonzero(rows[:, -1:] >> np.arange(width) & 1)
    order = np.lexsort((code, kinds[code], element))
    element, code = element[order], code[order]
    hanging = np.stack([element, code, rows[element, -1] >> width], axis=1)
    carriers = Carriers(both[:, width:].copy(), turns[:, width:].copy(), hanging)
    entity, orientation = both[:, :width].copy(), turns[:, :width].copy()
    elements = entity[:, entity_codes(dim, 0)]
    counts = (*(len(each) for each in numbers), count)
    none = np.zeros((0, 2 ** (dim - 1)), dtype=np.int64)
    topology = Topology.of_leaves(elements, entity, orientation, counts, none, faces, carriers)
    return topology, numbers

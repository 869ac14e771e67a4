"""Entities of elements that are translations of one another, as those of boxes.

If the vertices of each element are v + s for the same ascending offsets s, an edge or a face of a
direction is known by its smallest vertex. So the entities are counted, and need not be sorted.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from femops_meshes.topology.entities import code_digits, entity_codes, entity_corners

Ints = NDArray[np.int64]


def translated_entities(
    elements: Ints, num_vertices: int, boundary: Ints | None
) -> tuple[Ints, tuple[int, ...], Ints] | None:
    """Numbers of the entities of elements that are translations of one another.

    They are those of `Topology.build`. The orientations of all entities are zero.

    Shapes: `entity` (ne, 3**dim), `entries` (nb,).
    """
    dim = elements.shape[1].bit_length() - 1
    offsets = _offsets(elements)
    if offsets is None or dim == 1:
        return None
    low = elements[:, 0]
    if np.bincount(low, minlength=num_vertices).max() > 1:
        return None
    entity = np.empty((len(elements), 3**dim), dtype=np.int64)
    entity[:, entity_codes(dim, 0)] = elements
    entity[:, entity_codes(dim, dim)] = np.arange(len(elements))[:, np.newaxis]
    counts, number = [num_vertices], np.zeros(0, np.int64)
    for kind in range(1, dim):
        ways = [*combinations(range(dim), kind)]  # directions along the entities
        codes = entity_codes(dim, kind)
        places = {
            code: (elements[:, entity_corners(dim, code)[0]], _way(code, dim, ways))
            for code in codes
        }
        present = np.zeros((num_vertices, len(ways)), dtype=np.bool_)
        for place in places.values():
            present[place] = True
        ranks = np.cumsum(present).reshape(present.shape)
        number = np.where(present, ranks - 1, -1)
        counts.append(int(ranks[-1, -1]))
        for code, place in places.items():
            entity[:, code] = number[place]
    entries = np.zeros(0, np.int64)
    if boundary is not None and len(boundary):
        found = _entries(boundary, number, [*combinations(offsets, dim - 1)])
        if found is None:
            return None
        entries = found
    return entity, (*counts, len(elements)), entries


def _offsets(elements: Ints) -> list[int] | None:
    """Offset of the vertex along each direction, the same in all elements. None if they differ."""
    dim = elements.shape[1].bit_length() - 1
    if not len(elements):
        return None
    first = elements[0] - elements[0, 0]
    offsets = [int(first[1 << d]) for d in range(dim)]
    ascending = all(sum(offsets[:d]) < offsets[d] for d in range(dim))
    sums = [sum(s for d, s in enumerate(offsets) if k >> d & 1) for k in range(1 << dim)]
    if not ascending or first.tolist() != sums:
        return None
    low = elements[:, 0]
    alike = all((elements[:, k] - low == s).all() for k, s in enumerate(sums))
    return offsets if alike else None


def _way(code: int, dim: int, ways: list[tuple[int, ...]]) -> int:
    """Place among ``ways`` of the directions along an entity."""
    return ways.index(tuple(d for d, t in enumerate(code_digits(code, dim)) if t == 1))


def _entries(boundary: Ints, number: Ints, ways: list[tuple[int, ...]]) -> Ints | None:
    """Number (nb,) of the face of each boundary entry. None if one is no face."""
    ordered = np.sort(boundary, axis=1)
    opposite = np.argmin(boundary, axis=1) ^ (boundary.shape[1] - 1)
    twisted = boundary[np.arange(len(boundary)), opposite] != ordered[:, -1]
    if ordered.min() < 0 or ordered.max() >= len(number) or twisted.any():
        return None
    found = np.full(len(boundary), -1, dtype=np.int64)
    for way, offsets in enumerate(ways):
        sums = [
            sum(s for d, s in enumerate(offsets) if k >> d & 1) for k in range(1 << len(offsets))
        ]
        alike = (ordered - ordered[:, :1] == sums).all(axis=1)
        found[alike] = number[ordered[alike, 0], way]
    return None if (found < 0).any() else found

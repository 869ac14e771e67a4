"""Dofs that the parts of a mesh of several shapes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.spaces.restriction import ElementRestriction
from femops_meshes.mixed import shared_entities

Ints = NDArray[np.int64]


def added_up(spaces: Sequence[Any], *, shared: bool) -> tuple[list[ElementRestriction], int]:
    """Restrictions of spaces on the parts of a mesh to common dofs, and their number.

    The dofs of a part that no earlier part has follow each other in their own order. With
    ``shared`` functions are continuous across parts.
    """
    same = shared_dofs(spaces) if shared else [[]] * len(spaces)
    first, numbers, starts = 0, list[Ints](), list[int]()
    for space, with_earlier in zip(spaces, same, strict=True):
        number = np.full(space.ndofs, -1, dtype=np.int64)
        for earlier, own, there in with_earlier:
            number[own] = numbers[earlier][there]
        new = number < 0
        number[new] = first + np.arange(np.count_nonzero(new))
        numbers.append(number)
        starts.append(first)
        first += int(np.count_nonzero(new))
    made = [
        ElementRestriction(number[space.restriction.indices], first, first=start)
        for space, number, start in zip(spaces, numbers, starts, strict=True)
    ]
    return made, first


def shared_dofs(spaces: Sequence[Any]) -> list[list[tuple[int, Ints, Ints]]]:
    """Dofs of continuous functions on each part that earlier parts have.

    For each part a list of an earlier part, dofs (n,) of the part, and the same ones (n,) there.
    Each space has the dofs of its part alone. Parts see an entity in its own order, which depends
    on its vertex numbers.
    """
    meshes = [space.mesh for space in spaces]
    found: list[list[tuple[int, Ints, Ints]]] = [[] for _ in spaces]
    for kind in range(meshes[0].dim):
        for k, rows in enumerate(shared_entities(meshes, kind)):
            widths = {len(c) for d, c in meshes[k].cell.entities if d == kind}
            for j in np.unique(rows[:, 1]).tolist():
                mine, theirs = rows[rows[:, 1] == j][:, [0, 2]].T
                for width in widths:
                    own, some = _in_own_order(spaces[k], kind, width, mine)
                    if not len(some):
                        continue
                    there, _ = _in_own_order(spaces[j], kind, width, theirs[some])
                    found[k].append((j, own.ravel(), there.ravel()))
    return found


def _in_own_order(space: Any, kind: int, width: int, entities: Ints) -> tuple[Ints, Ints]:
    """Dofs (m, inside) of the entities with ``width`` corners, in each entity's own order.

    Also their places (m,) among ``entities`` (n,).
    """
    topology, cell, p = space.mesh.topology, space.mesh.cell, space.order
    codes = [c for c in cell.codes(kind) if len(cell.entities[c][1]) == width]
    place = np.full(topology.num_entities[kind], -1)
    place[entities] = np.arange(len(entities))
    dofs = np.full((len(entities), cell.inside(codes[0], p)), -1, dtype=np.int64)
    known = np.zeros(len(entities), dtype=np.bool_)
    for code in codes:
        at = place[topology.entity[:, code]]
        some = np.flatnonzero(at >= 0)
        turns = cell.turns(code, p)
        orientation = topology.orientation[some, code] if len(turns) > 1 else np.zeros_like(some)
        rows, columns = at[some, np.newaxis], turns[orientation]
        dofs[rows, columns] = space.restriction.indices[some][:, cell.lattice(code, p)]
        known[at[some]] = True
    places = np.flatnonzero(known)
    return dofs[places], places

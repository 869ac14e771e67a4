"""Order of the leaves of trees in MFEM's meshes: along a Hilbert curve in each tree."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_meshes.topology.entities import VTK_CORNERS

Ints = NDArray[np.int64]
_Order = tuple[int, ...]

# Order in which the curve passes the halves of an element (in the order of its corners, as MFEM
# numbers them), and the orders in which it passes the halves of the first, second, ... of these.
_FIRST: dict[int, tuple[_Order, tuple[_Order, ...]]] = {
    1: ((0, 1), ((0, 1),) * 2),
    2: ((0, 1, 2, 3), ((0, 3, 2, 1), (0, 1, 2, 3), (0, 1, 2, 3), (2, 1, 0, 3))),
    3: (
        (0, 1, 2, 3, 7, 6, 5, 4),
        (
            (0, 3, 7, 4, 5, 6, 2, 1),
            (0, 4, 5, 1, 2, 6, 7, 3),
            (0, 4, 5, 1, 2, 6, 7, 3),
            (2, 3, 0, 1, 5, 4, 7, 6),
            (2, 3, 0, 1, 5, 4, 7, 6),
            (7, 3, 2, 6, 5, 1, 0, 4),
            (7, 3, 2, 6, 5, 1, 0, 4),
            (5, 6, 2, 1, 0, 3, 7, 4),
        ),
    ),
}


_OTHERS = {2: ((1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2)), 3: ((1, 0, 3, 2, 6, 7, 4, 5),)}
"""Orders that MFEM gives to roots, and the curve does not lead to from the first."""


def _turned(order: _Order, by: _Order, first: _Order) -> _Order:
    """An order after the turn of the element that makes the order ``by`` of ``first``."""
    turn = dict(zip(first, by, strict=True))
    return tuple(turn[corner] for corner in order)


@lru_cache
def curve_states(dim: int) -> tuple[Ints, Ints]:
    """Place of each half, by its lexicographic number, in each of MFEM's states, and its state.

    Shapes: `places`, `states` (number of states, 2**dim).
    """
    first, below = _FIRST[dim]
    new = [first, *_OTHERS.get(dim, ())]
    known = {*new}
    while new:
        order = new.pop()
        for child in below:
            if (turned := _turned(child, order, first)) not in known:
                known.add(turned)
                new.append(turned)
    # a quadrilateral is passed counterclockwise, then clockwise, from its first, second, ... corner
    ordered = sorted(known, key=lambda o: (o[0], (o[1] - o[0]) % 4) if dim == 2 else o)
    number = {order: state for state, order in enumerate(ordered)}
    places, states = np.empty((2, len(ordered), 2**dim), dtype=np.int64)
    for state, order in enumerate(ordered):
        for place, corner in enumerate(order):
            half = VTK_CORNERS[dim][corner]
            places[state, half] = place
            states[state, half] = number[_turned(below[place], order, first)]
    return places, states


def leaf_order(
    dim: int, root: Ints, level: NDArray[Any], path: Ints, states: Ints | None = None
) -> Ints:
    """Leaves (ne,) in MFEM's order: by roots, and in a tree along the curve.

    ``states`` are MFEM's states of the roots; None for all 0. For the others see `Forest`.
    """
    places, below = curve_states(dim)
    level, key = level.astype(np.int64), np.zeros(len(root), dtype=np.int64)
    state = np.zeros(len(root), dtype=np.int64) if states is None else states[root]
    for step in range(int(level.max(initial=0))):
        deeper = level > step
        half = path[deeper] >> dim * (level[deeper] - step - 1) & 2**dim - 1
        key <<= dim
        key[deeper] |= places[state[deeper], half]
        state[deeper] = below[state[deeper], half]
    return np.lexsort((key, root))

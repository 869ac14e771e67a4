"""Is a connectivity right?  Told from positions in space alone, without any topology."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from support.oracles.naive import Array, mapping, nodes_1d


def node_positions(coordinates: Array, p: int, family: str = "gll") -> Array:
    """Where the nodes of degree p are: (ne, (p + 1)**dim, dim)."""
    return mapping(np.asarray(coordinates), nodes_1d(family, p))[0]


def wrapped(positions: Array, lower: Array, period: Array) -> Array:
    """Positions modulo the period (0: not periodic) in the box that starts at 0."""
    moved = positions - lower
    for d, length in enumerate(period):
        if length > 0:
            moved[..., d] = np.mod(moved[..., d], length)
            moved[..., d][moved[..., d] >= length] = 0.0
    return moved


def faults(positions: Array, indices: Array, period: Array | None = None) -> list[str]:
    """What is wrong with ``indices`` (ne, n), given the positions (ne, n, dim) of the nodes.

    Two nodes of elements share a number if and only if they are at one place (modulo the period),
    and the numbers are 0 ... ndofs - 1, each used.
    """
    dim = positions.shape[2]
    lower = positions.reshape(-1, dim).min(axis=0)
    extent = positions.reshape(-1, dim).max(axis=0) - lower
    box = np.zeros(dim) if period is None else np.asarray(period, float)
    points = wrapped(positions, lower, box).reshape(-1, dim)
    numbers, tolerance = indices.ravel(), 1e-9 * extent.max()
    found = []
    used = np.unique(numbers)
    if not np.array_equal(used, np.arange(len(used))):
        found.append("the numbers have gaps or start elsewhere than at 0")
    first = np.searchsorted(used, numbers)
    place = points[np.unique(numbers, return_index=True)[1]]
    offset = np.abs(points - place[first])
    around = np.where(box > 0, np.minimum(offset, np.abs(box - offset)), offset)
    torn = np.flatnonzero(around.max(axis=1) > tolerance)
    if len(torn):
        found.append(
            f"{len(torn)} nodes share a number with one elsewhere, first {numbers[torn[0]]}"
        )
    twins = cKDTree(place, boxsize=box).query_pairs(tolerance, output_type="ndarray")
    if len(twins):
        found.append(f"{len(twins)} pairs of numbers are at one place, first {used[twins[0]]}")
    return found


def first_touch_faults(indices: Array) -> list[str]:
    """Elements whose new numbers are not the next consecutive ones, counting up from element 0."""
    found, seen = [], -1
    for e, nodes in enumerate(indices):
        new = np.unique(nodes[nodes > seen])
        if not np.array_equal(new, np.arange(seen + 1, seen + 1 + len(new))):
            found.append(f"element {e} brings {new[:5]}..., expected from {seen + 1} on")
        seen = max(seen, int(nodes.max()))
    return found

"""Vectors of spaces whose dofs ranks share: ghosts brought in, and their sums sent back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from femops.spaces.restriction import ElementRestriction, Vector

if TYPE_CHECKING:
    from femops.spaces.base import Space


def with_ghosts(space: Space, u: Any) -> Vector:
    """Values of owned dofs, then of ghosts; see `Space.l_vec`."""
    vector = space.check_vector(u)
    if space.halo is None:
        return vector
    return np.concatenate([vector, space.halo.forward(vector)])


def sum_elements(space: Space, e_vec: Vector, restriction: ElementRestriction) -> Vector:
    """Sums of the elements' entries at owned dofs; see `Space.sum_elements`.

    On a reproducible mesh they are added in the order of the elements of the whole mesh.
    """
    if space.halo is None:
        return restriction.scatter_add(e_vec)
    wide = e_vec.astype(np.float64, copy=False)
    l_vec = restriction.scatter_add(wide)
    vector = l_vec[: space.ndofs].copy()
    if space.distributed is not None and space.distributed.reproducible:
        nodes = restriction.indices.ravel()
        theirs = np.flatnonzero(nodes >= space.ndofs)
        entries = wide.reshape(restriction.indices.size, *wide.shape[2:])[theirs]
        space.halo.reverse_add_each(nodes[theirs] - space.ndofs, entries, vector)
    else:
        space.halo.reverse_add(l_vec[space.ndofs :], vector)
    return np.asarray(vector.astype(e_vec.dtype, copy=False))

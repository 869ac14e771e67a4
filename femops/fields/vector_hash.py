"""Hash of the bits of a vector. It does not depend on the number of ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from femops.parallel.mesh import sum_of_hashes
from femops.spaces.base import Space
from femops.spaces.product import Product

_BLOCK = 2**18  # entries at a time


def vector_hash(space: Space | Product, u: NDArray[np.floating]) -> int:
    """Hash (0 to 2**64 - 1) of the bits and positions of a vector's entries. Collective.

    Shapes: `u` (size,).
    """
    spaces = [space] if isinstance(space, Space) else list(space.spaces.values())
    total = own = whole = 0  # own, whole: first entry of a space's part in u, in the global vector
    for one in spaces:
        first = whole + one.first_dof * one.ncomp
        bits = u[own : own + one.size].view(f"i{u.itemsize}")
        for k in range(0, one.size, _BLOCK):
            part = bits[k : k + _BLOCK, np.newaxis].astype(np.int64)
            numbers = first + k + np.arange(len(part), dtype=np.int64)[:, np.newaxis]
            total += sum_of_hashes(numbers, part)
        own, whole = own + one.size, whole + one.global_size
    return int(space.comm.sum(np.array([total % 2**64], dtype=np.uint64))[0])

"""Orders along a space-filling curve: neighbours in the order are neighbours in space."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_meshes.errors import MeshArgumentError

Ints = NDArray[np.int64]
_BITS = {1: 52, 2: 26, 3: 20}


def hilbert_index(cells: ArrayLike, bits: int) -> Ints:
    """Positions of cells along the Hilbert curve of a grid with 2**bits cells per direction.

    Notes
    -----
    J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004), 381.
    """
    axes = np.array(cells, dtype=np.int64).T.copy()
    dim = len(axes)
    bit = 1 << (bits - 1)
    while bit > 1:
        below = bit - 1
        for d in range(dim):
            high = (axes[d] & bit) != 0
            swap = np.where(high, 0, (axes[0] ^ axes[d]) & below)
            axes[0] ^= np.where(high, below, swap)
            if d:
                axes[d] ^= swap
        bit >>= 1
    for d in range(1, dim):
        axes[d] ^= axes[d - 1]
    carry = np.zeros_like(axes[0])
    bit = 1 << (bits - 1)
    while bit > 1:
        carry ^= np.where((axes[dim - 1] & bit) != 0, bit - 1, 0)
        bit >>= 1
    axes ^= carry
    index = np.zeros_like(axes[0])
    for level in range(bits - 1, -1, -1):
        for d in range(dim):
            index = (index << 1) | ((axes[d] >> level) & 1)
    result: Ints = index
    return result


def hilbert_order(centers: ArrayLike) -> Ints:
    """Order of points along a Hilbert curve through their bounding cube."""
    points = np.asarray(centers, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] not in _BITS or not np.isfinite(points).all():
        raise MeshArgumentError(
            f"centers must be finite, of shape (n, 1), (n, 2) or (n, 3); got shape {points.shape}"
        )
    if len(points) == 0:
        return np.zeros(0, dtype=np.int64)
    bits = _BITS[points.shape[1]]
    lower = points.min(axis=0)
    extent = (points.max(axis=0) - lower).max() or 1.0
    cells = np.minimum(((points - lower) / extent * 2**bits).astype(np.int64), 2**bits - 1)
    return np.argsort(hilbert_index(cells, bits), kind="stable").astype(np.int64, copy=False)


def hilbert_cells(counts: Sequence[int], start: int = 0, stop: int | None = None) -> Ints:
    """Cells of a grid in their order along a Hilbert curve, or a piece of that order.

    The function splits the curve's cubes level by level, and keeps only cubes with cells of the
    piece. So time and memory are proportional to the piece, not to the grid.
    """
    dim = len(counts)
    last = math.prod(counts) if stop is None else stop
    cubes, before = np.zeros((1, dim), dtype=np.int64), 0
    if start >= last:
        return cubes[:0]
    octants = np.indices((2,) * dim, dtype=np.int64).reshape(dim, -1).T
    levels = max(1, (max(counts) - 1).bit_length())
    for level in range(1, levels + 1):
        side = 2 ** (levels - level)
        children = (2 * cubes[:, None, :] + octants).reshape(-1, dim)
        held = np.clip(np.array(counts) - children * side, 0, side).prod(axis=1)
        some = np.flatnonzero(held)
        # the last digit of a place along the curve is that among the siblings
        digit = hilbert_index(children[some], level) % 2**dim
        some = some[np.argsort(some - some % 2**dim + digit, kind="stable")]
        held = held[some]
        ends = before + np.cumsum(held)
        kept = (ends > start) & (ends - held < last)
        first = int(np.argmax(kept))
        before = int(ends[first] - held[first])
        cubes = children[some[kept]]
    return cubes

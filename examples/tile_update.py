"""Tensor tiles updated in place: a contraction with ranges of indices, for a batch of tiles.

The update is A(i, j, m: 1..8, n: 1..7) -= A(i, k, m, 0) A(k, j, 0, n), of the slides on tensors:
ranges of indices take the place of copies.
"""

import numpy as np

from femops.tensor import Batch, Index


def update(tiles):
    """Apply it to all tiles of a batch."""
    i, j, k = (Index(name) for name in "ijk")
    m, n = Index("m", 1, 9), Index("n", 1, 8)
    tiles[i, j, m, n] -= tiles[i, k, m, 0] * tiles[k, j, 0, n]


def main():
    """Compare with NumPy."""
    array = np.random.default_rng(0).standard_normal((2, 64, 64, 9, 8))
    tiles = Batch.wrap(array.copy())
    update(tiles)
    array[..., 1:, 1:] -= np.einsum(
        "zikm,zkjn->zijmn", array[..., 1:, 0], array[:, :, :, 0, 1:], optimize=True
    )
    error = np.abs(tiles.numpy() - array).max()
    print(f"{tiles!r}: largest difference from NumPy {error:.1e}")
    assert error < 1e-12


if __name__ == "__main__":
    main()

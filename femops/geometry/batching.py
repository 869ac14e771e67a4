"""Blocks of elements for work with NumPy, so that no array exceeds a few megabytes."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_POINTS = 32768
"""Quadrature points per block. Their 3-D Jacobians take 2.4 MB, which fits into an L2 cache."""


def element_blocks(ne: int, points_per_element: int) -> Iterator[tuple[int, int]]:
    """Yield ranges (start, stop) of elements with about `BLOCK_POINTS` points each at most."""
    step = max(1, BLOCK_POINTS // max(1, points_per_element))
    for start in range(0, ne, step):
        yield start, min(start + step, ne)

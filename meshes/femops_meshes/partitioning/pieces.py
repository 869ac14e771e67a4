"""Contiguous pieces of an order, one per rank, as equal as possible."""

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import NDArray

from femops_meshes.checks import whole
from femops_meshes.errors import MeshArgumentError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def checked_rank(rank: int, size: int) -> tuple[int, int]:
    """Return rank and size after a check that there is such a rank.

    Raises
    ------
    MeshArgumentError
        If `size` is no whole number >= 1, or `rank` none from 0 to size - 1.
    """
    part, parts = whole(rank, "rank", 0), whole(size, "size")
    if part >= parts:
        raise MeshArgumentError(f"rank is {rank}, but there are {size} parts: 0 to {size - 1}")
    return part, parts


def checked_piece(start: int, stop: int, count: int) -> tuple[int, int]:
    """Return start and stop if they are those of a piece, which may be empty, of `count` things.

    Raises
    ------
    MeshArgumentError
        If they are no whole numbers, or don't ascend from 0 to `count`.
    """
    first, behind = whole(start, "start of the piece", 0), whole(stop, "stop of the piece", 0)
    if not first <= behind <= count:
        raise MeshArgumentError(
            f"the piece is from {first} to {behind}: start and stop ascend from 0 to {count}"
        )
    return first, behind


def equal_piece(count: int, size: int, rank: int) -> tuple[int, int]:
    """Start and stop of one of `size` pieces of `count` things.

    Lengths differ by one at most; longer pieces come first, so empty ones are the last.
    """
    length, more = divmod(count, size)
    start = rank * length + min(rank, more)
    return start, start + length + (rank < more)


def equal_pieces(count: int, size: int) -> Ints:
    """Cuts (size + 1,) of all pieces that `equal_piece` names."""
    length, more = divmod(count, size)
    ranks = np.arange(size + 1, dtype=np.int64)
    return ranks * length + np.minimum(ranks, more)


def weighted_pieces(weights: Floats, size: int) -> Ints:
    """Cuts between things of different weight that make the heaviest piece as light as can be.

    Among such cuts, one after the other, it takes the one whose piece has most nearly an equal
    share of what is left. No piece is empty unless there are fewer things than pieces.

    Parameters
    ----------
    weights
        Shape (n,), positive and finite.
    size
        Number of pieces.

    Returns
    -------
    cuts
        Shape (size + 1,), ascending from 0 to n: piece k is from cuts[k] to the one before
        cuts[k + 1].
    """
    count = len(weights)
    if count <= size:
        return np.minimum(np.arange(size + 1, dtype=np.int64), count)
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    total = float(sums[-1])
    limit = _least_limit(sums, size, float(weights.max()))
    loose = limit + 4 * np.finfo(np.float64).eps * total  # sums are rounded
    latest = _latest(sums, size, loose)
    earliest = [count]
    for piece in range(size - 1, 0, -1):
        earliest.append(max(bisect_left(sums, sums[earliest[-1]] - limit), piece))
    cuts = [0]
    for piece in range(1, size):
        low = max(earliest[size - piece], cuts[-1] + 1)
        high = min(latest[piece], _reach(sums, cuts[-1], loose))
        done = float(sums[cuts[-1]])
        wanted = _nearest(sums, done + (total - done) / (size - piece + 1))
        cuts.append(min(max(wanted, low), high))
    return np.array([*cuts, count], dtype=np.int64)


def _reach(sums: Floats, start: int, limit: float) -> int:
    """End of a piece that begins at `start` and weighs no more than the limit, or is one thing."""
    return max(start + 1, bisect_right(sums, sums[start] + limit) - 1)


def _nearest(sums: Floats, weight: float) -> int:
    place = bisect_left(sums, weight)
    return place - 1 if weight - sums[place - 1] < sums[place] - weight else place


def _latest(sums: Floats, size: int, limit: float) -> list[int]:
    """The latest cuts of pieces up to the limit; the last is before the end if it is too low."""
    count = len(sums) - 1
    cuts = [0]
    for piece in range(1, size + 1):
        # a thing at least is left for each of the pieces that follow
        cuts.append(min(_reach(sums, cuts[-1], limit), count - (size - piece)))
    return cuts


def _least_limit(sums: Floats, size: int, heaviest: float) -> float:
    """The least weight that no piece needs to exceed, to 12 digits."""
    count = len(sums) - 1
    low = max(float(sums[-1]) / size, heaviest)
    high = low + heaviest
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if _latest(sums, size, middle)[-1] == count:
            high = middle
        else:
            low = middle
    return high

"""Contiguous pieces of an order, one per rank, as equal as possible."""

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import NDArray

from femops_meshes.checks import whole
from femops_meshes.errors import MeshArgumentError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def checked_rank(rank: int, size: int) -> tuple[int, int]:
    """Check a rank and the number of ranks, and return both as int."""
    part, parts = whole(rank, "rank", 0), whole(size, "size")
    if part >= parts:
        raise MeshArgumentError(f"rank is {rank}, but there are {size} parts: 0 to {size - 1}")
    return part, parts


def checked_piece(start: int, stop: int, count: int) -> tuple[int, int]:
    """Check start and stop of a piece of `count` things, and return both as int."""
    first, behind = whole(start, "start of the piece", 0), whole(stop, "stop of the piece", 0)
    if not first <= behind <= count:
        raise MeshArgumentError(
            f"the piece is from {first} to {behind}: start and stop ascend from 0 to {count}"
        )
    return first, behind


def equal_piece(count: int, size: int, rank: int) -> tuple[int, int]:
    """Start and stop of one of `size` pieces of `count` things.

    Lengths differ by one at most. Longer pieces come first, so empty pieces are the last.
    """
    length, more = divmod(count, size)
    start = rank * length + min(rank, more)
    return start, start + length + (rank < more)


def equal_pieces(count: int, size: int) -> Ints:
    """Start of each piece of `equal_piece`, then `count`: shape (size + 1,)."""
    length, more = divmod(count, size)
    ranks = np.arange(size + 1, dtype=np.int64)
    return ranks * length + np.minimum(ranks, more)


def weighted_pieces(weights: Floats, size: int) -> Ints:
    """Cut things of different weight into pieces, the heaviest of which is as light as possible.

    If several cuts do that, each piece in turn gets a weight nearest to an equal share of the
    remaining weight. No piece is empty unless there are fewer things than pieces.
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
    """End of the longest piece from `start` that weighs at most `limit`, or has one thing."""
    return max(start + 1, bisect_right(sums, sums[start] + limit) - 1)


def _nearest(sums: Floats, weight: float) -> int:
    place = bisect_left(sums, weight)
    return place - 1 if weight - sums[place - 1] < sums[place] - weight else place


def _latest(sums: Floats, size: int, limit: float) -> list[int]:
    """Latest cuts of pieces that weigh at most `limit`. The last cut is the end if all fits."""
    count = len(sums) - 1
    cuts = [0]
    for piece in range(1, size + 1):
        # leave at least one thing for each following piece
        cuts.append(min(_reach(sums, cuts[-1], limit), count - (size - piece)))
    return cuts


def _least_limit(sums: Floats, size: int, heaviest: float) -> float:
    """Least possible weight of the heaviest piece, to 12 digits."""
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

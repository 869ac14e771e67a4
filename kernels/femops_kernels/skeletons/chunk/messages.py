"""Values for other ranks, and values from other ranks.

Arguments are addresses: of int64 arrays, and of arrays of the vectors' type.
"""

# <defaults>
from femops_kernels.simd.compiling import function
from femops_kernels.simd.lanes import get, prefetch, put, word
from femops_kernels.skeletons.chunk.defaults import LANE, REAL_BYTES, SIGNED

# </defaults>

AHEAD = 32  # entries from the entry that is worked on to the entry that is prefetched


@function
def pack(x, positions, count, out):
    """Copy the entries of x at ``positions`` to ``out``, with zeros for negative positions."""
    for k in range(count):
        prefetch(x, word(positions, min(k + AHEAD, count - 1)) * REAL_BYTES, 1)
        at = word(positions, k)
        put(LANE, out, k, 0.0 if at < 0 else get(LANE, x, at))


@function
def add(values, positions, count, y):
    """Add values to entries of y, one after the other, except where a position is negative."""
    for k in range(count):
        prefetch(y, word(positions, min(k + AHEAD, count - 1)) * REAL_BYTES, 1)
        at = word(positions, k)
        if at >= 0:
            put(LANE, y, at, get(LANE, y, at) + get(LANE, values, k))


@function
def collect(buffer, starts, slots, count, ncomp, out, beta: float):
    """Set each ghost to the sum of a sweep's contributions to it, plus beta times its value."""
    for g in range(count):
        soon = word(starts, min(g + AHEAD, count))
        if soon < word(starts, count):
            slot = word(slots, soon)
            if SIGNED:
                slot = max(slot, -1 - slot)
            prefetch(buffer, slot * ncomp * REAL_BYTES, 1)
        for c in range(ncomp):
            s = 0.0 if beta == 0.0 else beta * get(LANE, out, g * ncomp + c)
            for k in range(word(starts, g), word(starts, g + 1)):
                slot = word(slots, k)
                if SIGNED and slot < 0:
                    s -= get(LANE, buffer, (-1 - slot) * ncomp + c)
                else:
                    s += get(LANE, buffer, slot * ncomp + c)
            put(LANE, out, g * ncomp + c, s)

"""The limits of a machine: bandwidth with memory and caches, and fused multiply-adds."""

# <defaults>
from femops_kernels.simd.compiling import function, inner, shared
from femops_kernels.simd.lanes import fill, fma, get, load, prefetch, put, store
from femops_kernels.skeletons.chunk.defaults import LANE, LANE_BYTES

# </defaults>

ALL_PASSES = True  # LLVM turns loops over numbers into vectors
AHEAD = 1024  # bytes by which prefetches are ahead of loads: 5 to 15 % over the hardware's alone


@inner
def mixed_block(low, high, target, reads, writes):
    """Read ``reads`` lanes at each of two places, write ``writes`` of their sum."""
    a0, a1, a2, a3 = fill(LANE, 0.0), fill(LANE, 0.0), fill(LANE, 0.0), fill(LANE, 0.0)
    b0, b1, b2, b3 = fill(LANE, 0.0), fill(LANE, 0.0), fill(LANE, 0.0), fill(LANE, 0.0)
    # eight sums, or each would wait for the addition before it
    for i in range(0, reads, 4):
        for line in range(i * LANE_BYTES, (i + 4) * LANE_BYTES, 64):
            prefetch(low, line + AHEAD, 1)
            prefetch(high, line + AHEAD, 1)
        a0, a1 = a0 + load(LANE, low, i), a1 + load(LANE, low, i + 1)
        a2, a3 = a2 + load(LANE, low, i + 2), a3 + load(LANE, low, i + 3)
        b0, b1 = b0 + load(LANE, high, i), b1 + load(LANE, high, i + 1)
        b2, b3 = b2 + load(LANE, high, i + 2), b3 + load(LANE, high, i + 3)
    total = a0 + a1 + a2 + a3 + b0 + b1 + b2 + b3
    for i in range(writes):
        store(LANE, target, i, total)


@shared
def triad_blocks(k, thread, a, b, c, factor):
    """A block of 8192 float64."""
    for i in range(k * 8192, (k + 1) * 8192):
        put(LANE, a, i, get(LANE, b, i) + factor * get(LANE, c, i))


@function
def triad(team, a, b, c, factor: float, blocks):
    """STREAM triad, a = b + factor c, over blocks of 8192 float64."""
    triad_blocks(team, blocks, a, b, c, factor)


@shared
def mixed_blocks(w, thread, source, target, reads, writes, blocks, passes, workers):
    """Read and write one worker's share."""
    for _ in range(passes):
        for k in range(w * blocks, (w + 1) * blocks):
            low = source + k * reads * LANE_BYTES
            high = low + workers * blocks * reads * LANE_BYTES
            mixed_block(low, high, target + k * writes * LANE_BYTES, reads, writes)


@function
def mixed(team, source, target, reads, writes, blocks, passes, workers):
    """Read and write in a given proportion, each worker its own ``blocks`` again and again.

    In each block ``2 reads`` lanes are read, half of them from each half of the source (``reads``
    is a multiple of four), and ``writes`` written.
    """
    mixed_blocks(team, workers, source, target, reads, writes, blocks, passes, workers)


@shared
def chains(w, thread, out, rounds):
    """Sixteen independent chains of fused multiply-adds."""
    x = fill(LANE, 0.999999)
    y = fill(LANE, 1e-6)
    # different beginnings, or the compiler would see that one chain is enough
    a0, a1, a2, a3 = fill(LANE, 1.0), fill(LANE, 1.1), fill(LANE, 1.2), fill(LANE, 1.3)
    a4, a5, a6, a7 = fill(LANE, 1.4), fill(LANE, 1.5), fill(LANE, 1.6), fill(LANE, 1.7)
    b0, b1, b2, b3 = fill(LANE, 2.0), fill(LANE, 2.1), fill(LANE, 2.2), fill(LANE, 2.3)
    b4, b5, b6, b7 = fill(LANE, 2.4), fill(LANE, 2.5), fill(LANE, 2.6), fill(LANE, 2.7)
    for _ in range(rounds):
        a0, a1, a2, a3 = fma(a0, x, y), fma(a1, x, y), fma(a2, x, y), fma(a3, x, y)
        a4, a5, a6, a7 = fma(a4, x, y), fma(a5, x, y), fma(a6, x, y), fma(a7, x, y)
        b0, b1, b2, b3 = fma(b0, x, y), fma(b1, x, y), fma(b2, x, y), fma(b3, x, y)
        b4, b5, b6, b7 = fma(b4, x, y), fma(b5, x, y), fma(b6, x, y), fma(b7, x, y)
    total = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + b0 + b1 + b2 + b3 + b4 + b5 + b6 + b7
    store(LANE, out, w, total)


@function
def multiply_adds(team, out, rounds, workers):
    """Sixteen independent chains of ``rounds`` fused multiply-adds on each worker."""
    chains(team, workers, out, rounds)

"""The two limits of a machine: bandwidth with memory, and fused multiply-adds."""

# <defaults>
from numba import njit, prange

from femops_kernels.lanes import fill, fma, get, put, store
from femops_kernels.skeletons.defaults import LANE
from femops_kernels.skeletons.driver import LOOPS

# </defaults>


@njit("void(intp, intp, intp, float64, intp)", cache=True, nogil=True, parallel=LOOPS)
def triad(a, b, c, factor, blocks):
    """STREAM triad, a = b + factor c, over blocks of 8192 float64."""
    for k in prange(blocks):
        for i in range(k * 8192, (k + 1) * 8192):
            put(LANE, a, i, get(LANE, b, i) + factor * get(LANE, c, i))


@njit("void(intp, intp, intp, intp)", cache=True, nogil=True, parallel=LOOPS)
def multiply_adds(out, lane_bytes, rounds, workers):
    """Sixteen independent chains of ``rounds`` fused multiply-adds on each worker."""
    for w in prange(workers):
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

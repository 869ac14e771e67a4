"""Driver: run the terms of an operator over all their chunks, on one thread or on numba's.

Kernels come as addresses, so this is compiled once for all of them.
"""

# <defaults>
from numba import get_thread_id, njit, prange

from femops_kernels.lines import call_chunk

PARALLEL = False
# </defaults>

# Only prange, and never fused: the second loop over chunks must not begin before the first is done.
LOOPS = {"prange": True, "fusion": False} if PARALLEL else False


@njit(
    "void(int64[:, ::1], float64[::1], intp, intp, intp, intp)",
    cache=True,
    nogil=True,
    parallel=LOOPS,
)
def apply(rows, alphas, x, y, work, work_bytes):
    """Set y = sum_i alpha_i A_i x; each thread has its own work space, ``work_bytes`` apart."""
    for t in range(len(alphas)):
        sweep, combine, table, chunks = rows[t, 0], rows[t, 1], rows[t, 2], rows[t, 3]
        alpha, beta = alphas[t], 0.0 if t == 0 else 1.0
        for c in prange(chunks):
            thread = get_thread_id() if PARALLEL else 0
            call_chunk(sweep, table, x, y, c, work + thread * work_bytes, alpha, beta)
        for c in prange(chunks):
            call_chunk(combine, table, x, y, c, work, alpha, beta)

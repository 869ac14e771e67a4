"""Driver: run the terms of an operator over all their chunks, on one thread or on numba's.

Kernels come as addresses, so this is compiled once for all of them.
"""

# <defaults>
from numba import get_thread_id, njit, prange

from femops_kernels.lanes import Lane, get, word
from femops_kernels.lines import call_chunk

PARALLEL = False
# </defaults>

# Only prange, and never fused: the second loop over chunks must not begin before the first is done.
LOOPS = {"prange": True, "fusion": False} if PARALLEL else False


FLOAT64 = Lane(2, "float64")  # how factors are read


@njit("void(intp, intp, intp, intp, intp, intp, intp)", cache=True, nogil=True, parallel=LOOPS)
def apply(rows, alphas, count, x, y, work, work_bytes):
    """Set y = sum_i alpha_i A_i x for ``count`` terms.

    ``rows`` and ``alphas`` are the addresses of the arrays of `femops_kernels.sweep.Terms`; each
    thread has its own work space, ``work_bytes`` apart.
    """
    for t in range(count):
        sweep, combine, table = word(rows, 4 * t), word(rows, 4 * t + 1), word(rows, 4 * t + 2)
        chunks = word(rows, 4 * t + 3)
        alpha, beta = get(FLOAT64, alphas, t), 0.0 if t == 0 else 1.0
        for c in prange(chunks):
            thread = get_thread_id() if PARALLEL else 0
            call_chunk(sweep, table, x, y, c, work + thread * work_bytes, alpha, beta)
        for c in prange(chunks):
            call_chunk(combine, table, x, y, c, work, alpha, beta)

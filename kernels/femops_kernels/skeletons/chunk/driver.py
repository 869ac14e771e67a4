"""Driver: run the terms of an operator over all their chunks, on one thread or on numba's.

Kernels come as addresses, so this is compiled once for all of them.
"""

# <defaults>
from numba import get_thread_id, njit, prange

from femops_kernels.simd.lanes import Lane, get, word
from femops_kernels.simd.lines import call_chunk

PARALLEL = False
# </defaults>

# Only prange, and never fused: the second loop over chunks must not begin before the first is done.
LOOPS = {"prange": True, "fusion": False} if PARALLEL else False


FLOAT64 = Lane(2, "float64")  # how factors are read
ROW_BYTES = 7 * 8


@njit("void(intp, intp, intp, intp, intp, intp, intp)", cache=True, nogil=True, parallel=LOOPS)
def apply(rows, alphas, count, x, y, work, work_bytes):
    """Set y = sum_i alpha_i A_i x for ``count`` terms.

    ``rows`` and ``alphas`` are the addresses of the arrays of `femops_kernels.cpu.sweep.Terms`;
    they say where in x and y each term begins, and whether it is added to what stands there; each
    thread has its own work space, ``work_bytes`` apart.
    """
    for t in range(count):
        row = rows + t * ROW_BYTES
        sweep, combine, table, chunks = word(row, 0), word(row, 1), word(row, 2), word(row, 3)
        source, target = x + word(row, 4), y + word(row, 5)
        alpha, beta = get(FLOAT64, alphas, t), 0.0 if word(row, 6) == 0 else 1.0
        for c in prange(chunks):
            thread = get_thread_id() if PARALLEL else 0
            call_chunk(sweep, table, source, target, c, work + thread * work_bytes, alpha, beta)
        for c in prange(chunks):
            call_chunk(combine, table, source, target, c, work, alpha, beta)


@njit(
    "void(intp, float64, intp, intp, intp, intp, intp, intp, intp)",
    cache=True,
    nogil=True,
    parallel=LOOPS,
)
def some(row, alpha, x, y, work, work_bytes, order, begin, end):
    """One term on the chunks ``order[begin:end]``, not yet combined; see ``apply``."""
    sweep, table = word(row, 0), word(row, 2)
    source, target = x + word(row, 4), y + word(row, 5)
    beta = 0.0 if word(row, 6) == 0 else 1.0
    for k in prange(begin, end):
        thread = get_thread_id() if PARALLEL else 0
        c = word(order, k)
        call_chunk(sweep, table, source, target, c, work + thread * work_bytes, alpha, beta)


@njit("void(intp, float64, intp, intp, intp)", cache=True, nogil=True, parallel=LOOPS)
def combined(row, alpha, x, y, work):
    """Finish one term when all its chunks are done; see ``apply``."""
    combine, table, chunks = word(row, 1), word(row, 2), word(row, 3)
    source, target = x + word(row, 4), y + word(row, 5)
    beta = 0.0 if word(row, 6) == 0 else 1.0
    for c in prange(chunks):
        call_chunk(combine, table, source, target, c, work, alpha, beta)

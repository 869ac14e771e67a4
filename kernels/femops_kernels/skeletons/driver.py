"""Drivers: run a chunk kernel over all chunks, on one thread or on many.

Kernels come as addresses, so these few functions are compiled once for all of them.  ``spin`` holds for each thread
its own work space, ``work_bytes`` apart.
"""

# <defaults>
from numba import get_thread_id, njit, prange

from femops_kernels.lines import call_chunk
# </defaults>

SERIAL = "void(intp, intp, intp, intp, intp, intp, intp, intp, float64, float64)"


@njit(SERIAL, cache=True, nogil=True)
def apply_serial(sweep, combine, table, x, y, chunks, work, work_bytes, alpha, beta):
    """y = alpha A x + beta y on the calling thread."""
    for c in range(chunks):
        call_chunk(sweep, table, x, y, c, work, alpha, beta)
    for c in range(chunks):
        call_chunk(combine, table, x, y, c, work, alpha, beta)


@njit(SERIAL, cache=True, nogil=True, parallel=True)
def apply_parallel(sweep, combine, table, x, y, chunks, work, work_bytes, alpha, beta):
    """y = alpha A x + beta y on numba's threads; the same bits as on one."""
    for c in prange(chunks):
        call_chunk(sweep, table, x, y, c, work + get_thread_id() * work_bytes, alpha, beta)
    for c in prange(chunks):
        call_chunk(combine, table, x, y, c, work, alpha, beta)

"""Driver: run the terms of an operator over all their chunks, shared by a team of threads.

Kernels come as addresses, so this is compiled once for all of them.  A team is an address too, see
`femops_kernels.simd.threads`; 0 is the calling thread alone.
"""

# <defaults>
from numba import njit

from femops_kernels.simd.lanes import Lane, get, word
from femops_kernels.simd.lines import call_chunk
from femops_kernels.simd.threads import shared

# </defaults>

FLOAT64 = Lane(2, "float64")  # how factors are read
ROW_BYTES = 7 * 8


@shared
def sweep_chunks(c, thread, row, source, target, work, work_bytes, alpha, beta):
    """Each chunk of a term by itself; every thread has its own work space."""
    own = work + thread * work_bytes
    call_chunk(word(row, 0), word(row, 2), source, target, c, own, alpha, beta)


@shared
def sweep_ordered(k, thread, row, source, target, work, work_bytes, order, alpha, beta):
    """The chunks that a list names."""
    own = work + thread * work_bytes
    call_chunk(word(row, 0), word(row, 2), source, target, word(order, k), own, alpha, beta)


@shared
def combine_chunks(c, thread, row, source, target, work, alpha, beta):
    """Add what chunks have left for each other in the buffer."""
    call_chunk(word(row, 1), word(row, 2), source, target, c, work, alpha, beta)


@njit("void(intp, intp, intp, intp, intp, intp, intp, intp)", cache=True, nogil=True)
def apply(rows, alphas, count, x, y, work, work_bytes, team):
    """Set y = sum_i alpha_i A_i x for ``count`` terms.

    ``rows`` and ``alphas`` are the addresses of the arrays of `femops_kernels.cpu.sweep.LaunchSum`;
    they say where in x and y each term begins, and whether it is added to what stands there; each
    thread has its own work space, ``work_bytes`` apart.
    """
    for t in range(count):
        row = rows + t * ROW_BYTES
        chunks, source, target = word(row, 3), x + word(row, 4), y + word(row, 5)
        alpha, beta = get(FLOAT64, alphas, t), 0.0 if word(row, 6) == 0 else 1.0
        sweep_chunks(team, chunks, row, source, target, work, work_bytes, alpha, beta)
        combine_chunks(team, chunks, row, source, target, work, alpha, beta)


@njit("void(intp, float64, intp, intp, intp, intp, intp, intp, intp)", cache=True, nogil=True)
def some(row, alpha, x, y, work, work_bytes, team, order, count):
    """One term on ``count`` chunks of a list, not yet combined; see ``apply``."""
    source, target = x + word(row, 4), y + word(row, 5)
    beta = 0.0 if word(row, 6) == 0 else 1.0
    sweep_ordered(team, count, row, source, target, work, work_bytes, order, alpha, beta)


@njit("void(intp, float64, intp, intp, intp, intp)", cache=True, nogil=True)
def combined(row, alpha, x, y, work, team):
    """Add up the buffer of one term when all its chunks are done; see ``apply``."""
    source, target = x + word(row, 4), y + word(row, 5)
    beta = 0.0 if word(row, 6) == 0 else 1.0
    combine_chunks(team, word(row, 3), row, source, target, work, alpha, beta)

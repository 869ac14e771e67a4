"""Loops over the chunks of terms, shared by a team of threads.

Terms whose chunks own the same dofs go through the chunks together: their rows follow each other,
and the first row has their number. All act on each chunk in turn while its dofs are in a cache.

Kernels come as addresses, so this is compiled once for all of them.  A team is an address too, see
`femops_kernels.simd.threads`; 0 is the calling thread alone.
"""

# <defaults>
from femops_kernels.simd.compiling import inner, shared
from femops_kernels.simd.lanes import Lane, get, word
from femops_kernels.simd.lines import call_chunk

# </defaults>

FLOAT64 = Lane(2, "float64")  # how factors are read
ROW_BYTES, FACTOR_BYTES, TOGETHER = 8 * 8, 8, 7


@inner
def place_of(row, alphas, k, x, y):
    """Return the addresses of a term's parts of x and y, its factor, and its beta."""
    beta = 0.0 if word(row, 6) == 0 else 1.0
    return x + word(row, 4), y + word(row, 5), get(FLOAT64, alphas, k), beta


@inner
def sweep_terms(c, thread, row, alphas, x, y, work, work_bytes):
    """Apply terms to chunk c, one after the other. Every thread has its own work space."""
    for k in range(word(row, TOGETHER)):
        own = row + k * ROW_BYTES
        source, target, alpha, beta = place_of(own, alphas, k, x, y)
        mine = work + thread * work_bytes
        call_chunk(word(own, 0), word(own, 2), source, target, c, mine, alpha, beta)


@shared
def sweep_chunks(c, thread, row, alphas, x, y, work, work_bytes):
    """Apply terms to each chunk."""
    sweep_terms(c, thread, row, alphas, x, y, work, work_bytes)


@shared
def sweep_ordered(k, thread, row, alphas, x, y, work, work_bytes, order):
    """Apply terms to the chunks in the list ``order``."""
    sweep_terms(word(order, k), thread, row, alphas, x, y, work, work_bytes)


@shared
def combine_chunks(c, thread, row, source, target, work, alpha, beta):
    """Add the contributions to other chunks' dofs, which the chunks have left in the buffer."""
    call_chunk(word(row, 1), word(row, 2), source, target, c, work, alpha, beta)


@inner
def combine_terms(team, row, alphas, x, y, work):
    """Add up the buffers of terms, one after the other."""
    for k in range(word(row, TOGETHER)):
        own = row + k * ROW_BYTES
        source, target, alpha, beta = place_of(own, alphas, k, x, y)
        combine_chunks(team, word(own, 3), own, source, target, work, alpha, beta)
